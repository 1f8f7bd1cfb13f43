"""Pieces of what is read from far away, kept in a folder up to a limit: for a corpus that fits on the local disk.

    1. the pieces of PIECE bytes, aligned, that the wanted ranges touch are looked for in the folder
    2. those that are missing or damaged are fetched, some at a time, written under another name, flushed and renamed
    3. after each time, the pieces that were used longest ago are removed until at most 7/8 of the limit are left

They lie in a subfolder, FOLDER, of the folder that the user names. In it only regular files with the names of pieces
are read, replaced or removed: `<key>-<first byte>`, or that and `.<random>.tmp` while one is written. A piece is named
by its source's key, which is another one for another version; those of older versions are used no more, and go.

    a piece    8 bytes for each of its blocks of BLOCK bytes: xxh3_64, seeded by the name; then the content

Of what is read the blocks are compared with their checksums, so a torn or damaged piece, or one under another's name,
is fetched again and replaced. Readers need no lock, any number of processes and users share a folder (pieces and
subfolder are as readable as umask and folder allow), and eight that write at once keep to a limit of 4 GB or more. What
one may not read, write or remove is fetched, not kept, or left: with one warning in the log, and no error.

It pays from the second visit of a piece on: where rows are at random places, the first one fetches far more than it
needs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

FOLDER = "nanoset_ref-pieces"
OURS = re.compile(r"[0-9a-f]{24}-\d+(\.[0-9a-f]{8}\.tmp)?")
PIECE = 1 << 20  # bytes
BLOCK = 1 << 14  # bytes that a checksum is of
AT_ONCE = 64  # pieces that are fetched at once, and in memory
Extent = tuple[
    Any, int, int
]  # a source, whose `key` names its version and `size` is in bytes, and a range of it
logger = logging.getLogger(__name__)


def read_kept(
    folder: Path,
    limit: float,
    extents: Sequence[Extent],
    fetch: Callable[[Sequence[Extent]], list[Any]],
) -> list[Any]:
    """The bytes of each extent, out of pieces that are in the folder, or that are fetched and kept there.

    Args:
        folder: as the user names it; made when it is needed.
        limit: bytes of all pieces together.
        fetch: returns the bytes of each extent.
    """
    home = folder / FOLDER
    found = [bytearray(end - begin) for _, begin, end in extents]
    # 1.
    wanted = _touched(extents)
    missing = []
    for name, (piece, numbers) in wanted.items():
        if not all(
            _copy_kept(home / name, piece, extents[number], found[number]) for number in numbers
        ):
            missing.append(name)
    # 2.
    for first in range(0, len(missing), AT_ONCE):
        names = missing[first : first + AT_ONCE]
        contents = fetch([wanted[name][0] for name in names])
        for name, content in zip(names, contents, strict=True):
            piece, numbers = wanted[name]
            for number in numbers:
                _copy(memoryview(content), piece[1], extents[number], found[number])
            _keep(home, name, content)
        # 3.
        _make_room(home, limit * 7 / 8)
    return found


def _touched(extents: Sequence[Extent]) -> dict[str, tuple[Extent, list[int]]]:
    """{name of a piece: (its range, the numbers of the extents that it has a part of)}."""
    touched: dict[str, tuple[Extent, list[int]]] = {}
    for number, (source, begin, end) in enumerate(extents):
        for first in range(begin // PIECE * PIECE, end, PIECE):
            piece = source, first, min(first + PIECE, source.size)
            touched.setdefault(f"{source.key}-{first}", (piece, []))[1].append(number)
    return touched


def _copy(content: memoryview, first: int, extent: Extent, out: bytearray) -> None:
    """Copy the part of an extent that lies in `content`, the bytes of its source from byte `first` on."""
    _, begin, end = extent
    low, high = max(begin, first), min(end, first + len(content))
    out[low - begin : high - begin] = content[low - first : high - first]


def _copy_kept(place: Path, piece: Extent, extent: Extent, out: bytearray) -> bool:
    """Copy the part of an extent that a kept piece has; False if the piece is missing, damaged or not readable."""
    _, first, last = piece
    _, begin, end = extent
    low = (max(begin, first) - first) // BLOCK
    high = -(-(min(end, last) - first) // BLOCK)
    sums = -(-(last - first) // BLOCK) * 8  # bytes
    try:
        with _opened(place) as file:
            if os.fstat(file).st_size != sums + last - first:
                return False
            expected = os.pread(file, 8 * (high - low), 8 * low)
            content = os.pread(
                file, min(high * BLOCK, last - first) - low * BLOCK, sums + low * BLOCK
            )
            with contextlib.suppress(OSError):  # another user's piece
                os.utime(file)  # used now
    except OSError:
        return False
    if _checksums(place.name, content) != expected:
        return False
    _copy(memoryview(content), first + low * BLOCK, extent, out)
    return True


@contextlib.contextmanager
def _opened(place: Path) -> Any:
    """The descriptor of a regular file, opened without waiting and without following a link; else an OSError."""
    file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{place} is no regular file")
        yield file
    finally:
        os.close(file)


def _checksums(name: str, content: Any) -> bytes:
    """Of each block of `content`, little endian; one that belongs elsewhere has another one."""
    view, seed = memoryview(content), xxhash.xxh3_64_intdigest(name.encode())
    blocks = [view[first : first + BLOCK] for first in range(0, len(view), BLOCK)]
    return np.array([xxhash.xxh3_64_intdigest(block, seed) for block in blocks], "<u8").tobytes()


def _keep(home: Path, name: str, content: Any) -> None:
    """Write a piece; what is there under its name and is no regular file stays, and the piece is not kept."""
    place = home / name
    temporary = home / f"{name}.{secrets.token_hex(4)}.tmp"
    try:
        _make(home)
        if os.path.lexists(place) and not stat.S_ISREG(os.lstat(place).st_mode):
            raise FileExistsError(f"{place} is no regular file")
        with open(temporary, "xb") as file:
            file.write(_checksums(name, content))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(
            FileNotFoundError
        ):  # another process has removed it, for lack of room
            os.replace(temporary, place)
    except OSError as error:
        _warn(str(home), type(error).__name__)
        with contextlib.suppress(OSError):
            temporary.unlink()


def _make(home: Path) -> None:
    """Make the folder of the pieces, for those for whom the folder that it lies in is."""
    if home.is_dir():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        home.chmod(stat.S_IMODE(home.parent.stat().st_mode))


@functools.cache
def _warn(home: str, why: str) -> None:
    logger.warning("pieces are read, but not all are kept or removed in %s: %s", home, why)


def _make_room(home: Path, limit: float) -> None:
    """Remove the pieces that were used longest ago, and nothing else, until those that are left keep to the limit."""
    ages = []
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    ages.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in ages)
    for _, size, place in sorted(ages):
        if total <= limit:
            return
        try:
            os.unlink(place)
            total -= size
        except FileNotFoundError:
            total -= size
        except OSError as error:  # another user's
            _warn(str(home), type(error).__name__)
