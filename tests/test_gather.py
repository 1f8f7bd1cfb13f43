"""The gather kernel against slices."""

import contextlib
import gc
import mmap
import os
import resource
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from file_kinds import write_shard
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.load import gather_kernel
from nanoset_ref.load.bucket_gather import BucketGatherer
from nanoset_ref.load.gather import (
    ADVISED_ROWS,
    MAX_PYTHON_ROWS,
    PageCacheGatherer,
)
from nanoset_ref.load.gather_kernel import REGION_BYTES
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import MMapIndexedDatasetBuilder
from nanoset_ref.tokens import TokenFile, TokenFileError, open_tokens


def token_files(folder, *arrays):
    """A file for each (ids, dtype); "shard": uint16 behind the header of an llm.c shard."""
    files = []
    for number, (ids, dtype) in enumerate(arrays):
        if dtype == "shard":
            files.append(open_tokens(write_shard(folder / f"{number}.bin", ids)))
            continue
        np.array(ids).astype(dtype).tofile(folder / f"{number}.npy")
        files.append(TokenFile(folder / f"{number}.npy", dtype))
    return files


def kernel_of(files):
    """A gatherer that reads nothing without its kernel."""
    gather = PageCacheGatherer(files)
    gather.python_rows_left = 0
    return gather


def rows_of(gather, datasets, starts, length):
    out = np.empty((len(starts), length), dtype=np.int32)
    gather(np.array(datasets), np.array(starts), out)
    return out.tolist()


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.sampled_from(["<u2", "<i4", "shard"])),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 40),
    st.data(),
)
def test_rows_are_slices_of_their_files(tmp_path_factory, files, length, data):
    """The oracle: one slice per row. Any number of rows, so that asking two rows ahead meets both ends."""
    first = {
        "<u2": 2**16 - 90,
        "shard": 2**16 - 90,
        "<i4": 2**31 - 90,
    }  # uint16 has no sign: 65535 is not -1
    arrays = [
        (np.arange(size + length) + first[dtype] - number, dtype)
        for number, (size, dtype) in enumerate(files)
    ]
    wanted = data.draw(
        st.lists(st.tuples(st.integers(0, len(files) - 1), st.floats(0, 1)), max_size=9)
    )
    datasets = np.array([dataset for dataset, _ in wanted], dtype=np.int64)
    starts = np.array(
        [int(where * files[dataset][0]) for dataset, where in wanted], dtype=np.int64
    )
    out = np.full((len(wanted) + 1, length), -1, dtype=np.int32)
    gather = PageCacheGatherer(token_files(tmp_path_factory.mktemp("t"), *arrays))
    for _ in range(
        3
    ):  # without the kernel, or by it: first by pread, then through the mapping
        gather._reads_from_disk = data.draw(st.booleans())
        gather.python_rows_left = data.draw(st.sampled_from([0, MAX_PYTHON_ROWS]))
        out[:] = -1
        gather(datasets, starts, out[:-1])
    expected = [
        arrays[dataset][0][start : start + length].tolist()
        for dataset, start in zip(datasets, starts, strict=True)
    ]
    assert out.tolist() == [*expected, [-1] * length], (
        "and nothing behind them is touched"
    )


def test_the_last_row_of_a_file_that_ends_with_a_page(tmp_path):
    """Behind a file of exactly one page nothing is mapped: reading, or asking, one id too far would show."""
    gather = kernel_of(token_files(tmp_path, (np.arange(2048), "<u2")))
    last = [*range(2040, 2048)]
    for _ in range(2):
        assert rows_of(gather, [0, 0, 0], [0, 2040, 2040], 8) == [
            [*range(8)],
            last,
            last,
        ]


def test_a_window_is_mapped_from_its_second_visit_on(tmp_path):
    """What is seen of it: the bytes on disk change, the mapping is taken away."""
    path = token_files(
        tmp_path, (np.arange(100_000) % 60_000, "<u2"), (np.arange(40_000), "<i4")
    )
    gather = kernel_of(path)
    rows_of(gather, [0, 1], [0, 0], 1)  # opens both
    gather._mapped.arrays.visited[:] = 0
    other = np.arange(100, dtype=np.int32).astype("<u2")
    addresses = gather._mapped.arrays.addresses.copy()
    gather._mapped.arrays.addresses[:] = np.uint64(other.ctypes.data) - np.uint64(
        2 * 70_000
    )

    assert rows_of(gather, [0], [70_000], 4) == [[10_000, 10_001, 10_002, 10_003]]
    assert rows_of(gather, [0], [70_000], 4) == [[0, 1, 2, 3]], "the address was asked"
    gather._mapped.arrays.addresses[:] = addresses
    assert rows_of(gather, [0], [70_001], 4) == [[10_001, 10_002, 10_003, 10_004]]
    assert rows_of(gather, [1, 1], [5, 5], 4) == [[5, 6, 7, 8]] * 2
    assert np.flatnonzero(gather._mapped.arrays.visited).tolist() == [
        70_000 * 2 // REGION_BYTES,
        200_000 // REGION_BYTES + 1,
    ]


def test_many_windows_share_a_few_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("nanoset_ref.load.mapped_files.MAX_REGIONS", 2)
    gather = kernel_of(token_files(tmp_path, (np.arange(200_000) % 60_000, "<u2")))
    for start in [0, 150_000, 40_000, 199_990] * 2:
        assert rows_of(gather, [0], [start], 10) == [
            [(start + i) % 60_000 for i in range(10)]
        ]
    assert len(gather._mapped.arrays.visited) == 2


def test_reads_fall_back_to_the_mapping_where_pread_fails(tmp_path):
    gather = kernel_of(
        token_files(tmp_path, (np.arange(100), "<u2"), (np.arange(100), "<i4"))
    )
    rows_of(gather, [0, 1], [0, 0], 1)  # opens and maps both
    gather._mapped.arrays.visited[:] = 0
    gather._open_files.descriptors[:] = 1 << 30
    assert rows_of(gather, [0, 1], [1, 97], 3) == [[1, 2, 3], [97, 98, 99]]


@pytest.mark.parametrize("python_rows_left", [0, MAX_PYTHON_ROWS])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("dtype", ["<u2", "<i4"])
def test_a_file_that_is_cut_short_under_its_reader_is_an_error_and_not_the_end_of_the_process(
    tmp_path, dtype, seen, python_rows_left
):
    """Rows that are new, and rows that are mapped already."""
    files = token_files(
        tmp_path, (np.arange(200_000) % 60_000, dtype), (np.arange(100), dtype)
    )
    gather = PageCacheGatherer(files)
    gather.python_rows_left = python_rows_left
    rows_of(gather, [0] * 100, range(0, 190_000, 1900) if seen else [0] * 100, 10)
    os.truncate(files[0].path, 8192)
    with pytest.raises(
        OSError,
        match=r"0.npy cannot be read from token 190,000 on: it was cut short after it was opened",
    ):
        rows_of(gather, [1, 0, 0], [5, 7, 190_000], 10)
    assert rows_of(gather, [0, 1], [7, 90], 10) == [[*range(7, 17)], [*range(90, 100)]]


def test_a_file_that_is_cut_to_nothing_before_it_is_mapped_is_the_same_error(tmp_path):
    files = token_files(tmp_path, (np.arange(100), "<u2"))
    gather = PageCacheGatherer(files)
    rows_of(gather, [0], [0], 10)
    os.truncate(files[0].path, 0)
    gather.python_rows_left = 0
    with pytest.raises(
        OSError, match=r"0.npy cannot be read from token 0 on: it was cut"
    ):
        rows_of(gather, [0], [0], 10)


def descriptors_of(files):
    """How many descriptors of this process belong to these files; other tests may close theirs meanwhile."""
    inodes = {os.stat(file.path).st_ino for file in files}
    count = 0
    for descriptor in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # that of the listing itself
            count += os.fstat(descriptor).st_ino in inodes
    return count


def test_nothing_stays_open(tmp_path):
    """Neither descriptors nor mappings outlive their owner."""
    files = token_files(tmp_path, (np.arange(100), "<u2"))
    gather = kernel_of(files)
    assert descriptors_of(files) == 0, "nothing is open before the first row is read"
    rows_of(gather, [0], [0], 1)
    assert descriptors_of(files) == 2
    del gather
    gc.collect()
    assert descriptors_of(files) == 0


def test_a_long_row_is_whole(tmp_path):
    gather = kernel_of(token_files(tmp_path, (np.arange(200_000) % 60_000, "<u2")))
    assert (
        rows_of(gather, [0, 0], [7, 7], 2 * REGION_BYTES)
        == [[k % 60_000 for k in range(7, 7 + 2 * REGION_BYTES)]] * 2
    )


def test_rows_are_advised_at_first_and_after_a_wait_for_the_disk(tmp_path, monkeypatch):
    """In the first call; in none while all is in memory; in those after one that read from the disk."""
    gather = kernel_of(token_files(tmp_path, (np.arange(10_000), "<i4")))
    disk_reads, early = iter([0, 8, 16, 16, 16]), []
    monkeypatch.setattr(
        "resource.getrusage",
        lambda who: types.SimpleNamespace(ru_inblock=next(disk_reads)),
    )
    monkeypatch.setattr(
        "nanoset_ref.load.gather_kernel.gather_rows",
        lambda *arguments: early.append(arguments[-2]) or -1,
    )
    gather._disk_reads = 0
    for _ in range(5):
        rows_of(gather, [0], [1023], 10)
    assert early == [ADVISED_ROWS, 0, ADVISED_ROWS, ADVISED_ROWS, 0]


def test_every_row_is_advised_once_and_early_from_the_page_in_which_it_begins(
    monkeypatch,
):
    """The code of the kernel in Python, which is what numba compiles; 30 rows of two files, each 8 rows early."""
    advised, read, sizes, headers = [], [], (2, 4), (0, 128)
    datasets = np.arange(30) % 2
    begins = 77_777 * np.arange(30)
    for name in ("_advise", "widen"):
        monkeypatch.setattr(gather_kernel, name, getattr(gather_kernel, name).py_func)
    monkeypatch.setattr(gather_kernel, "_prefetch", lambda address: None)
    monkeypatch.setattr(
        gather_kernel,
        "_madvise",
        lambda *advice: advised.append(tuple(map(int, advice))),
    )
    monkeypatch.setattr(
        gather_kernel, "_pread", lambda *asked: read.append(len(advised)) or asked[2]
    )
    monkeypatch.setattr(gather_kernel, "_lseek", lambda *asked: 1 << 40)
    addresses, windows = np.array([1 << 30, 1 << 40], np.uint64), np.array([0, 200])
    arrays = np.array(sizes), np.array(headers), windows, np.zeros(400)
    gather_kernel.gather_rows.py_func(
        (addresses, *arrays),
        np.zeros(2, int),
        datasets,
        begins,
        8,
        np.empty((30, 10), dtype=np.int32),
    )
    for row, (address, size, advice) in enumerate(advised):
        begin = headers[row % 2] + 77_777 * row * sizes[row % 2]
        page = begin // mmap.PAGESIZE * mmap.PAGESIZE
        assert (address - (1 << 30 + 10 * (row % 2)), size) == (
            page,
            begin + 10 * sizes[row % 2] - page,
        )
        assert advice == mmap.MADV_WILLNEED
    assert read == [min(row + 9, 30) for row in range(30)]


@pytest.mark.parametrize("python_rows_left", [0, MAX_PYTHON_ROWS])
def test_any_number_of_files_is_read_under_any_limit(tmp_path, python_rows_left):
    """Half of what the process may open stays open; every row is right, in every thread."""
    files = token_files(
        tmp_path, *[(np.arange(20) + number, "<u2") for number in range(300)]
    )
    datasets = np.random.default_rng(0).integers(0, 300, 1000)
    starts = datasets % 7
    expected = (datasets + starts)[:, None] + np.arange(10)
    gather = PageCacheGatherer(files)
    gather.python_rows_left = python_rows_left
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests left open
    used = len(os.listdir("/dev/fd"))
    limit = 2 * used + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        with ThreadPoolExecutor(3) as threads:
            reads = [
                threads.submit(rows_of, gather, datasets, starts, 10) for _ in range(3)
            ]
        assert [read.result() for read in reads] == [expected.tolist()] * 3
        assert used < len(os.listdir("/dev/fd")) <= limit // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert descriptors_of(files) > 0
    del gather, reads
    gc.collect()
    assert descriptors_of(files) == 0, "all are closed again"


def test_a_relative_path_after_a_change_of_folder_is_gone_and_says_where_it_was_sought(
    tmp_path, monkeypatch
):
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.npy")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    dataset = Nanoset("a.npy", None, 9, 5)
    monkeypatch.chdir("elsewhere")
    with pytest.raises(TokenFileError, match="a.npy is gone .*elsewhere"):
        dataset[0]


def test_a_file_that_was_replaced_before_its_first_row_is_an_error(tmp_path):
    files = token_files(tmp_path, (np.arange(100), "<u2"))
    gather = PageCacheGatherer(files)
    os.rename(files[0].path, tmp_path / "before")
    np.arange(100, 200, dtype="<u2").tofile(files[0].path)
    with pytest.raises(
        TokenFileError, match="0.npy was replaced or changed after it was opened"
    ):
        rows_of(gather, [0], [0], 10)


@pytest.mark.parametrize("gatherer", [PageCacheGatherer, BucketGatherer])
def test_ids_that_rows_cannot_hold_are_refused(tmp_path, gatherer):
    """In a bucket they were cut to 32 bits without a word."""
    with MMapIndexedDatasetBuilder(tmp_path / "a.bin", np.int64) as builder:
        builder.write(np.array([1, 2**33 + 5]), [2])
    with pytest.raises(ValueError, match="a.bin has ids of int64; convert it"):
        gatherer([open_tokens(tmp_path / "a.bin")])
