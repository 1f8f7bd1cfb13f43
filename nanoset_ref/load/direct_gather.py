"""Rows of files that are larger than memory, read past the page cache (Linux).

By the next epoch, the page cache has evicted a row, and keeping rows there takes longer than the
disk takes to send them. So the files are opened with O_DIRECT, and the rows of a block are read by
Linux's own asynchronous reads (io_submit(2)):

    1. while fewer than DEPTH rows are in flight, the next ones are requested, all by one system
       call; the request for a row covers the whole disk blocks that hold it
    2. another call collects rows that have arrived, in any order, and each is widened to int32 into
       its place in the output

Two workers reach the speed of the disk (`benchmarks.cold`, with fio), one process two thirds of it,
and two workers through the page cache half of it. Threads with pread, tried first, read 59,000 rows
of 512 tokens per second where a prototype of this read 97,000, because every row wakes a thread;
io_uring would do as well, but containers often forbid it.

The kernel is in `direct_kernel`, which imports numba. The first `MAX_PYTHON_ROWS` rows are read
without it, so that the first batch need not wait for that import.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.njit import numba_lock
from nanoset_ref.io.types import Int32Array, Int64Array, Uint8Array
from nanoset_ref.load.gather import OpenFiles, truncation_error
from nanoset_ref.tokens import Tokens

DISK_BLOCK = 1 << 12  # bytes; reads past the page cache begin and end at its multiples
DEPTH = 64  # rows in flight; with 128, two workers read less: their memory leaves the CPU's cache
# memory of a queue; if rows are long, fewer of them are in flight
QUEUE_BYTES = 8 << 20
HUGE_PAGE = 1 << 21  # bytes
# rows that may be read one after another, without the kernel
MAX_PYTHON_ROWS_PER_CALL = 64
MAX_PYTHON_ROWS = 512  # in all calls together
MAX_IDLE_QUEUES = 4  # that a process keeps; threads that read at once make more
# io_setup, io_submit, io_getevents, io_destroy
SYSTEM_CALLS = {"x86_64": (206, 209, 208, 207), "aarch64": (0, 2, 4, 1)}

# queues of this process that are not in use, each with the memory that it reads into
_idle_queues: list[tuple[int, Uint8Array]] = []
# the queues are destroyed after the last of these
_gatherers: weakref.WeakSet[DirectGatherer] = weakref.WeakSet()
os.register_at_fork(after_in_child=_idle_queues.clear)  # a queue belongs to one process


class DirectGatherer:
    """Like `PageCacheGatherer`, but past the page cache.

    Attributes:
        python_rows_left: rows that may still be read without the kernel.

    Raises:
        OSError: the file system does not support this; the system has no more queues.
    """

    block_factor = 4

    def __init__(self, files: Sequence[Tokens]) -> None:
        if sys.platform != "linux" or platform.machine() not in SYSTEM_CALLS:
            raise OSError(
                f"reading past the page cache needs Linux on {' or '.join(SYSTEM_CALLS)}"
            )
        self._files = files
        self._open_files = OpenFiles(files, os.O_DIRECT)
        # some file systems accept O_DIRECT, and then fail to read
        for _, descriptors in self._open_files.row_slices(np.zeros(1, np.int64)):
            os.preadv(int(descriptors[0]), [mmap.mmap(-1, DISK_BLOCK)], 0)
        self.python_rows_left = MAX_PYTHON_ROWS
        with _queue(0):  # an error now, not in the middle of a run
            pass
        _gatherers.add(self)
        weakref.finalize(self, _destroy_unused)

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectGatherer, (self._files,)

    def __call__(
        self, sources: Int64Array, first_tokens: Int64Array, out: Int32Array
    ) -> None:
        """See `PageCacheGatherer.__call__`.

        Raises:
            OSError: a row cannot be read.
        """
        files = self._open_files
        for rows, descriptors in files.all_rows or files.row_slices(sources):
            self._read(descriptors, sources[rows], first_tokens[rows], out[rows])

    def _read(
        self,
        descriptors: Int64Array,
        sources: Int64Array,
        first_tokens: Int64Array,
        out: Int32Array,
    ) -> None:
        """Read rows of files that are open, at `descriptors`; see `__call__`."""
        itemsizes = self._open_files.itemsizes[sources]
        first_bytes = self._open_files.header_bytes[sources] + first_tokens * itemsizes
        sizes = out.shape[1] * itemsizes
        reads = descriptors[sources], first_bytes, sizes
        # whole pages, so that a fork during a read is harmless
        request_bytes = int(sizes.max(initial=1)) + DISK_BLOCK
        buffer_bytes = -(-request_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with _queue(buffer_bytes) as (context, memory):
            if len(out) <= min(MAX_PYTHON_ROWS_PER_CALL, self.python_rows_left):
                self.python_rows_left -= len(out)
                failed_row = _read_in_python(memory, reads, out)
            else:
                with numba_lock:  # imports numba
                    from nanoset_ref.load.direct_kernel import read_rows

                depth = min(DEPTH, len(memory) // buffer_bytes)
                buffers = memory[: depth * buffer_bytes].reshape(depth, buffer_bytes)
                calls = SYSTEM_CALLS[platform.machine()]
                failed_row = read_rows(calls, context, DISK_BLOCK, buffers, reads, out)
        if failed_row >= 0:
            raise truncation_error(
                self._files[sources[failed_row]], int(first_tokens[failed_row])
            )


def _read_in_python(
    memory: Uint8Array, reads: Sequence[Int64Array], out: Int32Array
) -> int:
    """Do what the kernel does, row by row; see `direct_kernel.read_rows`.

    Returns:
        -1, or the first row that cannot be read.
    """
    rows = np.stack(reads, axis=1).tolist()
    for row, (descriptor, first_byte, size) in enumerate(rows):
        start = first_byte % DISK_BLOCK
        end = start + size
        blocks = -(-end // DISK_BLOCK)
        count = os.preadv(
            descriptor, [memory[: blocks * DISK_BLOCK].data], first_byte - start
        )
        if count < end:
            return row
        out[row] = memory[start:end].view(f"<u{size // out.shape[1]}")
    return -1


@contextlib.contextmanager
def _queue(min_bytes: int) -> Iterator[tuple[int, Uint8Array]]:
    """A queue of this process and the memory that it reads into, at least `min_bytes`."""
    try:
        context, memory = _idle_queues.pop()
    except IndexError:  # none is idle, or another thread has just taken the last one
        queue = ctypes.c_ulong(0)
        if _system_call(0, ctypes.c_long(DEPTH), ctypes.byref(queue)) < 0:
            raise OSError(
                "the system has no more queues for asynchronous reads: raise fs.aio-max-nr (sysctl)"
            ) from None
        context = queue.value
        memory = _huge_pages(QUEUE_BYTES)
    if len(memory) < min_bytes:
        memory = _huge_pages(min_bytes)
    try:
        yield context, memory
    except BaseException:  # reads may still be in flight
        _destroy_queue(context)
        raise
    _idle_queues.append((context, memory))
    while len(_idle_queues) > MAX_IDLE_QUEUES:
        _destroy_queue(_idle_queues.pop()[0])


def _destroy_queue(context: int) -> None:
    """Wait for the reads in flight, and return the queue to the system."""
    _system_call(3, ctypes.c_ulong(context))


def _destroy_unused() -> None:
    """Return the queues to the system if no DirectGatherer is left."""
    # its length would include the one that is being deleted
    while _idle_queues and not list(_gatherers):
        _destroy_queue(_idle_queues.pop()[0])


def _system_call(which: int, *arguments: Any) -> int:
    """Call the system: `which` is an index in SYSTEM_CALLS. Return its result, or -1."""
    number = ctypes.c_long(SYSTEM_CALLS[platform.machine()][which])
    return int(ctypes.CDLL(None).syscall(number, *arguments))


def _huge_pages(size: int) -> Uint8Array:
    """`size` bytes, aligned to a huge page; into small pages the disk sends a third less."""
    memory = mmap.mmap(
        -1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    content = np.frombuffer(memory, np.uint8)
    first = -content.ctypes.data % HUGE_PAGE
    return content[first : first + size]
