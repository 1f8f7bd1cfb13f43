"""Reads ahead of the training loop, in a thread of this process or in worker processes."""

import functools
import itertools
import mmap
import multiprocessing
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.heap import Arena
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from nanoset_ref.io.pools import close_pool, signals_held
from nanoset_ref.load.blocks import BlockSizes
from nanoset_ref.load.collator import RowBlock, own_copy
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.samplers import ResumableBatchSampler

T = TypeVar("T")

# of madvise, Linux 5.14: gives a mapping the pages that writing would give it
POPULATE_WRITE = 23
Mappings = set[weakref.ref[mmap.mmap]]


def _has_private_mappings() -> bool:
    """Whether private mappings show what is written to the memory, and can get their own pages."""
    if sys.platform != "linux":
        return False
    try:
        mmap.mmap(-1, mmap.PAGESIZE).madvise(POPULATE_WRITE)
    except OSError:
        return False
    return True


HAS_PRIVATE_MAPPINGS = _has_private_mappings()
ALL_MAPPINGS: Mappings = set()  # of all buffers


def give_own_pages(mappings: Mappings) -> None:
    """Copy the pages that these mappings still share with a buffer."""
    for reference in list(mappings):
        mapping = reference()
        if mapping is not None:
            mapping.madvise(POPULATE_WRITE)


os.register_at_fork(before=functools.partial(give_own_pages, ALL_MAPPINGS))


def read_ahead(items: Iterable[T], depth: int) -> Iterator[T]:
    """The same items in the same order, made by a thread up to `depth` items in advance.

    A reader that releases the interpreter's lock (`gather`, file access, copies) runs beside the
    training loop. An exception is raised in place of the item that failed. When the generator is
    closed or collected, it waits for the item in progress and starts no other.

    Args:
        items: read by the thread alone.
        depth: at least 1.
    """
    end = object()
    iterator = iter(items)
    close = close_pool  # when the interpreter exits, this module has lost its names
    thread = ThreadPoolExecutor(1, thread_name_prefix="nanoset_ref-read-ahead")
    coming = deque(thread.submit(next, iterator, end) for _ in range(depth))
    try:
        while True:
            item = coming.popleft().result()
            if item is end:
                return
            coming.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        close(thread, coming)


class SharedBuffer:
    """A block in memory shared with the workers, which fill it again and again.

    This process hands out copies that take neither time nor memory at first: private mappings of
    the same memory. The system copies a page of it when somebody writes to the page. A mapping that
    is still held gets its own pages

    1. before the block is filled again
    2. before a fork, since this process does not learn what the child holds.

    It takes Linux 5.14. On other systems every block is copied when it arrives.

    Args:
        arena: the memory.
        shape: [rows, row_length].
        dtype: of the rows.

    Attributes:
        rows: the block; nobody but a worker writes to it.
    """

    def __init__(
        self, arena: Arena, shape: tuple[int, int], dtype: np.dtype[Any]
    ) -> None:
        self.rows = np.frombuffer(arena.buffer, dtype).reshape(shape)
        self._arena = arena
        self._mappings: Mappings = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedBuffer, (self._arena, self.rows.shape, self.rows.dtype)

    def copy(self, num_rows: int) -> torch.Tensor:
        """A copy of the first rows; the receiver may write to it."""
        # a block needs two, inputs and labels; more are held by somebody who keeps batches, and get
        # real copies, since each mapping takes a descriptor
        if len(self._mappings) >= 2:
            return torch.from_numpy(self.rows[:num_rows].copy())
        mapping = mmap.mmap(self._arena.fd, self._arena.size, access=mmap.ACCESS_COPY)
        for held in (self._mappings, ALL_MAPPINGS):
            held.add(weakref.ref(mapping, held.discard))
        rows = np.frombuffer(mapping, self.rows.dtype).reshape(self.rows.shape)
        return torch.from_numpy(rows[:num_rows])

    def separate(self) -> None:
        """Give the copies that somebody holds their own pages."""
        give_own_pages(self._mappings)


def shared_buffers(
    count: int, shape: tuple[int, int], dtype: np.dtype[Any]
) -> list[SharedBuffer]:
    """Memory for `count` blocks."""
    size = shape[0] * shape[1] * dtype.itemsize
    return [SharedBuffer(Arena(size), shape, dtype) for _ in range(count)]


class ReadRequest(NamedTuple):
    """Sent to a worker: read the rows at `positions`, int64 [n], into a buffer."""

    positions: NDArray[np.int64]
    buffer: int


class FilledBuffer(NamedTuple):
    """A worker's answer: the buffer holds `num_rows` rows. For `starts` see `RowBlock`."""

    buffer: int
    num_rows: int
    starts: torch.Tensor | None


class ReadRequests:
    """The blocks of a sampler, each with the next buffer; an iteration continues where it is."""

    def __init__(
        self,
        sampler: ResumableBatchSampler,
        batches_per_block: int,
        buffers: Sequence[SharedBuffer],
    ) -> None:
        self.sampler = sampler
        self.batches_per_block = batches_per_block
        self.buffers = buffers

    def __iter__(self) -> Iterator[ReadRequest]:
        buffers = itertools.cycle(range(len(self.buffers)))
        for positions in self.sampler.blocks(self.batches_per_block):
            buffer = next(buffers)
            self.buffers[buffer].separate()
            yield ReadRequest(positions, buffer)


class BufferReader(Dataset[FilledBuffer]):
    """The dataset for torch's workers: the index is a `ReadRequest`, the item a `FilledBuffer`."""

    def __init__(
        self, dataset: Rows, buffers: Sequence[SharedBuffer], needs_starts: bool
    ) -> None:
        self.dataset = dataset
        self.buffers = buffers
        self.needs_starts = needs_starts

    def __getitem__(self, request: ReadRequest) -> FilledBuffer:
        positions, buffer = request
        starts = (
            torch.from_numpy(self.dataset.starts(positions))
            if self.needs_starts
            else None
        )
        self.dataset.fill(positions, self.buffers[buffer].rows[: len(positions)])
        return FilledBuffer(buffer, len(positions), starts)


class WorkerBlocks:
    """Blocks of rows that worker processes read into shared memory.

    Args:
        dataset: the rows.
        sampler: names their positions.
        sizes: of the blocks.
        needs_starts: whether the blocks have `starts`.
        copy_tensor: see `RowBlock`.
        options: options of torch's DataLoader.
    """

    def __init__(
        self,
        dataset: Rows,
        sampler: ResumableBatchSampler,
        sizes: BlockSizes,
        needs_starts: bool,
        copy_tensor: Callable[[torch.Tensor], torch.Tensor],
        options: dict[str, Any],
    ) -> None:
        self.buffers = shared_buffers(sizes.num_buffers, sizes.shape, dataset.row_dtype)
        self.batch_size = sampler.micro_batch_size
        self.copy_tensor = copy_tensor
        reader = BufferReader(dataset, self.buffers, needs_starts)
        requests = ReadRequests(sampler, sizes.most_batches, self.buffers)
        # only the buffers' numbers travel; collating and pinning follow
        unchanged = {"batch_size": None, "collate_fn": None, "pin_memory": False}
        self.loader = DataLoader(
            reader, **{**options, **unchanged, "sampler": requests}
        )

    def __iter__(self) -> Iterator[RowBlock]:
        # the caller's thread forks the workers: in that of `read_ahead` they would wait for its end
        context = self.loader.multiprocessing_context or multiprocessing
        forks = context.get_start_method() == "fork"
        # torch draws its seed on the default device
        with torch.device("cpu"), signals_held() if forks else nullcontext():
            filled = iter(self.loader)
        return map(self._arrived, filled)

    def _arrived(self, filled: FilledBuffer) -> RowBlock:
        buffer = self.buffers[filled.buffer]
        rows = torch.from_numpy(buffer.rows[: filled.num_rows])
        starts = None if filled.starts is None else filled.starts.numpy()
        copy_tensor = self.copy_tensor
        if copy_tensor is own_copy and HAS_PRIVATE_MAPPINGS:
            copy_tensor = functools.partial(_copied, rows, buffer)
        elif copy_tensor is own_copy:
            rows = rows.clone()
        return RowBlock(rows, self.batch_size, starts, copy_tensor)


def _copied(
    rows: torch.Tensor, buffer: SharedBuffer, tensor: torch.Tensor
) -> torch.Tensor:
    """A copy of a tensor, which may be the rows in the buffer."""
    if tensor is rows:
        return buffer.copy(len(rows))
    return own_copy(tensor)
