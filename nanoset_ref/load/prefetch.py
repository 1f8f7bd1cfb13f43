"""Reading ahead of the training loop: by a thread of this process, or by worker processes."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from nanoset_ref.load.collator import RowBlock
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.samplers import ResumableBatchSampler

T = TypeVar("T")


def ahead(items: Iterable[T], depth: int) -> Iterator[T]:
    """The same items in the same order, up to `depth` of them, at least 1, made before they are asked for.

    A reader that releases the interpreter's lock (`gather`, file access, copies) runs beside the training loop. An
    exception is raised in place of the item that failed. A generator that is closed or collected waits for the item
    under way and starts no other.
    """
    end = object()
    iterator = iter(items)
    thread = ThreadPoolExecutor(1, thread_name_prefix="nanoset_ref-ahead")
    coming = deque(thread.submit(next, iterator, end) for _ in range(depth))
    try:
        while True:
            item = coming.popleft().result()
            if item is end:
                return
            coming.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        for future in coming:
            future.cancel()
        thread.shutdown()  # shutdown(cancel_futures=True) fails if the program ends with the generator half read


class ReadRequest(NamedTuple):
    """Sent to a worker: read the rows at `positions`, int64 [n], into a buffer."""

    positions: NDArray[np.int64]
    buffer: int


class FilledBuffer(NamedTuple):
    """A worker's answer: the buffer holds `num_rows` rows. `starts` as in `RowBlock`, if the collator needs them."""

    buffer: int
    num_rows: int
    starts: torch.Tensor | None


class ReadRequests:
    """The blocks of a sampler, each with the next buffer in turn. Every iteration goes on where the sampler stands."""

    def __init__(self, sampler: ResumableBatchSampler, batches: int, num_buffers: int) -> None:
        self.sampler = sampler
        self.batches = batches
        self.num_buffers = num_buffers

    def __iter__(self) -> Iterator[ReadRequest]:
        buffers = itertools.cycle(range(self.num_buffers))
        return map(ReadRequest, self.sampler.blocks(self.batches), buffers)


class BufferReader(Dataset[FilledBuffer]):
    """The dataset as torch's workers see it: the index is a `ReadRequest`, the item a `FilledBuffer`."""

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

    Each is copied into private memory when it arrives: the next block in its buffer, and a child that is forked later,
    must not change a batch that somebody holds.

    Args:
        reader: runs in the workers, which fill its buffers.
        requests: the positions to read.
        private: memory for the copies, used in turn.
        like: has the batch size and the copy of every block.
        options: of torch's DataLoader.
    """

    def __init__(
        self,
        reader: BufferReader,
        requests: ReadRequests,
        private: Sequence[torch.Tensor],
        like: RowBlock,
        options: dict[str, Any],
    ) -> None:
        self.buffers = reader.buffers
        self.private = itertools.cycle(private)
        self.like = like
        # the buffers' numbers travel as they are; collating and pinning come after the copy
        as_it_is = {"batch_size": None, "collate_fn": None, "pin_memory": False}
        self.loader = DataLoader(reader, **{**options, **as_it_is, "sampler": requests})

    def __iter__(self) -> Iterator[RowBlock]:
        # workers are forked here, by the caller's thread, not by that of `ahead`, which their exit would wait for
        return map(self._arrived, self.loader)

    def _arrived(self, filled: FilledBuffer) -> RowBlock:
        rows = next(self.private)[: filled.num_rows]
        np.copyto(rows.numpy(), self.buffers[filled.buffer][: filled.num_rows].numpy())
        starts = None if filled.starts is None else filled.starts.numpy()
        return self.like._replace(rows=rows, starts=starts)
