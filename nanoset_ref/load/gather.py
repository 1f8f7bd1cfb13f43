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

A file is opened when its first row is read. Files beyond the limits of this process (half of its
descriptors, MOST_OPEN mappings) are opened for each call that reads them, and closed after it: their
rows take some microseconds longer, and any number of files can be read under any limit.

The kernel lies in `mapped_rows`, which imports numba. The first rows of a process (MOST_PLAIN) are
read without it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.njit import njit
from nanoset_ref.tokens import Tokens

VISITED = 1 << 20  # windows with a byte of their own: 64 GiB
WINDOW = 1 << 16  # bytes that a page fault maps
AHEAD = 64  # rows that a disk fetches side by side
MOST_OPEN = 1 << 14  # files; Linux allows a process 65,530 mappings
AT_ONCE = 16  # rows whose files are opened for one call
FEW = 256  # rows of a call that may be read without the kernel
MOST_PLAIN = 4096  # rows that are, in all
THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Gatherer:
    """Token files for random access.

    Args:
        files: the files, of uint16 or int32.

    Attributes:
        block_factor: see `Rows`.
        plain_rows: rows that may still be read without the kernel.

    Raises:
        ValueError: ids of another width.
    """

    block_factor = 1

    def __init__(self, files: Sequence[Tokens]) -> None:
        self._files = files
        self._open = OpenFiles(files)
        self._mappings: list[mmap.mmap] = []
        self._addresses = np.zeros(len(files), dtype=np.uint64)
        self._itemsizes = np.array([file.dtype.itemsize for file in files], dtype=np.int64)
        sizes = self._itemsizes * [file.num_tokens for file in files]
        windows = -(-sizes // WINDOW)
        self._first_windows = np.cumsum(windows) - windows
        self._visited = np.zeros(min(max(1, windows.sum()), VISITED), dtype=np.uint8)
        self._blocks_read = resource.getrusage(THREAD).ru_inblock
        self._waited = True
        self.plain_rows = MOST_PLAIN
        self._kernel: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Gatherer, (self._files,)  # addresses mean nothing in another process

    def __call__(
        self, datasets: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.int32]
    ) -> None:
        """Fill `out` [n, length] with tokens[starts[i] : starts[i] + length] of file datasets[i], for both arrays [n].

        The caller has checked the bounds against the length that the file had when it was opened.

        Raises:
            OSError: a row lies behind the end that a file has now.
            TokenFileError: a file was replaced before its first row was read.
        """
        is_plain = len(starts) <= min(FEW, self.plain_rows)
        kept = self._open.kept
        parts: Any = [(slice(None), kept)]
        if (kept[datasets] < 0).any():
            parts = self._open.parts(datasets)
        for part, descriptors in parts:
            if is_plain:
                failed = self._read_plainly(descriptors, datasets[part], starts[part], out[part])
            else:
                if self._open.new or self._kernel is None:
                    self._prepare_kernel()
                files = (
                    descriptors,
                    self._addresses,
                    self._itemsizes,
                    self._first_windows,
                    self._visited,
                )
                early = AHEAD if self._waited else 0
                failed = self._kernel(files, datasets[part], starts[part], early, out[part])
            if failed >= 0:
                row = (part.start or 0) + failed
                raise cut_short(self._files[datasets[row]], int(starts[row]))
        blocks_read = resource.getrusage(THREAD).ru_inblock  # from a disk, by this thread
        self._waited = blocks_read != self._blocks_read
        self._blocks_read = blocks_read

    def _read_plainly(
        self,
        descriptors: NDArray[np.int64],
        datasets: NDArray[np.int64],
        starts: NDArray[np.int64],
        out: NDArray[np.int32],
    ) -> int:
        """What the kernel does, row by row: -1, or the first row that cannot be read."""
        self.plain_rows -= len(starts)
        sizes = self._itemsizes[datasets]
        places = np.stack([descriptors[datasets], starts * sizes, out.shape[1] * sizes], axis=1)
        rows = places.tolist()
        if hasattr(os, "posix_fadvise"):
            for descriptor, begin, size in rows:
                os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_WILLNEED)
        for row, (descriptor, begin, size) in enumerate(rows):
            content = os.pread(descriptor, size, begin)
            if len(content) < size:
                return row
            out[row] = np.frombuffer(content, self._files[datasets[row]].dtype)
        return -1

    def _prepare_kernel(self) -> None:
        """Load the kernel, and map the files that stay open.

        A scan of `TokenFile.tokens` has a mapping of its own, and so still the system's read-ahead.
        """
        from nanoset_ref.load.mapped_rows import gather_rows  # imports numba

        self._kernel = gather_rows
        with contextlib.suppress(IndexError):  # all are mapped, by this thread or another
            while True:
                number = self._open.new.popleft()
                mapping = mmap.mmap(int(self._open.kept[number]), 0, access=mmap.ACCESS_READ)
                mapping.madvise(mmap.MADV_RANDOM)
                self._mappings.append(mapping)
                self._addresses[number] = np.frombuffer(mapping, np.uint8).ctypes.data


class OpenFiles:
    """Descriptors of files: kept from the first use on while there is room, else open while they are used.

    Rows are read in a random order, so keeping the files used last would serve none of the next ones.

    Args:
        files: token files.
        flags: for `os.open`, beside O_RDONLY.

    Attributes:
        kept: int64 [files], the descriptors that stay open; -1: none.
        new: numbers of the files that stay open and have no mapping yet.

    Raises:
        ValueError: ids of another width than 2 or 4 bytes.
    """

    def __init__(self, files: Sequence[Tokens], flags: int = 0) -> None:
        for file in files:
            if file.dtype.itemsize not in (2, 4):
                raise ValueError(
                    f"{file.path} has ids of {file.dtype.name}; convert it to uint16 or int32"
                )
        self._files = files
        self._flags = flags
        self.kept = np.full(len(files), -1, dtype=np.int64)
        self.new: deque[int] = deque()
        self._descriptors: list[int] = []
        self._has_room = True
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._descriptors)

    def parts(self, datasets: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Slices of rows, given their files int64 [n], each with descriptors [files] that are open for these rows.

        Raises:
            OSError: a file cannot be opened.
            TokenFileError: it is another one than when its Tokens were made.
        """
        if self._has_room:
            closed = datasets[self.kept[datasets] < 0]
            if len(closed):
                self._keep(np.unique(closed).tolist())
        is_closed = self.kept[datasets] < 0
        if not is_closed.any():
            yield slice(None), self.kept
            return
        for first in range(0, len(datasets), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            closed = datasets[part][is_closed[part]]
            descriptors = self.kept.copy()
            opened: list[int] = []
            try:
                for number in np.unique(closed).tolist():
                    opened.append(self._opened(number))
                    descriptors[number] = opened[-1]
                yield part, descriptors
            finally:
                _close(opened)

    def _keep(self, numbers: Sequence[int]) -> None:
        """Open these files for good, as far as there is room: each takes a descriptor, and its mapping another.

        A thread that finds another one here opens its files for one call. So does a process that was forked meanwhile,
        for which the lock stays locked.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            room = MOST_OPEN - len(self._descriptors)
            if limit != resource.RLIM_INFINITY:
                free = limit // 2 - len(os.listdir("/dev/fd")) - len(self.new)
                room = min(room, free // 2)
            self._has_room = room >= len(numbers)
            for number in numbers[: max(0, room)]:
                if self.kept[number] < 0:  # no other thread has opened it just before
                    self._descriptors.append(self._opened(number))
                    self.kept[number] = self._descriptors[-1]
                    self.new.append(number)
        finally:
            self._lock.release()

    def _opened(self, number: int) -> int:
        file = self._files[number]
        descriptor = os.open(file.path, os.O_RDONLY | self._flags)
        try:
            file.check_descriptor(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def cut_short(file: Tokens, start: int) -> OSError:
    """The error for a row that begins at token `start` and cannot be read."""
    return OSError(
        f"{file.path}, tokens from {start:,} on: the file was cut short after it was opened, or the disk fails"
    )


@njit(cache=True, nogil=True)
def widen(ids, out):
    """Copy integers [n] into `out`, integers [n] of another width; `ids` may be longer."""
    for i in range(len(out)):
        out[i] = ids[i]


@njit(cache=True, nogil=True, work=lambda tokens, pieces, out: out.size)
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
