"""Opening many files: what is asked of the file system, and when files are opened side by side."""

import gc
import heapq
import os
import socket
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref import Nanoset
from nanoset_ref.orders.share_tree import build_tree
from nanoset_ref.tokens import (
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    TokenFile,
    TokenFileError,
    TokenFileWriter,
    open_tokens,
    opening,
)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".jsonl.zst"])
def test_text_is_not_read_as_ids(tmp_path, suffix):
    path = tmp_path / f"stories{suffix}"
    path.write_text('{"text": "ab"}\n{"text": "cd"}\n')  # an even number of bytes
    with pytest.raises(
        TokenFileError, match=f"{suffix} has no token ids; preprocess text"
    ):
        Nanoset(path, None, 4, 10)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """How often each function of `os` is called with a path that names a token file or its set."""
    start = f"{tmp_path}/tokens"
    calls = Counter()
    for name in ("open", "stat", "lstat", "access", "listdir", "scandir"):
        given = getattr(os, name)

        def counted(path, *arguments, given=given, name=name, **options):
            is_path = not isinstance(path, int)
            calls[name] += is_path and os.fspath(path).startswith(start)
            return given(path, *arguments, **options)

        monkeypatch.setattr(os, name, counted)
    return calls


def test_a_raw_file_takes_two_calls_by_its_path(tmp_path, asked):
    """One opens it and refuses a link, one asks for a manifest."""
    for number in range(5):
        np.arange(100, dtype="<u2").tofile(tmp_path / f"tokens{number}.npy")
    Nanoset([str(tmp_path / f"tokens{number}.npy") for number in range(5)], None, 8, 10)
    assert +asked == {"open": 5, "lstat": 5}


def test_a_link_is_opened_twice(tmp_path, asked):
    np.arange(100, dtype="<u2").tofile(tmp_path / "ids.npy")
    (tmp_path / "tokens.npy").symlink_to(tmp_path / "ids.npy")
    assert len(TokenFile(tmp_path / "tokens.npy").tokens) == 100
    assert asked["open"] == 2
    (tmp_path / "ids.npy").unlink()
    with pytest.raises(FileNotFoundError, match="a file that does not exist"):
        TokenFile(tmp_path / "tokens.npy")
    (tmp_path / "tokens_loop.npy").symlink_to(tmp_path / "tokens_loop.npy")
    with pytest.raises(OSError, match="symbolic links"):
        TokenFile(tmp_path / "tokens_loop.npy")


def test_a_manifest_adds_its_own_file_and_the_version_of_the_boundaries(
    tmp_path, asked
):
    with TokenFileWriter(tmp_path / "tokens.npy", dtype="uint16") as writer:
        writer.write(range(10), [4, 6])
    asked.clear()
    assert TokenFile(tmp_path / "tokens.npy").manifest.num_documents == 2
    # the file, its manifest and its boundaries; and the manifest is read
    assert +asked == {"open": 1, "lstat": 2}


def test_a_pair_maps_its_index_only_when_it_is_used(tmp_path):
    with MMapIndexedDatasetBuilder(tmp_path / "tokens.bin", "uint16") as builder:
        builder.write(range(10), [4, 6])
    pair = open_tokens(tmp_path / "tokens.bin")
    assert isinstance(pair, MMapIndexedDataset)
    assert pair.num_tokens == 10 and "sequence_lengths" not in vars(pair)
    assert pair.sequence_lengths.tolist() == [4, 6]
    assert "sequence_lengths" in vars(pair)
    late = open_tokens(tmp_path / "tokens.bin")
    (tmp_path / "tokens.idx").write_bytes(b"")
    with pytest.raises(TokenFileError, match=r"tokens\.idx was replaced or changed"):
        _ = late.sequence_lengths
    with pytest.raises(AttributeError, match="sequence_length$"):
        _ = late.sequence_length


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_other_than_regular_files_are_refused_at_once(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    if kind == "pipe":
        os.mkfifo("tokens.npy")
    elif kind == "folder":
        os.mkdir("tokens.npy")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("tokens.npy")
    with pytest.raises((OSError, ValueError), match=r"regular file|tokens\.npy"):
        open_tokens("tokens.npy")


def test_a_relative_path_names_no_file_in_another_working_directory(
    tmp_path, monkeypatch
):
    np.arange(100, dtype="<u2").tofile(tmp_path / "tokens.npy")
    monkeypatch.chdir(tmp_path)
    file = TokenFile("tokens.npy", "uint16")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with pytest.raises(
        TokenFileError,
        match=r"tokens\.npy is gone \(the working directory is .*elsewhere",
    ):
        file.check_unchanged()


def test_a_manifest_that_appears_later_is_a_change(tmp_path):
    path = tmp_path / "tokens.npy"
    np.arange(100, dtype="<u2").tofile(path)
    file = open_tokens(path)
    path.with_suffix(".json").write_text("{}")
    with pytest.raises(TokenFileError, match=r"tokens\.json was replaced or changed"):
        file.check_unchanged()


@pytest.mark.parametrize(
    "name", ["a.b/tokens", "tokens.x.npy", "tokens", ".npy", "a.b/.npy"]
)
def test_companions_have_the_names_that_pathlib_gives(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    np.arange(100, dtype="<u2").tofile(path)
    assert TokenFile(path).companion(".json") == str(path.with_suffix(".json"))


def test_files_are_opened_side_by_side_where_they_are_waited_for(tmp_path, monkeypatch):
    """In their order; the first ones tell."""
    paths = [str(tmp_path / f"{number}.npy") for number in range(40)]
    for number, path in enumerate(paths):
        np.arange(100 + number, dtype="<u2").tofile(path)
    threads = set()
    lstat = os.lstat

    def slow(path):
        threads.add(threading.get_ident())
        time.sleep(0.003)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", slow)
    for allowed in (60, 0.001):  # seconds
        monkeypatch.setattr(opening, "MAX_WAIT", allowed)
        threads.clear()
        data = Nanoset(paths, None, 8, 10)
        assert [file.num_tokens for file in data.files] == list(range(100, 140))
        assert (len(threads) > 1) == (allowed < 1)
    assert gc.isenabled()


@given(
    st.lists(st.integers(0, 2**40) | st.integers(0, 3), min_size=1, max_size=40).filter(
        any
    )
)
def test_the_tree_of_shares_is_the_one_of_a_heap(parts):
    heap = [(part, source) for source, part in enumerate(parts) if part]
    heapq.heapify(heap)
    children = []
    for node in range(len(parts), len(parts) + len(heap) - 1):
        pair = [heapq.heappop(heap), heapq.heappop(heap)]
        children.append([source for _, source in pair])
        heapq.heappush(heap, (sum(part for part, _ in pair), node))
    tree = build_tree(parts)
    assert tree.children[len(parts) :].tolist() == children
    assert (heap[0][0], tree.root) == (sum(parts), heap[0][1])
    assert tree.parts[tree.root] == sum(parts)
