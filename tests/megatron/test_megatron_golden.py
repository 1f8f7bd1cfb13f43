"""Every golden vector of Megatron-Core 0.16.1: files, indexes, samples, items, blends."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref.megatron import (
    MegatronCollator,
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
    blend_samples,
    merge_corpora,
)
from nanoset_ref.megatron.nanoset_config import SPLITS, parse_split

HERE = Path(__file__).parent.parent / "golden" / "megatron"
INDEX = {
    case["id"]: case
    for case in json.loads((HERE / "gpt_index.json").read_text())["cases"]
}
ITEMS = {
    case["id"]: case
    for case in json.loads((HERE / "gpt_items.json").read_text())["cases"]
}
BLENDS = {
    case["id"]: case for case in json.loads((HERE / "blend.json").read_text())["cases"]
}
CORPORA = json.loads((HERE / "corpora.json").read_text())["corpora"]
FLAGS = {
    *("add_extra_token_to_sequence", "drop_last_partial_validation_sequence"),
    *("reset_position_ids", "reset_attention_mask", "eod_mask_loss"),
}
PAD = 3


def sha256(*arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sha256_of_files(prefix):
    return {
        f"{suffix}_sha256": hashlib.sha256(
            Path(f"{prefix}.{suffix}").read_bytes()
        ).hexdigest()
        for suffix in ("bin", "idx")
    }


def config_of(case, **options):
    """The NanosetConfig that says what a golden case says."""
    fields = {name: case[name] for name in case.keys() & FLAGS}
    if case.get("blend_per_split"):
        fields["data_path_per_split"] = [
            blend and data_path(*blend) for blend in case["blend_per_split"]
        ]
    else:
        fields["data_path"] = data_path(
            case.get("corpora") or [case["corpus"]], case.get("weights")
        )
    fields |= {
        "split": case["split"],
        "split_num_samples": case["sizes"],
        "sequence_length": case["sequence_length"],
    }
    return NanosetConfig(random_seed=case["seed"], pad_id=PAD, **fields, **options)


def data_path(names, weights):
    prefixes = [str(HERE / "corpora" / name) for name in names]
    return prefixes if weights is None else dict(zip(prefixes, weights, strict=True))


# ---- files


@pytest.mark.parametrize("name", CORPORA)
def test_corpora_are_read(name):
    expected = CORPORA[name]
    corpus = MMapIndexedDataset(HERE / "corpora" / name)
    assert corpus.dtype.name == expected["dtype"]
    counts = [expected[f"num_{what}"] for what in ("sequences", "documents", "tokens")]
    assert [len(corpus), corpus.num_documents, corpus.num_tokens] == counts
    assert corpus.sequence_lengths.tolist() == expected["sequence_lengths"]
    assert corpus.sequence_pointers.tolist() == expected["sequence_pointers"]
    assert corpus.document_indices.tolist() == expected["document_indices"]
    assert corpus[0][:32].tolist() == expected["sequence_0"]
    last = expected["get_last_offset"]
    assert corpus.get(last["idx"], last["offset"])[:64].tolist() == last["tokens"]


@pytest.mark.parametrize(
    "name", [name for name in CORPORA if "documents" in CORPORA[name]]
)
def test_corpora_are_written_byte_for_byte(tmp_path, name):
    case, start = CORPORA[name], 0
    with MMapIndexedDatasetBuilder(
        tmp_path / "c.bin", np.dtype(case["dtype"])
    ) as builder:
        for lengths in case["documents"]:
            size = sum(lengths)
            ids = (
                np.arange(start, start + size, dtype=np.int64) * 2654435761
                + case["salt"]
            ) % case["vocab_size"]
            ids[-1] = case["vocab_size"] - 1 if case["eod_at_document_end"] else ids[-1]
            start += size
            builder.add_document(ids, lengths)
    assert sha256_of_files(tmp_path / "c").items() <= case.items()


@pytest.mark.parametrize(
    "name", [name for name in CORPORA if "merged_from" in CORPORA[name]]
)
def test_merging_is_byte_for_byte(tmp_path, name):
    merge_corpora(
        [HERE / "corpora" / part for part in CORPORA[name]["merged_from"]],
        tmp_path / "m",
    )
    assert sha256_of_files(tmp_path / "m").items() <= CORPORA[name].items()


# ---- indexes and samples of one corpus


@pytest.mark.parametrize("case_id", INDEX)
def test_indexes_and_all_samples(case_id):
    case = INDEX[case_id]
    arrays = np.load(HERE / "gpt_index.npz")
    expected_splits = {entry["split"]: entry for entry in case["splits"]}
    assert [bounds and list(bounds) for bounds in parse_split(case["split"])] == case[
        "split_matrix"
    ]
    for split, dataset in zip(
        SPLITS,
        NanosetBuilder(config_of(case)).build(),
        strict=True,
    ):
        if dataset is None:
            assert split not in expected_splits
            continue
        check_dataset(dataset, expected_splits[split])
        for name in ("document_index", "sample_index", "shuffle_index"):
            expected = arrays[f"{case_id}/{split}/{name}"]
            found = getattr(dataset, name)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        first = (
            arrays[f"{case_id}/{split}/text_first"]
            if len(dataset)
            else np.empty((0, dataset.row_length))
        )
        np.testing.assert_array_equal(dataset.read(np.arange(len(first))), first)


def check_dataset(dataset, expected):
    assert len(dataset) == expected["len"]
    if expected["indices_begin"] is not None:
        assert [dataset.first, dataset.stop] == [
            expected["indices_begin"],
            expected["indices_end"],
        ]
    assert dataset.tokens_per_epoch == expected["tokens_per_epoch"]
    assert dataset.epochs.num_epochs == expected["num_epochs"]
    assert expected.get("separate_final_epoch") in (
        None,
        dataset.epochs.separate_final_epoch,
    )
    assert (
        sha256(dataset.read(np.arange(len(dataset))).astype(np.int64))
        == expected["all_text_sha256"]
    )
    bounds = [dataset.sample_index[j : j + 2, 0] for j in dataset.shuffle_index]
    sequences = [
        dataset.document_index[first : last + 1].astype(np.int64)
        for first, last in bounds
    ]
    assert sha256(*sequences) == expected["all_document_ids_sha256"]


# ---- what the training loop receives


@pytest.mark.parametrize("case_id", ITEMS)
def test_items(case_id):
    case = ITEMS[case_id]
    arrays = np.load(HERE / "gpt_items.npz")
    config = config_of(
        case,
        eos_token_id=CORPORA[case["corpus"]]["vocab_size"] - 1,
        create_attention_mask=True,
    )
    dataset = NanosetBuilder(config).build()[SPLITS.index(case["split_name"])]
    assert len(dataset) == case["len"]
    batch = MegatronCollator(config)(dataset.__getitems__(case["indices"]))
    for field, dtype in case["dtypes"].items():
        assert str(batch[field].dtype) == dtype
        for row, index in enumerate(case["indices"]):
            np.testing.assert_array_equal(
                batch[field][row].numpy(), arrays[f"{case_id}/{index}/{field}"]
            )


# ---- blends


@pytest.mark.parametrize(
    "case_id",
    [name for name, case in BLENDS.items() if "blending_indices" in case["kind"]],
)
def test_blending_helpers(case_id):
    case = BLENDS[case_id]
    arrays = np.load(HERE / "blend.npz")
    if "sizes" in case:
        limits, size = np.array(case["sizes"]), sum(case["sizes"])
        shares = limits / size
    else:
        shares, size = (
            np.array([float.fromhex(text) for text in case["weights_hex"]]),
            case["size"],
        )
        limits = np.full(len(shares), size)
    found = blend_samples(shares, limits, size)
    for name, array in zip(
        ("dataset_index", "dataset_sample_index"), found, strict=True
    ):
        expected = arrays[f"{case_id}/{name}"]
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    "case_id", [name for name, case in BLENDS.items() if "splits" in case]
)
def test_blended_splits(case_id):
    case = BLENDS[case_id]
    arrays = np.load(HERE / "blend.npz")
    config = config_of(case)
    for dataset, expected in zip(
        NanosetBuilder(config).build(), case["splits"], strict=True
    ):
        if expected is None:
            assert dataset is None
        elif expected["type"] == "GPTDataset":
            check_dataset(dataset, expected)
        else:
            found = (len(dataset), dataset.size, dataset.shares)
            assert found == (expected["len"], expected["size"], expected["weights"])
            for name in ("dataset_index", "dataset_sample_index"):
                np.testing.assert_array_equal(
                    getattr(dataset, name),
                    arrays[f"{case_id}/{expected['split']}/{name}"],
                )
            for part, wanted in zip(
                dataset.datasets, expected["mid_level"], strict=True
            ):
                built = (len(part), part.num_samples, part.epochs.num_epochs)
                assert built == (
                    wanted["len"],
                    wanted["num_samples"],
                    wanted["num_epochs"],
                )
                for name in ("document_index", "sample_index", "shuffle_index"):
                    assert sha256(getattr(part, name)) == wanted[f"{name}_sha256"]
            batch = MegatronCollator(config)(dataset.__getitems__(range(len(dataset))))
            pairs = [
                array.numpy()
                for k in range(len(dataset))
                for array in (batch["tokens"][k], batch["labels"][k])
            ]
            assert sha256(*pairs) == expected["all_tokens_labels_sha256"]


@pytest.mark.parametrize(
    "case_id",
    [name for name, case in BLENDS.items() if case.get("error") or case.get("hangs")],
)
def test_where_upstream_fails_or_hangs_there_is_an_error_that_helps(case_id):
    helps = {
        "w01": "give split_num_samples for .'valid', 'test'",
        "w02": "beta_u16 has 0 samples",
        "w03": "beta_u16 has 0 samples",
        "w09": "gamma_i32 is sequences 121:121 of 121",
    }
    with pytest.raises(ValueError, match=helps[case_id]):
        NanosetBuilder(config_of(BLENDS[case_id])).build()
