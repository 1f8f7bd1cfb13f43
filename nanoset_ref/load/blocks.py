"""Blocks: the rows of many batches, read by one call into buffers that are reused.

Reading a batch of 8 x 512 tokens takes 2 microseconds; passing an item through torch's DataLoader
takes 50, and more from a worker process. So an item is a block of many batches, up to 150 or 4 MiB.
The first blocks of an iteration have 1, 2, 4, ... batches, so that the first batch comes early.

Blocks read from a bucket, or past the page cache, are up to four times as large, since each waits
for its slowest request.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from nanoset_ref.load.rows import Rows

BLOCK_BYTES = 4 << 20
# the batches of a block are made at once, of four tensors each; after 700 new objects (in CPython
# 3.11) the garbage collector runs, now and then over all objects, which takes a tenth of a second
MAX_BATCHES = 150
ALL_BLOCKS_BYTES = 48 << 20  # all buffers together
# a loader takes at most 1/16 of the shared memory that is free
SHARED_MEMORY_DIVISOR = 16


def batches_per_block(
    batch_bytes: int,
    num_buffers: int = 1,
    block_factor: int = 1,
    *,
    shared: bool = False,
) -> int:
    """How many batches fit into a block, at least one.

    The loaders of all ranks share /dev/shm, which often has 64 MiB in a container; a loader that
    asks for more than is free fails.

    Args:
        batch_bytes: the size of a batch's rows, in bytes.
        num_buffers: the number of blocks in memory at the same time.
        block_factor: see `Rows`.
        shared: whether the blocks are in shared memory, which may be scarce.
    """
    total_bytes = ALL_BLOCKS_BYTES * block_factor
    if shared:
        total_bytes = min(total_bytes, _free_shared_memory() // SHARED_MEMORY_DIVISOR)
    block_bytes = min(block_factor * BLOCK_BYTES, total_bytes // num_buffers)
    return max(1, min(MAX_BATCHES, block_bytes // batch_bytes))


def count_buffers(
    num_workers: int, prefetch_factor: int | None, read_ahead: int
) -> int:
    """How many blocks a loader keeps in memory, all of them shared if it has workers."""
    count = 2  # the block being split, and the one whose last batch the caller may still hold
    if read_ahead:
        count += read_ahead + 1
    if num_workers:
        # one more than workers fill: torch requests a block before it delivers one
        count += num_workers * (prefetch_factor or 0) + 1
    return count


def _free_shared_memory() -> int:
    """Free bytes in /dev/shm; sys.maxsize if unknown."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return sys.maxsize


class BlockSizes(NamedTuple):
    """How many batches a block has, and how many blocks are in memory.

    Attributes:
        max_batches: the maximum number of batches in a block.
        num_buffers: how many blocks are in memory at the same time.
        shape: [rows, row_length] of each.
    """

    max_batches: int
    num_buffers: int
    shape: tuple[int, int]


def choose_sizes(
    dataset: Rows, micro_batch_size: int, num_buffers: int, *, shared: bool
) -> BlockSizes:
    """The sizes of blocks that are as large as `batches_per_block` allows."""
    batch_bytes = micro_batch_size * dataset.row_length * dataset.row_dtype.itemsize
    batches = batches_per_block(
        batch_bytes, num_buffers, dataset.block_factor, shared=shared
    )
    shape = batches * micro_batch_size, dataset.row_length
    return BlockSizes(batches, num_buffers, shape)


def allocate_buffers(
    count: int, shape: tuple[int, int], dtype: np.dtype[Any]
) -> list[Tensor]:
    """Memory of this process for `count` blocks."""
    import torch  # imported lazily: an estimate needs the size of blocks, and no torch

    from nanoset_ref.load.collator import outside_inference_mode

    torch_dtype = torch.from_numpy(np.empty(0, dtype)).dtype
    with outside_inference_mode():
        return [
            torch.empty(shape, dtype=torch_dtype, device="cpu") for _ in range(count)
        ]
