"""Exclusive locks on open files."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any


def lock(file: IO[Any]) -> bool:
    """Take the exclusive lock of an open file, held until the file is closed or the process ends.

    Returns:
        Whether this process now holds the lock; False if another process does.

    Raises:
        OSError: the filesystem does not support locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(file: IO[Any]) -> Iterator[None]:
    """Wait for the exclusive lock of an open file, and hold it in this context.

    A child that is forked meanwhile inherits the lock with the file, so closing the file here would
    not release it. If the filesystem does not support locks, leftovers stay, and processes repeat
    each other's work.
    """
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


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
