"""The kernel of `gather`: reads rows of open files by pread or through mappings."""

import mmap
import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from nanoset_ref.io.njit import njit
from nanoset_ref.load.gather import FAULT_BYTES, widen

UNKNOWN_END = np.iinfo(np.int64).max
CACHE_LINE, CACHE_LINES = (
    64,
    4,
)  # bytes; and lines after which the processor prefetches by itself


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(
            arguments[0], context.get_value_type(signature.return_type)
        )

    return types.voidptr(types.uint64), generate


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address; an invalid address does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        address = builder.inttoptr(arguments[0], pointer)
        for_reading = number(0)
        keep = number(3)
        data = number(1)
        builder.call(prefetch, [address, for_reading, keep, data])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


_pread = types.ExternalFunction(
    "pread", types.intp(types.intc, types.voidptr, types.uintp, types.int64)
)

_lseek = types.ExternalFunction(
    "lseek", types.int64(types.intc, types.int64, types.intc)
)

_madvise = types.ExternalFunction(
    "madvise", types.intc(types.uint64, types.uintp, types.intc)
)


@njit(cache=True, nogil=True)
def gather_rows(files, datasets, first_bytes, rows_ahead, out):
    """Fill the rows of `out` with the ids from byte first_bytes[row] on of file datasets[row].

    Args:
        files: a tuple of
            int64 [files], descriptors
            uint64 [files], addresses of the mappings (0: not mapped)
            int64 [files], bytes of an id (2 or 4)
            int64 [files], number of the first window of each file
            uint8 [windows], 1 where a window has been read
        datasets: int64 [rows], the number of each row's file.
        first_bytes: int64 [rows], the byte at which each row begins in its file.
        rows_ahead: how many rows before it is read a row is announced, by madvise(WILLNEED); 0
            announces none.
        out: int32 [rows, length].

    Returns:
        -1, or the first row that lies beyond the end of its file or cannot be read, where it stops.
    """
    descriptors, addresses, itemsizes, first_windows, visited = files
    rows, length = out.shape
    scratch = np.empty(length, dtype=np.uint16)
    ends = np.full(
        len(descriptors), -1, dtype=np.int64
    )  # bytes, of the files met so far
    for row in range(min(rows_ahead, rows)):
        dataset = datasets[row]
        _announce(addresses[dataset], first_bytes[row], length * itemsizes[dataset])
    for row in range(rows):
        announced = row + rows_ahead
        if rows_ahead and announced < rows:
            dataset = datasets[announced]
            _announce(
                addresses[dataset], first_bytes[announced], length * itemsizes[dataset]
            )
        if row + 2 < rows:
            address = addresses[datasets[row + 2]] + np.uint64(first_bytes[row + 2])
            for line in range(CACHE_LINES):
                _prefetch(address + np.uint64(CACHE_LINE * line))
        dataset = datasets[row]
        begin = first_bytes[row]
        size = length * itemsizes[dataset]
        if ends[dataset] < 0:
            end = _lseek(descriptors[dataset], 0, os.SEEK_END)
            ends[dataset] = end if end >= 0 else UNKNOWN_END
        if begin + size > ends[dataset]:
            return row
        window = (first_windows[dataset] + begin // FAULT_BYTES) % len(visited)
        is_new = visited[window] == 0 or addresses[dataset] == 0
        visited[window] = 1
        address = addresses[dataset] + np.uint64(begin)
        if itemsizes[dataset] == 2:
            if (
                is_new
                and _pread(descriptors[dataset], scratch.ctypes, size, begin) == size
            ):
                widen(scratch, out[row])
            elif addresses[dataset] == 0:
                return row
            else:
                widen(carray(_pointer(address), length, np.uint16), out[row])
        else:
            is_read = (
                is_new
                and _pread(descriptors[dataset], out[row].ctypes, size, begin) == size
            )
            if not is_read and addresses[dataset] == 0:
                return row
            if not is_read:
                widen(carray(_pointer(address), length, np.int32), out[row])
    return -1


@njit(cache=True, nogil=True)
def _announce(address, begin, size):
    """Announce a read of bytes begin : begin + size of the file mapped at `address`.

    For a file that is not mapped, madvise returns an error, which is ignored.
    """
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    _madvise(
        address + np.uint64(first), np.uintp(begin + size - first), mmap.MADV_WILLNEED
    )
