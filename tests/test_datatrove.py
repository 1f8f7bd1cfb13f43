"""Reading folders of .ds files, as datatrove and today's Nanotron do."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch

from nanoset_ref import plain
from nanoset_ref.cli.estimate_sources import token_blend
from nanoset_ref.load import DataCollatorForCLMWithPositionIds, DatatroveNanoset
from nanoset_ref.load.collator import DataCollatorForCLM, TensorPointer
from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.document_masks import (
    DocumentOptions,
    position_ids,
    starts_after_eos,
)
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.load.rows import SampleBlock
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import build_order
from nanoset_ref.orders.folders import FolderOrder
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.provenance import RunSegment, audit, compare
from nanoset_ref.tokens import (
    DatatroveFile,
    TokenFileError,
    datatrove_files,
    open_tokens,
)


def write_ds(path, ids, ends, dtype=np.uint16):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.asarray(ids, dtype=dtype).tofile(path)
    np.asarray(ends, dtype=np.uint64).tofile(f"{path}.index")
    path.with_name(path.name + ".metadata").write_text(
        f"tok|{np.dtype(dtype).itemsize}\n{len(ids)}\n{len(ids)} T"
    )
    return path


def sha256(arrays, dtype=np.int64):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=dtype))
    return digest.hexdigest()


def test_golden_reads_of_datatrove(golden):
    """Files in the same order, and of each file the same samples and positions."""
    arrays = np.load(golden / "datatrove/datatrove.npz")
    reads = json.loads((golden / "datatrove/datatrove.json").read_text())["reads"]
    assert len(reads) == 14
    for read in reads:
        options, length = read["args"], read["seq_len"]
        positions, eos = (
            options.pop("return_positions", False),
            options.pop("positions_from_eos_token_id", None),
        )
        files = datatrove_files(golden / "datatrove" / read["folder"], **options)
        assert [file.path.name for file in files] == read["file_order"]
        lengths = [file.num_samples(length) for file in files]
        assert lengths == read["file_lens"] and sum(lengths) == read["len"]
        nanoset = Nanoset(files, None, length, read["len"])
        turns = [
            nanoset.order.positions(d, s)[0]
            for d, count in enumerate(lengths)
            for s in range(count)
        ]
        rows = nanoset.read(np.array(turns))
        np.testing.assert_array_equal(rows, arrays[f"{read['id']}/input_ids"])
        if positions:
            starts = (
                nanoset.starts(np.array(turns))
                if eos is None
                else starts_after_eos(rows, eos)
            )
            np.testing.assert_array_equal(
                position_ids(starts), arrays[f"{read['id']}/positions"]
            )


def golden_cases(golden):
    cases = json.loads((golden / "datatrove/nanotron_nanoset.json").read_text())[
        "cases"
    ]
    assert len(cases) == 2
    arrays = np.load(golden / "datatrove/nanotron_nanoset.npz")
    for case in cases:
        dataset = DatatroveNanoset(
            [golden / "datatrove" / folder for folder in case["folders"]],
            case["weights"],
            case["sequence_length"],
            case["train_split_num_samples"],
            case["random_seed"],
            eos_token_id=case["eos_token_id"],
        )
        yield case, dataset, arrays


def test_golden_samples_of_nanotron(golden):
    for case, dataset, arrays in golden_cases(golden):
        order = dataset.order.folder_order
        assert order.dataset_lengths.tolist() == case["dataset_lengths"]
        assert len(dataset) == case["len"]
        datasets, samples = order[np.arange(len(dataset))]
        np.testing.assert_array_equal(datasets, arrays[f"{case['id']}/dataset_index"])
        np.testing.assert_array_equal(
            samples, arrays[f"{case['id']}/dataset_sample_index"]
        )
        rows, starts = (
            dataset.read(np.arange(len(dataset))),
            dataset.starts(np.arange(len(dataset))),
        )
        for found, name in ((rows, "samples"), (position_ids(starts), "positions")):
            assert sha256(found) == case[f"all_{name}_sha256"]


def test_no_starts_are_computed_for_batches_without_document_masks(golden, monkeypatch):
    _, dataset, _ = next(golden_cases(golden))
    collator = DataCollatorForCLMWithPositionIds(
        dataset.sequence_length, 0, 0, 0, use_doc_masking=False
    )
    monkeypatch.setattr(DatatroveNanoset, "_starts", None)
    batches = build_nanoset_dataloader(dataset, micro_batch_size=2, collate_fn=collator)
    positions = next(iter(batches))["position_ids"]
    assert positions.tolist() == [list(range(dataset.sequence_length))] * 2


def test_golden_batches_of_nanotron(golden):
    for case, dataset, _ in golden_cases(golden):
        assert len(case["loaders"]) == 4
        for loader in case["loaders"]:
            dp_size = loader["dp_size"]
            consumed = (
                loader["consumed_train_samples"] // dp_size * dp_size
            )  # upstream rounds down
            sampler = ResumableBatchSampler(
                len(dataset),
                loader["micro_batch_size"],
                loader["dp_rank"],
                dp_size,
                consumed,
            )
            collator = DataCollatorForCLMWithPositionIds(
                *(case["sequence_length"], 0, 0, 0),
                use_doc_masking=loader["use_doc_masking"],
                cp_size=loader["context_parallel_size"],
                cp_rank=loader["context_parallel_rank"],
            )
            batches = list(
                NanosetDataLoader(dataset, sampler, dataset.plan, collate_fn=collator)
            )
            assert len(batches) == loader["num_batches"]
            for key, expected in loader["sha256"].items():
                values = [batch[key].numpy() for batch in batches]
                assert str(values[0].dtype) == loader["dtypes"][key]
                assert list(values[0].shape) == loader["shapes"][key]
                assert sha256(values, values[0].dtype) == expected


@pytest.mark.parametrize(
    ("windows", "begins"),
    [("disjoint", range(0, 20, 5)), ("overlapping", range(0, 16, 4))],
)
def test_windows_disjoint_or_overlapping(tmp_path, windows, begins):
    path = write_ds(tmp_path / "a.ds", range(20), [7, 20])
    dataset = DatatroveNanoset(tmp_path, None, 4, 4, windows=windows)
    rows, starts = dataset.read(np.arange(4)), dataset.starts(np.arange(4))
    assert sorted(rows.tolist()) == [[*range(begin, begin + 5)] for begin in begins]
    assert (starts == ((rows == 7) | (np.arange(5) == 0))).all()
    ended = DatatroveNanoset(
        tmp_path, None, 4, 4, eos_token_id=8, windows=windows
    ).starts(np.arange(4))
    assert (ended == ((rows == 9) | (np.arange(5) == 0))).all()
    assert DatatroveFile(path).document_offsets.tolist() == [0, 7, 20]


def test_boundaries_of_a_file_without_an_index_cannot_be_read(tmp_path):
    np.arange(40, dtype="<u2").tofile(tmp_path / "b.ds")
    file = open_tokens(tmp_path / "b.ds", eos_token_id=5)
    with pytest.raises(
        TokenFileError, match=r"no document boundaries; .*copy its \.index"
    ):
        file.require_document_offsets()


def test_all_tokens_of_a_file_without_samples_belong_to_none(tmp_path):
    for name, count in (("a.ds", 3), ("b.ds", 30)):
        np.arange(count, dtype="<u2").tofile(tmp_path / name)
    files = [
        DatatroveFile(tmp_path / name, windows="overlapping")
        for name in ("a.ds", "b.ds")
    ]
    dataset = Nanoset(files, None, 8)
    assert [use.tail_tokens for use in dataset.usage(0, len(dataset))] == [3, 5]
    blend = token_blend([("both", files)], [None], 8, "nanotron")
    assert [source.tail_tokens for source in blend.sources] == [8]


def test_a_mapping_of_folders_to_weights_is_read_with_its_weights(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        np.arange(400, dtype="<u2").tofile(folder / "0.ds")
        np.array([400], "<u8").tofile(folder / "0.ds.index")
    expected = DatatroveNanoset(folders, [0.9, 0.1], 3, 100)
    assert expected.order.counts().tolist() == [90, 10]
    mapping = {str(folders[0]): 0.9, str(folders[1]): 0.1}
    for dataset in (
        DatatroveNanoset(mapping, None, 3, 100),
        DatatroveNanoset.from_config(mapping, 3, 100),
    ):
        assert dataset.order.counts().tolist() == [90, 10]
        assert dataset.plan == expected.plan
    with pytest.raises(ValueError, match="the mapping has weights"):
        DatatroveNanoset(mapping, [0.9, 0.1], 3, 100)


def test_a_state_names_the_id_at_which_masks_end_documents(tmp_path):
    write_ds(tmp_path / "a.ds", range(40), [7, 20, 40])

    def loader(eos_token_id, **options):
        dataset = DatatroveNanoset(tmp_path, None, 4, 8, eos_token_id=eos_token_id)
        return build_nanoset_dataloader(dataset, micro_batch_size=2, **options)

    masked = {"documents": DocumentOptions(eod_mask_loss=True)}
    state = json.loads(json.dumps(loader(8, **masked).state_dict()))
    loader(8, **masked).load_state_dict(state)
    for other in (9, None):
        with pytest.raises(PlanMismatch, match="documents_end_with: saved 8, now "):
            loader(other, **masked).load_state_dict(state)
    by_id = {"documents": DocumentOptions(eos_token_id=8, eod_mask_loss=True)}
    loader(9, **by_id).load_state_dict(state)  # the same masks
    # without masks, nothing of a row depends on them
    loader(9).load_state_dict(loader(8).state_dict())


def test_a_state_over_folders_cannot_be_compared_and_says_why(tmp_path):
    write_ds(tmp_path / "a.ds", range(40), [7, 20, 40])
    dataset = DatatroveNanoset(tmp_path, None, 4, 8)
    state = {"consumed_train_samples": 4, "plan": dataset.plan}
    with pytest.raises(ValueError, match="cannot be built.* that of a DatatroveNan"):
        compare(state, dataset)


def test_ids_of_four_bytes_and_files_too_short_for_a_sample(tmp_path):
    write_ds(tmp_path / "x/0.ds", [70000, 70001, 70002], [3], np.uint32)
    write_ds(tmp_path / "x/1.ds", [1], [1], np.uint32)
    write_ds(tmp_path / "x/2.ds", [70003, 70004], [2], np.uint32)
    dataset = DatatroveNanoset(
        str(tmp_path / "x"), None, 1, 6
    )  # one path is one folder
    assert (
        sorted(dataset[k]["input_ids"].tolist() for k in range(6))
        == [[70000, 70001]] * 3 + [[70003, 70004]] * 3
    )


def test_an_order_over_folders_is_an_order_over_their_files():
    inner = build_order("nanotron", [7, 0, 5], None, 40, 3)
    folders = FolderOrder(inner, [[3, 0, 4], [0], [1, 4]])
    files, samples = folders[np.arange(40)]
    for k in range(40):
        folder, sample = inner[k]
        expected = plain.pair_of([0, 7, 7][folder] + sample, [3, 0, 4, 0, 1, 4])
        assert folders[k] == (files[k], samples[k]) == expected
        assert k in folders.positions(*folders[k])
    assert folders.counts().tolist() == np.bincount(files, minlength=6).tolist()
    assert folders.counts(9).tolist() == np.bincount(files[:9], minlength=6).tolist()
    assert folders.dataset_weights.sum() == pytest.approx(1)
    assert folders.fingerprint != FolderOrder(inner, [[7], [0], [5]]).fingerprint


def test_without_options_a_collator_adds_the_fields_of_nanotron():
    assert DataCollatorForCLMWithPositionIds(
        4, 0, 0, 0, None
    ) == DataCollatorForCLMWithPositionIds(4, 0, 0, 0)


def test_ranks_without_data_get_pointers():
    batch = DataCollatorForCLMWithPositionIds(4, 0, 2, 1)([{}, {}])
    assert batch["position_ids"] == TensorPointer(0) and batch[
        "label_mask"
    ] == TensorPointer(2)
    rows = SampleBlock(
        np.arange(5)[None], lambda: np.array([[True, False, True, False, False]])
    )
    batch = DataCollatorForCLMWithPositionIds(4, 0, 2, 2)(rows)
    assert batch["input_ids"] == TensorPointer(0)
    assert batch["label_ids"].tolist() == [[1, 2, 3, 4]] and batch[
        "label_mask"
    ].tolist() == [[True, False, True, True]]
    halves = [
        DataCollatorForCLMWithPositionIds(4, 0, 2, 2, cp_size=2, cp_rank=rank)(rows)
        for rank in range(2)
    ]
    assert [half["label_ids"].tolist() for half in halves] == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cp_size": 0}, "cp_size must be at least 1, got 0"),
        ({"cp_size": 2.0}, "cp_size must be an integer of at least 1, got 2.0"),
        ({"cp_rank": 0.0}, "cp_rank must be an integer of at least 0, got 0.0"),
        ({"cp_size": 11}, "cp_size must lie in 1 .. sequence_length = 10, .* got 11"),
        (
            {"cp_size": 5, "cp_rank": 5},
            "cp_rank must lie in 0 .. cp_size - 1 = 4, got 5",
        ),
        (
            {"cp_size": 2, "documents": DocumentOptions(reset_attention_mask=True)},
            "attention_mask cannot be cut for cp_size=2 ranks",
        ),
        (
            {"cp_size": 2, "documents": DocumentOptions(create_cu_seqlens=True)},
            "cu_seqlens cannot be cut for cp_size=2 ranks",
        ),
    ],
)
def test_a_context_parallel_rank_that_is_none_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForCLMWithPositionIds(10, 0, 0, 0, **options)


@pytest.mark.parametrize(
    "option", ["reset_attention_mask", "create_cu_seqlens", "eod_mask_loss"]
)
def test_without_context_parallelism_other_fields_about_documents_are_whole(option):
    documents = DocumentOptions(reset_position_ids=True, **{option: True})
    starts = np.array([[True, False, True, False, False]] * 2)
    rows = SampleBlock(np.arange(10).reshape(2, 5), lambda: starts)
    batch = DataCollatorForCLMWithPositionIds(4, 0, 0, 0, documents)(rows)
    expected = DataCollatorForCLM(4, 0, 0, 0, documents)(rows)
    del expected["input_mask"]
    assert batch.keys() == expected.keys()
    for name, field in expected.items():
        if torch.is_tensor(field):
            assert torch.equal(batch[name], field), name


@pytest.mark.parametrize(("cp_size", "lost"), [(4, 2), (5, 0)])
def test_columns_that_reach_no_context_parallel_rank_as_in_nanotron_are_warned_of(
    caplog, cp_size, lost
):
    rows = SampleBlock(
        np.arange(11, dtype=np.int32)[None], lambda: np.eye(1, 11, dtype=bool)
    )
    ranks = [
        DataCollatorForCLMWithPositionIds(10, 0, 0, 0, cp_size=cp_size, cp_rank=rank)
        for rank in range(cp_size)
    ]
    columns = np.concatenate([rank(rows)["input_ids"][0] for rank in ranks]).tolist()
    assert columns == list(range(10 - lost))
    assert (f"the last {lost} columns of every row reach no rank" in caplog.text) == (
        lost > 0
    )


def test_broken_folders_are_named(golden, tmp_path):
    with pytest.raises(FileNotFoundError, match="has no file"):
        datatrove_files(tmp_path)
    shutil.copytree(golden / "datatrove/plain", tmp_path / "plain")
    path = tmp_path / "plain/00000_unshuffled.ds"
    with pytest.raises(TokenFileError, match=r"got '2' \(token_size=4"):
        DatatroveFile(path, token_size=4)
    path.with_name(path.name + ".metadata").unlink()
    with pytest.raises(TokenFileError, match="bytes per id, 2 or 4>; got '3'"):
        DatatroveFile(path, token_size=3)


def test_files_below_a_folder_are_found_but_a_nanoset_has_none_of_them(tmp_path):
    for name in ("a.ds", "below/b.ds"):
        write_ds(tmp_path / name, range(10), [10])
    every, own = (
        datatrove_files(tmp_path),
        DatatroveNanoset([tmp_path], None, 4, 2).files,
    )
    assert [[file.path.name for file in files] for files in (every, own)] == [
        ["a.ds", "b.ds"],
        ["a.ds"],
    ]


@pytest.mark.parametrize("has_boundaries", [True, False])
def test_positions_begin_again_at_the_id_that_the_options_name(
    tmp_path, has_boundaries
):
    """In a loader as in a list of samples, whatever boundaries the file has."""
    ids = np.arange(45) % 11
    if has_boundaries:
        write_ds(tmp_path / "a.ds", ids, [9, 20, 45])
        file = DatatroveFile(tmp_path / "a.ds")
    else:
        ids.astype("<u2").tofile(tmp_path / "a.npy")
        file = tmp_path / "a.npy"
    rows = Nanoset(file, None, 8, 4, order="identity")
    documents = DocumentOptions(
        eos_token_id=7, reset_position_ids=True, eod_mask_loss=True
    )
    collator = DataCollatorForCLMWithPositionIds(8, 0, 0, 0, documents)
    plain_collator = DataCollatorForCLM(8, 0, 0, 0, documents)
    [batch] = build_nanoset_dataloader(rows, micro_batch_size=4, collate_fn=collator)
    samples = [{"input_ids": row} for row in rows.read(np.arange(4))]
    for other in (collator(samples), plain_collator(samples)):
        assert torch.equal(batch["position_ids"], other["position_ids"])
        assert torch.equal(batch["label_mask"], other["label_mask"])


def test_an_audit_of_weighted_folders_expects_no_shares_of_their_files(tmp_path):
    """Nanotron reads the first samples of a folder, so mostly its first file."""
    for folder, count in (("fa", 2), ("fb", 1)):
        for number in range(count):
            write_ds(tmp_path / folder / f"{number}.ds", range(401), [401])
    folders = [tmp_path / "fa", tmp_path / "fb"]
    rows = DatatroveNanoset(folders, [0.2, 0.8], 4, 200)
    report = audit([RunSegment("run", rows, Schedule(micro_batch_size=4), 50)])
    assert report.ok


@pytest.mark.parametrize("windows", ["overlaping", "padded", None])
def test_other_windows_of_a_ds_file_are_refused(tmp_path, windows):
    np.arange(41, dtype=np.uint16).tofile(tmp_path / "a.ds")
    with pytest.raises(ValueError, match=f"'overlapping', got {windows!r}"):
        DatatroveFile(tmp_path / "a.ds", windows)
