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

from nanoset_ref.load.collator import Block
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


class SlotRequest(NamedTuple):
    """Sent to a worker: read the rows at `positions`, int64 [n], into a slot."""

    positions: NDArray[np.int64]
    slot: int


class FilledSlot(NamedTuple):
    """A worker's answer: the slot holds `num_rows` rows. `starts` as in `Block`, if the collator needs them."""

    slot: int
    num_rows: int
    starts: torch.Tensor | None


class SlotRequests:
    """The blocks of a sampler, each with the next slot in turn. Every iteration goes on where the sampler stands."""

    def __init__(self, sampler: ResumableBatchSampler, batches: int, num_slots: int) -> None:
        self.sampler = sampler
        self.batches = batches
        self.num_slots = num_slots

    def __iter__(self) -> Iterator[SlotRequest]:
        slots = itertools.cycle(range(self.num_slots))
        return map(SlotRequest, self.sampler.blocks(self.batches), slots)


class SlotReader(Dataset[FilledSlot]):
    """The dataset as torch's workers see it: the index is a `SlotRequest`, the item a `FilledSlot`."""

    def __init__(self, dataset: Rows, slots: Sequence[torch.Tensor], needs_starts: bool) -> None:
        self.dataset = dataset
        self.slots = slots
        self.needs_starts = needs_starts

    def __getitem__(self, request: SlotRequest) -> FilledSlot:
        positions, slot = request
        starts = torch.from_numpy(self.dataset.starts(positions)) if self.needs_starts else None
        self.dataset.fill(positions, self.slots[slot][: len(positions)].numpy())
        return FilledSlot(slot, len(positions), starts)


class WorkerBlocks:
    """Blocks of rows that worker processes read into shared memory.

    Each is copied into private memory when it arrives: the next block in its slot, and a child that is forked later,
    must not change a batch that somebody holds.

    Args:
        reader: runs in the workers, which fill its slots.
        requests: the positions to read.
        private: memory for the copies, used in turn.
        like: has the batch size and the copy of every block.
        options: of torch's DataLoader.
    """

    def __init__(
        self,
        reader: SlotReader,
        requests: SlotRequests,
        private: Sequence[torch.Tensor],
        like: Block,
        options: dict[str, Any],
    ) -> None:
        self.slots = reader.slots
        self.private = itertools.cycle(private)
        self.like = like
        # the slots' numbers travel as they are; collating and pinning come after the copy
        as_it_is = {"batch_size": None, "collate_fn": None, "pin_memory": False}
        self.loader = DataLoader(reader, **{**options, **as_it_is, "sampler": requests})

    def __iter__(self) -> Iterator[Block]:
        # workers are forked here, by the caller's thread, not by that of `ahead`, which their exit would wait for
        return map(self._arrived, self.loader)

    def _arrived(self, filled: FilledSlot) -> Block:
        rows = next(self.private)[: filled.num_rows]
        np.copyto(rows.numpy(), self.slots[filled.slot][: filled.num_rows].numpy())
        starts = None if filled.starts is None else filled.starts.numpy()
        return self.like._replace(rows=rows, starts=starts)
