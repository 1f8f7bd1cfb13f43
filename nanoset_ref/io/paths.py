"""Paths of files and URLs of objects: whether they exist, their versions and their content.

`io.object_versions` and `io.bucket_ranges` are imported lazily; local files need neither.
"""

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import xxhash

PathLike = str | os.PathLike[str]
FileVersion = tuple[Any, ...]  # see `file_version`
MAX_JSON_BYTES = 1 << 26
FILE_READ_BYTES = 1 << 18  # small enough for the processor's cache
OBJECT_READ_BYTES = 32 << 20


def as_path(path: Any) -> Path:
    """Convert a path or URL to a Path, or to a `BucketPath` with the Path methods used here.

    Raises:
        StorageError: see `BucketPath`; or a URL was converted to a Path, which drops one of its two
            slashes.
    """
    location = location_of(path)
    if isinstance(location, str):
        return Path(path)
    return location


def location_of(path: Any, allow_unversioned: bool = False) -> Any:
    """Like `as_path`, but a local path is a str, which takes less time and memory than a Path."""
    text = os.fspath(path)
    if ":/" not in text:
        return text
    from nanoset_ref.io.urls import BucketPath, url_or_path  # only URLs need it

    location = path
    if not isinstance(path, BucketPath):
        location = url_or_path(path, allow_unversioned)
    return text if isinstance(location, Path) else location


def in_bucket(path: PathLike) -> bool:
    """Whether a path is the URL of an object."""
    return not isinstance(location_of(path), str)


def file_version(path: PathLike) -> FileVersion | None:
    """A tuple that changes when the file is replaced or written to; None if there is no file.

    Returns:
        (size in bytes, modification time in nanoseconds, inode) for a local file. It reveals a
        change between opening and reading; it never justifies reusing a file in another run.
        For an object its `ObjectVersion`, which also starts with the size.

    Raises:
        ValueError: the path is a folder, a pipe (which would block its reader) or a device.
        FileNotFoundError: the path is a link to a file that does not exist.
        StorageError: the object's server reports no versions, and that was not allowed.
    """
    try:
        if in_bucket(path):
            # only URLs need it
            from nanoset_ref.io.object_versions import known_version

            return known_version(location_of(path))
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is a link to a file that does not exist: remove the link, or restore the "
                "file"
            ) from None
    return version_from_status(status, path)


def version_from_status(status: os.stat_result, path: PathLike) -> FileVersion:
    """The `file_version` of a local file, from its status."""
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(
            f"{path} is not a regular file; name the files of a folder one by one, and copy the "
            "content of a pipe or device into a file"
        )
    return status.st_size, status.st_mtime_ns, status.st_ino


def read_head(path: PathLike, count: int) -> tuple[FileVersion, bytes, bool]:
    """Read the first bytes of a local file; also its `file_version`, and whether it is a link.

    A file is opened once. Opening refuses links, which are then opened again, so that other files
    need no further system call.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: see `file_version`.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK  # a pipe does not block its reader
    is_link = False
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        is_link = True
        descriptor = os.open(path, flags)
    try:
        version = version_from_status(os.fstat(descriptor), path)
        return version, os.read(descriptor, count), is_link
    finally:
        os.close(descriptor)


def file_size(path: PathLike) -> int:
    """The size in bytes of a regular file or an object. Call this before reading anything.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: see `file_version`.
    """
    version = file_version(path)
    if version is None:
        raise FileNotFoundError(
            errno.ENOENT, os.strerror(errno.ENOENT), str(as_path(path))
        )
    return version[0]


def as_list(values: Any, *single: type) -> list[Any]:
    """Convert to a list; a string, a path or an instance of `single` is one element.

    Raises:
        TypeError: a set, whose order differs from process to process; a mapping, whose values would
            be lost; bytes; or a value that is no list.
    """
    if isinstance(values, (str, os.PathLike, *single)):
        return [values]
    unlisted = set, frozenset, bytes, Mapping
    if isinstance(values, unlisted) or not isinstance(values, Iterable):
        raise TypeError(
            "give a path, or a list of paths in the same order in every process; got "
            f"{values!r:.200}"
        )
    return list(values)


def read_json(path: PathLike, version: FileVersion | None = None) -> Any:
    """Read the value in a JSON file.

    Args:
        path: the file or object.
        version: its `file_version` if the caller has just asked for it; saves a request.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a regular file, is larger than 64 MiB, or is not JSON; the message
            names it.
    """
    version = version or file_version(path)
    if version and version[0] > MAX_JSON_BYTES:
        raise ValueError(f"{path} has more than {MAX_JSON_BYTES} bytes")
    try:
        content = (
            location_of(path).read_version(version)
            if in_bucket(path)
            else as_path(path).read_bytes()
        )
        return json.loads(content.decode())
    except (RecursionError, ValueError) as error:
        raise ValueError(
            f"{path} is not JSON, or is nested too deeply: {error}"
        ) from error


def read_in_blocks(path: PathLike) -> Iterator[Any]:
    """Yield the bytes of a file in blocks of 256 KiB, or of an object in blocks of 32 MiB."""
    location: Any = as_path(path)
    if in_bucket(location):
        from nanoset_ref.io.bucket_ranges import bytes_of  # only URLs need it

        content = bytes_of(location)
        for first in range(0, len(content), OBJECT_READ_BYTES):
            yield content[first : first + OBJECT_READ_BYTES]
        return
    with open(location, "rb") as file:
        while block := file.read(FILE_READ_BYTES):
            yield block


def checksum(path: PathLike) -> str:
    """The checksum of a regular file, "xxh3_128:<32 hexadecimal digits>"."""
    file_size(path)  # refuses pipes, folders and devices
    digest = xxhash.xxh3_128()
    for block in read_in_blocks(path):
        digest.update(block)
    return f"xxh3_128:{digest.hexdigest()}"


def checksum_of_set(text: str, *paths: PathLike) -> str:
    """The checksum of a text and of files; a set of files stores it in its smallest file."""
    content = "\n".join([text, *map(checksum, paths)])
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(content.encode())}"
