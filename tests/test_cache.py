"""The cache of pieces: what it returns and keeps, what it leaves alone, and who shares it."""

import multiprocessing
import os
import stat
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bucket_server import BucketServer

from nanoset_ref.io import object_cache as cache
from nanoset_ref.io.bucket_ranges import BucketIds
from nanoset_ref.io.paths import file_version, read_in_blocks
from nanoset_ref.io.urls import BucketPath, StorageError

SIZE = 10_000


class Memory:
    """A source, whose bytes are known, that counts what is fetched of it."""

    def __init__(self, number=1):
        self.cache_key, self.size, self.fetched = f"{number:024x}", SIZE, []
        self.content = np.random.default_rng(number).bytes(SIZE)

    def fetch(self, extents):
        self.fetched += [(begin, end) for _, begin, end in extents]
        return [source.content[begin:end] for source, begin, end in extents]

    def place(self, folder, first):
        return folder / cache.SUBFOLDER / f"{self.cache_key}-{first}"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(cache, "PIECE_BYTES", 1000)
    monkeypatch.setattr(cache, "CHECKED_BYTES", 100)
    cache._warn.cache_clear()


ROOM = 1000 + 10 * 8  # bytes of a whole piece: its content and its checksums


def read(folder, source, extents, limit=1e6):
    found = cache.read_cached(
        folder, limit, [(source, *extent) for extent in extents], source.fetch
    )
    assert [bytes(content) for content in found] == [
        source.content[begin:end] for begin, end in extents
    ]


def kept(folder):
    return {
        path.name: path.stat().st_size for path in (folder / cache.SUBFOLDER).iterdir()
    }


def everything(folder):
    """All below a folder, with what it holds or links to."""
    found = {}
    for path in folder.rglob("*"):
        found[path] = (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
    return found


def test_a_piece_is_fetched_once_and_another_version_has_other_pieces(tmp_path):
    source = Memory()
    read(tmp_path, source, [(10, 20), (990, 3010), (9990, SIZE), (15, 16)])
    assert source.fetched == [
        (first, first + 1000) for first in (0, 1000, 2000, 3000, 9000)
    ]
    read(tmp_path, source, [(5, 3999), (9000, 9001)])
    assert len(source.fetched) == 5
    read(tmp_path, Memory(2), [(10, 20)])
    assert sum(kept(tmp_path).values()) == 6 * ROOM


DAMAGES = {
    "torn": lambda path: os.truncate(path, 500),
    "zeros": lambda path: path.write_bytes(bytes(ROOM)),
    "another's": lambda path: path.write_bytes(
        path.with_name(path.name.replace("-0", "-1000")).read_bytes()
    ),
    "one bit": lambda path: path.write_bytes(
        path.read_bytes()[:-999] + b"!" + path.read_bytes()[-998:]
    ),
    "gone": os.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_piece_whose_content_is_not_what_was_fetched_is_fetched_again_and_repaired(
    tmp_path, damage
):
    source = Memory()
    read(tmp_path, source, [(0, 2000)])
    DAMAGES[damage](source.place(tmp_path, 0))
    for _ in range(2):
        read(tmp_path, source, [(0, 1050), (3, 4)])
        assert source.fetched[2:] == [(0, 1000)]


def test_pieces_are_flushed_before_they_have_their_names_and_are_readable_as_the_umask_says(
    tmp_path, monkeypatch
):
    events, before = [], os.umask(0o027)
    monkeypatch.setattr(
        os, "fsync", lambda _, fsync=os.fsync: (events.append("fsync"), fsync(_))
    )
    monkeypatch.setattr(
        os,
        "replace",
        lambda *_, replace=os.replace: (events.append("rename"), replace(*_)),
    )
    try:
        os.chmod(tmp_path, 0o2770)
        read(tmp_path, Memory(), [(0, 1)])
    finally:
        os.umask(before)
    assert events == ["fsync", "rename"]
    assert stat.S_IMODE(Memory().place(tmp_path, 0).stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / cache.SUBFOLDER).stat().st_mode) == 0o2770


def test_the_limit_holds_and_what_was_used_longest_ago_goes_first(tmp_path):
    source = Memory()
    for first in range(0, 5000, 1000):
        read(tmp_path, source, [(first, first + 10)])
        os.utime(source.place(tmp_path, first), (first, first))
    read(tmp_path, source, [(0, 10)])  # used again
    read(tmp_path, source, [(8000, 8010)], limit=4 * ROOM)
    assert sorted(kept(tmp_path)) == [
        source.place(tmp_path, first).name for first in (0, 4000, 8000)
    ]


def write_foreign(folder, source):
    """What other people and programs may have put where pieces go, also under the names of pieces."""
    home = folder / cache.SUBFOLDER
    home.mkdir()
    for parent in (folder, home):
        for name in (
            "thesis.tex",
            f"{source.cache_key}-0.bak",
            f"{source.cache_key}",
            "one-0",
            f".{source.cache_key}-0",
        ):
            (parent / name).write_text(name)
        (parent / "corpus").mkdir()
        (parent / "corpus" / f"{source.cache_key}-0").write_text("kept")
        (parent / "link").symlink_to(folder / "thesis.tex")
    (folder / f"{source.cache_key}-0").write_text(
        "a piece's name, in the folder of the user"
    )
    source.place(folder, 2000).mkdir()
    source.place(folder, 3000).symlink_to(folder / "thesis.tex")
    os.mkfifo(source.place(folder, 4000))


def test_nothing_in_the_folder_is_removed_replaced_or_waited_for_but_pieces(tmp_path):
    source = Memory()
    write_foreign(tmp_path, source)
    before = everything(tmp_path)
    for _ in range(2):
        read(tmp_path, source, [(0, SIZE)], limit=3 * ROOM)
    after = everything(tmp_path)
    assert {path: after.get(path, "gone") for path in before} == before
    assert after.keys() - before.keys() <= {
        source.place(tmp_path, first) for first in range(0, SIZE, 1000)
    }
    assert cache.PIECE_NAME.fullmatch(f"{source.cache_key}-77.0123abcd.tmp"), (
        "what a killed writer leaves goes with the pieces"
    )


@pytest.mark.parametrize(
    "in_place", [Path.touch, os.mkfifo, lambda path: path.symlink_to(path)]
)
def test_a_folder_that_cannot_be_used_costs_a_warning_and_no_row(
    tmp_path, caplog, in_place
):
    in_place(tmp_path / cache.SUBFOLDER)
    source = Memory()
    for _ in range(2):
        read(tmp_path, source, [(0, 2500)])
    assert (
        caplog.text.count("pieces are read, but not all can be cached or removed in")
        == 1
    )
    assert "pieces: File exists" in caplog.text, "and says why"
    assert [path.name for path in tmp_path.iterdir()] == [cache.SUBFOLDER]


def as_another_user(act, *arguments):
    """Act in a process that may not do what root may; of a root's, in one that is somebody else's."""

    def child():
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        act(*arguments)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.fixture
def shared():
    """A folder that other users reach, and may write to; all above it are open to them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder
        (folder / cache.SUBFOLDER).chmod(0o777)


def read_once(folder, source, extents, fetched, limit=1e6):
    read(folder, source, extents, limit)
    assert source.fetched == fetched


def test_two_users_share_a_folder_and_read_each_others_pieces(shared):
    first, second = [(0, 1000)], [(5000, 6000)]
    read(shared, Memory(), first)
    as_another_user(read_once, shared, Memory(), [*first, *second], second)
    mine = Memory()
    read(shared, mine, [*first, *second])
    assert not mine.fetched


@pytest.mark.parametrize("forbidden", ["piece", "folder"])
def test_pieces_of_another_user_that_may_not_be_read_or_removed_are_left_to_him(
    shared, forbidden
):
    source = Memory()
    read(shared, source, [(0, 3000)])
    for first in (0, 1000):
        source.place(shared, first).chmod(0)
    if forbidden == "folder":
        (shared / cache.SUBFOLDER).chmod(0o555)
    before = set(kept(shared))
    wanted = [(0, 1000), (1000, 2000), (5000, 6000)]
    as_another_user(read_once, shared, Memory(), wanted, wanted, 2 * ROOM)
    if forbidden == "folder":
        assert set(kept(shared)) == before


def read_at_random(folder, seed, limit=4 * ROOM):
    random = np.random.default_rng(seed)
    for _ in range(60):
        begins = random.integers(0, SIZE - 1500, 5).tolist()
        read(folder, Memory(), [(begin, begin + 1500) for begin in begins], limit=limit)


def test_two_processes_share_a_folder_that_is_too_small_for_them_with_limits_of_their_own(
    tmp_path,
):
    fork = multiprocessing.get_context("fork")
    (tmp_path / "thesis.tex").write_text("mine")
    with ProcessPoolExecutor(2, fork) as readers:
        done = readers.map(read_at_random, [tmp_path] * 2, [1, 2], [4 * ROOM, 6 * ROOM])
        assert list(done) == [None] * 2
    assert all(
        cache.PIECE_NAME.fullmatch(name) and "tmp" not in name
        for name in kept(tmp_path)
    )
    assert sum(kept(tmp_path).values()) <= 6 * ROOM
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_bucket_is_read_through_the_folder_that_is_named_and_another_version_is_another_piece(
    tmp_path, monkeypatch
):
    server, ids = BucketServer().started(), np.arange(9000, dtype="<u2")
    path, folder = (
        BucketPath(f"http://127.0.0.1:{server.port}/a.npy"),
        tmp_path / "pieces",
    )
    monkeypatch.setenv("NANOSET_REF_CACHE", str(folder))

    def opened():
        return BucketIds(path, file_version(path), ids.dtype)

    server.keep("/a.npy", ids.tobytes())
    first, again = opened(), opened()
    assert np.array_equal(first[100:], ids[100:])
    sent = server.sent
    assert 2 * 9000 <= sent < 2 * 9000 + 10, (
        "all of it, and what a try of the server's conditions takes"
    )
    assert (
        np.array_equal(again[np.array([5, 8999, 77])], [5, 8999, 77])
        and server.sent == sent
    )
    assert first[9:9].size == 0
    server.keep("/a.npy", ids[::-1].tobytes())
    assert np.array_equal(opened()[0:9000], ids[::-1]) and np.array_equal(
        first[0:9000], ids
    )
    for name in kept(folder):
        os.unlink(folder / cache.SUBFOLDER / name)
    with pytest.raises(
        StorageError,
        match=r"a.npy was replaced after it was opened; build the dataset again",
    ):
        first[0:9]
    monkeypatch.setenv("NANOSET_REF_CACHE_GB", "1e-9")
    assert np.array_equal(opened()[0:9000], ids[::-1]) and not kept(folder)
    for variable in ("NANOSET_REF_CACHE_GB", "NANOSET_REF_TIMEOUT"):
        for given in ("10GB", "0", "-1", "nan", "inf"):
            monkeypatch.setenv(variable, given)
            with pytest.raises(
                StorageError,
                match=f"{variable} must be a positive number.* got '{given}'",
            ):
                b"".join(read_in_blocks(path))
        monkeypatch.setenv(variable, "")  # as launchers export what is not set
        assert b"".join(read_in_blocks(path)) == ids[::-1].tobytes()
    monkeypatch.setenv("NANOSET_REF_CACHE", "s3://tokens/pieces")
    with pytest.raises(ValueError, match="NANOSET_REF_CACHE must be a local path"):
        b"".join(read_in_blocks(path))
