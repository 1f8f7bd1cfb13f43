"""The fast road: blocks of many batches, instead of single ones, travel from those who read to the training loop.

Reading a batch of 8 x 512 tokens takes about 4 microseconds. torch's DataLoader spends ten times as much on handing
out any item, and a hundred times on one from a worker process. So an item is a block of many batches (up to 4 MiB, see
`batches_per_block`), read by one call into memory of its own, and cut into views where it is delivered. The first
blocks are short, 1, 2, 4, ... batches, so that the first batch waits for no other.

    1. `BlockSampler` (main process) takes the positions of the next batches together
    2. `BlockReader` (worker or main process) reads their rows; a worker puts them into a slot of shared memory
    3. `BlockRoad` (main process) copies the rows out of the slot, which is free again, and the collator cuts them

A batch belongs to its receiver: each field has memory that no other field and no later block uses. The copies that
this takes are lazy (`_lazy_clone` of torch): a block is really copied when somebody first writes into it, and training
on a device only reads. Two threads must not write for the first time at the same moment, so the copies are real ones as
soon as the process has a thread that is not the loader's.

Blocks out of a bucket, or past the page cache, are up to four times as large, since each of them waits for the slowest
of its answers.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from nanoset_ref.ahead import ahead
from nanoset_ref.collator import Batch, Collator, Copy
from nanoset_ref.documents import Starts
from nanoset_ref.rows import Rows
from nanoset_ref.samplers import ResumableBatchSampler

BLOCK_BYTES = 4 << 20
ALL_BLOCKS_BYTES = 48 << 20  # all slots of usual size together: in containers shared memory often ends at 64 MiB


class Request(NamedTuple):
    """What the sampler asks a reader for: the rows at `positions`; a worker puts them into `slot`."""

    positions: NDArray[np.int64]
    slot: int


class Block(NamedTuple):
    """What a reader answers: the `rows`, or how many of them are in a `slot`; `starts` if they are needed."""

    rows: torch.Tensor | None
    num_rows: int
    slot: int
    starts: torch.Tensor | None


class Slots:
    """Shared memory for the blocks that workers have under way.

    Nothing of it is handed out, so a slot is free again as soon as its rows have been copied.

    Args:
        count: slots. 0: no memory, as there are no workers.
        shape: of a block.
        dtype: of its rows.
    """

    def __init__(self, count: int, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        self.tensors = [torch.empty(shape, dtype=kind).share_memory_() for _ in range(count)]
        self.release_all()

    def release_all(self) -> None:
        self._free = list(range(len(self.tensors)))

    def request(self) -> int:
        """A free slot, which is the caller's until `take`; -1 where there are no workers."""
        return self._free.pop() if self.tensors else -1

    def take(self, block: Block) -> torch.Tensor:
        """The rows of a block [num_rows, row_length], in memory of this process."""
        if block.rows is not None:
            return block.rows
        rows = self.tensors[block.slot][: block.num_rows].clone()
        self._free.append(block.slot)
        return rows


class BlockSampler(Sampler[Request]):
    """Requests for the positions of several batches each.

    Args:
        batch_sampler: says which positions those are; its count goes on as if its batches were taken one by one.
        batches_per_block: batches in every block but the first and the last ones of an epoch.
        slots: where workers put the blocks.
    """

    def __init__(self, batch_sampler: ResumableBatchSampler, batches_per_block: int, slots: Slots) -> None:
        self.batch_sampler, self.batches_per_block, self.slots = batch_sampler, batches_per_block, slots

    def __iter__(self) -> Iterator[Request]:
        self.slots.release_all()  # this runs with the first request, when torch has stopped an earlier iteration
        sampler, batches = self.batch_sampler, 1
        end = sampler.rest_of_epoch(sampler.consumed_train_samples).end
        while len(positions := sampler.take(min(batches, self.batches_per_block))):
            batches *= 2
            yield Request(positions.ravel(), self.slots.request())
            if sampler.consumed_train_samples == end:
                return
        for batch in sampler:  # what the end of the epoch leaves, as `tail` has it: one batch or none
            yield Request(np.array(batch), self.slots.request())


class BlockReader(Dataset[Block]):
    """The dataset as torch's DataLoader sees it: a `Request` for index, a `Block` for item."""

    def __init__(self, dataset: Rows, slots: Sequence[torch.Tensor], *, needs_starts: bool = False) -> None:
        self.dataset = dataset
        self.slots = slots
        self.needs_starts = needs_starts

    def __getitem__(self, request: Request) -> Block:
        positions, slot = request
        num_rows = len(positions)
        starts = torch.from_numpy(self.dataset.starts(positions)) if self.needs_starts else None
        if self.slots:
            self.dataset.read(positions, out=self.slots[slot][:num_rows].numpy())
            return Block(None, num_rows, slot, starts)
        # torch's own memory, as there are no lazy copies of NumPy's
        kind = torch.from_numpy(np.empty(0, self.dataset.row_dtype)).dtype
        rows = torch.empty((num_rows, self.dataset.row_length), dtype=kind)
        self.dataset.read(positions, out=rows.numpy())
        return Block(rows, num_rows, slot, starts)


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
        under_way = num_workers * (options.get("prefetch_factor") or 2)
        batch_bytes = self.micro_batch_size * dataset.row_length * dataset.row_dtype.itemsize
        batches = batches_per_block(
            batch_bytes, under_way + read_ahead + 3, dataset.block_factor, shared=num_workers > 0
        )
        shape = batches * self.micro_batch_size, dataset.row_length
        # torch asks for the next block before it delivers one: one slot more than blocks under way
        self._slots = Slots(under_way + 1 if num_workers else 0, shape, dataset.row_dtype)
        self._own_threads = 1 + num_workers + bool(read_ahead)  # torch feeds each worker by a thread
        self._requests = BlockSampler(batch_sampler, batches, self._slots)
        self._reader = BlockReader(dataset, self._slots.tensors, needs_starts=collator.needs_starts)
        self._workers: Iterable[Block] | None = None
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
            yield from self.collator.split(rows, self.micro_batch_size, starts, self._copy())

    def _arrived(self, block: Block) -> tuple[torch.Tensor, Starts | None]:
        return self._slots.take(block), None if block.starts is None else block.starts.numpy()

    def _copy(self) -> Copy:
        """How the fields of a block get memory of their own; with `pin_memory`, in torch's cache of pinned memory."""
        if self.pin_memory and torch.accelerator.is_available():
            return torch.Tensor.pin_memory
        alone = threading.active_count() <= self._own_threads
        return lazy_copy if alone else torch.clone


def lazy_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that takes up memory when it or the original is first written to; a real one where torch has no such."""
    try:
        return tensor._lazy_clone()  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return tensor.clone()


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
