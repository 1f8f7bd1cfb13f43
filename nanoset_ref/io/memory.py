"""Memory: how much this process may use, files that were truncated, the garbage collector."""

import contextlib
import gc
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.io.types import Array


def check_not_truncated(*arrays: Array) -> None:
    """Raise OSError if the file behind a mapped array was truncated after it was mapped.

    Reading beyond the end of the file would end the process without a message. A file that was
    replaced is not truncated: the mapping keeps the old one.

    Args:
        *arrays: of any kind; nothing is read, and those in memory pass.
    """
    for array in arrays:
        owner: Any = array
        name = "a mapped file"
        while isinstance(owner, np.ndarray):
            name = getattr(owner, "filename", name)
            owner = owner.base
        if isinstance(owner, mmap.mmap) and owner.size() < len(owner):
            raise OSError(
                f"{name} was truncated after it was opened; build the dataset again"
            )


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, for code that creates many objects and drops none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def memory_limit(root: str | os.PathLike[str] = "/") -> int:
    """Bytes of memory that this process may use.

    This is the memory of the machine, or the limit of the process's control groups (a container or
    a batch job).

    Args:
        root: the folder that contains proc and sys.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in _memory_groups(Path(root, "proc/self/cgroup")):
        for name in ("memory.max", "memory.limit_in_bytes"):
            for folder in (group, *group.parents):
                with contextlib.suppress(OSError, ValueError):  # "max": no limit
                    path = Path(root, "sys/fs/cgroup", folder, name)
                    limits.append(int(path.read_text()))
    return min(limits)


def _memory_groups(path: Path) -> list[Path]:
    """The control groups (v1, v2) that limit this process's memory, below sys/fs/cgroup."""
    try:
        # a group's name is a file name: it need not be text in the locale's encoding
        lines = os.fsdecode(path.read_bytes()).splitlines()
    except OSError:  # not Linux
        return []
    groups = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            groups.append(Path(group.strip("/")))
        elif "memory" in controllers.split(","):
            groups.append(Path("memory", group.strip("/")))
    return groups
