"""Adapters: where elements come from, and what is done to each.

`__iter__` reads and does no more; `preprocess_line` does the heavy work and runs in the DataLoader's workers. An
adapter that also has `__len__` and `__getitem__` can seek: an IterableDataset then goes straight to the elements it
needs, and a resume costs nothing.

`JSONLinesAdapter` can seek. One pass over the file (about a GB per second) finds where its lines begin and end, 16
bytes each; afterwards a line is one slice of a memory map.
"""

from __future__ import annotations

import codecs
import json
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from nanoset_ref.files import PathLike, require_regular
from nanoset_ref.storage import identity

PIECE_BYTES = 1 << 24


class Adapter(ABC):
    """Subclass it, give it `__iter__`, and `preprocess_line` where an element needs work.

    Args:
        hparams: anything your subclass wants to find as `self.hparams`.

    For a table of the library `datasets`, `__iter__` returns `iter(dataset)`. A streaming one deals itself out to the
    workers of a DataLoader, so elements would be dealt twice and most of them lost; read it with
    `dataset.iter(batch_size=...)`, which does not.
    """

    def __init__(self, hparams: Any = None) -> None:
        self.hparams = hparams

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """All raw elements of one epoch, in the same order every time and in every process."""

    def preprocess_line(self, line: Any) -> Any:
        """One raw element made ready. Written with `yield`, it makes several elements of one."""
        return line


def can_index(adapter: Adapter) -> bool:
    """Does the adapter have `adapter[i]` for the elements its `__iter__` yields?

    A subclass that replaces `__iter__` alone (to filter, say) has taken leave of its parent's index.
    """
    homes = [vars(cls) for cls in type(adapter).__mro__ if {"__getitem__", "__iter__"} & vars(cls).keys()]
    return "__getitem__" in homes[0]


class FileMap:
    """The bytes of a file through a memory map, `bytes`; other processes to which it is sent map the file anew.

    Args:
        path: the file.
        opened: the `storage.identity` that it must have: None, or that of a FileMap that was sent here.

    Raises:
        ValueError: the file is another one by now.
    """

    def __init__(self, path: PathLike, opened: Any = None) -> None:
        self.path, size = os.fspath(path), require_regular(path).st_size
        self.opened = identity(path)
        with open(self.path, "rb") as file:
            # an empty file cannot be mapped
            self.bytes: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        if identity(path) != self.opened or opened not in (None, self.opened):
            raise ValueError(f"{self.path} was replaced while it was being read; open it again")

    def __reduce__(self) -> tuple[Any, ...]:
        return FileMap, (self.path, self.opened)


class JSONLinesAdapter(Adapter):
    """The lines of a UTF-8 text file, each a JSON value; empty lines are none. `preprocess_line` parses them.

    Args:
        hparams: as in Adapter.
        filepath: the file, not compressed.

    Raises:
        FileNotFoundError: no such file.
        ValueError: on reading a line that is not UTF-8, on preprocessing one that is not JSON.
    """

    def __init__(self, hparams: Any, filepath: PathLike) -> None:
        super().__init__(hparams)
        self._file = FileMap(filepath)
        self.filepath = self._file.path
        data = np.frombuffer(self._file.bytes, np.uint8)
        # a mask of the whole file would be as large as the file
        pieces = range(0, len(data), PIECE_BYTES)
        line_ends = [begin + np.flatnonzero(data[begin : begin + PIECE_BYTES] == ord("\n")) for begin in pieces]
        ends = np.concatenate([*line_ends, [len(data)]])
        mark = codecs.BOM_UTF8 if self._file.bytes[:3] == codecs.BOM_UTF8 else b""
        begins = np.insert(ends[:-1] + 1, 0, len(mark))
        # "\r\n" is a line end too
        longer = ends > begins
        longer[longer] = data[ends[longer] - 1] == ord("\r")
        ends -= longer
        self._bounds = np.stack([begins, ends], axis=1)[begins < ends]  # where each line begins and ends

    def __len__(self) -> int:
        return len(self._bounds)

    def __getitem__(self, index: int) -> str:
        begin, end = self._bounds[index].tolist()
        return self._file.bytes[begin:end].decode()

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def preprocess_line(self, line: str) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.filepath}: {line[:80]!r} cannot be read: {error}") from None
