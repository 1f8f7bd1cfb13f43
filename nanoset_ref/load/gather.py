"""Copy the tokens of many rows out of token files, in one call.

One kernel walks the rows of a block and widens their ids to int32 straight into the output. No Python runs per row, and
the GIL is free meanwhile. A row comes from the page cache in one of two ways, each where the other one is slow:

    1. by pread where nothing nearby has been read before: a system call and a copy, 1.7 microseconds for 512 tokens.
       A mapping costs 5 there: a page fault enters 16 pages into the page table, for a row that fills one of them.
    2. through a mapping of the file where something nearby has been read: 0.13 microseconds. It pays from the second
       visit on: small files, later epochs.

Either way alone is slower: the mapping 3 times on first reads, pread 5 times on later ones. NumPy slices cost a
microsecond each, and mapping a file anew for every sample, as Nanotron does, is 85-90% of its time.

One byte per 64 KiB window records whether the window has been read (VISITED bytes in all; windows of larger files share
them, and are mapped a little early). So a run that reads a corpus once keeps its resident size, and a run whose corpus
fits into memory reads at the speed of memory: the kernel prefetches the first cache lines of a row two rows in advance,
since a row at a random place begins with a page-table walk and a cache miss, half of the time of 512 tokens.

From a disk, the system's own read-ahead would fetch megabytes around each row. We set MADV_RANDOM, and in the first
block, and after a block that hit the disk, announce each row AHEAD rows in advance, so that the disk always fetches
that many side by side. Announcing a whole block first left the disk idle while the block was copied.

Files are immutable while they are open. In each call, the kernel asks for the length of every file before it reads the
first row of it, so that a file that was cut short is an error. What remains is a file that is cut short in the
microseconds between that and the copying, and the array `TokenFile.tokens`, which is mapped as a whole: reading beyond
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

from nanoset_ref.io.kernels import njit
from nanoset_ref.tokens import Tokens

VISITED = 1 << 20  # windows with a byte of their own: 64 GiB
WINDOW = 1 << 16  # bytes that a page fault maps
UNKNOWN_END = np.iinfo(np.int64).max
AHEAD = 64  # rows that a disk fetches side by side
CACHE_LINE, CACHE_LINES = 64, 4  # bytes; and lines after which the processor prefetches by itself
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
        addresses = [np.frombuffer(mapping, np.uint8).ctypes.data for mapping in self._mappings]
        self._addresses = np.array(addresses, dtype=np.uint64)
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

        The caller has checked the bounds against the length that the file had when it was opened.

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
        self._waited = blocks_read != self._blocks_read
        self._blocks_read = blocks_read


def cut_short(file: Tokens, start: int) -> OSError:
    """The error for a row that begins at token `start` and cannot be read."""
    return OSError(
        f"{file.path}, tokens from {start:,} on: the file was cut short after it was opened, or the disk fails"
    )


def open_files(owner: object, files: Sequence[Tokens], flags: int = 0) -> list[int]:
    """Descriptors of the files, closed when their owner is gone. Raises as `Gatherer`."""
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
    """Where there are too many open files, raise an error with their number, the limit and the way out."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        what = f"{len(files)} token files need two descriptors each, this process may have {limit}"
        raise OSError(error.errno, f"{what}: raise the limit (ulimit -n)") from error


def _map(descriptor: int) -> mmap.mmap:
    """A mapping with MADV_RANDOM. A scan of `TokenFile.tokens` has another one, and still the system's read-ahead."""
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
    """Prefetch the cache line at an address; an invalid address does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        address = builder.inttoptr(arguments[0], pointer)
        for_reading, keep, data = number(0), number(3), number(1)
        builder.call(prefetch, [address, for_reading, keep, data])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


_pread = types.ExternalFunction(
    "pread", types.intp(types.intc, types.voidptr, types.uintp, types.int64)
)

_lseek = types.ExternalFunction("lseek", types.int64(types.intc, types.int64, types.intc))

_madvise = types.ExternalFunction("madvise", types.intc(types.uint64, types.uintp, types.intc))


@njit(cache=True, nogil=True)
def _gather(files, datasets, starts, early, out):
    """Fill the rows of `out` from tokens starts[row] : starts[row] + length of file datasets[row].

    Args:
        files: int64 [files] descriptors, uint64 [files] addresses of their mappings, int64 [files] bytes of an id (2 or
            4), int64 [files] first window of each; and uint8 [windows], 1 where a window has been read.
        datasets, starts: int64 [rows]; starts in tokens, from 0.
        early: rows in advance at which the system is told of a row; 0: it is not told.
        out: int32 [rows, length].

    Returns:
        -1, or the first row that lies beyond the end of its file, where it stops.
    """
    descriptors, addresses, itemsizes, first_windows, visited = files
    rows, length = out.shape
    scratch = np.empty(length, dtype=np.uint16)
    ends = np.full(len(descriptors), -1, dtype=np.int64)  # bytes, of the files met so far
    for row in range(min(early, rows)):
        _announce(addresses[datasets[row]], itemsizes[datasets[row]], starts[row], length)
    for row in range(rows):
        soon = row + early
        if early and soon < rows:
            _announce(addresses[datasets[soon]], itemsizes[datasets[soon]], starts[soon], length)
        if row + 2 < rows:
            dataset = datasets[row + 2]
            address = addresses[dataset] + np.uint64(starts[row + 2] * itemsizes[dataset])
            for line in range(CACHE_LINES):
                _prefetch(address + np.uint64(CACHE_LINE * line))
        dataset = datasets[row]
        begin = starts[row] * itemsizes[dataset]
        size = length * itemsizes[dataset]
        if ends[dataset] < 0:
            end = _lseek(descriptors[dataset], 0, os.SEEK_END)
            ends[dataset] = end if end >= 0 else UNKNOWN_END
        if begin + size > ends[dataset]:
            return row
        window = (first_windows[dataset] + begin // WINDOW) % len(visited)
        is_new = visited[window] == 0
        visited[window] = 1
        address = addresses[dataset] + np.uint64(begin)
        if itemsizes[dataset] == 2:
            if is_new and _pread(descriptors[dataset], scratch.ctypes, size, begin) == size:
                widen(scratch, out[row])
            else:
                widen(carray(_pointer(address), length, np.uint16), out[row])
        else:
            is_read = is_new and _pread(descriptors[dataset], out[row].ctypes, size, begin) == size
            if not is_read:
                widen(carray(_pointer(address), length, np.int32), out[row])
    return -1


@njit(cache=True, nogil=True)
def _announce(address, itemsize, start, length):
    """Tell the system that tokens start : start + length of the file mapped at `address` will be read."""
    begin = start * itemsize // mmap.PAGESIZE * mmap.PAGESIZE
    size = (start + length) * itemsize - begin
    _madvise(address + np.uint64(begin), np.uintp(size), mmap.MADV_WILLNEED)


@njit(cache=True, nogil=True)
def widen(ids, out):
    """Copy integers [n] into `out`, integers [n] of another width; `ids` may be longer."""
    for i in range(len(out)):
        out[i] = ids[i]


@njit(cache=True, nogil=True)
def copy_pieces(tokens, pieces, out):
    """Put rows together from pieces of one file.

    Args:
        tokens: integers [num_tokens], the ids of the file. Bounds are not checked.
        pieces: int64 [n, 4], (row, begin, end, column): tokens begin:end go to out[row, column:].
        out: integers [rows, length]. Places that no piece covers keep their values.
    """
    for n in range(len(pieces)):
        source = tokens[pieces[n, 1] : pieces[n, 2]]
        target = out[pieces[n, 0], pieces[n, 3] :]
        for i in range(len(source)):  # over two slices, which the compiler vectorizes
            target[i] = source[i]
