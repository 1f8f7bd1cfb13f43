"""Packing documents into rows."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.chunks.packing import Packer, interleave_workers


def pack(documents, row_length, wrap=True, pieces=1, carried=()):
    """All rows and the packer, the documents added in `pieces` calls."""
    packer = Packer(row_length, wrap=wrap, carried=carried)
    rows = []
    for part in np.array_split(np.arange(len(documents)), pieces):
        chosen = [documents[i] for i in part]
        ids = np.array([token for document in chosen for token in document], dtype=np.int64)
        rows += packer.add(ids, np.array([len(document) for document in chosen], dtype=np.int64)).tolist()
    return rows, packer


def pack_obviously(documents, row_length, wrap):
    buffer, rows, cut = [], [], 0
    for document in documents:
        buffer = buffer + list(document)
        while len(buffer) >= row_length:
            rows.append(buffer[:row_length])
            cut += 0 if wrap else len(buffer) - row_length
            buffer = buffer[row_length:] if wrap else []
    return rows, buffer, cut


DOCUMENTS = [range(5), range(5, 6), range(6, 13), range(13, 13), range(13, 15)]


def test_wrap_cuts_the_stream_every_row_length_tokens():
    rows, packer = pack(DOCUMENTS, 4)
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert packer.tail.tolist() == [12, 13, 14]
    assert packer.cut_tokens == 0


def test_without_wrap_every_row_begins_with_a_document():
    rows, packer = pack(DOCUMENTS, 4, wrap=False)
    assert rows == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert packer.tail.tolist() == [13, 14]
    assert packer.cut_tokens == 1 + 4  # 4 of the first document; 9..12 of the third


def test_a_carried_tail_comes_first():
    rows, packer = pack([range(3, 8)], 4, carried=[0, 1, 2])
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert packer.tail.tolist() == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 12)), st.integers(1, 9), st.booleans(), st.integers(1, 4))
def test_rows_are_those_of_the_obvious_loop_however_the_documents_arrive(lengths, row_length, wrap, pieces):
    ends = np.cumsum([0, *lengths]).tolist()
    documents = [range(begin, end) for begin, end in pairwise(ends)]
    expected_rows, expected_tail, expected_cut = pack_obviously(documents, row_length, wrap)
    rows, packer = pack(documents, row_length, wrap, pieces)
    assert (rows, packer.tail.tolist(), packer.cut_tokens) == (expected_rows, expected_tail, expected_cut)
    assert sum(lengths) == len(rows) * row_length + packer.cut_tokens + len(packer.tail)


def test_the_tail_can_be_filled_up():
    _, packer = pack(DOCUMENTS, 4)
    assert packer.pad(7).tolist() == [[12, 13, 14, 7]]
    assert (packer.padding_tokens, packer.tail.tolist()) == (1, [])
    assert packer.pad(7).tolist() == []


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


def test_rows_of_no_length_and_tails_of_a_row_are_refused():
    with pytest.raises(ValueError, match="row_length=0"):
        Packer(0)
    with pytest.raises(ValueError, match="shorter than a row of 3"):
        Packer(3, carried=[1, 2, 3])


def test_golden_rows_of_the_amber_corpus(golden):
    """Every recorded conversion of the original script, from the recorded ids of its documents."""
    documents_of = json.loads((golden / "amber/document_token_ids.json").read_text())
    for run in json.loads((golden / "amber/amber.json").read_text())["convert_runs"]:
        if "error" in run:
            continue
        args = run["args"]
        bos, eos = [1] if args["bos_text"] else [], [2] if args["eos_text"] else []
        for subset in run["subfolders"]:
            files = sorted((golden / "amber/input" / subset).glob("*.jsonl"))
            documents = iter(documents_of[subset])
            per_file = [[bos + next(documents) + eos for _ in file.read_text().splitlines()] for file in files]
            workers = min(args["num_workers"], len(files))
            streams = [
                [document for file in per_file[worker::workers] for document in file] for worker in range(workers)
            ]
            rows = [
                np.array(pack(stream, args["concat_tokens"], not args["no_wrap"], pieces=3)[0]) for stream in streams
            ]
            expected = [
                json.loads(line)["token_ids"]
                for line in (golden / "amber" / run["name"] / subset / "train.jsonl").read_text().splitlines()
            ]
            assert [row.tolist() for row in interleave_workers(rows)] == expected
