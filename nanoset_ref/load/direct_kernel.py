"""The kernel of `direct_gather`: keeps many rows in flight, by Linux's asynchronous reads."""

import numpy as np
from numba import types

from nanoset_ref.io.njit import njit
from nanoset_ref.load.gather_kernel import widen

_syscall = types.ExternalFunction("syscall", types.intp(*6 * [types.intp]))


@njit
def read_rows(system_calls, context, disk_block, buffers, reads, out):
    """Fill the rows of `out` with ids of 2 or 4 bytes.

    Args:
        system_calls: the numbers in SYSTEM_CALLS.
        context: int64, the queue, with nothing in flight.
        disk_block: int64, bytes; a request begins and ends at a multiple of them.
        buffers: uint8 [depth, bytes], the memory of the rows in flight: whole blocks of the disk.
        reads: three times int64 [rows], the file (a descriptor), first byte and size in bytes of
            each row.
        out: int32 [rows, length].

    Returns:
        -1 or, once nothing is in flight, a row that cannot be read.
    """
    descriptors, first_bytes, sizes = reads
    rows = len(out)
    depth = len(buffers)
    requests = np.zeros((depth, 8), np.int64)  # struct iocb, one for each buffer
    pointers = np.empty(depth, np.int64)
    events = np.empty((depth, 4), np.int64)  # struct io_event
    # of these buffers, the first depth - (submitted - arrived) are free
    free = np.arange(depth)
    failed_row = -1
    submitted = 0
    arrived = 0
    while arrived < submitted or (submitted < rows and failed_row < 0):
        # 1. submit requests while buffers are free
        first = submitted
        while submitted < rows and failed_row < 0 and submitted - arrived < depth:
            buffer = free[depth - 1 - (submitted - arrived)]
            mark = submitted * depth + buffer  # comes back with the event
            read = descriptors[submitted], first_bytes[submitted], sizes[submitted]
            _prepare(requests[buffer], buffers[buffer], mark, read, disk_block)
            pointers[submitted - first] = np.int64(requests[buffer].ctypes.data)
            submitted += 1
        if submitted > first:
            address = np.int64(pointers.ctypes.data)
            taken = _syscall(system_calls[1], context, submitted - first, address, 0, 0)
            submitted = first + max(taken, 0)
            if submitted == arrived:
                failed_row = submitted
        # 2. wait for at least one, and take all that have arrived
        minimum = min(1, submitted - arrived)
        address = np.int64(events.ctypes.data)
        count = _syscall(system_calls[2], context, minimum, depth, address, 0)
        for number in range(count):  # -1 if a signal interrupted the call
            row, buffer = divmod(events[number, 0], depth)
            start = first_bytes[row] % disk_block
            end = start + sizes[row]
            if events[number, 2] < end:
                failed_row = row
            else:
                _widen(buffers[buffer, start:end], out[row])
            free[depth - (submitted - arrived)] = buffer
            arrived += 1
    return failed_row


@njit
def _prepare(request, buffer, mark, read, disk_block):
    """Describe the read of a row in a struct iocb.

    request: int64 [8]; buffer: uint8 [bytes], its memory; mark: int64; read: descriptor, first byte
    and size; disk_block: see `read_rows`.
    """
    descriptor, first_byte, size = read
    first = first_byte // disk_block * disk_block
    stop = -(-(first_byte + size) // disk_block) * disk_block
    request[0] = mark
    request[2] = descriptor << 32  # the lower half is IOCB_CMD_PREAD, 0
    request[3] = np.int64(buffer.ctypes.data)
    request[4] = stop - first
    request[5] = first


@njit
def _widen(row, out):
    """Copy ids of 2 or 4 bytes, as uint8 [bytes], into `out`, int32 [length]."""
    if len(row) == 2 * len(out):
        widen(row.view(np.uint16), out)
    else:
        widen(row.view(np.int32), out)
