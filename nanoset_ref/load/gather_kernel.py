"""The kernel of `gather`: reads rows of open files by pread or through mappings.

It walks the rows of a call, and widens their ids to int32 straight into the output. It prefetches
the first cache lines of a row two rows in advance. From a disk, it calls madvise for each row some
rows in advance, since the system's own read-ahead would fetch megabytes around each.
"""

import mmap
import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, config, types
from numba.extending import intrinsic

from nanoset_ref.io.njit import njit

if config.DISABLE_JIT:
    raise RuntimeError(
        "rows are read by a kernel that calls the system, so it must be compiled; got "
        "NUMBA_DISABLE_JIT: unset it (nanoset_ref.plain reads without numba)"
    )

REGION_BYTES = 1 << 16  # bytes that a page fault maps
UNKNOWN_END = np.iinfo(np.int64).max
CACHE_LINE = 64  # bytes
CACHE_LINES = 4  # after these the processor prefetches by itself


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
        function_type = ir.FunctionType(
            ir.VoidType(), [pointer, number, number, number]
        )
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], function_type
        )
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


@njit
def gather_rows(files, descriptors, sources, first_tokens, advised_rows, out):
    """Fill the rows of `out` with the ids of file sources[row] from id first_tokens[row] on.

    1. Call madvise for a later row, and prefetch the next but one into the processor's cache.
    2. Stop at a row that does not lie in its file.
    3. Read the row by pread if its region has not been read before, or its file is not mapped.
    4. Copy any other row, and one that pread does not read, out of the mapping.

    Args:
        files: a `FileArrays`; `visited` is updated.
        descriptors: int64 [files], of the open files.
        sources: int64 [rows], the file of each row, by its number.
        first_tokens: int64 [rows], where each row begins in its file, in tokens.
        advised_rows: how many rows in advance madvise(WILLNEED) is called for a row; 0: never.
        out: int32 [rows, length].

    Returns:
        -1, or the first row that lies beyond the end of its file or cannot be read, where it stops.
    """
    addresses, itemsizes, header_bytes, first_regions, visited = files
    first_bytes = header_bytes[sources] + first_tokens * itemsizes[sources]
    rows, length = out.shape
    scratch = np.empty(length, dtype=np.uint16)
    # bytes of the files met so far; -1: not met
    ends = np.full(len(descriptors), -1, dtype=np.int64)
    for row in range(min(advised_rows, rows)):
        source = sources[row]
        _advise(addresses[source], first_bytes[row], length * itemsizes[source])
    for row in range(rows):
        # 1.
        advised = row + advised_rows
        if advised_rows and advised < rows:
            source = sources[advised]
            size = length * itemsizes[source]
            _advise(addresses[source], first_bytes[advised], size)
        if row + 2 < rows:
            address = addresses[sources[row + 2]] + np.uint64(first_bytes[row + 2])
            for line in range(CACHE_LINES):
                _prefetch(address + np.uint64(CACHE_LINE * line))
        # 2.
        source = sources[row]
        descriptor = descriptors[source]
        first_byte = first_bytes[row]
        size = length * itemsizes[source]
        if ends[source] < 0:
            end = _lseek(descriptor, 0, os.SEEK_END)
            ends[source] = end if end >= 0 else UNKNOWN_END
        if first_byte + size > ends[source]:
            return row
        # 3. and 4.
        region = (first_regions[source] + first_byte // REGION_BYTES) % len(visited)
        is_new = visited[region] == 0 or addresses[source] == 0
        visited[region] = 1
        address = addresses[source] + np.uint64(first_byte)
        if itemsizes[source] == 2:
            if is_new and _pread(descriptor, scratch.ctypes, size, first_byte) == size:
                widen(scratch, out[row])
            elif addresses[source] == 0:
                return row
            else:
                widen(carray(_pointer(address), length, np.uint16), out[row])
        else:
            ids = out[row].ctypes
            if is_new and _pread(descriptor, ids, size, first_byte) == size:
                continue
            if addresses[source] == 0:
                return row
            widen(carray(_pointer(address), length, np.int32), out[row])
    return -1


@njit
def _advise(address, first_byte, size):
    """Call madvise for `size` bytes of the file mapped at `address`, from `first_byte` on.

    For a file that is not mapped, madvise fails, which is ignored.
    """
    page = first_byte // mmap.PAGESIZE * mmap.PAGESIZE
    count = first_byte + size - page
    _madvise(address + np.uint64(page), np.uintp(count), mmap.MADV_WILLNEED)


@njit
def widen(ids, out):
    """Copy integers [n] into `out`, integers [n] of another width; `ids` may be longer."""
    for i in range(len(out)):
        out[i] = ids[i]
