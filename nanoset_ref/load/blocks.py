"""The fast road: blocks of many batches, instead of single ones, travel from those who read to the training loop.

Reading a batch of 8 x 512 tokens takes about 4 microseconds. torch's DataLoader spends ten times as much on handing
out any item, and a hundred times on one from a worker process. So an item is a block of many batches (up to 4 MiB, see
`batches_per_block`), read by one call into memory that stands ready, and cut into views where it is delivered. The
first blocks are short, 1, 2, 4, ... batches, so that the first batch waits for no other.

    1. `BlockSampler` (main process) takes the positions of the next batches together, and the next slot for them
    2. `BlockReader` (worker or main process) reads their rows into that slot
    3. `BlockRoad` (main process) copies what a worker has put into shared memory, and the collator cuts the rows

Slots are used in turn. What is handed out are copies, of which each field has its own: a batch belongs to its receiver.
Copies of the whole block for each field would cost more than the reading, so they are lazy (`lazy_copy`): torch copies
when somebody writes first, the receiver into a field or the loader into the slot. Training on a device only reads, and
a slot that nobody has copies of is filled again where it lies.

Two threads must not be the first to write into one lazy copy at the same moment. So the copies of a block are real ones
if the process has a second thread that may write (see READING_THREADS) when the block is delivered.

Blocks out of a bucket, or past the page cache, are up to four times as large, since each of them waits for the slowest
of its answers.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from nanoset_ref.load.collator import Batch, Collator, Copy, outside_inference_mode
from nanoset_ref.load.documents import Starts
from nanoset_ref.load.prefetch import ahead
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.samplers import ResumableBatchSampler

BLOCK_BYTES = 4 << 20
ALL_BLOCKS_BYTES = (
    48 << 20
)  # all slots of usual size together: in containers shared memory often ends at 64 MiB
# by name: those of `ahead`, and Python's that feed worker processes; they write into nothing that was handed out
READING_THREADS = "nanoset_ref-ahead", "QueueFeederThread"


class Request(NamedTuple):
    """What the sampler asks a reader for: the rows at `positions`, in `slot`."""

    positions: NDArray[np.int64]
    slot: int


class FilledSlot(NamedTuple):
    """What a reader answers: how many rows it put into `slot`; `starts` if they are needed."""

    num_rows: int
    slot: int
    starts: torch.Tensor | None = None


def slots(
    count: int, shape: tuple[int, int], dtype: np.dtype[Any], *, shared: bool = False
) -> list[torch.Tensor]:
    """Memory for `count` blocks, each of `shape` and `dtype`; `shared`: with worker processes that it is sent to."""
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    with outside_inference_mode():
        tensors = [torch.empty(shape, dtype=kind) for _ in range(count)]
    return [tensor.share_memory_() for tensor in tensors] if shared else tensors


class BlockSampler(Sampler[Request]):
    """Requests for the positions of several batches each.

    Args:
        batch_sampler: says which positions those are; its count goes on as if its batches were taken one by one.
        batches_per_block: batches in every block but the first and the last ones of an epoch.
        num_slots: slots that the blocks go to in turn.
    """

    def __init__(
        self, batch_sampler: ResumableBatchSampler, batches_per_block: int, num_slots: int = 1
    ) -> None:
        self.batch_sampler = batch_sampler
        self.batches_per_block = batches_per_block
        self._slots = itertools.cycle(range(num_slots))

    def __iter__(self) -> Iterator[Request]:
        sampler, batches = self.batch_sampler, 1
        end = sampler.rest_of_epoch(sampler.consumed_train_samples).end
        while len(positions := sampler.take(min(batches, self.batches_per_block))):
            batches *= 2
            yield Request(positions.ravel(), next(self._slots))
            if sampler.consumed_train_samples == end:
                return
        for (
            batch
        ) in sampler:  # what the end of the epoch leaves, as `tail` has it: one batch or none
            yield Request(np.array(batch), next(self._slots))


class BlockReader(Dataset[FilledSlot]):
    """The dataset as torch's DataLoader sees it: a `Request` for index, a `FilledSlot` for item."""

    def __init__(
        self, dataset: Rows, slots: Sequence[torch.Tensor], *, needs_starts: bool = False
    ) -> None:
        self.dataset = dataset
        self.slots = slots
        self.needs_starts = needs_starts

    def __getitem__(self, request: Request) -> FilledSlot:
        positions, slot = request
        starts = torch.from_numpy(self.dataset.starts(positions)) if self.needs_starts else None
        # .numpy() moves the slot to other memory if somebody has a lazy copy of it
        self.dataset.read(positions, out=self.slots[slot][: len(positions)].numpy())
        return FilledSlot(len(positions), slot, starts)


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
        # one is filled or cut, and the last batch of another may still be held; with a thread, one more
        in_this_process = 2 + (read_ahead + 1 if read_ahead else 0)
        num_slots = under_way + in_this_process
        batch_bytes = self.micro_batch_size * dataset.row_length * dataset.row_dtype.itemsize
        batches = batches_per_block(
            batch_bytes, num_slots, dataset.block_factor, shared=num_workers > 0
        )
        shape = batches * self.micro_batch_size, dataset.row_length
        self._slots = slots(in_this_process, shape, dataset.row_dtype)
        self._copies: Iterator[torch.Tensor] | None = None
        if num_workers > 0:
            self._copies = itertools.cycle(self._slots)
            # torch asks for another block before it delivers one
            self._slots = slots(under_way + 1, shape, dataset.row_dtype, shared=True)
        self._requests = BlockSampler(batch_sampler, batches, len(self._slots))
        self._reader = BlockReader(dataset, self._slots, needs_starts=collator.needs_starts)
        self._workers: Iterable[FilledSlot] | None = None
        if num_workers > 0:
            workers: dict[str, Any] = {
                "sampler": self._requests,
                "num_workers": num_workers,
                **options,
            }
            self._workers = DataLoader(self._reader, batch_size=None, **workers)

    def __iter__(self) -> Iterator[Batch]:
        # without workers torch's way would do the same, and take longer over it than the reading takes
        filled = (
            map(self._reader.__getitem__, self._requests)
            if self._workers is None
            else self._workers
        )
        blocks: Iterable[tuple[torch.Tensor, Starts | None]] = map(self._arrived, filled)
        if self.read_ahead:
            blocks = ahead(blocks, self.read_ahead)
        for rows, starts in blocks:
            yield from self.collator.split(rows, self.micro_batch_size, starts, self._copy())

    def _arrived(self, block: FilledSlot) -> tuple[torch.Tensor, Starts | None]:
        """The rows of a block, which are handed out as copies only, and where documents begin in them."""
        rows = self._slots[block.slot][: block.num_rows]
        if self._copies is not None:
            rows = next(self._copies)[: block.num_rows].copy_(rows)
        return rows, None if block.starts is None else block.starts.numpy()

    def _copy(self) -> Copy:
        """How the fields of a block get memory of their own; with `pin_memory`, in torch's cache of pinned memory."""
        if self.pin_memory and torch.accelerator.is_available():
            return torch.Tensor.pin_memory
        writers = [
            thread
            for thread in threading.enumerate()
            if not thread.name.startswith(READING_THREADS)
        ]
        return lazy_copy if len(writers) == 1 else torch.clone


def lazy_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that takes up memory as soon as it or the original is written to; a real one where torch has no such."""
    copy = getattr(tensor, "_lazy_clone", tensor.clone)
    try:
        return copy()
    except RuntimeError:  # of memory that is not torch's own
        return tensor.clone()


def batches_per_block(
    batch_bytes: int, num_slots: int = 1, block_factor: int = 1, *, shared: bool = False
) -> int:
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
