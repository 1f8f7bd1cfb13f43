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
    # the lowest free one is given out first, so this one is used once three quarters are; to list
    # all of them would take longer with each file
    with contextlib.suppress(OSError, OverflowError):  # not used, or no limit
        os.fstat(3 * limit // 4)
        return False
    return True
