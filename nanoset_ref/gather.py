"""Copy the tokens of a whole batch out of memory-mapped files, in one call.

One kernel walks the rows of a batch: it adds the row's offset to the address of its file's mapping and widens the ids
    to int32 straight into the output.
No Python runs per row, no intermediate array is made, the GIL is free meanwhile. The cost is the memory traffic:
    itemsize bytes read and 4 written
per token. The rejected alternatives: NumPy slices per row (about a microsecond each, plus a concatenation), and
Nanotron's way, to map the file anew for every sample (85-90% of its time).

Files are immutable while they are open: truncating one under a mapping ends the process with SIGBUS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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


@njit(cache=True, nogil=True)
def _gather(addresses, itemsizes, datasets, starts, out):  # type: ignore[no-untyped-def]
    length = out.shape[1]
    for row in range(out.shape[0]):
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
