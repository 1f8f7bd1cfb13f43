"""Datasets of one corpus and of several: reading, provenance, identity, configuration."""

import functools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.megatron import (
    BlendedNanoset,
    MegatronCollator,
    MegatronNanoset,
    MMapIndexedDataset,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.megatron.nanoset_config import parse_split
from nanoset_ref.orders.plans import differences
from nanoset_ref.tokens import open_tokens


def splits(data_path, **fields):
    defaults = {"random_seed": 7, "sequence_length": 4, "split": "1,0,0"}
    return NanosetBuilder(
        NanosetConfig(data_path=data_path, **(defaults | fields))
    ).build()


def build(data_path, **fields):
    """The train split of everything, sequence length 4."""
    return splits(data_path, **fields)[0]


# ---- reading


@pytest.mark.parametrize("blended", [False, True])
@pytest.mark.parametrize("pad_id", [-1, 0, 99])
def test_the_collator_masks_the_padding_of_its_config_alone(
    write_corpus, pad_id, blended
):
    paths = [write_corpus([[6]], name) for name in "ab"[: 1 + blended]]
    fields = {"sequence_length": 4, "random_seed": 7, "data_path": paths}
    fields |= {"split": "0,1,0", "drop_last_partial_validation_sequence": False}
    config = NanosetConfig(pad_id=pad_id, **fields)
    rows = NanosetBuilder(config).build()[1]
    assert rows.padded and rows[len(rows) - 1]["input_ids"].tolist() == [
        *[4, 5, pad_id, pad_id, pad_id]
    ]
    collator = MegatronCollator(config)
    loader = build_nanoset_dataloader(rows, micro_batch_size=1, collate_fn=collator)
    batch = list(loader)[-1]
    assert batch["loss_mask"].tolist() == [[1, 0, 0, 0]]
    assert batch["tokens"].tolist() == [[4, 5, 0, 0]]
    other = MegatronCollator(NanosetConfig(pad_id=pad_id + 1, **fields))
    with pytest.raises(
        ValueError,
        match=f"masks the pad_id {pad_id + 1}, .* end in the pad_id {pad_id}:",
    ):
        build_nanoset_dataloader(rows, micro_batch_size=1, collate_fn=other)


def test_a_batch_is_its_samples(write_corpus):
    with pytest.raises(
        ValueError, match="holds float32 values; token ids are integers"
    ):
        build(write_corpus([[9]], dtype=np.float32))
    dataset = build(write_corpus([[50], [30]]))
    positions = np.array([3, 0, -1, 3])
    rows = dataset.read(positions)
    assert rows.tolist() == [
        dataset[k]["input_ids"].tolist() for k in positions.tolist()
    ]
    assert dataset.read(np.array([])).shape == (0, 5)
    for k in (len(dataset), -len(dataset) - 1):
        with pytest.raises(
            IndexError, match="position -?[0-9]+ is outside a sequence of 19 samples"
        ):
            dataset[k]


def test_a_kept_partial_sample_is_another_plan(write_corpus):
    """Upstream reuses the same index for both."""
    fields = {"data_path": write_corpus([[7]]), "split": "0,1,0", "pad_id": 99}
    kept, dropped = (
        splits(drop_last_partial_validation_sequence=drop, **fields)[1]
        for drop in (False, True)
    )
    assert sorted(kept.read(np.arange(2)).tolist()) == [
        [0, 1, 2, 3, 4],
        [4, 5, 6, 99, 99],
    ]
    assert (len(dropped), dropped.plan == kept.plan) == (1, False)


@pytest.mark.parametrize(("tokens", "padded"), [(7, True), (9, False)])
def test_a_kept_partial_sample_is_padded_without_a_loss_and_without_an_id_below_0(
    write_corpus, tokens, padded
):
    """The oracle: the stream of tokens; 0 1 2 3 4 and 4 5 6 and two pads, of which no label counts."""
    prefix, other = write_corpus([[tokens]], "one"), write_corpus([[9]], "two")
    kept = {"split": "0,1,0", "drop_last_partial_validation_sequence": False}
    alone, blended = splits(prefix, **kept)[1], splits([prefix, other], **kept)[1]
    assert (alone.padded, blended.padded) == (padded, padded)
    assert not build(prefix, drop_last_partial_validation_sequence=False).padded, (
        "only valid keeps its last sample"
    )
    for dataset in (alone, blended):
        for wrapped in (
            lambda collate: collate,
            functools.partial,
        ):  # in blocks, and one by one
            loader = build_nanoset_dataloader(dataset, micro_batch_size=1)
            loader.collate_fn = wrapped(loader.collate_fn)
            for batch in loader:
                labels, counted = (
                    batch["label_ids"][0].tolist(),
                    batch["label_mask"][0].tolist(),
                )
                ends_early = padded and labels[0] == 5 and labels[2] == 0
                assert counted == (
                    [True, True, False, False] if ends_early else [True] * 4
                )
                assert min(batch["input_ids"].min(), batch["label_ids"].min()) >= 0
    if padded:
        assert sorted(alone.read(np.arange(2)).tolist()) == [
            [0, 1, 2, 3, 4],
            [4, 5, 6, -1, -1],
        ]


# ---- in other processes


@pytest.mark.parametrize("cache", [True, False])
def test_a_pickled_dataset_is_small_and_reads_the_same(write_corpus, tmp_path, cache):
    one, two = write_corpus([[50_000]], "one"), write_corpus([[40]], "two")
    options = {
        "split_num_samples": (9000, 0, 0),
        "path_to_cache": tmp_path / "cache" if cache else None,
    }
    for dataset in (build(one, **options), build({one: 1.0, two: 2.0}, **options)):
        copy = pickle.loads(pickle.dumps(dataset))
        assert len(pickle.dumps(dataset)) < 5_000
        assert copy.fingerprint == dataset.fingerprint
        assert copy.read(np.arange(9)).tolist() == dataset.read(np.arange(9)).tolist()


# ---- where tokens come from and go to


DOCUMENTS = st.lists(
    st.lists(st.integers(0, 12), min_size=1, max_size=3), min_size=1, max_size=8
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    corpora=st.lists(DOCUMENTS, min_size=1, max_size=2),
    length=st.integers(1, 9),
    samples=st.integers(1, 40),
    extra=st.booleans(),
    until=st.none() | st.integers(-3, 40),
)
def test_spans_name_every_token_and_positions_invert_them(
    write_corpus, corpora, length, samples, extra, until
):
    """Spans count from the document, which may have several sequences."""
    for documents in corpora:
        documents[0].append(1)
    weights = {
        write_corpus(documents, f"corpus{source}"): 3 - source
        for source, documents in enumerate(corpora)
    }
    fields = {"sequence_length": length, "add_extra_token_to_sequence": extra}
    surplus = {"mid_level_dataset_surplus": 1.0, "split_num_samples": (samples, 0, 0)}
    dataset = build(
        weights if len(weights) > 1 else next(iter(weights)), **fields, **surplus
    )
    sizes = [[sum(lengths) for lengths in documents] for documents in corpora]
    starts = [np.cumsum([0, *each]) for each in sizes]
    seen = {}  # (source, document, token) -> positions
    for k in range(len(dataset)):
        source, spans = dataset.origin(k).source, dataset.spans(k)
        tokens = [
            starts[source][span.document] + i
            for span in spans
            for i in range(span.start, span.stop)
        ]
        assert dataset[k]["input_ids"].tolist() == tokens
        assert tokens == [
            byte // 2
            for span in spans
            for byte in range(span.first_byte, span.end_byte, 2)
        ]
        for span in spans:
            for token in range(span.start, span.stop):
                seen.setdefault((source, span.document, token), set()).add(k)
    for source, document in [
        (i, d) for i, each in enumerate(sizes) for d in range(len(each))
    ]:
        size = sizes[source][document]
        for tokens in (None, (0, size // 2), (size // 2, size)):
            found = [
                seen.get((source, document, token), set())
                for token in range(*(tokens or (0, size)))
            ]
            expected = sorted(
                k for k in set().union(*found) if until is None or k < until
            )
            assert (
                dataset.positions_of(source, document, tokens, until).tolist()
                == expected
            )


# ---- identity


def test_numbers_of_numpy_make_the_same_plan(write_corpus, tmp_path):
    prefix = write_corpus([[90], [40]])
    numbers = {"split_num_samples": (40, None, None), "pad_id": 5}
    numpy_numbers = {
        "split_num_samples": (np.int64(40), None, None),
        "pad_id": np.int64(5),
    }
    rows = build(prefix, **numpy_numbers, path_to_cache=tmp_path / "c")
    assert json.dumps(rows.plan) == json.dumps(build(prefix, **numbers).plan)


def test_every_change_of_a_sample_changes_the_fingerprint_and_the_index(
    write_corpus, tmp_path
):
    prefix, cache = write_corpus([[90], [40]]), tmp_path / "c"
    asked = {"split_num_samples": (40, None, None)}
    base = build(prefix, **asked)
    same = build(
        prefix,
        split_num_samples=(41, None, None),
        path_to_cache=cache,
    )
    assert (base.epochs, base.fingerprint) == (same.epochs, same.fingerprint)
    for number, fields in enumerate(
        [
            {"random_seed": 8},
            {"sequence_length": 5},
            {"split": "1,1,0"},
            {"split_num_samples": (200, None, None)},
            {
                "add_extra_token_to_sequence": False
            },  # here upstream reuses the old index
            {"pad_id": 5},
        ]
    ):
        other, uncached = (
            build(prefix, **(asked | fields), path_to_cache=where)
            for where in (cache, None)
        )
        assert other.fingerprint != base.fingerprint
        assert len(list(cache.glob("*.json"))) >= number + 2
        assert (
            other.read(np.arange(len(other))).tolist()
            == uncached.read(np.arange(len(other))).tolist()
        )
    other = write_corpus([[50]], "b")
    asked = {"split_num_samples": (30, 0, 0), "path_to_cache": cache}
    one, two = (build({prefix: 1, other: weight}, **asked) for weight in (1, 2))
    assert one.fingerprint != two.fingerprint
    assert [one.counts.tolist(), two.counts.tolist()] == [[15, 15], [10, 20]]


def test_a_pair_without_a_seal_is_known_by_its_index_and_the_tokens_of_its_probes(
    write_corpus,
):
    prefix = write_corpus([[90], [40]])
    Path(f"{prefix}.seal").unlink()
    plan = build(prefix).plan
    assert plan["files"][0]["known_by"] == "probes"
    ids = np.fromfile(f"{prefix}.bin", np.uint16)
    (ids + 1).tofile(f"{prefix}.bin")
    (changed,) = differences(plan, build(prefix).plan)
    assert "a hash of the tokens at position 0" in changed.field
    other = build(write_corpus([[40], [90]]))
    assert any(part.endswith(".idx") for part, *_ in differences(plan, other.plan))


def test_representations_say_what_is_read(write_corpus):
    prefix = write_corpus([[90], [40]])
    assert (
        "train: sequences 0:2, sequence_length=4, 32 samples, 1 epochs, seed=7"
        in repr(build(prefix))
    )
    blend = build(
        {prefix: 1, write_corpus([[50]], "b"): 3}, split_num_samples=(8, 0, 0)
    )
    assert (
        repr(blend)
        == "BlendedNanoset(train: 8 samples of 2 datasets, shares 0.2500, 0.7500)"
    )
    assert repr(MMapIndexedDataset(prefix)).endswith(
        "uint16, 2 sequences in 2 documents, 130 tokens)"
    )


# ---- configuration


def test_every_form_of_a_data_path(write_corpus):
    one, two = write_corpus([[40]], "one"), write_corpus([[20]], "two")
    for data_path in (one, Path(one), [one]):
        assert isinstance(build(data_path), MegatronNanoset)
    assert build([one, two]).counts.tolist() == [9, 4]
    assert build([one, two], split_num_samples=(5, None, None)).counts.sum() == 5
    assert isinstance(build({one: 1.0}, split_num_samples=(5, 0, 0)), BlendedNanoset)
    each = {
        "data_path_per_split": [{one: 1, two: 1}, two, None],
        "split_num_samples": (6, None, 0),
    }
    train, valid, test = splits(None, split=None, **each)
    assert (type(train), type(valid), test) == (BlendedNanoset, MegatronNanoset, None)
    assert (len(train), len(valid)) == (6, 4)


def test_a_corpus_may_be_named_twice(write_corpus):
    """As in Megatron's list of weights and prefixes."""
    one, two = write_corpus([[40]], "one"), write_corpus([[20]], "two")
    assert build([one, one, two]).counts.tolist() == [9, 9, 4]
    twice = build([1, one, "2", two, 1, one], split_num_samples=(8, 0, 0))
    assert [dataset.corpus.path_prefix for dataset in twice.datasets] == [one, two, one]
    assert twice.datasets[0].corpus is twice.datasets[2].corpus
    assert twice.counts.tolist() == [2, 4, 2]
    once = build({one: 1, two: 2}, split_num_samples=(8, 0, 0))
    assert (
        once.fingerprint
        == build([1.0, one, 2.0, two], split_num_samples=(8, 0, 0)).fingerprint
    )


def test_a_blend_that_asks_too_much_says_what_to_do(write_corpus):
    """Proportions in floating point may take one sample more of a corpus than a blend of all samples has."""
    with pytest.raises(ValueError, match="raise mid_level_dataset_surplus"):
        parts = [build(write_corpus([[41]], name)) for name in "ab"]
        BlendedNanoset(parts, [0.9, 0.1], 20, parts[0].config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"random_seed": 2**32},
            r"^random_seed must be below 2\*\*32, got 4294967296$",
        ),
        (
            {"sequence_length": 0, "pad_id": "x"},
            "^sequence_length must be at least 1, got 0; pad_id must be an integer, got 'x'$",
        ),
        (
            {"split_num_samples": (1, -2, None)},
            r"^split_num_samples\[1\] must be at least 0, got -2$",
        ),
        ({"split": None}, "give data_path with a split"),
        ({"split": "1,2,3,4"}, "up to three numbers"),
        ({"split": "1,-1,0"}, "none negative"),
        ({"split": "all"}, "one positive"),
        ({"data_path": None}, "give data_path"),
        ({"data_path": []}, "at least one corpus"),
        (
            {"data_path": 5},
            "^data_path must be a prefix, a list of prefixes, .*, got 5$",
        ),
        (
            {"data_path": {"a": "many"}},
            "^data_path must be a prefix, .*, got {'a': 'many'}$",
        ),
        (
            {"data_path": ["a", None]},
            "^data_path must be a prefix, .*, got .'a', None.$",
        ),
        ({"data_path": {"a": float("nan")}}, "weights must be positive numbers"),
        (
            {"data_path": {"a": 1.0}, "eod_mask_loss": True},
            "give eos_token_id; weights need a number of samples",
        ),
        ({"data_path_per_split": ["a", None, None]}, "or data_path_per_split alone"),
        (
            {"data_path": None, "data_path_per_split": ["a", None, None]},
            "or data_path_per_split alone",
        ),
        (
            {"data_path": None, "split": None, "data_path_per_split": ["a"]},
            r"data_path_per_split\[1\]: is missing",
        ),
        (
            {"data_path": None, "split": None, "data_path_per_split": [None] * 3},
            "must name a corpus",
        ),
        ({"reset_position_ids": True}, "give eos_token_id"),
        ({"eos_token_id": -1}, "eos_token_id must be at least 0, got -1"),
    ],
)
def test_a_config_says_what_is_wrong(fields, message):
    base = {
        "random_seed": 1,
        "sequence_length": 8,
        "data_path": "corpus",
        "split": "1,0,0",
    }
    with pytest.raises(ValueError, match=message):
        NanosetConfig(**(base | fields))


def test_split_strings():
    assert parse_split(" 99 , 1 ") == ((0.0, 0.99), (0.99, 1.0), None)
    assert parse_split("99/1") == parse_split("99;1") == parse_split("99,1")
    for split in ("0.9.9,1", ".,1", "-1,2", ""):
        with pytest.raises(ValueError, match="split must be up to three numbers"):
            parse_split(split)


def test_a_split_without_tokens_warns_where_upstream_gives_no_samples_and_is_refused_elsewhere(
    write_corpus, caplog
):
    prefix = write_corpus([[9], [9], [9]])
    train, valid, _ = splits(prefix, split="90,5,5")
    assert (len(train), len(valid)) == (6, 0)
    [use] = valid.usage(0, 0)
    assert (use.num_samples, use.tail_tokens, valid.padded) == (0, 0, False)
    assert "the valid split of" in caplog.text and "has 0 samples" in caplog.text
    for wanted in (
        {"data_path": [prefix] * 2},
        {"data_path": prefix, "split_num_samples": (5, 0, 0)},
    ):
        with pytest.raises(
            ValueError, match="the valid split of .* (without tokens|has 0 samples)"
        ):
            splits(split="90,5,5", **wanted)


def test_a_blend_of_more_corpora_than_its_index_numbers_is_refused(write_corpus):
    """As upstream asserts: an int16 would wrap to another corpus, from below."""
    part = build(write_corpus([[9]]))
    with pytest.raises(
        ValueError, match="at most 32,766 corpora, got 32,767: merge some"
    ):
        BlendedNanoset([part] * 32_767, [1.0] * 32_767, 40_000, part.config)
    with pytest.raises(ValueError, match="at most 32,766 corpora"):
        NanosetConfig(
            random_seed=1,
            sequence_length=8,
            split="1,0,0",
            data_path=["corpus"] * 32_767,
        )


def test_a_corpus_is_named_by_its_prefix_or_by_either_file(write_corpus):
    prefix = write_corpus([[40]])
    expected = build(prefix)
    for name in (f"{prefix}.bin", f"{prefix}.idx", Path(f"{prefix}.bin")):
        assert build(name).fingerprint == expected.fingerprint


def test_sequences_beyond_the_corpus_are_refused(write_corpus):
    corpus = MMapIndexedDataset(write_corpus([[9], [8]]))
    config = NanosetConfig(
        random_seed=1, sequence_length=4, data_path=corpus.path_prefix, split="1,0,0"
    )
    for first, stop in ((0, 3), (-1, 2), (2, 1)):
        with pytest.raises(
            ValueError, match=rf"has 2 sequences; got first={first}, stop={stop}$"
        ):
            MegatronNanoset(corpus, first, stop, None, "train", config)


def test_a_split_without_tokens_has_no_samples_and_no_padding(write_corpus):
    corpus = open_tokens(write_corpus([[30], [10]]))
    config = NanosetConfig(
        random_seed=1, sequence_length=16, data_path=corpus.path_prefix, split="1,0,0"
    )
    dataset = MegatronNanoset(corpus, 1, 1, None, "train", config)
    [use] = dataset.usage(0, 0)
    assert (len(dataset), use.num_samples, use.tail_tokens) == (0, 0, 0)
    assert not dataset.padded
