"""Reads ahead of the training loop, in a thread of this process or in worker processes.

A thread makes the items of any iterable (`prefetch_in_thread`). Workers read blocks of rows:

    this process   RequestSampler   the positions of a block, and the number of a free buffer
    a worker       BufferReader     fills this `SharedBuffer`
    this process   WorkerBlocks     the buffer's rows, as a RowBlock
"""

import atexit
import dataclasses
import itertools
import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import numpy.ma  # noqa: F401 (`numpy.unique` would import it in the thread)
import torch
from torch.utils.data import DataLoader, Dataset

from nanoset_ref.io.signals import deferred_signals
from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.blocks import BlockSizes
from nanoset_ref.load.collator import RowBlock, writable_copy
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.shared_buffers import (
    HAS_PRIVATE_MAPPINGS,
    SharedBuffer,
    allocate_shared_buffers,
)

T = TypeVar("T")


def prefetch_in_thread(items: Iterable[T], depth: int) -> Iterator[T]:
    """The same items in the same order, made by a thread up to `depth` items in advance.

    A reader that releases the interpreter's lock (`gather`, file access, copies) runs beside the
    training loop. An exception is raised in place of the item that failed. Closing this
    generator waits for the item in progress and starts no other. After Ctrl-C it does not wait if
    `items` is a generator, because its rows may come from a bucket that stalls. (Workers and
    torch's iterators cannot be shared with a thread that is left behind.) Once the interpreter is
    ending, items are made one by one when they are asked for.

    Args:
        items: read by the thread alone.
        depth: at least 1.
    """
    end = object()
    iterator = iter(items)
    # Ctrl-C cannot leave a lock of these queues taken, as it can those of a pool of threads
    requests = SimpleQueue[bool]()  # False ends the thread
    results = SimpleQueue[tuple[Any, list[BaseException]]]()
    stopped: list[bool] = []

    def make_item() -> None:
        try:
            results.put((next(iterator, end), []))
        except BaseException as error:
            results.put((end, [error]))

    def make_items() -> None:
        while requests.get() and not stopped:
            make_item()

    def stop() -> None:
        requests.put(False)
        if thread.is_alive() and not stopped:
            stopped.append(True)
            thread.join()

    thread = Thread(target=make_items, name="nanoset_ref-read-ahead", daemon=True)
    atexit.register(stop)
    unregister = atexit.unregister  # at interpreter exit the module's globals are gone
    try:
        # from Python 3.12 on, no thread starts once the main thread has ended
        with suppress(RuntimeError), deferred_signals():
            thread.start()
        for _ in range(depth):
            requests.put(True)
        while True:
            if (stopped or not thread.ident) and results.empty():
                make_item()
            item, errors = results.get()
            if errors:
                raise errors.pop()  # its traceback holds this frame, which must not hold it
            if item is end:
                return
            requests.put(True)
            yield item
    except KeyboardInterrupt:
        # a generator may wait for a stalled bucket; any other iterator ends soon and is waited for
        if isinstance(items, Generator):
            stopped.append(True)
        raise
    finally:
        stop()
        unregister(stop)


class ReadRequest(NamedTuple):
    """Sent to a worker: read the rows at `positions`, int64 [n], into a buffer."""

    positions: Int64Array
    buffer: int


class FilledBuffer(NamedTuple):
    """A worker's answer: the buffer holds `num_rows` rows. For `starts` see `RowBlock`."""

    buffer: int
    num_rows: int
    starts: torch.Tensor | None


@dataclasses.dataclass
class RequestSampler:
    """Pairs each block of a sampler with the next buffer. The sampler keeps the count: an iteration
    begins where the one before stopped.
    """

    sampler: ResumableBatchSampler
    max_batches: int
    buffers: Sequence[SharedBuffer]

    def __iter__(self) -> Iterator[ReadRequest]:
        buffers = itertools.cycle(range(len(self.buffers)))
        for positions in self.sampler.blocks(self.max_batches):
            buffer = next(buffers)
            self.buffers[buffer].separate_copies()
            yield ReadRequest(positions, buffer)


@dataclasses.dataclass
class BufferReader(Dataset[FilledBuffer]):
    """The dataset for torch's workers: the index is a `ReadRequest`, the item a `FilledBuffer`."""

    dataset: Rows
    buffers: Sequence[SharedBuffer]
    needs_starts: bool

    def __getitem__(self, request: ReadRequest) -> FilledBuffer:
        positions, buffer = request
        starts = None
        if self.needs_starts:
            starts = torch.from_numpy(self.dataset.starts(positions))
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
        # Ctrl-C while a buffer is made would leave its file in /dev/shm
        with deferred_signals():
            self.buffers = allocate_shared_buffers(
                sizes.num_buffers, sizes.shape, dataset.row_dtype
            )
        self.batch_size = sampler.micro_batch_size
        self.copy_tensor = copy_tensor
        # only the buffers' numbers travel; collating and pinning follow
        own_options = {
            "sampler": RequestSampler(sampler, sizes.max_batches, self.buffers),
            "batch_size": None,
            "collate_fn": None,
            "pin_memory": False,
        }
        self.loader = DataLoader(
            BufferReader(dataset, self.buffers, needs_starts),
            **{**options, **own_options},
        )

    def __iter__(self) -> Iterator[RowBlock]:
        # forks in the caller's thread: workers forked in the thread of `prefetch_in_thread` would
        # wait for its end
        context = self.loader.multiprocessing_context or multiprocessing
        forks = context.get_start_method() == "fork"
        # torch draws its seed on the default device
        with torch.device("cpu"), deferred_signals() if forks else nullcontext():
            filled = iter(self.loader)
        return map(self._row_block, filled)

    def _row_block(self, filled: FilledBuffer) -> RowBlock:
        """The block of rows in a buffer that a worker has filled."""
        buffer = self.buffers[filled.buffer]
        rows = buffer.filled_rows(filled.num_rows)
        starts = None if filled.starts is None else filled.starts.numpy()
        copy_tensor = self.copy_tensor
        if copy_tensor is writable_copy and HAS_PRIVATE_MAPPINGS:
            copy_tensor = buffer.copy_tensor
        elif copy_tensor is writable_copy:
            rows = rows.clone()
        return RowBlock(rows, self.batch_size, starts, copy_tensor)
