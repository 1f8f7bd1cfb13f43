"""Blocks: what travels from those who read to the training loop, instead of single batches.

Reading a batch of 8 x 512 tokens takes about 4 microseconds. torch's DataLoader spends ten times as much on handing
out any item, and a hundred times on one from a worker process. So an item is a block of many batches (up to 4 MiB, see
`batches_per_block`), read by one call into memory that stands ready, and cut into views where it is delivered. The
first blocks are short, 1, 2, 4, ... batches, so that the first batch waits for no other.

    1. `BlockSampler` (main process) puts the positions of the next batches together, with the number of a free slot
    2. `BlockReader` (worker or main process) fills that slot and answers with its number
    3. `Slots.tensor` (main process) shows the slot as a tensor, without a copy; the collator cuts it

A slot is free when nothing refers to it any more: neither the loader, nor a batch, nor whatever was made from a batch
without copying. That is what reference counts tell, so there is no rule for the user to keep, and a batch never changes
under its owner. Who keeps every batch gets fresh memory for each block. The rejected alternatives: a ring that is
overwritten after a fixed number of batches (silently wrong for whoever keeps one longer), fresh shared memory for each
item (what torch does: a file, a mapping and page faults every time), and arrays sent through the workers' pipes (two
more copies).

It costs the slots: one block for every read under way, and three that are being delivered.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from nanoset_ref.samplers import ResumableBatchSampler

BLOCK_BYTES = 4 << 20
ALL_BLOCKS_BYTES = 48 << 20  # all slots together: in containers shared memory often ends at 64 MiB

T = TypeVar("T")


@runtime_checkable
class RowReader(Protocol):
    """A dataset whose samples are rows of one length, read many at a time (`Nanoset`, `MegatronNanoset`).

    `read(positions, out)` fills `out` [n, row_length] of `row_dtype` with the rows at `positions`, int64 [n].
    """

    @property
    def row_length(self) -> int: ...

    @property
    def row_dtype(self) -> np.dtype[Any]: ...

    def read(self, positions: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]: ...


class Request(NamedTuple):
    """What the sampler asks a reader for: the rows at `positions`, in `slot`, or in fresh memory if it is None."""

    positions: NDArray[np.int64]
    slot: int | None


class Block(NamedTuple):
    """What a reader answers: how many rows it wrote into `slot`, or else the `rows` themselves."""

    num_rows: int
    slot: int | None
    rows: torch.Tensor | None


class Slots:
    """Memory for `count` blocks, each an array of `shape` and `dtype`, used again and again.

    Args:
        shared: whether other processes fill it (it may be sent to them, forked or spawned).
    """

    def __init__(self, count: int, shape: tuple[int, int], dtype: np.dtype[Any], *, shared: bool) -> None:
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        tensors = [torch.empty(shape, dtype=kind) for _ in range(count)]
        self.__setstate__([tensor.share_memory_() if shared else tensor for tensor in tensors])

    def __setstate__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self.arrays = [tensor.numpy() for tensor in tensors]
        self._unused = [self._references(slot) for slot in range(len(tensors))]
        self._requested: set[int] = set()

    def __getstate__(self) -> list[torch.Tensor]:
        return self._tensors  # torch sends where the memory is, not what it holds

    def _references(self, slot: int) -> int:
        return sys.getrefcount(self.arrays[slot])

    def request(self) -> int | None:
        """A slot that nobody uses, requested from now on; None if there is none."""
        for slot in range(len(self.arrays)):
            if slot not in self._requested and self._references(slot) == self._unused[slot]:
                self._requested.add(slot)
                return slot
        return None

    def forget_requests(self) -> None:
        """What was requested will not arrive: its reader has been stopped."""
        self._requested.clear()

    def tensor(self, block: Block, *, pin: bool = False) -> torch.Tensor:
        """[rows, row_length]: a view of the block's slot, which is free again when all that was made from it is gone.

        With `pin` a copy in pinned memory: one for the whole block, from torch's cache of such memory, which knows what
        the device has yet to read.
        """
        if block.slot is None:
            rows = cast(torch.Tensor, block.rows)
        else:
            rows = torch.from_numpy(self.arrays[block.slot][: block.num_rows])
            self._requested.discard(block.slot)
        return rows.pin_memory() if pin else rows


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
        self.slots.forget_requests()  # runs with the first request: torch has stopped an earlier iteration by then
        sampler = self.batch_sampler
        size, end = sampler.global_batch_size, (sampler.epoch + 1) * sampler.num_samples
        # Full batches of an epoch differ by multiples of the global batch: [1, 3], [5, 7], [9, 11] for rank 1 of 2.
        first = np.array(sampler._batch(0, size))
        few = 1
        while batches := min(few, self.batches_per_block, (end - sampler.consumed_train_samples) // size):
            few *= 2
            starts = sampler.consumed_train_samples % sampler.num_samples + size * np.arange(batches)
            sampler.consumed_train_samples += batches * size
            yield Request((starts[:, None] + first).ravel(), self.slots.request())
        if sampler.consumed_train_samples < end:
            for batch in sampler:  # what the end of the epoch leaves, as `tail` has it: one batch or none
                yield Request(np.array(batch), self.slots.request())


class BlockReader(Dataset[Block]):
    """The dataset as torch's DataLoader sees it: a `Request` for index, a `Block` for item."""

    def __init__(self, dataset: RowReader, slots: Slots) -> None:
        self.dataset, self.slots = dataset, slots

    def __getitem__(self, request: Request) -> Block:
        positions, slot = request
        if slot is None:
            return Block(len(positions), None, torch.from_numpy(self.dataset.read(positions)))
        self.dataset.read(positions, out=self.slots.arrays[slot][: len(positions)])
        return Block(len(positions), slot, None)


def batches_per_block(batch_bytes: int, num_slots: int = 1) -> int:
    """How many batches of `batch_bytes` a block takes, if there are so many slots: at least one."""
    return max(1, min(BLOCK_BYTES, ALL_BLOCKS_BYTES // num_slots) // batch_bytes)


def ahead(items: Iterable[T], depth: int) -> Iterator[T]:
    """The same items in the same order, up to `depth` of them made ahead of time by a thread.

    A reader that leaves the interpreter's lock alone (`gather`, file access, copies) runs beside the training loop. An
    exception is raised at the item that it came instead of. A generator that is closed or collected waits for the item
    under way and starts no other.
    """
    end = object()
    iterator = iter(items)
    thread = ThreadPoolExecutor(1, thread_name_prefix="nanoset_ref-ahead")
    try:
        coming = deque(thread.submit(next, iterator, end) for _ in range(depth))
        while (item := coming.popleft().result()) is not end:
            coming.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        thread.shutdown(cancel_futures=True)
