"""The cache of pieces: what it returns, what it keeps, and two processes that share it."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bucket_server import BucketServer

from nanoset_ref import cache
from nanoset_ref.storage import BucketIds, BucketPath, StorageError, identity, pieces

SIZE = 10_000


class Memory:
    """A source, whose bytes are known, that counts what is fetched of it."""

    def __init__(self, key="one"):
        self.key, self.size, self.fetched = key, SIZE, []
        self.content = np.random.default_rng(len(key)).bytes(SIZE)

    def fetch(self, extents):
        self.fetched += [(begin, end) for _, begin, end in extents]
        return [source.content[begin:end] for source, begin, end in extents]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(cache, "PIECE", 1000)


def read(folder, source, extents, limit=1e6):
    found = cache.read_kept(folder, limit, [(source, *extent) for extent in extents], source.fetch)
    assert [bytes(content) for content in found] == [source.content[begin:end] for begin, end in extents]


def kept(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_a_piece_is_fetched_once_and_believed_only_if_it_is_whole(tmp_path, monkeypatch):
    source = Memory()
    read(tmp_path, source, [(10, 20), (990, 3010), (9990, SIZE), (15, 16)])
    assert source.fetched == [(first, first + 1000) for first in (0, 1000, 2000, 3000, 9000)]
    read(tmp_path, source, [(5, 3999), (9000, 9001)])
    assert len(source.fetched) == 5
    read(tmp_path, Memory("another version"), [(10, 20)])
    assert sum(kept(tmp_path).values()) == 6000
    os.truncate(tmp_path / "one-2000", 500)
    monkeypatch.setattr(Path, "exists", lambda path: True)  # as if it went between the look and the reading
    os.unlink(tmp_path / "one-3000")
    read(tmp_path, source, [(2300, 2600), (3100, 3200), (100, 200)])
    assert source.fetched[5:] == [(2300, 2600), (3100, 3200)]


def test_the_limit_holds_and_what_was_used_longest_ago_goes_first(tmp_path):
    source = Memory()
    for first in range(0, 5000, 1000):
        read(tmp_path, source, [(first, first + 10)])
        os.utime(tmp_path / f"one-{first}", (first, first))
    read(tmp_path, source, [(0, 10)])  # used again
    read(tmp_path, source, [(8000, 8010)], limit=4000)
    assert sorted(kept(tmp_path)) == ["one-0", "one-4000", "one-8000"]


def read_at_random(folder, seed):
    random = np.random.default_rng(seed)
    for _ in range(60):
        begins = random.integers(0, SIZE - 1500, 5).tolist()
        read(folder, Memory(), [(begin, begin + 1500) for begin in begins], limit=4000)


def test_two_processes_share_a_folder_that_is_too_small_for_them(tmp_path):
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, fork) as readers:
        assert list(readers.map(read_at_random, [tmp_path] * 2, [1, 2])) == [None] * 2
    assert all(name.startswith("one-") for name in kept(tmp_path)), "nothing unfinished is left"
    assert sum(kept(tmp_path).values()) <= 4000


def test_a_bucket_is_read_through_the_folder_that_is_named_and_another_version_is_another_piece(tmp_path, monkeypatch):
    server, ids = BucketServer().started(), np.arange(9000, dtype="<u2")
    path, folder = BucketPath(f"http://127.0.0.1:{server.port}/a.npy"), tmp_path / "pieces"
    monkeypatch.setenv("NANOSET_REF_CACHE", str(folder))

    def opened():
        return BucketIds(path, identity(path), ids.dtype)

    server.keep("/a.npy", ids.tobytes())
    first, again = opened(), opened()
    assert np.array_equal(first[100:], ids[100:]) and server.sent == 2 * 9000
    assert np.array_equal(again[np.array([5, 8999, 77])], [5, 8999, 77]) and server.sent == 2 * 9000
    assert first[9:9].size == 0
    server.keep("/a.npy", ids[::-1].tobytes())
    assert np.array_equal(opened()[0:9000], ids[::-1]) and np.array_equal(first[0:9000], ids)
    for name in kept(folder):
        os.unlink(folder / name)
    with pytest.raises(StorageError, match=r"a.npy was replaced after it was opened; build the dataset again"):
        first[0:9]
    monkeypatch.setenv("NANOSET_REF_CACHE_GB", "1e-9")
    assert np.array_equal(opened()[0:9000], ids[::-1]) and not kept(folder)
    for variable in ("NANOSET_REF_CACHE_GB", "NANOSET_REF_TIMEOUT"):
        for given in ("10GB", "0", "-1", "nan", "inf"):
            monkeypatch.setenv(variable, given)
            with pytest.raises(StorageError, match=f"{variable} must be a positive number.* got '{given}'"):
                b"".join(pieces(path))
