"""Copy the ids of many rows out of token files, in one call.

A `Gatherer` takes the file and the first token of each row, and fills an array with their ids. A
`PageCacheGatherer` does it in one of two ways:

    1. the first rows are read one by one in Python, so that the first batch need not wait for the
       import of numba: calls of up to `MAX_PYTHON_ROWS_PER_CALL` rows, until they have read
       `MAX_PYTHON_ROWS` in total
    2. all others by one call of a compiled kernel (`gather_kernel`), without the GIL, by pread or
       out of mappings (`mapped_files`)

`choose_gatherer` takes another class for files larger than memory (`direct_gather`) or in a bucket
(`bucket_gather`).

A file is opened when its first row is read, and stays open while the limits of the process allow
(`OpenFiles`). Files must not change while they are open. Each call checks a file's length before it
reads rows of it, or notices a short read, so a truncated file is an error. (One truncated in the
microseconds after that ends the process with SIGBUS.)
"""

import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from nanoset_ref.io.memory import memory_limit
from nanoset_ref.io.njit import numba_lock
from nanoset_ref.io.paths import in_bucket
from nanoset_ref.io.types import Int32Array, Int64Array
from nanoset_ref.tokens import Tokens

MAX_PYTHON_ROWS_PER_CALL = 256  # rows that may be read without the kernel
MAX_PYTHON_ROWS = 4096  # the same, over all calls
ADVISED_ROWS = 64  # rows that a disk fetches at once
MAX_OPEN_FILES = 1 << 14  # Linux allows a process 65,530 mappings
ROWS_PER_OPEN = 16  # rows whose files are opened for one call
RUSAGE_OF_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Gatherer(Protocol):
    """Reads rows of token files: PageCacheGatherer, DirectGatherer or BucketGatherer."""

    block_factor: int

    def __call__(
        self, sources: Int64Array, first_tokens: Int64Array, out: Int32Array
    ) -> None:
        """See `PageCacheGatherer.__call__`."""


class PageCacheGatherer:
    """Token files for random access.

    Args:
        files: the files, of uint16, int32 or uint32.

    Attributes:
        block_factor: see `Rows`.
        python_rows_left: rows that may still be read without the kernel.

    Raises:
        ValueError: ids of another dtype.
    """

    block_factor = 1
    _mapped: Any = None  # `MappedFiles`, from the first call of the kernel on
    _kernel: Any = None

    def __init__(self, files: Sequence[Tokens]) -> None:
        self._files = files
        self._open_files = OpenFiles(files)
        self._disk_reads = resource.getrusage(RUSAGE_OF_THREAD).ru_inblock
        self._reads_from_disk = True  # whether the last call read blocks from a disk
        self.python_rows_left = MAX_PYTHON_ROWS

    def __reduce__(self) -> tuple[Any, ...]:
        # addresses mean nothing in another process
        return PageCacheGatherer, (self._files,)

    def __call__(
        self, sources: Int64Array, first_tokens: Int64Array, out: Int32Array
    ) -> None:
        """Fill each row of `out` with ids of its file, from a given token on.

        Args:
            sources: int64 [n], the file of each row, by its number.
            first_tokens: int64 [n], where each row begins in its file, in tokens. The caller has
                checked them against the length that the file had when it was opened.
            out: int32 [n, length].

        Raises:
            OSError: a row extends past the current end of its file.
            TokenFileError: a file was replaced before its first row was read.
        """
        in_python = len(first_tokens) <= min(
            MAX_PYTHON_ROWS_PER_CALL, self.python_rows_left
        )
        files = self._open_files
        for rows, descriptors in files.all_rows or files.row_slices(sources):
            if in_python:
                failed_row = self._read_in_python(
                    descriptors, sources[rows], first_tokens[rows], out[rows]
                )
            else:
                if self._kernel is None or files.unmapped:
                    self._prepare_kernel()
                failed_row = self._kernel(
                    self._mapped.arrays,
                    descriptors,
                    sources[rows],
                    first_tokens[rows],
                    ADVISED_ROWS if self._reads_from_disk else 0,
                    out[rows],
                )
            if failed_row >= 0:
                row = (rows.start or 0) + failed_row
                raise truncation_error(
                    self._files[sources[row]], int(first_tokens[row])
                )
        # blocks that this thread has read from a disk
        disk_reads = resource.getrusage(RUSAGE_OF_THREAD).ru_inblock
        self._reads_from_disk = disk_reads != self._disk_reads
        self._disk_reads = disk_reads

    def _read_in_python(
        self,
        descriptors: Int64Array,
        sources: Int64Array,
        first_tokens: Int64Array,
        out: Int32Array,
    ) -> int:
        """Do what the kernel does, row by row.

        Returns:
            -1, or the first row that cannot be read.
        """
        self.python_rows_left -= len(first_tokens)
        itemsizes = self._open_files.itemsizes[sources]
        first_bytes = self._open_files.header_bytes[sources] + first_tokens * itemsizes
        sizes = out.shape[1] * itemsizes
        rows = np.stack([descriptors[sources], first_bytes, sizes], axis=1).tolist()
        if hasattr(os, "posix_fadvise"):
            for descriptor, first_byte, size in rows:
                os.posix_fadvise(descriptor, first_byte, size, os.POSIX_FADV_WILLNEED)
        for row, (descriptor, first_byte, size) in enumerate(rows):
            content = os.pread(descriptor, size, first_byte)
            if len(content) < size:
                return row
            out[row] = np.frombuffer(content, self._files[sources[row]].dtype)
        return -1

    def _prepare_kernel(self) -> None:
        """Load the kernel, and map the files that were opened since the last call."""
        with numba_lock:  # imports numba
            from nanoset_ref.load.gather_kernel import gather_rows
            from nanoset_ref.load.mapped_files import MappedFiles

        if self._mapped is None:
            # of several threads, the first one sets it
            vars(self).setdefault("_mapped", MappedFiles(self._files, self._open_files))
        self._mapped.map_opened()
        self._kernel = gather_rows


class OpenFiles:
    """Descriptors of files, opened at the first use.

    They stay open while the limits of the process allow; later files are opened for each call,
    which takes some microseconds per row. Rows are read in a random order, so evicting the least
    recently used would not help.

    Args:
        files: token files.
        flags: for `os.open`, in addition to O_RDONLY.

    Attributes:
        itemsizes: int64 [files], bytes of an id.
        header_bytes: int64 [files], bytes before the first id (`Tokens.first_byte`).
        descriptors: int64 [files], of the files that stay open; -1: not open.
        all_rows: what `row_slices` yields once every file has been opened to stay; empty before.
        unmapped: numbers of the files that stay open and have no mapping yet.

    Raises:
        ValueError: ids that are not uint16, int32 or uint32.
    """

    all_rows: Sequence[tuple[slice, Int64Array]] = ()
    _has_room = True

    def __init__(self, files: Sequence[Tokens], flags: int = 0) -> None:
        refuse_wide_ids(files)
        self._files = files
        self._flags = flags
        self.itemsizes = np.array([file.dtype.itemsize for file in files], np.int64)
        self.header_bytes = np.array([file.first_byte for file in files], np.int64)
        self.descriptors = np.full(len(files), -1, dtype=np.int64)
        self.unmapped: deque[int] = deque()
        self._kept_open: list[int] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._kept_open)

    def row_slices(self, sources: Int64Array) -> Iterator[tuple[slice, Int64Array]]:
        """Slices of rows, each with the descriptors that are open for its rows.

        Args:
            sources: int64 [rows], the file of each row, by its number.

        Yields (slice, int64 [files]).

        Raises:
            OSError: a file cannot be opened.
            TokenFileError: a file was replaced after its Tokens were made.
        """
        if self._has_room:
            closed = sources[self.descriptors[sources] < 0]
            if len(closed):
                self._open_to_stay(sorted(set(closed.tolist())))
        is_closed = self.descriptors[sources] < 0
        if not is_closed.any():
            yield slice(None), self.descriptors
            return
        for first_row in range(0, len(sources), ROWS_PER_OPEN):
            rows = slice(first_row, first_row + ROWS_PER_OPEN)
            closed = sources[rows][is_closed[rows]]
            descriptors = self.descriptors.copy()
            opened = []
            try:
                for source in np.unique(closed).tolist():
                    opened.append(self._new_descriptor(source))
                    descriptors[source] = opened[-1]
                yield rows, descriptors
            finally:
                _close(opened)

    def _open_to_stay(self, sources: Sequence[int]) -> None:
        """Open these files permanently while the limits allow: two descriptors per file.

        If the lock is taken, by another thread or because the process was forked while it was held,
        nothing is opened here, and the caller opens the files for one call.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            room = MAX_OPEN_FILES - len(self._kept_open)
            if limit != resource.RLIM_INFINITY:
                in_use = len(os.listdir("/dev/fd")) + len(self.unmapped)
                room = min(room, (limit // 2 - in_use) // 2)
            self._has_room = room >= len(sources)
            for source in sources[: max(0, room)]:
                # another thread may have opened it just before
                if self.descriptors[source] < 0:
                    self._kept_open.append(self._new_descriptor(source))
                    self.descriptors[source] = self._kept_open[-1]
                    self.unmapped.append(source)
            if len(self._kept_open) == len(self._files):
                self.all_rows = [(slice(None), self.descriptors)]
        finally:
            self._lock.release()

    def _new_descriptor(self, source: int) -> int:
        """Open a file, and check that it was not replaced after its Tokens were made."""
        file = self._files[source]
        try:
            descriptor = os.open(file.location, os.O_RDONLY | self._flags)
        except FileNotFoundError:
            file.check_unchanged()  # says that it is gone, and the working directory
            raise
        try:
            file.check_descriptor(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _close(descriptors: list[int]) -> None:
    """Close the descriptors, and empty the list."""
    while descriptors:
        os.close(descriptors.pop())


def truncation_error(file: Tokens, first_token: int) -> OSError:
    """The error for a row that begins at this token and cannot be read."""
    return OSError(
        f"{file.path} cannot be read from token {first_token:,} on: it was cut short after it was "
        "opened, or the disk is failing"
    )


def refuse_wide_ids(files: Sequence[Tokens]) -> None:
    """Raise ValueError if rows of int32 cannot hold the ids."""
    for dtype in {file.dtype for file in files}:
        if dtype.name not in ("uint16", "int32", "uint32"):
            location = next(file.location for file in files if file.dtype == dtype)
            raise ValueError(
                f"{location} has ids of {dtype.name}; convert it to uint16 or int32"
            )


def choose_gatherer(files: Sequence[Tokens]) -> Gatherer:
    """Choose how rows are read: from a bucket, past the page cache, or through it.

    Files larger than memory are read past the page cache if the system supports that.
    NANOSET_REF_DIRECT=1 asks for it, and 0 forbids it, whatever their size.

    Raises:
        ValueError: another value of NANOSET_REF_DIRECT.
        OSError: it is 1, and the system does not support it.
    """
    if any(in_bucket(file.location) for file in files):
        # only buckets need it
        from nanoset_ref.load.bucket_gather import BucketGatherer

        return BucketGatherer(files)
    setting = os.environ.get("NANOSET_REF_DIRECT", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"NANOSET_REF_DIRECT must be 0 or 1; got {setting!r}")
    size = sum(file.num_tokens * file.dtype.itemsize for file in files)
    if setting == "1" or (not setting and size > memory_limit()):
        # only files larger than memory need it
        from nanoset_ref.load.direct_gather import DirectGatherer

        try:
            return DirectGatherer(files)
        except OSError:
            if setting:
                raise
    return PageCacheGatherer(files)
