"""Paths of files and URLs of objects: whether they exist, their versions and their content.

The modules of buckets are imported when a URL is met; local files need none of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

PathLike = str | os.PathLike[str]
MAX_JSON_BYTES = 1 << 26
FILE_READ = 1 << 18  # bytes, small enough for the processor's cache
OBJECT_READ = 32 << 20  # bytes


def located(path: Any, allow_unversioned: bool = False) -> Path:
    """A Path, or the `BucketPath` of a URL, which has the methods of a Path that this package uses.

    Raises:
        StorageError: as `BucketPath`; or a URL was made a Path, which keeps one of its two slashes.
    """
    if isinstance(path, Path) and ":/" not in str(path):
        return path
    if ":/" not in os.fspath(path):
        return Path(path)
    from nanoset_ref.io.urls import BucketPath, url_or_path  # loaded only when a URL is met

    found: Any = path
    if not isinstance(path, BucketPath):
        found = url_or_path(path, allow_unversioned)
    return found


def in_bucket(path: PathLike) -> bool:
    """Whether a path is the URL of an object."""
    return not isinstance(located(path), Path)


def file_version(path: PathLike) -> tuple[Any, ...] | None:
    """A tuple that changes when the file is replaced or written to; None if there is no file.

    Returns:
        For a local file (size in bytes, modification time in nanoseconds, inode). It shows a change
        between opening and reading, and is never a reason to reuse a file in another run. For an
        object its `buckets.Version`, which starts with the size, too.

    Raises:
        ValueError: a folder, a pipe, which would block its reader, or a device without an end.
        StorageError: the object's server reports no versions, and that was not allowed.
    """
    place: Any = located(path)
    try:
        if in_bucket(place):
            from nanoset_ref.io.buckets import known_version  # loaded only when a URL is met

            return known_version(place)
        status = place.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{place} is not a regular file; copy its content into one")
    return version_of(status)


def version_of(status: os.stat_result) -> tuple[int, int, int]:
    """The `file_version` of a local file, from its status."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def require_regular(path: PathLike) -> int:
    """The size in bytes of a regular file or an object. Call this before reading anything.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: as `file_version`.
    """
    found = file_version(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(located(path)))
    return int(found[0])


def readable(path: PathLike) -> bool:
    """Whether access is allowed; a signed query allows it to one object only."""
    if not in_bucket(path):
        return True
    from nanoset_ref.io.urls import DeniedError  # loaded only when a URL is met

    try:
        file_version(path)
    except DeniedError:
        return False
    return True


def listed(given: Any, *single: type) -> list[Any]:
    """`given` as a list. A string, a path or an instance of the types `single` is one element."""
    if isinstance(given, (str, os.PathLike, *single)):
        return [given]
    return list(given)


def read_json(path: PathLike) -> Any:
    """The value in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no regular file, over 64 MiB, or not JSON; the message names the file.
    """
    if require_regular(path) > MAX_JSON_BYTES:
        raise ValueError(f"{path} has more than {MAX_JSON_BYTES} bytes")
    try:
        return json.loads(located(path).read_bytes().decode())
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{path} is not JSON, or is nested too deeply: {error}") from error


def contents(path: PathLike) -> Iterator[Any]:
    """The content of a file in blocks of 256 KiB, or of an object in blocks of 32 MiB."""
    place: Any = located(path)
    if in_bucket(place):
        from nanoset_ref.io.bucket_ids import bytes_of  # loaded only when a URL is met

        content = bytes_of(place)
        for first in range(0, len(content), OBJECT_READ):
            yield content[first : first + OBJECT_READ]
        return
    with open(place, "rb") as file:
        while block := file.read(FILE_READ):
            yield block


@contextlib.contextmanager
def copied(path: PathLike) -> Iterator[Path]:
    """A local file as it is, or a temporary copy of an object; a mapping outlives the copy."""
    if not in_bucket(path):
        yield Path(path)
        return
    with tempfile.NamedTemporaryFile() as copy:
        copy.writelines(contents(path))
        copy.flush()
        yield Path(copy.name)


def checksum(path: PathLike) -> str:
    """The content of a regular file as "xxh3_128:<32 hexadecimal digits>"."""
    require_regular(path)
    digest = xxhash.xxh3_128()
    for block in contents(path):
        digest.update(block)
    return f"xxh3_128:{digest.hexdigest()}"


def seal(text: str, *paths: PathLike) -> str:
    """A checksum of a text and of files. The smallest file of a set holds that of the whole set."""
    content = "\n".join([text, *map(checksum, paths)])
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(content.encode())}"
