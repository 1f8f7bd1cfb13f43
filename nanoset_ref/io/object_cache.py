"""A cache of pieces of objects on the local disk, for a corpus that fits there.

    1. Look in the folder for the aligned pieces, of PIECE_BYTES, that overlap the wanted ranges.
    2. Fetch the missing and damaged pieces, PIECES_AT_ONCE at a time. Write each to a temporary,
       flush and rename it.
    3. Evict the least recently used pieces until the rest takes at most 7/8 of the limit.

The pieces are in SUBFOLDER, a subfolder of the folder that the user names. There the cache reads,
replaces and removes only regular files with the names of pieces: `<key>-<first byte>`, followed by
`.<random>.tmp` while one is written. The key names one version of an object. Pieces of older
versions are never read again, and are evicted in time.

    a piece    8 bytes for each of its blocks of CHECKED_BYTES bytes: xxh3_64, seeded by the name;
               then the content

Every block that is read is compared with its checksum. A truncated, damaged or misnamed piece is
fetched again and replaced. Readers do not lock. Any number of processes and users can share a
folder: the umask and the folder's permissions decide who may read a piece. Eight concurrent writers
stay within any limit from 4 GB on. A piece that may not be read is fetched. A piece that may not be
written or removed is left alone, with one warning in the log and no error.

The cache pays off from the second read of a piece: with random rows, the first read fetches far
more than it needs.
"""

import functools
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

SUBFOLDER = "nanoset_ref-pieces"
PIECE_NAME = re.compile(r"[0-9a-f]{24}-\d+(\.[0-9a-f]{8}\.tmp)?")
PIECE_BYTES = 1 << 20
CHECKED_BYTES = 1 << 14  # bytes under one checksum
PIECES_AT_ONCE = 64  # pieces that are fetched together and kept in memory
# ids with `cache_key` and `size` (bytes), and a range [start, stop) of their bytes
Extent = tuple[Any, int, int]
logger = logging.getLogger(__name__)


def read_cached(
    folder: Path,
    limit: float,
    extents: Sequence[Extent],
    fetch: Callable[[Sequence[Extent]], list[Any]],
) -> list[Any]:
    """Read the bytes of each extent from cached pieces; fetch and cache the missing pieces.

    Args:
        folder: the folder that the user names; created if needed.
        limit: the maximum size of all pieces together, in bytes.
        extents: the wanted ranges.
        fetch: returns the bytes of each extent.

    Returns:
        A bytearray per extent.
    """
    piece_folder = folder / SUBFOLDER
    filled = [bytearray(stop - start) for _, start, stop in extents]
    # 1. look for the pieces
    wanted = _pieces_of(extents)
    missing = []
    for name, (piece, indices) in wanted.items():
        for index in indices:
            if not _copy_cached(
                piece_folder / name, piece, extents[index], filled[index]
            ):
                missing.append(name)
                break
    # 2. fetch the missing ones
    for start in range(0, len(missing), PIECES_AT_ONCE):
        names = missing[start : start + PIECES_AT_ONCE]
        contents = fetch([wanted[name][0] for name in names])
        for name, content in zip(names, contents, strict=True):
            (_, first, _), indices = wanted[name]
            for index in indices:
                _copy(memoryview(content), first, extents[index], filled[index])
            _write(piece_folder, name, content)
        # 3. evict the least recently used ones
        _evict(piece_folder, limit * 7 / 8)
    return filled


def _pieces_of(extents: Sequence[Extent]) -> dict[str, tuple[Extent, list[int]]]:
    """{name of a piece: (its extent, the indices of the extents that overlap it)}."""
    pieces: dict[str, tuple[Extent, list[int]]] = {}
    for index, (ids, start, stop) in enumerate(extents):
        first_piece = start // PIECE_BYTES * PIECE_BYTES
        for piece_start in range(first_piece, stop, PIECE_BYTES):
            piece = ids, piece_start, min(piece_start + PIECE_BYTES, ids.size)
            _, indices = pieces.setdefault(
                f"{ids.cache_key}-{piece_start}", (piece, [])
            )
            indices.append(index)
    return pieces


def _copy(content: memoryview, first: int, extent: Extent, out: bytearray) -> None:
    """Copy the part of an extent that is in `content`, an object's bytes from byte `first` on."""
    _, start, stop = extent
    copy_start = max(start, first)
    copy_stop = min(stop, first + len(content))
    out[copy_start - start : copy_stop - start] = content[
        copy_start - first : copy_stop - first
    ]


def _copy_cached(path: Path, piece: Extent, extent: Extent, out: bytearray) -> bool:
    """Copy the part of an extent that is in a cached piece.

    Returns:
        False if the piece is missing, damaged or not readable.
    """
    _, piece_start, piece_stop = piece
    _, start, stop = extent
    size = piece_stop - piece_start
    # the blocks to read
    first_block = (max(start, piece_start) - piece_start) // CHECKED_BYTES
    stop_block = -(-(min(stop, piece_stop) - piece_start) // CHECKED_BYTES)
    header = 8 * -(-size // CHECKED_BYTES)  # bytes
    first_byte = first_block * CHECKED_BYTES
    end_byte = min(stop_block * CHECKED_BYTES, size)
    try:
        with _open(path) as file:
            if os.fstat(file).st_size != header + size:
                return False
            expected = os.pread(file, 8 * (stop_block - first_block), 8 * first_block)
            content = os.pread(file, end_byte - first_byte, header + first_byte)
            with suppress(OSError):  # another user's piece
                os.utime(file)  # used now
    except OSError:
        return False
    if _checksums(path.name, content) != expected:
        return False
    _copy(memoryview(content), piece_start + first_byte, extent, out)
    return True


@contextmanager
def _open(path: Path) -> Any:
    """Open a regular file without blocking and without following a link; yield its descriptor."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _require_regular(os.fstat(file), path)
        yield file
    finally:
        os.close(file)


def _require_regular(status: os.stat_result, path: Path) -> None:
    """Raise OSError for a link, a pipe or a folder."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")


def _checksums(name: str, content: Any) -> bytes:
    """xxh3_64 of each block of `content`, little endian, seeded by the name of the piece."""
    view = memoryview(content)
    seed = xxhash.xxh3_64_intdigest(name.encode())
    checksums = []
    for first in range(0, len(view), CHECKED_BYTES):
        block = view[first : first + CHECKED_BYTES]
        checksums.append(xxhash.xxh3_64_intdigest(block, seed))
    return np.array(checksums, "<u8").tobytes()


def _write(piece_folder: Path, name: str, content: Any) -> None:
    """Write a piece, unless something other than a regular file has its name."""
    path = piece_folder / name
    temporary = piece_folder / f"{name}.{secrets.token_hex(4)}.tmp"
    try:
        _make_piece_folder(piece_folder)
        if os.path.lexists(path):
            _require_regular(os.lstat(path), path)
        with open(temporary, "xb") as file:
            file.writelines([_checksums(name, content), content])
            file.flush()
            os.fsync(file.fileno())
        # another process evicted the temporary
        with suppress(FileNotFoundError):
            os.replace(temporary, path)
    except OSError as error:
        _warn(str(piece_folder), error.strerror or type(error).__name__)
        with suppress(OSError):
            temporary.unlink()


def _make_piece_folder(piece_folder: Path) -> None:
    """Create the subfolder, with the permissions of the user's folder."""
    if piece_folder.is_dir():
        return
    piece_folder.parent.mkdir(parents=True, exist_ok=True)
    piece_folder.mkdir(exist_ok=True)
    with suppress(OSError):
        piece_folder.chmod(stat.S_IMODE(piece_folder.parent.stat().st_mode))


@functools.cache
def _warn(piece_folder: str, why: str) -> None:
    """Log, once for each folder and reason, that the cache does not keep everything."""
    logger.warning(
        "pieces are read, but not all can be cached or removed in %s: %s",
        piece_folder,
        why,
    )


def _evict(piece_folder: Path, limit: float) -> None:
    """Remove the least recently used pieces, and nothing else, until the rest fits the limit."""
    pieces = []
    with suppress(OSError), os.scandir(piece_folder) as entries:
        for entry in entries:
            is_file = entry.is_file(follow_symlinks=False)
            if is_file and PIECE_NAME.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    pieces.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in pieces)
    for _, size, path in sorted(pieces):
        if total <= limit:
            return
        try:
            with suppress(FileNotFoundError):  # another process evicted it
                os.unlink(path)
            total -= size
        except OSError as error:  # another user's
            _warn(str(piece_folder), error.strerror or type(error).__name__)
