"""Pieces of what is read from far away, kept in a folder up to a limit: for a corpus that fits on the local disk.

    1. the pieces of PIECE bytes, aligned, that the wanted ranges touch are looked for in the folder
    2. those that are missing are fetched, some at a time, written under another name and renamed
    3. after each time, the pieces that were used longest ago are removed until at most 7/8 of the limit are left
    4. the ranges are cut out of the pieces; those whose pieces were removed meanwhile are fetched alone

So readers need no lock, any number of processes share a folder, and eight that write at once keep to a limit of 4 GB or
more. A piece is named by its source's key, which is another one for another version; those of older versions are used
no more, and go. It pays from the second visit of a piece on: where rows are at random places, the first one fetches far
more than it needs.
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


def read_kept(
    folder: Path, limit: float, extents: Sequence[Extent], fetch: Callable[[Sequence[Extent]], list[Any]]
) -> list[Any]:
    """The bytes of each extent, out of pieces that are in the folder, or that are fetched and kept there.

    Args:
        folder: made when it is needed.
        limit: bytes of all pieces together.
        fetch: returns the bytes of each extent.
    """
    # 1.
    pieces = dict(piece for extent in extents for piece in _pieces(folder, *extent))
    missing = [place for place in pieces if not place.exists()]
    # 2.
    for first in range(0, len(missing), AT_ONCE):
        few = missing[first : first + AT_ONCE]
        for place, content in zip(few, fetch([pieces[place] for place in few]), strict=True):
            _keep(place, content)
        # 3.
        _make_room(folder, limit * 7 / 8)
    # 4.
    found = [_cut(folder, *extent) for extent in extents]
    lost = [extent for extent, content in zip(extents, found, strict=True) if not content]
    rest = iter(fetch(lost) if lost else ())
    return [content or next(rest) for content in found]


def _pieces(folder: Path, source: Any, begin: int, end: int) -> Iterator[tuple[Path, Extent]]:
    for first in range(begin // PIECE * PIECE, end, PIECE):
        yield folder / f"{source.key}-{first}", (source, first, min(first + PIECE, source.size))


def _cut(folder: Path, source: Any, begin: int, end: int) -> bytes:
    """The range, or b"" if part of it is not there."""
    content = b""
    for place, (_, first, last) in _pieces(folder, source, begin, end):
        with contextlib.suppress(FileNotFoundError), open(place, "rb") as file:
            os.utime(file.fileno())  # used now
            content += os.pread(file.fileno(), min(end, last) - max(begin, first), max(begin - first, 0))
    return content if len(content) == end - begin else b""


def _keep(place: Path, content: Any) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(content)
    with contextlib.suppress(FileNotFoundError):  # another process has removed it, for lack of room
        os.replace(file.name, place)


def _make_room(folder: Path, limit: float) -> None:
    ages = []
    for place in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            ages.append((place.stat().st_mtime_ns, place.stat().st_size, place))
    total = sum(size for _, size, _ in ages)
    for _, size, place in sorted(ages):
        if total > limit:
            place.unlink(missing_ok=True)
            total -= size
