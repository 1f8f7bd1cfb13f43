"""URLs of objects: what a name means, and what is refused.

Wherever a file is named, s3://, gs://, az:// and http(s):// are understood. A `BucketPath` offers
what this package uses of a Path (name, size, bytes), so a token file in a bucket is opened like one
on the disk. `io.buckets` sends the requests; nothing of it is imported before an object is met.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from nanoset_ref.io.paths import PathLike, contents, file_version, located

SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "http": "http", "https": "https"}
URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
LOST_SLASH = re.compile("(s3|gs|gcs|az|https?):/[^/]")  # a URL that went through pathlib
UNVERSIONED = "NANOSET_REF_ALLOW_UNVERSIONED"
WITHOUT_FORK = "use 0 workers and read_ahead=2, which prefetches in a thread"


class StorageError(OSError):
    """A bucket cannot be read or written; the message is one line that names the object."""


class DeniedError(StorageError):
    """The credentials do not allow access to the object."""


class BucketPath:
    """The URL of an object: s3://bucket/key, gs://bucket/key, az://container/key,
    http(s)://host/key[?query].

    `str` hides its password and query; `os.fspath` returns the URL as given.

    Args:
        url: the URL; http(s) is percent-encoded, as everywhere. gcs:// is gs://, S3:// is s3://.
        allow_unversioned: read also from a server that reports no versions (see `io.buckets`).

    Raises:
        StorageError: an unknown scheme, no key, or a key that obstore cannot name.
    """

    def __init__(self, url: str, allow_unversioned: bool = False) -> None:
        self.url = url
        self.allow_unversioned = allow_unversioned
        scheme, _, rest = url.partition("://")
        if scheme.lower() not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise StorageError(
                f"{self}: {scheme}:// is not supported, only {known}; copy the file to the disk"
            )
        self.scheme = SCHEMES[scheme.lower()]
        self.bucket, _, self.key = rest.partition("/")
        self.query = ""
        encoded_slash = False
        if self.scheme in ("http", "https"):
            parts = urlsplit(url)
            self.bucket = parts.netloc
            self.key = unquote(parts.path[1:])
            self.query = parts.query
            encoded_slash = "%2f" in parts.path.lower()
        if not self.bucket or not self.key:
            raise StorageError(f"{self} names no object: a URL is a bucket or host, '/' and a key")
        if encoded_slash or {"", ".", ".."} & set(self.key.split("/")):
            raise StorageError(
                f"{self}: keys with '//', '/./', '/../' or %2F cannot be read; copy it to another key"
            )

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return shown(self.url)

    def __repr__(self) -> str:
        return f"BucketPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketPath) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def root(self) -> str:
        """The URL that all objects of the bucket share."""
        query = f"/?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.bucket}{query}"

    def with_suffix(self, suffix: str) -> BucketPath:
        """The URL with another suffix of its key; the query stays."""
        query = f"?{self.query}" if self.query else ""
        stem = self.url.removesuffix(query).removesuffix(self.suffix)
        return BucketPath(f"{stem}{suffix}{query}", self.allow_unversioned)

    def exists(self) -> bool:
        return file_version(self) is not None

    is_file = exists

    def read_bytes(self) -> bytes:
        return b"".join(contents(self))

    def unlink(self, missing_ok: bool = False) -> None:
        from nanoset_ref.io.buckets import ask  # loaded only when an object is met

        ask(self, "delete")


def shown(path: PathLike) -> str:
    """A path or URL for messages: without a password, and without a query, which may be signed."""
    text = os.fspath(path)
    if not URL.match(text):
        return text
    scheme, _, rest = text.partition("://")
    host, slash, key = rest.partition("/")
    if scheme.lower() in ("http", "https"):
        key, mark, _ = key.partition("?")
        if mark:
            key += "?..."
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"


def url_or_path(path: PathLike, allow_unversioned: bool = False) -> Path | BucketPath:
    """The URL or the path that a name with a colon and a slash stands for; see `paths.located`."""
    text = os.fspath(path)
    if URL.match(text):
        return BucketPath(text, allow_unversioned or os.environ.get(UNVERSIONED) == "1")
    if LOST_SLASH.match(text) and isinstance(path, Path):
        raise StorageError(f"{text}: give a URL as a string; a Path keeps one of its two slashes")
    return Path(path)


def absolute(path: PathLike) -> str:
    """A path from the root of the file system; a URL as it is."""
    if isinstance(located(path), BucketPath):
        return os.fspath(path)
    return os.path.abspath(path)


def refuse_forks(paths: Iterable[Path], start_method: str) -> None:
    """StorageError if a file is in a bucket and workers would be forked: connections do not
    survive a fork.
    """
    objects = [path for path in paths if isinstance(path, BucketPath)]
    if start_method == "fork" and objects:
        raise StorageError(
            f"{objects[0]}: forked workers cannot read from a bucket; {WITHOUT_FORK}"
        )
