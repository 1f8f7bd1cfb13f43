"""Pieces of what is read from far away, kept in a folder up to a limit: for a corpus that fits on the local disk.

    1. the pieces of PIECE bytes, aligned, that the wanted ranges touch are looked for in the folder
    2. those that are missing are fetched, some at a time, written under another name and renamed
    3. the ranges are cut out of them; those whose pieces were removed meanwhile are fetched alone
    4. who has added a 64th of the limit removes the pieces that were used longest ago until 7/8 of the limit are left

So readers need no lock, any number of processes share a folder, and eight that write at once keep to the limit. A piece
is named by its source's key, which is another one for another version; those of older versions are used no more, and
go. It pays from the second visit of a piece on: where rows are at random places, the first one fetches far more than it
needs.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PIECE = 1 << 20  # bytes
AT_ONCE = 64  # pieces that are fetched at once, and in memory
Extent = tuple[Any, int, int]  # a source, whose `key` names its version and `size` is in bytes, and a range of it


class Cache:
    """A folder of pieces.

    Args:
        folder: made when it is needed.
        limit: bytes of all pieces together.
        fetch: returns the bytes of each extent.
    """

    def __init__(self, folder: str, limit: float, fetch: Callable[[Sequence[Extent]], list[Any]]) -> None:
        self.folder, self.limit, self.fetch = Path(folder), limit, fetch
        self._added = 0

    def read(self, extents: Sequence[Extent]) -> list[Any]:
        """The bytes of each extent, out of pieces that are there, or that are fetched and kept."""
        # 1.
        pieces = dict(piece for extent in extents for piece in self._pieces(*extent))
        missing = [place for place in pieces if not place.exists()]
        # 2.
        for first in range(0, len(missing), AT_ONCE):
            few = missing[first : first + AT_ONCE]
            for place, content in zip(few, self.fetch([pieces[place] for place in few]), strict=True):
                self._keep(place, content)
        # 3.
        found = [self._cut(*extent) for extent in extents]
        lost = [extent for extent, content in zip(extents, found, strict=True) if not content]
        rest = iter(self.fetch(lost) if lost else ())
        return [content or next(rest) for content in found]

    def _pieces(self, source: Any, begin: int, end: int) -> Iterator[tuple[Path, Extent]]:
        for first in range(begin // PIECE * PIECE, end, PIECE):
            yield self.folder / f"{source.key}-{first}", (source, first, min(first + PIECE, source.size))

    def _cut(self, source: Any, begin: int, end: int) -> bytes:
        """The range, or b"" if part of it is not there."""
        content = b""
        for place, (_, first, last) in self._pieces(source, begin, end):
            with contextlib.suppress(FileNotFoundError), open(place, "rb") as file:
                os.utime(file.fileno())  # used now
                content += os.pread(file.fileno(), min(end, last) - max(begin, first), max(begin - first, 0))
        return content if len(content) == end - begin else b""

    def _keep(self, place: Path, content: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            file.write(content)
        with contextlib.suppress(FileNotFoundError):  # another process has removed it, for lack of room
            os.replace(file.name, place)
        self._added += len(content)
        # 4.
        if self._added > self.limit / 64:
            self._make_room()

    def _make_room(self) -> None:
        ages, self._added = [], 0
        for place in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                ages.append((place.stat().st_mtime_ns, place.stat().st_size, place))
        total = sum(size for _, size, _ in ages)
        for _, size, place in sorted(ages):
            if total > self.limit * 7 / 8:
                place.unlink(missing_ok=True)
                total -= size
