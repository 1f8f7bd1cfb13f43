"""Packing documents into rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.chunks import Packer, interleave_workers


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 12)), st.integers(1, 9), st.booleans(), st.integers(1, 4)
)
def test_rows_are_those_of_the_plain_loop_however_the_documents_arrive(
    lengths, row_length, wrap, pieces
):
    documents = [range(*ends) for ends in pairwise(np.cumsum([0, *lengths]).tolist())]
    packer, rows = Packer(row_length, wrap=wrap), []
    for part in np.array_split(np.arange(len(documents)), pieces):
        ids = np.array([token for i in part for token in documents[i]], dtype=np.int64)
        rows += packer.add(ids, [len(documents[i]) for i in part]).tolist()
    assert (rows, packer.tail.tolist()) == plain.concatenate(
        documents, row_length, wrap
    )
    assert packer.cut_tokens == sum(lengths) - len(rows) * row_length - len(packer.tail)


def test_without_wrap_the_rest_of_a_document_that_fills_a_row_is_dropped():
    packer = Packer(4, wrap=False)
    rows = packer.add(np.arange(15, dtype=np.uint16), [5, 1, 7, 0, 2])
    assert (rows.tolist(), packer.tail.tolist(), packer.cut_tokens) == (
        [[0, 1, 2, 3], [5, 6, 7, 8]],
        [13, 14],
        1 + 4,
    )
    assert rows.dtype == np.uint16


def test_workers_hand_over_512_rows_in_turn_until_each_is_done():
    found = interleave_workers([range(1100), range(5000, 5600), range(9000, 9003), []])
    turns = [
        (0, 512),
        (5000, 5512),
        (9000, 9003),
        (512, 1024),
        (5512, 5600),
        (1024, 1100),
    ]
    assert list(found) == [row for turn in turns for row in range(*turn)]


def test_rows_of_no_length_are_refused():
    with pytest.raises(ValueError, match="row_length must be at least 1, got 0"):
        Packer(0)
