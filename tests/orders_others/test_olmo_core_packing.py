"""Rows that OLMo-core packs from documents: from those that it caches, and from its files."""

import json
import random

import numpy as np
import pytest
from order_contract import instances

from nanoset_ref.orders import build_order
from nanoset_ref.orders.others import packed_instances


@pytest.fixture(params=range(5))
def packed(request, golden):
    """A recorded case, its arrays, and for each group of files its ids put one after another."""
    folder = golden / "olmo_core_packed"
    case = json.loads((folder / "packed.json").read_text())[request.param]
    prefix = f"{request.param}/"
    with np.load(folder / "packed.npz") as members:
        arrays = {
            name.removeprefix(prefix): members[name]
            for name in members
            if name.startswith(prefix)
        }
    permuted = list(range(len(case["files"])))
    if case["permutation_seed"] is not None:
        random.Random(case["permutation_seed"]).shuffle(permuted)
    assert permuted == case["files"]
    files = [arrays[f"file{number}"] for number in permuted]
    groups = [
        files[i : i + case["group_size"]]
        for i in range(0, len(files), case["group_size"])
    ]
    return case, arrays, groups


def ends_of_documents(files):
    """(start, stop) of every document that ends, in the tokens of files put one after another."""
    found = []
    first = 0
    for ids in files:
        stops = np.flatnonzero(ids == 0) + 1
        found.append(first + np.stack([np.append(0, stops[:-1]), stops], axis=1))
        first += len(ids)
    return np.concatenate(found)


def check_rows(found, groups, arrays, length):
    """The rows that `packed_instances` names hold the ids that OLMo-core's dataset returns."""
    rows = []
    for files, pieces in zip(groups, found, strict=True):
        ids = np.concatenate(files)
        for row in range(pieces[-1, 0] + 1):
            parts = [
                ids[start:stop] for _, start, stop, _ in pieces[pieces[:, 0] == row]
            ]
            joined = np.concatenate(parts)
            rows.append(np.pad(joined, (0, length - len(joined))))
    assert np.array_equal(rows, arrays["rows"])


def test_rows_are_those_that_olmo_core_packs_from_its_cached_documents(packed):
    case, arrays, groups = packed
    length = case["sequence_length"]
    cached = [arrays[f"document_indices{number}"] for number in range(len(groups))]
    found = [packed_instances(documents, length, cached=True) for documents in cached]
    check_rows(found, groups, arrays, length)
    rows = [int(pieces[-1, 0]) + 1 for pieces in found]
    order = f"olmo_core:batch_size={case['batch']}"
    read = [place for epoch in case["read"] for place in epoch]
    order = build_order(order, rows, None, len(read), case["seed"])
    assert instances(order, range(len(read))) == read


def test_rows_are_those_that_olmo_core_packs_from_its_files_where_no_lengths_tie(
    packed,
):
    case, arrays, groups = packed
    length = case["sequence_length"]
    fragment = case["strategy"] == "fragment"
    found = []
    for number, files in enumerate(groups):
        pieces = packed_instances(ends_of_documents(files), length, fragment=fragment)
        theirs = arrays[f"document_indices{number}"]
        theirs = packed_instances(theirs, length, cached=True)
        lengths = pieces[:, 2] - pieces[:, 1]
        certain = pieces[:, 3] == 1
        assert np.array_equal(pieces[:, 0], theirs[:, 0])
        assert np.array_equal(lengths, theirs[:, 2] - theirs[:, 1])
        assert np.array_equal(pieces[certain, :3], theirs[certain, :3])
        assert np.array_equal(
            pieces[:, 3], [np.count_nonzero(lengths == it) for it in lengths]
        )
        assert (theirs[:, 3] == 1).all()
        found.append(pieces)
    if all((pieces[:, 3] == 1).all() for pieces in found):
        check_rows(found, groups, arrays, length)
        assert not fragment and length == 1024, "the case without ties"


def test_the_packing_of_the_docstring():
    documents = [[0, 5], [5, 7], [7, 16], [16, 19]]
    expected = [[0, 7, 15, 1], [1, 0, 5, 1], [1, 16, 19, 1], [2, 5, 7, 1]]
    assert packed_instances(documents, 8).tolist() == expected
    whole = packed_instances(documents, 8, fragment=True)
    assert whole[whole[:, 1] == 15].tolist() == [[2, 15, 16, 1]]
    with pytest.raises(ValueError, match="every document must have tokens"):
        packed_instances([[0, 5], [5, 5]], 8)
