"""Reads ahead of the training loop, in a thread of this process or in worker processes."""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from nanoset_ref.io.pools import close_pool
from nanoset_ref.load.collator import RowBlock
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.samplers import ResumableBatchSampler

T = TypeVar("T")


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
        close_pool(thread, coming)


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

    def __init__(self, sampler: ResumableBatchSampler, batches: int, num_buffers: int) -> None:
        self.sampler = sampler
        self.batches = batches
        self.num_buffers = num_buffers

    def __iter__(self) -> Iterator[ReadRequest]:
        buffers = itertools.cycle(range(self.num_buffers))
        return map(ReadRequest, self.sampler.blocks(self.batches), buffers)


class BufferReader(Dataset[FilledBuffer]):
    """The dataset for torch's workers: the index is a `ReadRequest`, the item a `FilledBuffer`."""

    def __init__(self, dataset: Rows, buffers: Sequence[torch.Tensor], needs_starts: bool) -> None:
        self.dataset = dataset
        self.buffers = buffers
        self.needs_starts = needs_starts

    def __getitem__(self, request: ReadRequest) -> FilledBuffer:
        positions, buffer = request
        starts = torch.from_numpy(self.dataset.starts(positions)) if self.needs_starts else None
        self.dataset.fill(positions, self.buffers[buffer][: len(positions)].numpy())
        return FilledBuffer(buffer, len(positions), starts)


class WorkerBlocks:
    """Blocks of rows that worker processes read into shared memory.

    Each block is copied into private memory when it arrives. Neither the next block in its buffer
    nor a child that is forked later may change a batch that the caller holds.

    Args:
        reader: runs in the workers, which fill its buffers.
        requests: the positions to read.
        private: memory for the copies, used in turn.
        template: a block with the `batch_size` and `copy` of every block.
        options: options of torch's DataLoader.
    """

    def __init__(
        self,
        reader: BufferReader,
        requests: ReadRequests,
        private: Sequence[torch.Tensor],
        template: RowBlock,
        options: dict[str, Any],
    ) -> None:
        self.buffers = reader.buffers
        self.private = itertools.cycle(private)
        self.template = template
        # only the buffers' numbers travel; collating and pinning follow the copy
        unchanged = {"batch_size": None, "collate_fn": None, "pin_memory": False}
        self.loader = DataLoader(reader, **{**options, **unchanged, "sampler": requests})

    def __iter__(self) -> Iterator[RowBlock]:
        # the caller's thread forks the workers: in that of `read_ahead` they would wait for its end
        return map(self._arrived, self.loader)

    def _arrived(self, filled: FilledBuffer) -> RowBlock:
        rows = next(self.private)[: filled.num_rows]
        np.copyto(rows.numpy(), self.buffers[filled.buffer][: filled.num_rows].numpy())
        starts = None if filled.starts is None else filled.starts.numpy()
        return self.template._replace(rows=rows, starts=starts)
