"""Files are complete or absent, also when the writer is killed."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from nanoset_ref.files import atomic_write, checksum, remove_leftovers


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


def test_a_killed_writer_leaves_no_target_and_the_next_writer_cleans_up(tmp_path):
    script = textwrap.dedent("""
        import sys
        from nanoset_ref.files import atomic_write
        with atomic_write(sys.argv[1]) as file:
            file.write(b"half"); file.flush()
            print("writing", flush=True)
            sys.stdin.read()
    """)
    target = tmp_path / "a.bin"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"writing\n"
        remove_leftovers(target)
        assert len(list(tmp_path.iterdir())) == 1, "the temporary of a live writer must stay"
        os.kill(writer.pid, signal.SIGKILL)
    leftover = [p.name for p in tmp_path.iterdir()]
    assert len(leftover) == 1 and leftover[0].startswith(".a.bin.")
    (tmp_path / ".b.bin.1-deadbeef.tmp").write_bytes(b"of a writer of another target")
    with atomic_write(target) as file:
        file.write(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.bin.1-deadbeef.tmp", "a.bin"]


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
