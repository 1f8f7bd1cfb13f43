"""Memory that worker processes fill and this process reads, and copy-on-write copies of it.

A worker writes a block of rows into a `SharedBuffer`. This process hands out copies of the block
that take neither time nor memory at first: private mappings (MAP_PRIVATE) of the same memory.

    shared memory      the block, which a worker fills again and again
    private mapping    shows the shared pages; a write through the mapping first copies the page,
                       so the receiver changes neither the block nor another mapping

A page that nobody has written to still shows the shared memory, and would show the next block, too.
So a mapping that is still held gets pages of its own

1. before the block is filled again (`SharedBuffer.separate_copies`)
2. before a fork, since this process does not learn what the child holds.

This needs Linux 5.14. On other systems every block is copied when it arrives.
"""

import mmap
import os
import sys
import weakref
from multiprocessing.heap import Arena
from typing import Any

import numpy as np
import torch

from nanoset_ref.load.collator import writable_copy

# for madvise, Linux 5.14: allocates a mapping's own pages at once, not at its first writes
POPULATE_WRITE = 23
Mappings = set[weakref.ref[mmap.mmap]]


# whether private mappings show later writes to the memory, and can get their own pages
try:
    mmap.mmap(-1, mmap.PAGESIZE).madvise(POPULATE_WRITE)
    HAS_PRIVATE_MAPPINGS = sys.platform == "linux"
except OSError:
    HAS_PRIVATE_MAPPINGS = False
_all_mappings: Mappings = set()  # of all buffers


def give_own_pages(mappings: Mappings) -> None:
    """Copy the pages that these mappings still share with a buffer."""
    for reference in list(mappings):
        mapping = reference()
        if mapping is not None:
            mapping.madvise(POPULATE_WRITE)


os.register_at_fork(before=lambda: give_own_pages(_all_mappings))


class SharedBuffer:
    """A block in memory shared with the workers.

    Args:
        arena: the memory.
        shape: [rows, row_length].
        dtype: of the rows.

    Attributes:
        rows: the block; only workers write to it.
    """

    _filled: torch.Tensor | None = None

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
        # a block needs two, inputs and labels; a caller who keeps batches holds more, and gets real
        # copies, since each mapping takes a descriptor
        if len(self._mappings) >= 2:
            return torch.from_numpy(self.rows[:num_rows].copy())
        mapping = mmap.mmap(self._arena.fd, self._arena.size, access=mmap.ACCESS_COPY)
        for held in (self._mappings, _all_mappings):
            held.add(weakref.ref(mapping, held.discard))
        rows = np.frombuffer(mapping, self.rows.dtype).reshape(self.rows.shape)
        return torch.from_numpy(rows[:num_rows])

    def filled_rows(self, num_rows: int) -> torch.Tensor:
        """The first rows themselves, once a worker has filled them."""
        self._filled = torch.from_numpy(self.rows[:num_rows])
        return self._filled

    def copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the `filled_rows`, or of any other tensor; the receiver may write to it."""
        # not by data_ptr(), which gives a lazy copy memory of its own
        if tensor is self._filled:
            return self.copy(len(tensor))
        return writable_copy(tensor)

    def separate_copies(self) -> None:
        """Give the copies that are still held pages of their own."""
        give_own_pages(self._mappings)


def allocate_shared_buffers(
    count: int, shape: tuple[int, int], dtype: np.dtype[Any]
) -> list[SharedBuffer]:
    """Memory for `count` blocks."""
    size = shape[0] * shape[1] * dtype.itemsize
    return [SharedBuffer(Arena(size), shape, dtype) for _ in range(count)]
