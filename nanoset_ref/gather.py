"""Copy the tokens of many rows out of memory-mapped files, in one call.

One kernel walks the rows of a block: it adds the row's offset to the address of its file's mapping and widens the ids
to int32 straight into the output. No Python runs per row, no intermediate array is made, the GIL is free meanwhile. The
cost is the memory traffic, itemsize bytes read and 4 written per token, because the processor is told two rows early
where it will have to look: rows lie at random places, so each begins with a page-table walk and a cache miss, which
would otherwise be half of the time of a row of 512 tokens.

Where the page cache does not hold the file, the kernel would read megabytes around each row (its read-ahead, made for
those who read on). It is told not to, and, as soon as a block had to wait for the disk, it is told all rows of the
blocks to come at once, so that it fetches them side by side.

The rejected alternative is preadv, which takes a system call and a copy more per row: 4.5 / 2.9 / 2.2 times as long for
rows of 512 / 2,048 / 8,192 tokens, nine tenths to two thirds as long where the process touches a page for the first
time, and 3 to 9 times as long from the disk. Nanotron maps the file anew for every sample, which is 85-90% of its time.
What a mapping adds to the resident size is page cache, which the system takes back when it needs it: `python -m
benchmarks.memory` shows all three.

Files are immutable while they are open: truncating one under a mapping ends the process with SIGBUS.
"""

from __future__ import annotations

import mmap
import resource
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nanoset_ref.tokens import TokenFile

THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
ANNOUNCED = 64  # blocks that are announced after one that waited for the disk


class Gatherer:
    """Token files, mapped for random access, as a table of addresses.

    Args:
        files: the files, of uint16 or int32.
    """

    def __init__(self, files: list[TokenFile]) -> None:
        self._mappings = [_map(file) for file in files]
        self._addresses = np.array([np.frombuffer(m, np.uint8).ctypes.data for m in self._mappings], dtype=np.uint64)
        self._itemsizes = np.array([file.dtype.itemsize for file in files], dtype=np.int64)
        self._waited = resource.getrusage(THREAD).ru_majflt
        self._to_announce = 0

    def __call__(self, datasets: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        """Fill `out` [n, length] with tokens[starts[i] : starts[i] + length] of file datasets[i], for both arrays [n].

        The caller answers for the bounds: they follow from the file's number of samples and are not checked again here.
        """
        if self._to_announce:
            self._to_announce -= 1
            self._announce(datasets, starts, out.shape[1])
        _gather(self._addresses, self._itemsizes, datasets, starts, out)
        waited = resource.getrusage(THREAD).ru_majflt  # major faults: pages that had to come from the disk
        if waited != self._waited:
            self._waited, self._to_announce = waited, ANNOUNCED

    def _announce(self, datasets: NDArray[np.int64], starts: NDArray[np.int64], length: int) -> None:
        sizes = self._itemsizes[datasets]
        begins = starts * sizes // mmap.PAGESIZE * mmap.PAGESIZE
        ends = (starts + length) * sizes
        for dataset, begin, end in np.stack([datasets, begins, ends], axis=1).tolist():
            self._mappings[dataset].madvise(mmap.MADV_WILLNEED, begin, end - begin)


def _map(file: TokenFile) -> mmap.mmap:
    """A mapping of its own: who scans `file.tokens` from end to end still has the kernel's read-ahead."""
    with open(file.path, "rb") as opened:
        mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    mapping.madvise(mmap.MADV_RANDOM)
    return mapping


@intrinsic
def _uint16_pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint16)(types.uint64), generate


@intrinsic
def _int32_pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int32)(types.uint64), generate


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address; an address that does not exist does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        read, keep, data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@njit(cache=True, nogil=True)
def _gather(addresses, itemsizes, datasets, starts, out):
    rows, length = out.shape
    for row in range(rows):
        if row + 2 < rows:
            dataset = datasets[row + 2]
            address = addresses[dataset] + np.uint64(starts[row + 2] * itemsizes[dataset])
            for line in range(4):  # four lines of 64 bytes are enough to set off the processor's own prefetching
                _prefetch(address + np.uint64(64 * line))
        dataset = datasets[row]
        address = addresses[dataset] + np.uint64(starts[row] * itemsizes[dataset])
        if itemsizes[dataset] == 2:
            narrow = carray(_uint16_pointer(address), length)
            for i in range(length):
                out[row, i] = narrow[i]
        else:
            wide = carray(_int32_pointer(address), length)
            for i in range(length):
                out[row, i] = wide[i]
