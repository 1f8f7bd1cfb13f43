"""Copy the tokens of many rows out of token files, in one call.

One kernel walks the rows of a block and widens their ids to int32 straight into the output. No
Python runs per row, and the GIL is released. A row comes from the page cache in one of two ways:

    1. by pread, for regions of 64 KiB that have not been read before: 1.7 us for 512 tokens. (A
       mapping would take 5: a page fault maps 16 pages, where the row needs one.)
    2. through a mapping of the file, for regions that have: 0.13 us.

The kernel also prefetches the first cache lines of a row two rows in advance. From a disk, it
announces each row `ANNOUNCED_ROWS` in advance, since the system's own read-ahead would fetch
megabytes around each.

Files are immutable while they are open. Each call of the kernel asks for the length of every file
before it reads the first row of it, so a file that was cut short is an error. (A file that is cut
short in the microseconds after that ends the process with SIGBUS.)

A file is opened when its first row is read. Files beyond the limits of this process are opened for
each call that reads them, which takes some microseconds per row.

The kernel is in `gather_kernel`, which imports numba. Calls of up to `MAX_PLAIN_ROWS_PER_CALL` rows
are read without it, until they have read `MAX_PLAIN_ROWS` in total; such a call notices a file that
was cut short by a read that returns too little.
"""

import mmap
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.arrays import Int64Array
from nanoset_ref.io.njit import njit
from nanoset_ref.tokens import Tokens

FAULT_BYTES = 1 << 16  # bytes that a page fault maps
DISK_BLOCK = 1 << 12  # bytes; reads past the page cache begin and end at its multiples
# of FAULT_BYTES; beyond 64 GiB, regions share an entry and are mapped early
MAX_REGIONS = 1 << 20
ANNOUNCED_ROWS = 64  # rows that a disk fetches side by side
MAX_OPEN_FILES = 1 << 14  # Linux allows a process 65,530 mappings
ROWS_PER_OPEN = 16  # rows whose files are opened for one call
MAX_PLAIN_ROWS_PER_CALL = 256  # rows that may be read without the kernel
MAX_PLAIN_ROWS = 4096  # the same for all calls together
THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class FileArrays(NamedTuple):
    """The open files, for the kernel.

    Attributes:
        descriptors: int64 [files].
        addresses: uint64 [files], of the mappings; 0: not mapped.
        itemsizes: int64 [files], bytes of an id, 2 or 4.
        first_regions: int64 [files], the number of each file's first region of FAULT_BYTES.
        visited: uint8 [regions], 1 where a region has been read.
    """

    descriptors: Int64Array
    addresses: NDArray[np.uint64]
    itemsizes: Int64Array
    first_regions: Int64Array
    visited: NDArray[np.uint8]


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
        num_tokens = [file.num_tokens for file in files]
        ends = self._open.header_bytes + self._open.itemsizes * num_tokens
        regions = -(-ends // FAULT_BYTES)
        count = min(max(1, regions.sum()), MAX_REGIONS)
        self._arrays = FileArrays(
            descriptors=self._open.kept,
            addresses=np.zeros(len(files), dtype=np.uint64),
            itemsizes=self._open.itemsizes,
            first_regions=np.cumsum(regions) - regions,
            visited=np.zeros(count, dtype=np.uint8),
        )
        self._blocks_read = resource.getrusage(THREAD).ru_inblock
        self._reads_from_disk = True  # whether the last call read blocks from a disk
        self.plain_rows = MAX_PLAIN_ROWS
        self._kernel: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Gatherer, (self._files,)  # addresses mean nothing in another process

    def __call__(
        self, sources: Int64Array, first_tokens: Int64Array, out: NDArray[np.int32]
    ) -> None:
        """Fill each row of `out` with ids of its file, from a given token on.

        Args:
            sources: int64 [n], numbers of files.
            first_tokens: int64 [n], where each row begins in its file, in tokens. The caller has
                checked them against the length that the file had when it was opened.
            out: int32 [n, length].

        Raises:
            OSError: a row extends past the current end of its file.
            TokenFileError: a file was replaced before its first row was read.
        """
        itemsizes = self._open.itemsizes[sources]
        first_bytes = self._open.header_bytes[sources] + first_tokens * itemsizes
        is_plain = len(first_tokens) <= min(MAX_PLAIN_ROWS_PER_CALL, self.plain_rows)
        kept = self._open.kept
        parts: Any = [(slice(None), kept)]
        if (kept[sources] < 0).any():
            parts = self._open.parts(sources)
        for part, descriptors in parts:
            if is_plain:
                failed = self._read_plainly(
                    descriptors, sources[part], first_bytes[part], out[part]
                )
            else:
                if self._open.new or self._kernel is None:
                    self._prepare_kernel()
                files = self._arrays._replace(descriptors=descriptors)
                rows_ahead = ANNOUNCED_ROWS if self._reads_from_disk else 0
                failed = self._kernel(
                    files, sources[part], first_bytes[part], rows_ahead, out[part]
                )
            if failed >= 0:
                row = (part.start or 0) + failed
                raise cut_short(self._files[sources[row]], int(first_tokens[row]))
        # blocks that this thread has read from a disk
        blocks_read = resource.getrusage(THREAD).ru_inblock
        self._reads_from_disk = blocks_read != self._blocks_read
        self._blocks_read = blocks_read

    def _read_plainly(
        self,
        descriptors: Int64Array,
        sources: Int64Array,
        first_bytes: Int64Array,
        out: NDArray[np.int32],
    ) -> int:
        """Do what the kernel does, row by row.

        Returns:
            -1, or the first row that cannot be read.
        """
        self.plain_rows -= len(first_bytes)
        sizes = out.shape[1] * self._open.itemsizes[sources]
        rows = np.stack([descriptors[sources], first_bytes, sizes], axis=1).tolist()
        if hasattr(os, "posix_fadvise"):
            for descriptor, begin, size in rows:
                os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_WILLNEED)
        for row, (descriptor, begin, size) in enumerate(rows):
            content = os.pread(descriptor, size, begin)
            if len(content) < size:
                return row
            out[row] = np.frombuffer(content, self._files[sources[row]].dtype)
        return -1

    def _prepare_kernel(self) -> None:
        """Load the kernel, and map the files that stay open.

        Scans of `TokenFile.tokens` use their own mapping and keep the system's read-ahead.
        """
        from nanoset_ref.load.gather_kernel import gather_rows  # imports numba

        self._kernel = gather_rows
        while self._open.new:
            try:
                number = self._open.new.popleft()
            except IndexError:
                return  # another thread took the last one
            descriptor = int(self._open.kept[number])
            mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            mapping.madvise(mmap.MADV_RANDOM)
            self._mappings.append(mapping)
            address = np.frombuffer(mapping, np.uint8).ctypes.data
            self._arrays.addresses[number] = address


class OpenFiles:
    """Descriptors of files, opened at the first use.

    They stay open while the limits of the process allow; later files are opened for each call. Rows
    are read in a random order, so evicting the least recently used would serve nobody.

    Args:
        files: token files.
        flags: for `os.open`, in addition to O_RDONLY.

    Attributes:
        itemsizes: int64 [files], bytes of an id.
        header_bytes: int64 [files], bytes before the first id.
        kept: int64 [files], the descriptors that stay open, or -1.
        new: numbers of the files that stay open and have no mapping yet.

    Raises:
        ValueError: ids that are neither uint16 nor 32 bits wide.
    """

    def __init__(self, files: Sequence[Tokens], flags: int = 0) -> None:
        for dtype in {file.dtype for file in files}:
            if dtype.name not in ("uint16", "int32", "uint32"):
                name = next(file.place for file in files if file.dtype == dtype)
                raise ValueError(
                    f"{name} has ids of {dtype.name}; convert it to uint16 or int32"
                )
        self._files = files
        self._flags = flags
        self.itemsizes = np.array([file.dtype.itemsize for file in files], np.int64)
        self.header_bytes = np.array([file.first_byte for file in files], np.int64)
        self.kept = np.full(len(files), -1, dtype=np.int64)
        self.new: deque[int] = deque()
        self._descriptors: list[int] = []
        self._has_room = True
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._descriptors)

    def parts(self, sources: Int64Array) -> Iterator[tuple[slice, Int64Array]]:
        """Slices of rows, each with the descriptors that are open for its rows.

        Args:
            sources: int64 [rows], the number of each row's file.

        Yields (slice, int64 [files]).

        Raises:
            OSError: a file cannot be opened.
            TokenFileError: it is another one than when its Tokens were made.
        """
        if self._has_room:
            closed = sources[self.kept[sources] < 0]
            if len(closed):
                self._keep(sorted(set(closed.tolist())))
        is_closed = self.kept[sources] < 0
        if not is_closed.any():
            yield slice(None), self.kept
            return
        for first in range(0, len(sources), ROWS_PER_OPEN):
            part = slice(first, first + ROWS_PER_OPEN)
            closed = sources[part][is_closed[part]]
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
        """Open these files permanently while the limits allow: two descriptors per file.

        If the lock is taken, by another thread or because the process was forked while it was held,
        nothing is opened here, and the caller opens the files for one call.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            room = MAX_OPEN_FILES - len(self._descriptors)
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
        descriptor = os.open(file.place, os.O_RDONLY | self._flags)
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
        f"{file.path}, tokens from {start:,} on: the file was cut short after it was opened, or the "
        "disk fails"
    )


@njit
def widen(ids, out):
    """Copy integers [n] into `out`, integers [n] of another width; `ids` may be longer."""
    for i in range(len(out)):
        out[i] = ids[i]
