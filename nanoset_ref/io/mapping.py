"""Whether a file is mapped into memory, or read."""

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
    in_use = len(os.listdir("/dev/fd"))
    return limit == resource.RLIM_INFINITY or 4 * in_use < 3 * limit
