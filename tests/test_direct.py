"""Rows read past the page cache: those of slices, in any process, and clear errors."""

import gc
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from file_kinds import write_shard
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref import Nanoset, build_nanoset_dataloader
from nanoset_ref.load import direct_gather
from nanoset_ref.load import gather as gather_module
from nanoset_ref.load.direct_gather import DISK_BLOCK, DirectGatherer
from nanoset_ref.load.gather import PageCacheGatherer
from nanoset_ref.tokens import TokenFile, open_tokens

pytestmark = pytest.mark.only_on("linux")  # no other system has these reads


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Four files; the last id of the second one ends a disk block, the last has a header."""
    folder = tmp_path_factory.mktemp("direct")
    random, found = np.random.default_rng(0), []
    for number, (count, dtype) in enumerate(
        [(9000, "<u2"), (5 * DISK_BLOCK // 4, "<i4"), (40, "<u2")]
    ):
        random.integers(0, 2**16 - 1, count).astype(dtype).tofile(
            folder / f"{number}.npy"
        )
        found.append(TokenFile(folder / f"{number}.npy", dtype))
    found.append(
        open_tokens(write_shard(folder / "3.bin", random.integers(0, 2**16 - 1, 40)))
    )
    return found


def slices(files, datasets, starts, length):
    ids = [np.fromfile(file.path, file.dtype, offset=file.first_byte) for file in files]
    rows = [
        ids[dataset][start : start + length]
        for dataset, start in zip(datasets, starts, strict=True)
    ]
    return np.array(rows, dtype=np.int32).reshape(-1, length)


@settings(max_examples=60)
@given(
    st.integers(1, 40) | st.just(5000),
    st.integers(0, 300),
    st.integers(1, 200),
    st.integers(0, 2**32 - 1),
)
def test_rows_are_slices_of_their_files(files, length, count, depth, seed):
    """More and fewer rows than may be under way, and larger ones than there is room for; the last ids among them."""
    files, random = files[: 4 if length < 41 else 2], np.random.default_rng(seed)
    datasets = random.integers(0, len(files), count)
    last = np.array([file.num_tokens - length for file in files])[datasets]
    starts = np.where(random.random(count) < 0.2, last, random.integers(0, last + 1))
    out = np.full((count + 1, length), -1, dtype=np.int32)
    gather = DirectGatherer(files)
    gather.python_rows_left = 100 * (seed % 2)
    direct_gather._idle_queues[:] = [
        (queue, direct_gather._huge_pages(DISK_BLOCK << seed % 12))
        for queue, _ in direct_gather._idle_queues
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_gather, "DEPTH", depth)
        for _ in range(2):
            gather(datasets, starts, out[:-1])
    assert np.array_equal(out[:-1], slices(files, datasets, starts, length))
    assert (out[-1] == -1).all()


def reads_the_first(gather, files, starts, length):
    out = np.empty((len(starts), length), dtype=np.int32)
    gather(np.zeros(len(starts), np.int64), starts, out)
    return np.array_equal(out, slices(files, [0] * len(starts), starts, length))


def test_threads_have_queues_of_their_own_and_use_them_again(files):
    direct_gather._idle_queues.clear()
    gather, starts = (
        DirectGatherer(files),
        np.random.default_rng(0).integers(0, 8000, (40, 500)),
    )
    with ThreadPoolExecutor(4) as pool:
        assert all(
            pool.map(lambda some: reads_the_first(gather, files, some, 900), starts)
        )
    assert 1 <= len(direct_gather._idle_queues) <= 5


def test_the_first_rows_of_a_process_are_read_without_numba(files):
    script = """
import sys
import numpy as np
from nanoset_ref.load.direct_gather import DirectGatherer
from nanoset_ref.tokens import open_tokens
rows = np.empty((20, 100), dtype=np.int32)
gather = DirectGatherer([open_tokens(sys.argv[1], "uint16")])
gather(np.zeros(20, np.int64), np.arange(20) * 400, rows)
assert "numba" not in sys.modules
gather.python_rows_left = 10
again = np.empty_like(rows)
gather(np.zeros(20, np.int64), np.arange(20) * 400, again)
assert "numba" in sys.modules
assert np.array_equal(rows, again) and rows.any()
"""
    subprocess.run([sys.executable, "-c", script, files[0].path], check=True)


@pytest.mark.parametrize("options", [{}, {"read_ahead": 2}, {"num_loading_workers": 2}])
def test_a_loader_delivers_the_same_batches(files, monkeypatch, options):
    def batches(asked):
        monkeypatch.setenv("NANOSET_REF_DIRECT", asked)
        nanoset = Nanoset(files[:2], None, 64, 2000)
        nanoset[0]  # with a queue of this process, which workers must not use
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=4, **options)
        return type(nanoset._gather), np.stack(
            [batch["input_ids"].numpy().copy() for batch in islice(loader, 450)]
        )

    (kind, ours), (other, theirs) = batches("1"), batches("0")
    assert (kind, other) == (DirectGatherer, PageCacheGatherer)
    assert np.array_equal(ours, theirs)


def test_files_larger_than_memory_are_read_directly_where_possible(files, monkeypatch):
    size = sum(file.num_tokens * file.dtype.itemsize for file in files)

    def kind(more, asked=""):
        monkeypatch.setattr(gather_module, "memory_limit", lambda: size - more)
        monkeypatch.setenv("NANOSET_REF_DIRECT", asked)
        return type(Nanoset(files, None, 16, 10)._gather)

    assert (kind(0), kind(1), kind(1, "0"), kind(0, "1")) == (
        PageCacheGatherer,
        DirectGatherer,
        PageCacheGatherer,
        DirectGatherer,
    )
    with pytest.raises(
        ValueError, match="NANOSET_REF_DIRECT must be 0 or 1; got 'yes'"
    ):
        kind(0, "yes")
    monkeypatch.setattr(direct_gather.platform, "machine", lambda: "s390x")
    assert kind(1) is PageCacheGatherer
    with pytest.raises(
        OSError, match="reading past the page cache needs Linux on x86_64 or aarch64"
    ):
        kind(0, "1")


def test_a_file_that_was_cut_short_is_an_error_and_the_queue_can_be_used_again(
    files, tmp_path
):
    path = tmp_path / "short.npy"
    np.arange(9000).astype("<u2").tofile(path)
    short = DirectGatherer([TokenFile(path, "<u2")])
    os.truncate(path, 2 * 7000)
    starts = np.arange(400) * 20
    with pytest.raises(
        OSError,
        match=r"short.npy cannot be read from token (6,99|7,).* on: it was cut short",
    ):
        reads_the_first(short, files, starts, 10)
    assert reads_the_first(DirectGatherer(files), files, starts, 10)


class LastTaken(list):
    """Idle queues of which another thread takes the last between the look and the taking."""

    def __len__(self):
        return 1


def test_a_thread_that_finds_the_last_idle_queue_taken_makes_one(files, monkeypatch):
    monkeypatch.setattr(direct_gather, "_idle_queues", LastTaken())
    with direct_gather._queue(0) as (queue, _):
        assert queue
    direct_gather._destroy_queue(queue)


def test_a_system_without_another_queue_names_the_setting(files, monkeypatch):
    gather = DirectGatherer(files)
    monkeypatch.setattr(direct_gather, "_idle_queues", [])
    monkeypatch.setattr(direct_gather, "_system_call", lambda *_: -1)
    with pytest.raises(
        OSError,
        match=r"no more queues for asynchronous reads: raise fs.aio-max-nr \(sysctl\)",
    ):
        reads_the_first(gather, files, np.zeros(1, np.int64), 4)


def queues():
    """Those that the system has for this process: each is in its memory."""
    return Path("/proc/self/maps").read_text().count("[aio]")


def test_the_queue_of_a_read_that_fails_goes_back_to_the_system(files):
    gather = DirectGatherer(files)
    before = queues()
    for _ in range(3):
        with pytest.raises(OSError, match="a disk's"), direct_gather._queue(0):
            raise OSError("a disk's")
    assert queues() <= before
    assert reads_the_first(gather, files, np.arange(9), 10)


def test_queues_are_shared_by_the_datasets_of_a_process_and_go_with_the_last(files):
    gc.collect()
    before, alive = queues(), []
    for _ in range(60):
        alive.append(DirectGatherer(files))
        assert reads_the_first(alive[-1], files, np.arange(9), 10)
        assert queues() <= before + 1
    with ThreadPoolExecutor(12) as threads:
        assert all(
            threads.map(
                lambda gather: reads_the_first(gather, files, np.arange(900), 10), alive
            )
        )
    assert before < queues() <= before + direct_gather.MAX_IDLE_QUEUES
    alive.clear()
    gc.collect()
    assert queues() == 0


def test_a_process_that_is_forked_leaves_the_queues_of_its_parent_alone(files):
    gather = DirectGatherer(files)
    assert reads_the_first(gather, files, np.arange(9), 10)
    child = multiprocessing.get_context("fork").Process(
        target=reads_the_first, args=(gather, files, np.arange(9), 10)
    )
    child.start()
    child.join()
    assert child.exitcode == 0 and reads_the_first(gather, files, np.arange(9), 10)
