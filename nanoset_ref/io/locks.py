"""Exclusive locks on open files."""

import fcntl
from typing import IO, Any


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Take the exclusive lock of an open file, held until the file is closed or the process ends.

    Args:
        wait: whether to wait until another process releases the lock.

    Returns:
        Whether this process now holds the lock. With `wait` it does, unless the filesystem does
        not support locks: then leftovers stay, and processes repeat each other's work.

    Raises:
        OSError: the filesystem does not support locks; never raised with `wait`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if not wait and not isinstance(error, BlockingIOError):
            raise
        return False
    return True


def lock_for_process(descriptor: int) -> bool:
    """Take the exclusive lock of an open file for this process only.

    Unlike `lock`, forked children do not inherit it: it ends with the process that took it. It also
    ends when that process closes any other descriptor of the file.

    Returns:
        Whether this process now holds the lock; False if another process does.

    Raises:
        OSError: the filesystem does not support locks.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
