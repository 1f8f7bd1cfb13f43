"""Whether a file is mapped into memory, or read."""

import contextlib
import os
import resource

MAX_READ_BYTES = 1 << 20


def should_map(size: int) -> bool:
    """Whether to map a file of `size` bytes; otherwise, it is read into memory.

    A mapping keeps a descriptor. So small files are read, and others as well while three quarters
    of the descriptors that this process may have are in use.
    """
    if size <= MAX_READ_BYTES:
        return False
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # the lowest free one is given out first, so one of these is used once three quarters are (numpy
    # leaves one free below each mapping); to list all of them would take longer with each file
    last = 3 * limit // 4
    for descriptor in (last - 1, last):
        with contextlib.suppress(OSError, OverflowError):  # not used, or no limit
            os.fstat(descriptor)
            return False
    return True
