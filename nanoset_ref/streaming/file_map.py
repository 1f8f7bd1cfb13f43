"""A memory-mapped file that a pickle names instead of copying."""

import mmap
import os
from typing import Any

from nanoset_ref.io.paths import PathLike, file_size, file_version


class FileMap:
    """The memory map of a file, `bytes`. A process that unpickles it maps the file again.

    Args:
        path: the file.
        version: the required `paths.file_version`, from the pickled FileMap; None: any version.

    Raises:
        ValueError: the file was replaced.
    """

    def __init__(self, path: PathLike, version: Any = None) -> None:
        size = file_size(path)
        self.path = os.fspath(path)
        self.version = file_version(path)
        with open(self.path, "rb") as file:
            self.bytes: Any = b""  # an empty file cannot be mapped
            if size:
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if file_version(path) != self.version or version not in (None, self.version):
            raise ValueError(
                f"{self.path} was replaced while it was being read; open it again"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return FileMap, (self.path, self.version)
