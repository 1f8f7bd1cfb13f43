"""A file as bytes that every process maps for itself."""

from __future__ import annotations

import mmap
import os
from typing import Any

from nanoset_ref.files import PathLike


class FileMap:
    """The bytes of a file through a memory map, `bytes`; it can be sent to other processes, which map it anew."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            empty = not file.read(1)
            self.bytes: Any = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileMap, (self.path,)
