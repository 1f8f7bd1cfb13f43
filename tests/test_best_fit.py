"""Best-fit packing: the rows of plain.py, every token once, masks that know padding, resume as everywhere."""

import functools
import itertools
import os
import pickle

import numpy as np
import pytest
import torch
from file_kinds import write_shard
from hypothesis import example, given
from hypothesis import strategies as st

from nanoset_ref import (
    DataCollatorForCLM,
    DataCollatorWithLabels,
    NanosetDataLoader,
    ResumableBatchSampler,
    plain,
)
from nanoset_ref.load import DataCollatorForCLMWithPositionIds
from nanoset_ref.load.best_fit import PackedNanoset, pack_documents
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron import MegatronCollator, NanosetConfig
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.provenance import RunSegment, audit, compare, when, where
from nanoset_ref.tokens import TokenFileError, TokenFileWriter, convert, open_tokens

# of documents: longer than two rows, exactly one, empty, a row and one token more, ...
LENGTHS = {"a": [14, 7, 0, 5, 2, 3, 8, 9, 1, 1, 6], "b": [4] * 9 + [1, 17, 7, 0]}
S, PAD = 7, 999
EVERYTHING = dict.fromkeys(
    [
        "reset_position_ids",
        "reset_attention_mask",
        "eod_mask_loss",
        "create_cu_seqlens",
    ],
    True,
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Two files in which every token is another one: 0, 1, 2, ... and 100, 101, ..."""
    found = []
    for first, (name, lengths) in zip((0, 100), LENGTHS.items(), strict=True):
        found.append(tmp_path_factory.mktemp("tokens") / f"{name}.npy")
        with TokenFileWriter(found[-1], dtype="uint16") as writer:
            writer.write(np.arange(first, first + sum(lengths)), lengths)
    return found


def packed(paths, **options):
    return PackedNanoset(paths, None, S, **{"pad_id": PAD, **options})


def slow_rows(lengths, first):
    """The rows of plain.py: for each its tokens, and where its documents begin; padding begins one at each place."""
    offsets = first + np.append(0, np.cumsum(lengths))
    rows = []
    for row in plain.best_fit(lengths, S + 1):
        pieces = [
            range(offsets[document] + begin, offsets[document] + end)
            for document, begin, end in row
        ]
        tokens = [token for piece in pieces for token in piece]
        starts = [token == piece[0] for piece in pieces for token in piece]
        free = S + 1 - len(tokens)
        rows.append((tokens + [PAD] * free, starts + [True] * free))
    return rows


SLOW = [
    row
    for first, lengths in zip((0, 100), LENGTHS.values(), strict=True)
    for row in slow_rows(lengths, first)
]


@given(lengths=st.lists(st.integers(0, 40), max_size=60), row_length=st.integers(1, 33))
@example(lengths=[], row_length=1)
@example(lengths=[0, 0], row_length=3)
@example(
    lengths=[65_536, 1, 65_537, 3], row_length=65_537
)  # the free tokens no longer fit 16 bits
def test_it_packs_as_the_slow_form_does(lengths, row_length):
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    first, begins, sizes = pack_documents(offsets, row_length)
    expected = plain.best_fit(lengths, row_length)
    pieces = [
        (int(offsets[document]) + begin, end - begin)
        for row in expected
        for document, begin, end in row
    ]
    assert list(zip(begins.tolist(), sizes.tolist(), strict=True)) == pieces
    assert np.diff(first).tolist() == list(map(len, expected))
    assert (first.dtype, begins.dtype, sizes.dtype) == (np.int64, np.int64, np.int32)


@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=300),
    row_length=st.integers(1, 33),
)
def test_no_document_is_cut_without_need_and_no_two_rows_could_be_one(
    lengths, row_length
):
    first, begins, sizes = pack_documents(np.append(0, np.cumsum(lengths)), row_length)
    assert len(begins) == sum(-(-length // row_length) for length in lengths)
    filled = sorted(sizes[low:high].sum() for low, high in itertools.pairwise(first))
    assert sum(filled) == sum(lengths)
    assert all(0 < size <= row_length for size in filled)
    assert len(filled) < 2 or filled[0] + filled[1] > row_length


@pytest.mark.parametrize("order", ["nanotron", "stateless", "identity"])
def test_every_token_is_in_exactly_one_row_of_an_epoch_and_padding_is_counted(
    paths, order
):
    rows = packed(paths, order=order)
    assert len(rows) == len(SLOW) == rows.order.samples_per_epoch
    tokens = rows.read(np.arange(len(rows)))
    assert tokens.dtype == np.int32
    assert sorted(tokens.tolist()) == sorted(row for row, _ in SLOW)
    text = tokens[tokens != PAD]
    assert sorted(text) == [
        *range(sum(LENGTHS["a"])),
        *range(100, 100 + sum(LENGTHS["b"])),
    ]
    assert (
        sum(use.tail_tokens for use in rows.usage(0, len(rows)))
        == -(tokens == PAD).sum()
        < 0
    )
    if order == "identity":
        assert tokens.tolist() == [row for row, _ in SLOW], (
            "the slow rows, file after file"
        )


def test_every_format_of_files_gives_the_same_rows(paths, tmp_path):
    for suffix in ("bin", "ds"):
        other = [tmp_path / f"{path.stem}.{suffix}" for path in paths]
        for path, target in zip(paths, other, strict=True):
            convert([open_tokens(path)], target)
        every = np.arange(len(packed(paths)))
        assert np.array_equal(packed(other).read(every), packed(paths).read(every))
        assert np.array_equal(packed(other).starts(every), packed(paths).starts(every))


# ---- what a model is told


def test_starts_and_every_field_know_documents_and_padding(paths):
    rows = packed(paths, order="identity")
    starts = rows.starts(np.arange(len(rows)))
    assert starts.tolist() == [starts for _, starts in SLOW]
    loader = build_nanoset_dataloader(
        rows, micro_batch_size=1, documents=DocumentOptions(**EVERYTHING)
    )
    for batch, (tokens, begins) in zip(loader, SLOW, strict=True):
        fields = plain.document_fields(np.array(begins[:-1]))
        assert batch["position_ids"][0].tolist() == fields["position_ids"].tolist()
        assert (
            batch["attention_mask"][0, 0].tolist() == fields["attention_mask"].tolist()
        )
        assert batch["cu_seqlens"].tolist() == fields["cu_seqlens"].tolist()
        counted = [not begin for begin in begins[1:]]
        assert batch["label_mask"][0].tolist() == counted
        labels = batch["label_ids"][0].tolist()
        assert [
            id
            for id, counts in zip(labels, counted, strict=True)
            if counts and id == PAD
        ] == []
        assert labels == tokens[1:]


@pytest.mark.parametrize(
    "documents",
    [None, DocumentOptions(eos_token_id=9), DocumentOptions(reset_position_ids=True)],
)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_no_loss_counts_padding_whatever_is_asked_for_and_whatever_its_id(
    paths, documents, one_by_one
):
    pad_id = 5  # a token of the text as well
    rows = packed(paths, pad_id=pad_id)
    loader = build_nanoset_dataloader(rows, micro_batch_size=3, documents=documents)
    if one_by_one:
        loader.collate_fn = functools.partial(loader.collate_fn)
    batches = list(loader)
    counted = torch.cat(
        [batch["label_ids"][batch["label_mask"]] for batch in batches]
    ).tolist()
    assert len(batches) == len(rows) // 3
    assert len(counted) == len(set(counted)) > 0, (
        "every label that counts is another token of the text"
    )
    asked = documents is not None and documents.reset_position_ids
    assert ["position_ids" in batch for batch in batches] == [asked] * len(batches)


@pytest.mark.parametrize(
    "collator",
    [
        DataCollatorWithLabels(S),
        DataCollatorForCLM(S, 0, 0, 0),
        DataCollatorForCLM(S, 0, 0, 0, DocumentOptions(reset_position_ids=True)),
        # padding is no document that ends with an id
        DataCollatorForCLM(
            S, 0, 0, 0, DocumentOptions(eos_token_id=9, eod_mask_loss=True)
        ),
        DataCollatorForCLMWithPositionIds(S, 0, 0, 0, use_doc_masking=False),
        *(
            MegatronCollator(
                NanosetConfig(
                    random_seed=1,
                    sequence_length=S,
                    data_path="a",
                    split="1",
                    pad_id=pad_id,
                )
            )
            for pad_id in (-1, PAD + 1)
        ),
    ],
)
def test_a_collator_that_would_count_padding_is_refused(paths, collator):
    rows = packed(paths)
    refused = f"{type(collator).__name__} does not mask the padding"
    if isinstance(collator, MegatronCollator):
        refused = f"masks the pad_id {collator.pad_id}, but these rows end in the pad_id {PAD}: use"
    with pytest.raises(ValueError, match=refused):
        build_nanoset_dataloader(rows, micro_batch_size=1, collate_fn=collator)
    with pytest.raises(ValueError, match=refused):
        NanosetDataLoader(
            rows, ResumableBatchSampler(len(rows), 1, 0, 1), collate_fn=collator
        )


def test_a_collator_that_masks_padding_is_taken(paths):
    mine = DataCollatorForCLM(S, 0, 0, 0, DocumentOptions(eod_mask_loss=True))
    given = build_nanoset_dataloader(packed(paths), micro_batch_size=2, collate_fn=mine)
    default = build_nanoset_dataloader(packed(paths), micro_batch_size=2)
    for ours, theirs in zip(given, default, strict=True):
        assert ours["label_mask"].equal(theirs["label_mask"])
    config = NanosetConfig(
        random_seed=1, sequence_length=S, data_path="a", split="1", pad_id=PAD
    )
    rows = packed(paths)
    given = build_nanoset_dataloader(
        rows, micro_batch_size=1, collate_fn=MegatronCollator(config)
    )
    counted = [batch["loss_mask"][0].tolist() for batch in given]
    labels = [rows[k]["input_ids"][1:] for k in range(len(rows))]
    assert counted == [(row != PAD).tolist() for row in labels]
    assert 0 in sum(counted, [])


@pytest.mark.parametrize("kind", ["npy", "bin", "ds", "raw", "llm.c"])
def test_padding_by_the_id_that_ends_documents_is_not_known_from_tokens(tmp_path, kind):
    """An EOS of a text would become 0 and count in no loss. Only .npy files record which id it is."""
    lists = [[10] * (length - 1) + [PAD] for length in (3, 6, 2)]
    recorded = {"eos_token_id": PAD} if kind == "npy" else {}
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16", **recorded) as writer:
        for document in lists:
            writer.write_document(document)
    path = tmp_path / f"a.{kind}"
    if kind == "raw":
        np.concatenate(lists).astype("<u2").tofile(path.with_suffix(".raw"))
    elif kind == "llm.c":  # a shard may begin and end within a document
        path = write_shard(tmp_path / "a.bin", [10, *np.concatenate(lists), 10])
    elif kind != "npy":
        convert([open_tokens(tmp_path / "a.npy")], path)
    is_found = kind in ("raw", "llm.c")
    file = open_tokens(path, eos_token_id=PAD if is_found else None)
    loaders = {}
    for pad_id in (PAD, PAD + 1):
        config = NanosetConfig(
            random_seed=1, sequence_length=S, data_path="a", split="1", pad_id=pad_id
        )
        loaders[pad_id] = functools.partial(
            build_nanoset_dataloader,
            packed(file, pad_id=pad_id),
            micro_batch_size=1,
            collate_fn=MegatronCollator(config),
        )
    with pytest.raises(ValueError, match=f"every token {PAD} for padding, but docu"):
        loaders[PAD]()
    labels = torch.cat([batch["labels"].ravel() for batch in loaders[PAD + 1]()])
    counted = torch.cat([batch["loss_mask"].ravel() for batch in loaders[PAD + 1]()])
    assert labels[counted == 1].tolist().count(PAD) == labels.tolist().count(PAD) > 0


# ---- where tokens come from, and where they go


@pytest.mark.parametrize("order", ["nanotron", "stateless"])
def test_where_and_when_name_every_token(paths, order):
    rows, schedule = (
        packed(paths, order=order, train_split_num_samples=60),
        Schedule(dp_size=2, micro_batch_size=2),
    )
    assert rows.order.samples_per_epoch < 30, "more than two epochs"
    files = [open_tokens(path) for path in paths]
    reads = {}
    for step in range(1, 16):
        for origin in where(rows, schedule, step):
            ids, offsets = (
                files[origin.source].tokens,
                files[origin.source].document_offsets,
            )
            assert origin.epoch == origin.slot.position // rows.order.samples_per_epoch
            row = rows[origin.slot.position]["input_ids"].tolist()
            spans = [
                ids[offsets[part.document] :][part.start : part.stop].tolist()
                for part in origin.parts
            ]
            assert sum(spans, []) == row[: len(sum(spans, []))]
            assert set(row[len(sum(spans, [])) :]) <= {PAD}
            raw = paths[origin.source].read_bytes()
            assert [
                np.frombuffer(raw[it.first_byte : it.end_byte], "<u2").tolist()
                for it in origin.parts
            ] == spans
            for part in origin.parts:
                for token in range(part.start, part.stop):
                    reads.setdefault((origin.source, part.document, token), []).append(
                        origin.slot.position
                    )
    for source, lengths in enumerate(LENGTHS.values()):
        for document, length in enumerate(lengths):
            for token in range(length):
                found = when(
                    rows, schedule, document, source=source, tokens=(token, token + 1)
                )
                assert [slot.position for slot in found] == sorted(
                    reads[source, document, token]
                )
            assert (
                when(
                    rows,
                    schedule,
                    document,
                    source=source,
                    tokens=(length // 2, length // 2),
                )
                == []
            )
            every = {
                position
                for token in range(length)
                for position in reads[source, document, token]
            }
            assert [
                slot.position for slot in when(rows, schedule, document, source=source)
            ] == sorted(every)


def test_a_state_of_other_boundaries_padding_or_packing_is_refused(paths, tmp_path):
    state = build_nanoset_dataloader(packed(paths), micro_batch_size=1).state_dict()
    with TokenFileWriter(
        tmp_path / "a.npy", dtype="uint16"
    ) as writer:  # the same ids, other documents
        writer.write(np.arange(sum(LENGTHS["a"])), LENGTHS["a"][::-1])
    others = [
        packed(paths, pad_id=1),
        packed([tmp_path / "a.npy", paths[1]]),
        packed(paths, random_seed=1),
    ]
    parts = ["rows.pad_id", r"files\[0\] \(a.npy\).documents", "order.random_seed"]
    for other, part in zip(others, parts, strict=True):
        with pytest.raises(PlanMismatch, match=f"  {part}: saved"):
            build_nanoset_dataloader(other, micro_batch_size=1).load_state_dict(state)
    assert len({rows.fingerprint for rows in [packed(paths), *others]}) == 4
    with pytest.raises(
        ValueError,
        match=r"where samples follow each other in a file; these rows are packed",
    ):
        compare(state, packed(paths))


def test_a_pad_id_that_no_row_holds_is_no_part_of_the_plan(tmp_path):
    with TokenFileWriter(tmp_path / "full.npy", dtype="uint16") as writer:
        writer.write(np.arange(3 * (S + 1)), [S + 1, S, 1, S + 1])
    rows, other = (
        packed([tmp_path / "full.npy"], pad_id=1),
        packed([tmp_path / "full.npy"], pad_id=2),
    )
    assert (rows.read(range(3)) == other.read(range(3))).all()
    state = build_nanoset_dataloader(rows, micro_batch_size=1).state_dict()
    build_nanoset_dataloader(other, micro_batch_size=1).load_state_dict(state)


# ---- the index


def test_the_index_is_built_once_cached_and_mapped_by_workers(
    paths, tmp_path, monkeypatch
):
    monkeypatch.setattr("nanoset_ref.io.mmap_limit.MAX_READ_BYTES", 0)
    rows = packed(paths, path_to_cache=tmp_path / "cache")
    expected = packed(paths).read(np.arange(len(rows)))
    assert len(list(tmp_path.glob("cache/*.json"))) == 2
    assert all(
        isinstance(array.base, np.memmap)
        for packing in rows.packings
        for array in packing
    )
    monkeypatch.setattr(
        "nanoset_ref.load.best_fit.pack_documents",
        lambda *_: pytest.fail("it is built again"),
    )
    assert np.array_equal(
        packed(paths, path_to_cache=tmp_path / "cache").read(np.arange(len(rows))),
        expected,
    )
    travelled = pickle.loads(pickle.dumps(rows))
    assert "packings" not in travelled.__dict__
    assert np.array_equal(travelled.read(np.arange(len(rows))), expected)


# ---- what is refused


def test_the_spans_of_a_position_of_any_kind_are_the_same(tmp_path):
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write(np.arange(600), np.full(200, 3))
    rows = PackedNanoset(tmp_path / "a.npy", None, 3, pad_id=0)
    assert rows.spans(np.int8(100)) == rows.spans(100) != []


def test_packing_errors_say_why(paths, tmp_path):
    np.arange(40, dtype=np.uint16).tofile(tmp_path / "raw.npy")
    with pytest.raises(
        TokenFileError,
        match=r"raw.npy records no document boundaries; give the id that ends",
    ):
        packed(tmp_path / "raw.npy")
    rows = packed(open_tokens(tmp_path / "raw.npy", eos_token_id=9), order="identity")
    assert rows.read(np.arange(5))[:, 0].tolist() == [
        0,
        10,
        18,
        26,
        34,
    ]  # documents 0-9 and 10-39, S + 1 = 8
    for pad_id in (-1, 2**31):
        with pytest.raises(
            ValueError,
            match=rf"pad_id .for example the EOS id. must be .*, got {pad_id}|below 2..31, got {pad_id}",
        ):
            packed(paths, pad_id=pad_id)
    with pytest.raises(ValueError, match="pad_id .* must be an integer .* got True"):
        packed(paths, pad_id=True)
    with pytest.raises(ValueError, match="sequence_length must be at least 1, got 0"):
        PackedNanoset(paths, None, 0, pad_id=0)
    with pytest.raises(ValueError, match="row_length must be at least 1, got 0"):
        pack_documents(np.array([0, 9]), 0)
    with pytest.raises(
        ValueError, match="train_split_num_samples must be at least 0, got -1"
    ):
        packed(paths, train_split_num_samples=-1)
    with pytest.raises(
        ValueError, match="boundaries do not ascend: their file is damaged"
    ):
        pack_documents(np.array([0, 9, 3, 10]), 4)


def test_it_says_what_it_is_and_an_audit_holds(paths):
    rows = packed(paths, train_split_num_samples=40)
    assert repr(rows).startswith(
        "PackedNanoset(2 files: a.npy, b.npy; sequence_length=7, 40 samples, "
    )
    report = audit(
        [
            RunSegment(
                name="packed", dataset=rows, schedule=Schedule(dp_size=2), num_steps=20
            )
        ]
    )
    assert report.ok, str(report)


def test_a_file_that_is_cut_short_under_its_reader_is_an_error_and_not_the_end_of_the_process(
    tmp_path,
):
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        for length in [3000] * 20:
            writer.write_document(np.arange(length))
    rows = PackedNanoset([tmp_path / "a.npy"], None, 3000, 20, pad_id=PAD)
    rows.read(np.arange(1))
    os.truncate(tmp_path / "a.npy", 4096)
    with pytest.raises(OSError, match=r"a.npy was truncated after it was opened"):
        rows.read(np.arange(20))
