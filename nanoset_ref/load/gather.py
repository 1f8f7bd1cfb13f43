"""Copy the tokens of many rows out of token files, in one call.

One kernel walks the rows of a block and widens their ids to int32 straight into the output. No Python runs per row, and
the GIL is free meanwhile. A row comes from the page cache in one of two ways, each where the other is slow:

    1. what is read for the first time, by pread: a system call and a copy, 1.7 microseconds for 512 tokens. Touching a
       mapping there costs 5: a page fault that enters 16 pages into the page table, for a row that fills one of them.
    2. what has been read nearby before, through a mapping of the file: 0.13 microseconds. It pays from the second
       visit on: small files, later epochs.

One byte per 64 KiB window records which (`VISITED` bytes in all, whatever the size of the files; larger ones share
them, and are mapped a little early). So a run over a corpus that it reads once keeps its resident size,
and one that fits into memory is read at the speed of memory: the kernel asks for a row's first cache lines two rows
early, because a row at a random place begins with a page-table walk and a cache miss, half of the time of 512 tokens.

From a disk, the kernel's read-ahead would fetch megabytes around each row. It is told that access is random, and, in
the first block and after one that had to wait, of each row AHEAD rows early, so that it always fetches that many side
by side. Telling it of a whole block first left the disk idle while the block was copied.

Only one of the two ways was slower in both directions: the mapping alone takes three times as long where all is new,
pread alone five times as long where nothing is. NumPy slices cost a microsecond each, and mapping a file anew for every
sample, as Nanotron does, is 85-90% of its time.

Files are immutable while they are open. One that was cut short all the same is an error: in each call, the length of
every file that it touches is asked for before the first row is read. What remains is a file that is cut short in the
microseconds between that and the copying, and the array `TokenFile.tokens`, which is mapped as a whole: to read beyond
the end of a mapped file ends the process with SIGBUS.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nanoset_ref.io.bucket_ids import BucketIds, fetch
from nanoset_ref.io.kernels import njit
from nanoset_ref.tokens import Tokens

VISITED = 1 << 20  # windows that are told apart: 64 GiB
WINDOW = 1 << 16  # bytes that a page fault maps
LAST = np.iinfo(np.int64).max
AHEAD = 64  # rows that a disk is asked for side by side
THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Gatherer:
    """Token files, open for random access.

    Args:
        files: the files, of uint16 or int32.

    Attributes:
        block_factor: see `Rows`.

    Raises:
        ValueError: ids of another width.
        OSError: more files than this process may open.
    """

    block_factor = 1

    def __init__(self, files: Sequence[Tokens]) -> None:
        self._files = files
        descriptors = open_files(self, files)
        with _naming_the_limit(files):
            self._mappings = [_map(descriptor) for descriptor in descriptors]
        self._descriptors = np.array(descriptors, dtype=np.int64)
        self._addresses = np.array(
            [np.frombuffer(m, np.uint8).ctypes.data for m in self._mappings], dtype=np.uint64
        )
        self._itemsizes = np.array([file.dtype.itemsize for file in files], dtype=np.int64)
        windows = [-(-len(mapping) // WINDOW) for mapping in self._mappings]
        self._first_windows = np.cumsum([0, *windows[:-1]])
        self._visited = np.zeros(min(sum(windows), VISITED), dtype=np.uint8)
        self._blocks_read = resource.getrusage(THREAD).ru_inblock
        self._waited = True

    def __reduce__(self) -> tuple[Any, ...]:
        return Gatherer, (self._files,)  # addresses mean nothing in another process

    def __call__(
        self, datasets: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.int32]
    ) -> None:
        """Fill `out` [n, length] with tokens[starts[i] : starts[i] + length] of file datasets[i], for both arrays [n].

        The caller answers for the bounds within the file as it was opened: they follow from its number of samples.

        Raises:
            OSError: a row lies behind the end that a file has now.
        """
        files = (
            self._descriptors,
            self._addresses,
            self._itemsizes,
            self._first_windows,
            self._visited,
        )
        failed = _gather(files, datasets, starts, AHEAD if self._waited else 0, out)
        if failed >= 0:
            raise cut_short(self._files[datasets[failed]], int(starts[failed]))
        blocks_read = resource.getrusage(THREAD).ru_inblock  # from a disk, by this thread
        self._waited, self._blocks_read = blocks_read != self._blocks_read, blocks_read


class BucketGatherer:
    """As `Gatherer`, where files are in buckets: the rows of a call are read side by side, out of all of these files.

    Raises (when it is called):
        StorageError: an object cannot be read, or was replaced since it was opened.
    """

    block_factor = 4

    def __init__(self, files: Sequence[Tokens]) -> None:
        self._files = files

    def __call__(
        self, datasets: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.int32]
    ) -> None:
        extents, rows = [], []
        for number in np.unique(datasets).tolist():
            chosen, ids = np.flatnonzero(datasets == number), self._files[number].tokens
            if isinstance(ids, BucketIds):
                size = ids.dtype.itemsize
                extents += [
                    (ids, start * size, (start + out.shape[1]) * size)
                    for start in starts[chosen].tolist()
                ]
                rows += chosen.tolist()
            else:
                out[chosen] = [ids[start : start + out.shape[1]] for start in starts[chosen]]
        for (ids, _, _), row, data in zip(extents, rows, fetch(extents), strict=True):
            out[row] = np.frombuffer(data, ids.dtype)


def cut_short(file: Tokens, start: int) -> OSError:
    """The error for a row that begins at token `start` and cannot be read."""
    return OSError(
        f"{file.path}, tokens from {start:,} on: the file was cut short after it was opened, or the disk fails"
    )


def open_files(owner: object, files: Sequence[Tokens], flags: int = 0) -> list[int]:
    """Descriptors of the files, closed when their owner is gone; for what is raised see `Gatherer`."""
    descriptors = []
    for file in files:
        if file.dtype.itemsize not in (2, 4):
            raise ValueError(
                f"{file.path} has ids of {file.dtype.name}; convert it to uint16 or int32"
            )
        with _naming_the_limit(files):
            descriptors.append(os.open(file.path, os.O_RDONLY | flags))
        weakref.finalize(owner, os.close, descriptors[-1])
        file.check_unchanged()
    return descriptors


@contextlib.contextmanager
def _naming_the_limit(files: Sequence[Tokens]) -> Iterator[None]:
    """Too many open files: an error that says how many are wanted and allowed, and the way out."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        what = f"{len(files)} token files want two descriptors each, this process may have {limit}"
        raise OSError(error.errno, f"{what}: raise the limit (ulimit -n)") from error


def _map(descriptor: int) -> mmap.mmap:
    """A mapping of its own: who scans `TokenFile.tokens` from end to end still has the kernel's read-ahead."""
    if os.fstat(descriptor).st_size == 0:
        return mmap.mmap(-1, 1)  # an empty file has no rows to read
    mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    mapping.madvise(mmap.MADV_RANDOM)
    return mapping


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.uint64), generate


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address; an address that does not exist does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        read, keep, data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


_pread = types.ExternalFunction(
    "pread", types.intp(types.intc, types.voidptr, types.uintp, types.int64)
)

_lseek = types.ExternalFunction("lseek", types.int64(types.intc, types.int64, types.intc))

_madvise = types.ExternalFunction("madvise", types.intc(types.uint64, types.uintp, types.intc))


@njit(cache=True, nogil=True)
def _gather(files, datasets, starts, early, out):
    """Fill `out` [rows, length] from tokens starts[row] on of files[datasets[row]]; returns -1, or the first row that
    lies behind the end of its file, where it stops.

    Args:
        files: per file its descriptor, the address of its mapping, bytes of an id and its first window; and `visited`.
        early: rows that the kernel is told of in advance; 0: none.
    """
    descriptors, addresses, itemsizes, first_windows, visited = files
    rows, length = out.shape
    scratch = np.empty(length, dtype=np.uint16)
    ends = np.full(
        len(descriptors), -1, dtype=np.int64
    )  # bytes of the files as they are now, of those in use
    _announce(addresses, itemsizes, datasets[:early], starts[:early], length)
    for row in range(rows):
        if early:
            _announce(
                addresses, itemsizes, datasets[row + early :][:1], starts[row + early :][:1], length
            )
        if row + 2 < rows:
            dataset = datasets[row + 2]
            address = addresses[dataset] + np.uint64(starts[row + 2] * itemsizes[dataset])
            for line in range(
                4
            ):  # four lines of 64 bytes are enough to set off the processor's own prefetching
                _prefetch(address + np.uint64(64 * line))
        dataset = datasets[row]
        begin, size = starts[row] * itemsizes[dataset], length * itemsizes[dataset]
        if ends[dataset] < 0:
            end = _lseek(descriptors[dataset], 0, os.SEEK_END)
            ends[dataset] = (
                end if end >= 0 else LAST
            )  # where nothing is known, the mapping is trusted
        if begin + size > ends[dataset]:
            return row
        window = (first_windows[dataset] + begin // WINDOW) % len(visited)
        new = visited[window] == 0
        visited[window] = 1
        if itemsizes[dataset] == 2:
            if new and _pread(descriptors[dataset], scratch.ctypes, size, begin) == size:
                widen(scratch, out[row])
            else:
                widen(
                    carray(_pointer(addresses[dataset] + np.uint64(begin)), length, np.uint16),
                    out[row],
                )
        elif not new or _pread(descriptors[dataset], out[row].ctypes, size, begin) != size:
            widen(
                carray(_pointer(addresses[dataset] + np.uint64(begin)), length, np.int32), out[row]
            )
    return -1


@njit(cache=True, nogil=True)
def _announce(addresses, itemsizes, datasets, starts, length):
    """Tell the kernel that the pages of these rows will be read."""
    for dataset, start in zip(datasets, starts):  # noqa: B905
        begin = start * itemsizes[dataset] // mmap.PAGESIZE * mmap.PAGESIZE
        size = (start + length) * itemsizes[dataset] - begin
        _madvise(addresses[dataset] + np.uint64(begin), np.uintp(size), mmap.MADV_WILLNEED)


@njit(cache=True, nogil=True)
def widen(ids, out):
    for i in range(len(out)):
        out[i] = ids[i]


@njit(cache=True, nogil=True)
def copy_pieces(tokens, pieces, out):
    """Put rows together from pieces of one file.

    Args:
        tokens: the ids of the file, [num_tokens]. Bounds are not checked.
        pieces: int64 [n, 4], (row, begin, end, column): tokens begin:end go to out[row, column:].
        out: integers [rows, length]. What no piece covers is left alone.
    """
    for n in range(len(pieces)):
        source, target = tokens[pieces[n, 1] : pieces[n, 2]], out[pieces[n, 0], pieces[n, 3] :]
        for i in range(len(source)):  # over two slices the compiler vectorises
            target[i] = source[i]
