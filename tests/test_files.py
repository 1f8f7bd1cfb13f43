"""Files are complete or absent, also when the writer is killed."""

import fcntl
import os

import pytest

from nanoset_ref.files import atomic_write, atomic_write_set, checksum, remove_leftovers, written_together


@pytest.mark.parametrize("old", [None, "old"])
def test_a_file_is_complete_or_as_it_was(tmp_path, old):
    path = tmp_path / "a.txt"
    if old:
        path.write_text(old)
    before = list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt), atomic_write(path, "w") as file:
        file.write("new")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == before and (old is None or path.read_text() == old)
    with atomic_write(path) as file:
        file.write(b"tokens")
        file.flush()
        assert path.exists() == bool(old)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"tokens"


def test_the_next_writer_removes_what_a_dead_one_left_and_nothing_else(tmp_path):
    (tmp_path / ".a.bin.1-deadbeef.tmp").write_bytes(b"half")
    (tmp_path / ".b.bin.1-deadbeef.tmp").write_bytes(b"of a writer of another target")
    with atomic_write(tmp_path / "a.bin") as file:
        remove_leftovers(tmp_path / "a.bin")
        assert len(list(tmp_path.iterdir())) == 2, "the temporary of a live writer must stay"
        file.write(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.bin.1-deadbeef.tmp", "a.bin"]


@pytest.mark.parametrize("links", [True, False])
def test_sets_that_are_written_together_appear_together(tmp_path, monkeypatch, links):
    def no_link(*paths):
        raise PermissionError("this filesystem has no hard links")

    def write(content, overwrite=False):
        with written_together():
            for name in "ab":
                parts = [tmp_path / f"{name}.bin", tmp_path / f"{name}.idx"]
                with atomic_write_set(parts, overwrite=overwrite, mode="w") as files:
                    for file in files:
                        file.write(content)
                assert content not in [path.read_text() for path in tmp_path.glob("[ab]*")]

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    write("old")
    with pytest.raises(FileExistsError, match="--overwrite"):
        write("new")
    write("new", overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ["a.bin", "a.idx", "b.bin", "b.idx"], "new"
    )
    if links:  # as if killed when only one of them had appeared
        (tmp_path / "b.idx").unlink()
        os.link(tmp_path / "a.idx", tmp_path / ".a.idx.1-deadbeef.tmp")
        write("newest")
        assert len(list(tmp_path.iterdir())) == 4


def test_a_missing_folder_is_named(tmp_path):
    refused = pytest.raises(FileNotFoundError, match="the folder .*nowhere does not exist")
    with refused, atomic_write(tmp_path / "nowhere" / "a.bin"):
        pass


def test_checksum_is_xxh3_of_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert checksum(tmp_path / "a") == "xxh3_128:99aa06d3014798d86001c324468d497f"  # the published value for no input
    (tmp_path / "a").write_bytes(b"x" * (1 << 22) + b"y")
    assert checksum(tmp_path / "a") != checksum(__file__)


def test_a_temporary_that_was_taken_for_a_leftover_is_made_anew(tmp_path, monkeypatch):
    """Between its making and its lock another writer may remove it."""
    lock, taken = fcntl.flock, []

    def late(file, how):
        if not taken and how == fcntl.LOCK_EX:
            taken.extend(tmp_path.iterdir())
            remove_leftovers(tmp_path / "a")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic_write(tmp_path / "a", "w") as file:
        file.write("whole")
    assert len(taken) == 1
    assert (tmp_path / "a").read_text() == "whole" and len(list(tmp_path.iterdir())) == 1
