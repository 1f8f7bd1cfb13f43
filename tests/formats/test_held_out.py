"""The choice of documents to hold out: a partition, of which both parts are written or neither."""

import errno
from types import SimpleNamespace

import numpy as np
import pytest
from format_helpers import DOCUMENTS, as_lists, written
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.tokens import convert_parts, split
from nanoset_ref.tokens.document_blocks import document_blocks


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_a_full_disk_leaves_both_old_files_of_a_split(
    source, tmp_path, monkeypatch, suffix
):
    parts = {
        tmp_path / f"{name}{suffix}": [part]
        for name, part in zip("xy", split(source, 2), strict=True)
    }
    for copy, [part] in zip(
        convert_parts([source], parts), parts.values(), strict=True
    ):
        assert as_lists(copy) == [DOCUMENTS[d] for d in part]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    parts_written = iter(range(2))

    def full(source, chosen):
        if next(parts_written):
            raise OSError(errno.ENOSPC, "No space left on device")
        return document_blocks(source, chosen)

    monkeypatch.setattr("nanoset_ref.tokens.conversion.document_blocks", full)
    with pytest.raises(OSError, match="No space left"):
        convert_parts(
            [source], {path: [np.array([0])] for path in parts}, overwrite=True
        )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_held_out_may_be_a_numpy_number(source):
    for number, python in ((np.float32(0.5), 0.5), (np.int64(2), 2)):
        assert np.array_equal(split(source, number)[1], split(source, python)[1])
    with pytest.raises(ValueError, match="held_out must be an integer of at least 0"):
        split(source, "2")


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.integers(0, 5))
def test_held_out_documents_and_the_rest_are_a_partition(count, share, seed):
    documents = SimpleNamespace(require_document_offsets=lambda: np.arange(count + 1))
    expected = round(share * count)
    if not 0 < expected < count:
        with pytest.raises(
            ValueError, match="hold out at least 1, and leave at least 1"
        ):
            split(documents, share, seed=seed)
        return
    rest, held_out = split(documents, share, seed=seed)
    assert len(held_out) == expected
    assert sorted([*rest.tolist(), *held_out.tolist()]) == list(range(count))
    assert all(np.all(np.diff(part) > 0) for part in (rest, held_out))
    assert np.array_equal(split(documents, share, seed=seed)[1], held_out)


def test_a_seed_that_leaves_a_part_without_tokens_is_named(tmp_path):
    documents = written(tmp_path / "a.npy", [[], [], [1], [2, 3]])
    refused = 0
    for seed in range(20):
        expected = np.random.default_rng(seed).choice(4, 2, replace=False)
        if {*expected.tolist()} in ({0, 1}, {2, 3}):
            refused += 1
            with pytest.raises(ValueError, match=f"seed={seed}.*take another seed"):
                split(documents, 2, seed=seed)
        else:
            assert split(documents, 2, seed=seed)[1].tolist() == sorted(expected)
    assert 0 < refused < 20
