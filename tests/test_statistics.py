"""Statistics of documents, against plain Python."""

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref import Nanoset
from nanoset_ref.tokens import TokenFile, TokenFileWriter, Tokens, as_text, describe


class of(Tokens):
    """Documents in memory."""

    document_offsets = facts = None

    def __init__(self, lists, dtype=np.uint16):
        self.facts = {"eos_token_id": 0}
        self.location = "x.npy"
        self.dtype = np.dtype(dtype)
        self.num_tokens = sum(map(len, lists))
        self.tokens = np.array([i for document in lists for i in document], dtype=dtype)
        self.document_offsets = np.cumsum([0, *map(len, lists)])


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=30))
def test_every_figure_equals_a_slow_count(lists):
    found = describe(of(lists))
    flat = [i for document in lists for i in document]
    full = [tuple(document) for document in lists if document]
    assert (found["num_tokens"], found["num_documents"]) == (len(flat), len(lists))
    assert found["empty_documents"] == len(lists) - len(full)
    assert (found["shortest"], found["longest"]) == (
        min(map(len, lists)),
        max(map(len, lists)),
    )
    assert found["median"] == np.median([len(document) for document in lists])
    assert (found["distinct_ids"], found["largest_id"]) == (
        len(set(flat)),
        max(flat, default=-1),
    )
    assert found["eos_share"] == flat.count(0) / max(len(flat), 1)
    assert found["documents_ending_in_eos"] == sum(
        document[-1] == 0 for document in full
    )
    counts = collections.Counter(full)
    assert found["duplicate_documents"] == sum(count - 1 for count in counts.values())
    assert found["duplicate_tokens"] == sum(
        (count - 1) * len(document) for document, count in counts.items()
    )
    for first, last, count in found["length_histogram"]:
        assert count == sum(first <= len(document) <= last for document in lists)
    assert sum(count for _, _, count in found["length_histogram"]) == len(lists)


def test_ranges_double_and_the_eos_may_be_given():
    found = describe(of([[7] * n for n in (1, 2, 3, 4, 8, 9)]), eos_token_id=7)
    assert found["length_histogram"] == [(1, 1, 1), (2, 3, 2), (4, 7, 1), (8, 15, 2)]
    assert "        8 - 15                2 ########" in as_text(found)
    assert "EOS (id 7): 100.0000% of the tokens, at the end of 6 documents" in as_text(
        found
    )


def test_padding_is_in_no_document_and_in_no_figure(tmp_path):
    with TokenFileWriter(
        tmp_path / "x.npy", dtype="uint16", windows="padded", row_length=8
    ) as writer:
        writer.write([1, 2, 3, 4, 9, 0, 0, 0], [5, 1, 1, 1])
        writer.write([9, 6, 5, 9, 7, 8, 9, 0], [1, 3, 3, 1])
        writer.write([1, 2, 3, 4, 5, 6, 7, 9], [8])
    file = TokenFile(tmp_path / "x.npy")
    found = describe(file, eos_token_id=9)
    assert (found["num_tokens"], found["num_documents"]) == (24, 5)
    assert (found["padding_tokens"], found["duplicate_documents"]) == (4, 0)
    assert (found["shortest"], found["median"]) == (1, 3)
    assert (found["distinct_ids"], found["eos_share"]) == (9, 5 / 20)
    assert "24 tokens (uint16) in 5 documents and 4 tokens of padding" in as_text(found)
    rows = Nanoset(file, None, 7, order="identity")
    documents = [[span.document for span in rows.spans(k)] for k in range(3)]
    assert documents == [[0], [4, 5, 6], [8]]  # of boundaries, padding included


@pytest.mark.parametrize("ids", [[3, -1], [2**45]])
def test_invalid_token_ids_are_refused(ids):
    with pytest.raises(ValueError, match="which are not token ids"):
        describe(of([ids], np.int64))
