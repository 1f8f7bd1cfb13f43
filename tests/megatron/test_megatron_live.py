"""Random corpora and configurations, built by the installed megatron-core and by us, compared whole."""

import importlib
import logging
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from nanoset_ref.megatron import (
    MegatronCollator,
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
    merge_corpora,
    preprocess_corpus,
)
from nanoset_ref.megatron.index.three_indexes import build_mappings, plan_epochs
from nanoset_ref.provenance.megatron_cards import ramped_batches

FLAGS = (
    *("add_extra_token_to_sequence", "drop_last_partial_validation_sequence"),
    *("reset_position_ids", "reset_attention_mask", "eod_mask_loss"),
)
pytestmark = pytest.mark.only_on("linux", below=(3, 14))  # as the extra
VOCABULARY = 50  # EOD is its last id
PAD = 3


@pytest.fixture(scope="module")
def core():
    """The data modules of megatron-core, and its batches; torch keeps to one thread, as its tensors are tiny."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # it misses Transformer Engine and uses what torch has deprecated
        logging.getLogger("megatron.core").setLevel(logging.ERROR)
        names = (
            "gpt_dataset",
            "indexed_dataset",
            "blended_dataset",
            "blended_megatron_dataset_builder",
            "helpers",
        )
        modules = {
            name: importlib.import_module(f"megatron.core.datasets.{name}")
            for name in names
        }
        batches = "num_microbatches_calculator"
        modules[batches] = importlib.import_module(f"megatron.core.{batches}")
    yield SimpleNamespace(**modules)
    torch.set_num_threads(threads)


class Tokenizer:
    """All that upstream asks of a tokenizer."""

    vocab_size, eod, eos, pad = VOCABULARY, VOCABULARY - 1, VOCABULARY - 1, PAD
    unique_identifiers = "tests"


# ---- what is compared


@st.composite
def corpora(draw):
    """A dtype and documents, each a list of sequence lengths."""
    length = st.one_of(st.integers(0, 6), st.integers(1, 60))
    documents = draw(
        st.lists(st.lists(length, min_size=1, max_size=3), min_size=1, max_size=12)
    )
    documents[-1].append(draw(st.integers(1, 9)))  # an empty corpus is another test
    return draw(st.sampled_from(["uint8", "uint16", "int32", "int64"])), documents


@st.composite
def plans(draw):
    """The corpora and the fields of a NanosetConfig; a data_path is given by numbers of corpora."""
    number = draw(st.sampled_from([1, 1, 2, 3]))
    plan = {"corpora": draw(st.lists(corpora(), min_size=number, max_size=number))}
    weights = st.lists(
        st.sampled_from([0.1, 0.3, 0.5, 1.0, 3, 7.0, 30]),
        min_size=number,
        max_size=number,
    )
    weighted = draw(st.booleans())
    data_path = (list(range(number)), draw(weights) if weighted else None)
    if draw(st.integers(0, 4)) == 0:
        plan["per_split"] = [
            draw(st.sampled_from([data_path, ([0], None), None])) for _ in range(2)
        ] + [data_path]
    else:
        plan["data_path"] = data_path
        splits = "100,0,0 90,8,2 60,20,20 949,50,1 1,1 0,1,0 .5,.25,.25".split()
        plan["split"] = draw(st.sampled_from(splits))
    counts = st.integers(0, 80) if weighted else st.none() | st.integers(0, 80)
    plan["fields"] = {
        "random_seed": draw(st.integers(0, 2**32 - 1)),
        "sequence_length": draw(st.integers(1, 40)),
        "split_num_samples": tuple(draw(st.tuples(counts, counts, counts))),
        "mid_level_dataset_surplus": draw(st.sampled_from([0.005, 0.0, 0.5])),
    }
    plan["fields"] |= {name: draw(st.booleans()) for name in FLAGS}
    return plan


def write(core, folder, number, dtype, documents):
    """Write a corpus with upstream's builder; returns the prefix."""
    rng = np.random.RandomState(number)
    prefix = str(folder / f"corpus{number}")
    writer = core.indexed_dataset.IndexedDatasetBuilder(
        f"{prefix}.bin", np.dtype(dtype).type
    )
    for lengths in documents:
        writer.add_document(rng.randint(0, VOCABULARY, sum(lengths)), lengths)
    writer.finalize(f"{prefix}.idx")
    return prefix


def theirs(core, plan, prefixes):
    fields = dict(plan["fields"])
    sizes = fields.pop("split_num_samples")
    if "per_split" in plan:
        blends = [
            entry and ([prefixes[i] for i in entry[0]], entry[1])
            for entry in plan["per_split"]
        ]
        fields["blend_per_split"] = blends
    else:
        indexes, weights = plan["data_path"]
        fields.update(
            blend=([prefixes[i] for i in indexes], weights), split=plan["split"]
        )
    config = core.gpt_dataset.GPTDatasetConfig(tokenizer=Tokenizer(), **fields)
    builder = core.blended_megatron_dataset_builder.BlendedMegatronDatasetBuilder
    return list(
        builder(core.gpt_dataset.GPTDataset, list(sizes), lambda: True, config).build()
    )


def config_of(plan, prefixes):
    def path(entry):
        names = [prefixes[i] for i in entry[0]]
        if entry[1] is not None:
            return dict(zip(names, entry[1], strict=True))
        return names[0] if len(names) == 1 else names

    fields = dict(
        plan["fields"],
        eos_token_id=Tokenizer.eod,
        pad_id=PAD,
        create_attention_mask=True,
    )
    if "per_split" in plan:
        fields["data_path_per_split"] = [
            entry and path(entry) for entry in plan["per_split"]
        ]
    else:
        fields.update(data_path=path(plan["data_path"]), split=plan["split"])
    return NanosetConfig(**fields)


def asks_for_tokens_where_none_are(config):
    """Whether a number of samples is wanted of a part without tokens: upstream would count its epochs forever."""
    for _, blend, bounds, size in config.splits:
        prefixes, weights = blend or ([], None)
        if bounds and size is not None and (weights or len(prefixes) == 1):
            for lengths in (
                MMapIndexedDataset(prefix).sequence_lengths for prefix in prefixes
            ):
                first, stop = (round(bound * len(lengths)) for bound in bounds)
                if lengths[first:stop].sum() == 0:
                    return True
    return False


def refused_upstream(datasets):
    """A kept partial sample ends in a sequence of no tokens, one token before its beginning; no tokens, cut every
    single one, are -1 samples to its C++.
    """
    parts = [
        part
        for dataset in datasets
        if dataset
        for part in getattr(dataset, "datasets", [dataset])
    ]
    return any(
        part.sample_index.min() < 0 or part.tokens_per_epoch < part.sequence_length == 1
        for part in parts
    )


def fresh_item(core, dataset, k):
    """Item k as if it were the first that is read: upstream gives its loss mask, pads and all, to others."""
    if isinstance(dataset, core.blended_dataset.BlendedDataset):
        return fresh_item(
            core,
            dataset.datasets[dataset.dataset_index[k]],
            dataset.dataset_sample_index[k],
        )
    dataset.masks_and_position_ids_are_cached = False
    return dataset[k]


def assert_equal(core, ours, other, config):
    if other is None:
        assert ours is None
        return
    assert len(ours) == len(other)
    if isinstance(other, core.blended_dataset.BlendedDataset):
        np.testing.assert_array_equal(ours.dataset_index, other.dataset_index)
        np.testing.assert_array_equal(
            ours.dataset_sample_index, other.dataset_sample_index
        )
        for part, other_part in zip(ours.datasets, other.datasets, strict=True):
            assert_equal(core, part, other_part, config)
    else:
        for name in ("document_index", "sample_index", "shuffle_index"):
            found, expected = getattr(ours, name), getattr(other, name)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        rows = ours.read(np.arange(len(ours)))
        for k in range(len(ours)):
            text, _ = other._query_document_sample_shuffle_indices(k)
            np.testing.assert_array_equal(rows[k], text)
    if len(ours):
        some = np.linspace(0, len(ours) - 1, min(5, len(ours))).astype(int).tolist()
        batch = MegatronCollator(config)(ours.__getitems__(some))
        expected_batch = torch.utils.data.default_collate(
            [fresh_item(core, other, k) for k in some]
        )
        assert batch.keys() == expected_batch.keys()
        for field, values in expected_batch.items():
            assert batch[field].dtype == values.dtype
            assert torch.equal(batch[field], values), field


@settings(
    max_examples=130,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(plan=plans())
def test_every_array_sample_and_field_equals_megatron_core(core, plan):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        prefixes = [
            write(core, Path(folder), i, *corpus)
            for i, corpus in enumerate(plan["corpora"])
        ]
        config = config_of(plan, prefixes)
        try:
            ours, refusal = NanosetBuilder(config).build(), None
        except ValueError as error:
            ours, refusal = [], error
        if asks_for_tokens_where_none_are(config):
            event("upstream would count epochs forever")
            assert refusal is not None
            return
        try:
            others = theirs(core, plan, prefixes)
        except (AssertionError, ValueError, IndexError, RuntimeError) as error:
            event(f"upstream refuses: {type(error).__name__}")
            empty = any(dataset is not None and len(dataset) == 0 for dataset in ours)
            if refusal is None and not empty and not refused_upstream(ours):
                raise
            return
        if "has 0 samples" in str(refusal):
            event(
                "we refuse a blend with a part without samples, upstream draws none of it"
            )
            return
        if refusal is not None:
            raise refusal
        event("compared")
        for dataset, other in zip(ours, others, strict=True):
            assert_equal(core, dataset, other, config)


def test_multimodal_files_and_their_merge_are_byte_for_byte_upstreams(core, tmp_path):
    upstream = core.indexed_dataset.IndexedDatasetBuilder(
        str(tmp_path / "theirs.bin"), np.int32, multimodal=True
    )
    with MMapIndexedDatasetBuilder(
        tmp_path / "ours.bin", np.int32, multimodal=True
    ) as ours:
        for writer in (ours, upstream):
            writer.add_document(np.arange(3), [3], [1])
            writer.add_document(np.arange(5), [2, 3], [0, 1])
    upstream.finalize(str(tmp_path / "theirs.idx"))
    merged = core.indexed_dataset.IndexedDatasetBuilder(
        str(tmp_path / "merged.bin"), np.int32, multimodal=True
    )
    for _ in range(2):
        merged.add_index(str(tmp_path / "theirs"))
    merged.finalize(str(tmp_path / "merged.idx"))
    merge_corpora([tmp_path / "ours"] * 2, tmp_path / "twice")
    for suffix in ("bin", "idx"):
        for one, other in (("ours", "theirs"), ("twice", "merged")):
            assert (tmp_path / f"{one}.{suffix}").read_bytes() == (
                tmp_path / f"{other}.{suffix}"
            ).read_bytes()


def test_sample_index_beyond_2_31_tokens_and_beyond_float32(core):
    """Invented lengths: 20 documents of 2^28 + 1 tokens, two epochs, the last partial sample kept."""
    lengths = np.full(20, 2**28 + 1, dtype=np.int32)
    total = int(lengths.sum(dtype=np.int64))
    for sequence_length in (2**24 + 3, 2**27 - 1, 2**29 + 5):
        for drop_last in (True, False):
            plan = plan_epochs(
                total,
                2 * total // sequence_length - 1,
                sequence_length,
                drop_last_partial=drop_last,
            )
            assert plan.num_epochs == 2
            documents, found, _ = build_mappings(
                lengths, 0, 20, plan, sequence_length, 1
            ).values()
            expected = core.helpers.build_sample_idx(
                lengths, documents, sequence_length, 2, total, drop_last, True
            )
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_a_weighted_blend_of_real_text_over_three_epochs(core, real_text, tmp_path):
    """Read by megatron-core and by us: every sample, whole."""
    shares, prefixes, tokens = {"speeches": 5, "scenes": 3, "more_speeches": 2}, [], 0
    for name in shares:
        (counts,) = preprocess_corpus(
            real_text / f"{name}.jsonl",
            tmp_path / name,
            tokenizer_type="GPT2BPETokenizer",
            tokenizer_model=real_text / "gpt2",
            append_eod=True,
        ).values()
        tokens += counts.tokens
        prefixes.append(str(tmp_path / f"{name}_text_document"))
    fields = {
        "sequence_length": 32,
        "random_seed": 1234,
        "split_num_samples": (3 * tokens // 32, 50, 0),
    }
    plan = {
        "data_path": ([0, 1, 2], list(shares.values())),
        "split": "90,10,0",
        "fields": fields | dict.fromkeys(FLAGS[2:], False),
    }
    config = config_of(plan, prefixes)
    blended = NanosetBuilder(config).build()
    for ours, other in zip(blended, theirs(core, plan, prefixes), strict=True):
        assert_equal(core, ours, other, config)
    train = blended[0]
    assert len(train) > 4_000
    assert [part.epochs.num_epochs for part in train.datasets] == [4, 3, 4]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 500))
def test_the_batch_grows_as_in_megatron_core(
    core, start, increment, count, ramp_samples
):
    """What a card says of --rampup-batch-size, from the first step to the last whole batch."""
    batch = start + count * increment
    theirs = core.num_microbatches_calculator.RampupBatchsizeNumMicroBatchesCalculator(
        batch, 1, 1, False, 1, start, increment, ramp_samples
    )
    samples = ramp_samples + 5 * batch
    ramp = [str(start), str(increment), str(ramp_samples)]
    consumed = 0
    for ours, steps in ramped_batches(ramp, batch, samples).items():
        for _ in range(steps):
            theirs.update(consumed, False)
            assert ours == theirs.get_current_global_batch_size()
            consumed += ours
    assert samples - batch < consumed <= samples
