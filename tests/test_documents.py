"""Documents within rows: starts, positions, masks and packed lengths, against loops over the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.documents import (
    attention_mask,
    cu_seqlens,
    loss_mask,
    position_ids,
    starts_after_eos,
    starts_at_boundaries,
)
from nanoset_ref.megatron import MegatronCollator, NanosetConfig

EOS = 9
ROWS = np.array([[1, 2, EOS, 3, 4], [EOS, EOS, 5, 6, EOS], [1, 1, 1, 1, 1]], dtype=np.int32)
EXAMPLES = settings(max_examples=50, deadline=None)


def test_the_example_of_the_module() -> None:
    starts = starts_after_eos(ROWS, EOS)
    assert starts.tolist() == [
        [True, False, False, True, False],
        [True, True, True, False, False],
        [True, False, False, False, False],
    ]
    assert position_ids(starts).tolist() == [[0, 1, 2, 0, 1], [0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert loss_mask(starts).tolist() == [
        [True, True, False, True],
        [False, False, True, True],
        [True, True, True, True],
    ]
    edges, longest = cu_seqlens(starts)
    assert edges.dtype == np.int32
    assert edges.tolist() == [0, 3, 5, 6, 7, 10, 15]
    assert longest == 5
    mask = attention_mask(starts)
    assert mask.shape == (3, 1, 5, 5)
    assert (~mask[0, 0]).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


@st.composite
def token_rows(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 20)))
    flat = draw(st.lists(st.sampled_from([1, 2, EOS]), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(flat, dtype=draw(st.sampled_from([np.int32, np.int64, np.uint16]))).reshape(shape)


@EXAMPLES
@given(rows=token_rows())
def test_every_field_follows_from_the_tokens(rows: np.ndarray[Any, Any]) -> None:
    starts = starts_after_eos(rows, EOS)
    documents = []  # of each row, the lists of columns
    for row in rows.tolist():
        found: list[list[int]] = [[]]
        for column, token in enumerate(row):
            found[-1].append(column)
            if token == EOS and column + 1 < len(row):
                found.append([])
        documents.append(found)
    lengths = [len(document) for found in documents for document in found]
    assert position_ids(starts).tolist() == [[i for d in found for i in range(len(d))] for found in documents]
    assert np.diff(cu_seqlens(starts)[0]).tolist() == lengths
    assert cu_seqlens(starts)[1] == max(lengths)
    assert loss_mask(starts).tolist() == [[token != EOS for token in row[:-1]] for row in rows.tolist()]
    seen = ~attention_mask(starts)[:, 0]
    for b, found in enumerate(documents):
        for query in range(rows.shape[1]):
            (own,) = [document for document in found if query in document]
            assert np.flatnonzero(seen[b, query]).tolist() == [key for key in own if key <= query]


@EXAMPLES
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    width=st.integers(1, 9),
    data=st.data(),
)
def test_boundaries_show_where_documents_begin(lengths: list[int], width: int, data: st.DataObject) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if offsets[-1] < width:
        return
    begins = data.draw(st.lists(st.integers(0, int(offsets[-1]) - width), min_size=1, max_size=4))
    found = starts_at_boundaries(offsets, np.array(begins), width)
    for row, begin in zip(found.tolist(), begins, strict=True):
        assert row == [column == 0 or begin + column in offsets for column in range(width)]


def test_boundaries_and_separators_agree_where_both_are_known() -> None:
    lengths = [3, 1, 5, 2, 6]
    tokens = np.concatenate([[1] * (length - 1) + [EOS] for length in lengths])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    begins = np.array([0, 2, 5, 9])
    rows = np.stack([tokens[begin : begin + 8] for begin in begins])
    assert starts_at_boundaries(offsets, begins, 8).tolist() == starts_after_eos(rows, EOS).tolist()


def test_a_mapped_table_of_boundaries_is_searched_where_it_lies(tmp_path: Any) -> None:
    np.save(tmp_path / "offsets.npy", np.array([0, 4, 4, 10]))
    offsets = np.load(tmp_path / "offsets.npy", mmap_mode="r")
    assert starts_at_boundaries(offsets, np.array([2]), 6).tolist() == [[True, False, True, False, False, False]]


# ---- in Megatron's collator


def batch_of(rows: np.ndarray[Any, Any], **flags: Any) -> dict[str, Any]:
    config = NanosetConfig(
        random_seed=0, sequence_length=rows.shape[1] - 1, data_path="c", split="1", eod_id=EOS, **flags
    )
    return MegatronCollator(config)([{"input_ids": row} for row in rows])


def test_flags_are_off_unless_asked_for() -> None:
    batch = batch_of(ROWS)
    assert list(batch) == ["tokens", "labels", "loss_mask", "position_ids"]
    assert [batch[name].dtype for name in batch] == [torch.int64, torch.int64, torch.float32, torch.int64]
    assert batch["tokens"].tolist() == ROWS[:, :-1].tolist()
    assert batch["labels"].tolist() == ROWS[:, 1:].tolist()
    assert batch["loss_mask"].tolist() == [[1] * 4] * 3
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3]] * 3


def test_each_flag_does_its_part() -> None:
    batch = batch_of(ROWS, reset_position_ids=True, eod_mask_loss=True, create_cu_seqlens=True)
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0], [0, 0, 0, 1], [0, 1, 2, 3]]
    assert batch["loss_mask"].tolist() == [[1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert batch["cu_seqlens"].tolist() == [0, 3, 4, 5, 6, 8, 12]
    assert batch["max_seqlen"] == 4
    for flag in (True, False):
        mask = batch_of(ROWS, create_attention_mask=True, reset_attention_mask=flag)["attention_mask"]
        assert mask.shape == (3, 1, 4, 4)
        assert bool(mask[0, 0, 3, 0]) is flag  # the first token lies in another document than the fourth


def test_what_is_collated_is_left_alone() -> None:
    rows = ROWS.copy()
    batch = batch_of(rows)
    batch["tokens"].zero_()
    assert rows.tolist() == ROWS.tolist()


def test_a_collator_refuses_what_does_not_belong_to_its_config() -> None:
    config = NanosetConfig(random_seed=0, sequence_length=7, data_path="c", split="1")
    with pytest.raises(ValueError, match="samples must have 8 tokens, got 5"):
        MegatronCollator(config)([{"input_ids": row} for row in ROWS])
    with pytest.raises(ValueError, match="at least one sample"):
        MegatronCollator(config)([])
