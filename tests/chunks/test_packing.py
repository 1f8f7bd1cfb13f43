"""Packing documents into rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.chunks.packing import Packer, interleave_workers


def pack(documents, row_length, wrap=True, pieces=1):
    """All rows and the packer, the documents added in `pieces` calls."""
    packer = Packer(row_length, wrap=wrap)
    rows = []
    for part in np.array_split(np.arange(len(documents)), pieces):
        chosen = [documents[i] for i in part]
        ids = np.array([token for document in chosen for token in document], dtype=np.int64)
        rows += packer.add(ids, [len(document) for document in chosen]).tolist()
    return rows, packer


DOCUMENTS = [range(5), range(5, 6), range(6, 13), range(13, 13), range(13, 15)]


@pytest.mark.parametrize(
    ("wrap", "rows", "tail", "cut"),
    [
        (True, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [12, 13, 14], 0),
        (False, [[0, 1, 2, 3], [5, 6, 7, 8]], [13, 14], 1 + 4),  # 4 of the first document; 9..12 of the third
    ],
)
def test_documents_become_rows_and_a_tail(wrap, rows, tail, cut):
    found, packer = pack(DOCUMENTS, 4, wrap)
    assert (found, packer.tail.tolist(), packer.cut_tokens) == (rows, tail, cut)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 12)), st.integers(1, 9), st.booleans(), st.integers(1, 4))
def test_rows_are_those_of_the_plain_loop_however_the_documents_arrive(lengths, row_length, wrap, pieces):
    documents = [range(*ends) for ends in pairwise(np.cumsum([0, *lengths]).tolist())]
    rows, packer = pack(documents, row_length, wrap, pieces)
    assert (rows, packer.tail.tolist()) == plain.concatenate(documents, row_length, wrap)
    assert sum(lengths) == len(rows) * row_length + packer.cut_tokens + len(packer.tail)


def test_workers_hand_over_512_rows_in_turn_until_each_is_done():
    first, second, third = np.arange(1100)[:, None], np.arange(5000, 5600)[:, None], np.arange(9000, 9003)[:, None]
    order = [int(row[0]) for row in interleave_workers([first, second, third, third[:0]])]
    assert order == [
        *range(512),
        *range(5000, 5512),
        *range(9000, 9003),
        *range(512, 1024),
        *range(5512, 5600),
        *range(1024, 1100),
    ]


def test_rows_of_no_length_are_refused():
    with pytest.raises(ValueError, match="row_length=0"):
        Packer(0)
