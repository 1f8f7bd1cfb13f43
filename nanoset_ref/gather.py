"""Copy the tokens of many rows out of memory-mapped files, in one call.

One kernel walks the rows of a block: it adds the row's offset to the address of its file's mapping and widens the ids
to int32 straight into the output. No Python runs per row, no intermediate array is made, the GIL is free meanwhile. The
cost is the memory traffic, itemsize bytes read and 4 written per token, because the processor is told two rows early
where it will have to look: rows lie at random places, so each begins with a page-table walk and a cache miss, which
would otherwise be half of the time of a row of 512 tokens.

The rejected alternatives, as multiples of this one's time for warm pages and rows of 512 / 2,048 / 8,192 tokens: preadv
4.5 / 2.9 / 2.2 (a system call and a copy more; where a page is touched for the first time it wins by a tenth to a
third), NumPy slices per row (a microsecond each, plus a concatenation), and Nanotron's way, to map the file anew for
every sample (85-90% of its time). What the mapping adds to the resident size is page cache that the system takes back
when it likes: `benchmarks.memory` shows it.

Files are immutable while they are open: truncating one under a mapping ends the process with SIGBUS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nanoset_ref.tokens import TokenFile


class Gatherer:
    """The mappings of several token files as a table of addresses.

    Args:
        files: TokenFile or anything with `.tokens`, a C-contiguous 1-d array of uint16 or int32.
    """

    def __init__(self, files: list[TokenFile]) -> None:
        self._tokens = [file.tokens for file in files]  # keeps the mappings alive
        self._addresses = np.array([tokens.ctypes.data for tokens in self._tokens], dtype=np.uint64)
        self._itemsizes = np.array([tokens.itemsize for tokens in self._tokens], dtype=np.int64)

    def __call__(self, datasets: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.int32]) -> None:
        """Fill `out` [n, length] with tokens[starts[i] : starts[i] + length] of file datasets[i], for both arrays [n].

        The caller answers for the bounds: they follow from the file's number of samples, and are not checked again
            here.
        """
        _gather(self._addresses, self._itemsizes, datasets, starts, out)


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
def _gather(addresses, itemsizes, datasets, starts, out):  # type: ignore[no-untyped-def]
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
