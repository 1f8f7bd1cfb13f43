"""The fast road: blocks of many batches, instead of single ones, travel from those who read to the training loop.

Reading a batch of 8 x 512 tokens takes about 4 microseconds. torch's DataLoader spends ten times as much on handing
out any item, and a hundred times on one from a worker process. So an item is a block of many batches (up to 4 MiB, see
`batches_per_block`), read by one call into memory that stands ready, and cut into views where it is delivered. The
first blocks are short, 1, 2, 4, ... batches, so that the first batch waits for no other.

    1. `BlockSampler` (main process) takes the positions of the next batches together, with the number of a free slot
    2. `BlockReader` (worker or main process) fills that slot and answers with its number
    3. `BlockRoad` (main process) shows the slot as a tensor, without a copy, and the collator cuts it

A slot is free when nothing refers to it any more: neither the loader, nor a batch, nor whatever was made from a batch
without copying. Reference counts tell us, so users need no rule, and a batch never changes under its owner. Who keeps
every batch gets fresh memory for each block.

It costs the slots: one block for every read under way, and three that are being delivered. Blocks out of a bucket, or
past the page cache, are up to four times as large, since each of them waits for the slowest of its answers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from nanoset_ref.ahead import ahead
from nanoset_ref.collator import Batch, Collator
from nanoset_ref.documents import Starts
from nanoset_ref.rows import Rows
from nanoset_ref.samplers import ResumableBatchSampler

BLOCK_BYTES = 4 << 20
ALL_BLOCKS_BYTES = 48 << 20  # all slots of usual size together: in containers shared memory often ends at 64 MiB


class Request(NamedTuple):
    """What the sampler asks a reader for: the rows at `positions`, in `slot`, or in fresh memory if it is None."""

    positions: NDArray[np.int64]
    slot: int | None


class FilledSlot(NamedTuple):
    """What a reader answers: how many rows it put into `slot`, or else the `rows`; `starts` if they are needed."""

    num_rows: int
    slot: int | None
    rows: torch.Tensor | None = None
    starts: torch.Tensor | None = None


class Slots:
    """Memory for `count` blocks, each of `shape` and `dtype`, used again and again.

    Args:
        shared: whether other processes fill it.

    Attributes:
        tensors: the slots, for those who fill them; a process that they are sent to gets the same memory.
        requested: slots that somebody fills.
    """

    def __init__(self, count: int, shape: tuple[int, int], dtype: np.dtype[Any], *, shared: bool) -> None:
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        tensors = [torch.empty(shape, dtype=kind) for _ in range(count)]
        self.tensors = [tensor.share_memory_() if shared else tensor for tensor in tensors]
        self._arrays = [tensor.numpy() for tensor in tensors]
        self._unused = [sys.getrefcount(self._arrays[slot]) for slot in range(count)]
        self.requested: set[int] = set()

    def request(self) -> int | None:
        """A slot that nobody uses, requested from now on; None if there is none."""
        for slot, unused in enumerate(self._unused):
            if slot not in self.requested and sys.getrefcount(self._arrays[slot]) == unused:
                self.requested.add(slot)
                return slot
        return None

    def rows(self, block: FilledSlot) -> torch.Tensor:
        """[num_rows, row_length]: a view of the block's slot, which is free again when all that was made from it is
        gone.
        """
        if block.slot is None:
            return block.rows  # type: ignore[return-value]
        self.requested.discard(block.slot)
        return torch.from_numpy(self._arrays[block.slot][: block.num_rows])


class BlockSampler(Sampler[Request]):
    """Requests for the positions of several batches each.

    Args:
        batch_sampler: says which positions those are; its count goes on as if its batches were taken one by one.
        batches_per_block: batches in every block but the first and the last ones of an epoch.
        slots: where the blocks go.
    """

    def __init__(self, batch_sampler: ResumableBatchSampler, batches_per_block: int, slots: Slots) -> None:
        self.batch_sampler, self.batches_per_block, self.slots = batch_sampler, batches_per_block, slots

    def __iter__(self) -> Iterator[Request]:
        self.slots.requested.clear()  # this runs with the first request, when torch has stopped an earlier iteration
        sampler, batches = self.batch_sampler, 1
        end = sampler.rest_of_epoch(sampler.consumed_train_samples).end
        while len(positions := sampler.take(min(batches, self.batches_per_block))):
            batches *= 2
            yield Request(positions.ravel(), self.slots.request())
            if sampler.consumed_train_samples == end:
                return
        for batch in sampler:  # what the end of the epoch leaves, as `tail` has it: one batch or none
            yield Request(np.array(batch), self.slots.request())


class BlockReader(Dataset[FilledSlot]):
    """The dataset as torch's DataLoader sees it: a `Request` for index, a `FilledSlot` for item."""

    def __init__(self, dataset: Rows, slots: Sequence[torch.Tensor], *, needs_starts: bool = False) -> None:
        self.dataset, self.slots, self.needs_starts = dataset, slots, needs_starts

    def __getitem__(self, request: Request) -> FilledSlot:
        positions, slot = request
        starts = torch.from_numpy(self.dataset.starts(positions)) if self.needs_starts else None
        if slot is None:
            return FilledSlot(len(positions), None, torch.from_numpy(self.dataset.read(positions)), starts)
        self.dataset.read(positions, out=self.slots[slot][: len(positions)].numpy())
        return FilledSlot(len(positions), slot, None, starts)


class BlockRoad:
    """The batches of one rank, read in blocks; each iteration reads the rest of the sampler's epoch.

    Args:
        dataset: the rows.
        batch_sampler: which of them this rank reads.
        collator: cuts blocks into batches.
        num_workers, read_ahead, pin_memory: as in `NanosetDataLoader`.
        **options: of torch's DataLoader, for the workers.
    """

    def __init__(
        self,
        dataset: Rows,
        batch_sampler: ResumableBatchSampler,
        collator: Collator,
        *,
        num_workers: int = 0,
        read_ahead: int = 0,
        pin_memory: bool = False,
        **options: Any,
    ) -> None:
        collator.check(dataset.row_length)
        self.collator, self.read_ahead, self.pin_memory = collator, read_ahead, pin_memory
        self.micro_batch_size = batch_sampler.micro_batch_size
        under_way = num_workers * (options.get("prefetch_factor") or 2) + read_ahead
        batch_bytes = self.micro_batch_size * dataset.row_length * dataset.row_dtype.itemsize
        batches = batches_per_block(batch_bytes, under_way + 3, dataset.block_factor, shared=num_workers > 0)
        shape = batches * self.micro_batch_size, dataset.row_length
        self._slots = Slots(under_way + 3, shape, dataset.row_dtype, shared=num_workers > 0)
        self._requests = BlockSampler(batch_sampler, batches, self._slots)
        self._reader = BlockReader(dataset, self._slots.tensors, needs_starts=collator.needs_starts)
        self._workers: Iterable[FilledSlot] | None = None
        if num_workers > 0:
            workers: dict[str, Any] = {"sampler": self._requests, "num_workers": num_workers, **options}
            self._workers = DataLoader(self._reader, batch_size=None, **workers)

    def __iter__(self) -> Iterator[Batch]:
        # without workers torch's way would do the same, and take longer over it than the reading takes
        filled = map(self._reader.__getitem__, self._requests) if self._workers is None else self._workers
        blocks: Iterable[tuple[torch.Tensor, Starts | None]] = map(self._arrived, filled)
        if self.read_ahead:
            blocks = ahead(blocks, self.read_ahead)
        for rows, starts in blocks:
            yield from self.collator.split(rows, self.micro_batch_size, starts)

    def _arrived(self, block: FilledSlot) -> tuple[torch.Tensor, Starts | None]:
        """With `pin_memory` one copy of the whole block, into torch's cache of pinned memory."""
        rows = self._slots.rows(block)
        if self.pin_memory and torch.accelerator.is_available():
            rows = rows.pin_memory()
        return rows, None if block.starts is None else block.starts.numpy()


def batches_per_block(batch_bytes: int, num_slots: int = 1, block_factor: int = 1, *, shared: bool = False) -> int:
    """How many batches of `batch_bytes` a block takes, if there are so many slots, perhaps in shared memory: at least
    one.
    """
    scarce = shared and _free_shared_memory() < 16 * ALL_BLOCKS_BYTES
    all_slots = ALL_BLOCKS_BYTES * (1 if scarce else block_factor)
    return max(1, min(block_factor * BLOCK_BYTES, all_slots // num_slots) // batch_bytes)


def _free_shared_memory() -> int:
    """In bytes; 0 where it is not known."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return 0
