"""Rows of files that are larger than memory, read past the page cache (Linux).

Nobody would find such a row's pages in memory when it is read again an epoch later, and keeping them costs more than
the disk takes to send them. So the files are opened with O_DIRECT, and the rows of a block are asked for by Linux's own
asynchronous reads (io_submit(2)):

    1. while fewer than DEPTH rows are under way, the next ones are asked for, all by one system call; of each the whole
       disk blocks that it touches
    2. those that have arrived, in whatever order, are collected by another and widened to int32 into their places

Two workers read all that the disk sends (`benchmarks.cold`, beside fio), one process two thirds of it; through the page
cache two workers read half of it. Threads of pread, tried first, gave 59,000 rows of 512 tokens a second where a
prototype of this gave 97,000, as every row wakes a thread; io_uring would do as well, but containers often forbid it.
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
from numba import types
from numpy.typing import NDArray

from nanoset_ref.io.kernels import njit
from nanoset_ref.load.gather import OpenFiles, cut_short, widen
from nanoset_ref.tokens import Tokens

DEPTH = 64  # rows under way; with two workers 128 read less, as their memory leaves the processor's cache
ROOM, HUGE_PAGE = 8 << 20, 1 << 21  # bytes for them (long rows are fewer), and bytes
BLOCK = 1 << 12  # bytes: places and sizes of direct reads are multiples of it
KEPT = (
    4  # queues that a process keeps: threads that read side by side make more, and give them back
)
# io_setup, io_submit, io_getevents, io_destroy
SYSTEM_CALLS = {"x86_64": (206, 209, 208, 207), "aarch64": (0, 2, 4, 1)}

_idle: list[
    tuple[int, NDArray[np.uint8]]
] = []  # queues of this process, with the memory that they read into
_gatherers: weakref.WeakSet[DirectGatherer] = (
    weakref.WeakSet()
)  # when the last is gone, so are the queues
os.register_at_fork(after_in_child=_idle.clear)  # a queue belongs to one process


class DirectGatherer:
    """As `Gatherer`, past the page cache.

    Raises:
        OSError: the file system cannot do this; the system has no more queues.
    """

    block_factor = 4

    def __init__(self, files: Sequence[Tokens]) -> None:
        if sys.platform != "linux" or platform.machine() not in SYSTEM_CALLS:
            raise OSError(f"reading past the page cache needs Linux on {' or '.join(SYSTEM_CALLS)}")
        self._files = files
        self._open = OpenFiles(files, os.O_DIRECT)
        # some file systems open such files, and then do not read them
        for _, descriptors in self._open.parts(np.zeros(1, dtype=np.int64)):
            os.preadv(int(descriptors[0]), [mmap.mmap(-1, BLOCK)], 0)
        self._itemsizes = np.array([file.dtype.itemsize for file in files], dtype=np.int64)
        with _queue():  # an error now, not in the midst of a run
            pass
        _gatherers.add(self)
        weakref.finalize(self, _destroy_unused)

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectGatherer, (self._files,)

    def __call__(
        self, datasets: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.int32]
    ) -> None:
        """As of `Gatherer`.

        Raises:
            OSError: a row cannot be read.
        """
        for part, descriptors in self._open.parts(datasets):
            self._read(descriptors, datasets[part], starts[part], out[part])

    def _read(
        self,
        descriptors: NDArray[np.int64],
        datasets: NDArray[np.int64],
        starts: NDArray[np.int64],
        out: NDArray[np.int32],
    ) -> None:
        itemsizes = self._itemsizes[datasets]
        begins, sizes = starts * itemsizes, out.shape[1] * itemsizes
        # the most a row touches; whole pages, so that a fork while the disk writes into them does no harm
        step = -(-(int(sizes.max(initial=1)) + BLOCK) // mmap.PAGESIZE) * mmap.PAGESIZE
        with _queue(step) as (context, memory):
            places = memory[: min(DEPTH, len(memory) // step) * step].reshape(-1, step)
            calls = SYSTEM_CALLS[platform.machine()]
            failed = _gather(calls, context, places, descriptors[datasets], begins, sizes, out)
        if failed >= 0:
            raise cut_short(self._files[datasets[failed]], int(starts[failed]))


@contextlib.contextmanager
def _queue(least: int = 0) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """A queue of this process, and at least so many bytes that it reads into; it goes back to the others."""
    context, memory = _idle.pop() if _idle else (_set_up(), _huge_pages(ROOM))
    if len(memory) < least:
        memory = _huge_pages(least)
    yield context, memory
    _idle.append((context, memory))
    while len(_idle) > KEPT:
        _destroy(_idle.pop()[0])


def _set_up() -> int:
    """A new queue."""
    context = ctypes.c_ulong(0)
    if _system_call(0, ctypes.c_long(DEPTH), ctypes.byref(context)) < 0:
        raise OSError(
            "the system has no more queues for asynchronous reads: raise fs.aio-max-nr (sysctl)"
        )
    return context.value


def _destroy(context: int) -> None:
    _system_call(3, ctypes.c_ulong(context))


def _destroy_unused() -> None:
    """Give the queues back to the system, if nobody reads directly any more."""
    while _idle and not list(
        _gatherers
    ):  # a list has only those that live; a length has the dying one as well
        _destroy(_idle.pop()[0])


def _system_call(which: int, *arguments: Any) -> int:
    return int(
        ctypes.CDLL(None).syscall(
            ctypes.c_long(SYSTEM_CALLS[platform.machine()][which]), *arguments
        )
    )


def _huge_pages(size: int) -> NDArray[np.uint8]:
    """So many bytes of memory that begin with a huge page: into small ones the disk sends a third less."""
    memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    content = np.frombuffer(memory, np.uint8)
    return content[-content.ctypes.data % HUGE_PAGE :][:size]


_syscall = types.ExternalFunction("syscall", types.intp(*6 * [types.intp]))


@njit(cache=True, nogil=True)
def _gather(system_calls, context, places, descriptors, begins, sizes, out):
    """Fill `out` [rows, length] with `sizes` bytes from `begins` on of the files `descriptors`, all int64 [rows],
    through `places` [depth, bytes]; returns, when nothing is under way, -1 or a row that cannot be read.

    What the system takes (struct iocb) and gives (io_event) is described by eight and four int64.
    """
    rows, depth = len(out), len(places)
    failed, asked, arrived = -1, 0, 0
    calls, pointers, events = (
        np.zeros((depth, 8), np.int64),
        np.empty(depth, np.int64),
        np.empty((depth, 4), np.int64),
    )
    memory, first_call = np.int64(places.ctypes.data), np.int64(calls.ctypes.data)
    free = np.arange(depth)  # the first depth - (asked - arrived) of them
    while arrived < asked or (asked < rows and failed < 0):
        # 1.
        first = asked
        while asked < rows and failed < 0 and asked - arrived < depth:
            place, low = free[depth - 1 - (asked - arrived)], begins[asked] // BLOCK * BLOCK
            calls[place, 0], calls[place, 2], calls[place, 5] = asked, descriptors[asked] << 32, low
            calls[place, 3] = memory + place * places.shape[1]
            calls[place, 4] = -(-(begins[asked] + sizes[asked] - low) // BLOCK) * BLOCK
            pointers[asked - first] = first_call + 64 * place
            asked += 1
        if asked > first:
            taken = _syscall(
                system_calls[1], context, asked - first, np.int64(pointers.ctypes.data), 0, 0
            )
            asked = first + max(taken, 0)
            if asked == arrived:
                failed = asked
        # 2.
        least, room = min(1, asked - arrived), np.int64(events.ctypes.data)
        for number in range(
            _syscall(system_calls[2], context, least, depth, room, 0)
        ):  # none if it is interrupted
            row, place = events[number, 0], (events[number, 1] - first_call) // 64
            begin = begins[row] % BLOCK
            end = begin + sizes[row]
            if events[number, 2] < end:
                failed = row
            elif sizes[row] == 2 * out.shape[1]:
                widen(places[place, begin:end].view(np.uint16), out[row])
            else:
                widen(places[place, begin:end].view(np.int32), out[row])
            free[depth - (asked - arrived)] = place
            arrived += 1
    return failed
