"""URLs of objects: how they are parsed, which are refused, and local copies.

Every option that names a token file also takes an s3://, gs://, az:// or http(s):// URL, and so
does preprocess --output-prefix; other files and folders are local (see `local_path`). A
`BucketPath` has the Path methods that this package uses, so a token file in a bucket is opened like
a local one.
`io.buckets` sends the requests; it is imported lazily.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from nanoset_ref.io.error_text import LOST_SLASH, URL, redact
from nanoset_ref.io.full_disk import explain_full_tmpdir
from nanoset_ref.io.paths import (
    FileVersion,
    PathLike,
    as_path,
    file_version,
    in_bucket,
    read_in_blocks,
)

SCHEMES = "s3", "gs", "gcs", "az", "http", "https"
HTTP = "http", "https"
UNVERSIONED_VARIABLE = "NANOSET_REF_ALLOW_UNVERSIONED"


class StorageError(OSError):
    """A bucket cannot be read or written; the message is one line and names the object."""


class DeniedError(StorageError):
    """The credentials do not allow access to the object."""


class BucketPath:
    """The URL of an object.

    It is s3://bucket/key, gs://bucket/key, az://container/key or http(s)://host/key[?query].

    `str` hides its password and query; `os.fspath` returns the URL as given. Two are equal if they
    name the same object: its `identity` decides.

    Args:
        url: the URL; an http(s) URL is percent-encoded. gcs:// is the same as gs://, and S3:// the
            same as s3://.
        allow_unversioned: whether to read from a server that reports no versions (see
            `io.buckets`).

    Raises:
        StorageError: the scheme is unknown, the key is missing, or obstore cannot express it.
    """

    def __init__(self, url: str, allow_unversioned: bool = False) -> None:
        self.url = url
        self.allow_unversioned = allow_unversioned
        scheme, _, rest = url.partition("://")
        self.scheme = scheme.lower()
        if self.scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise StorageError(
                f"{self}: {scheme}:// is not supported, only {known}; copy the file to the disk"
            )
        if self.scheme == "gcs":
            self.scheme = "gs"
        self.bucket, _, self.key = rest.partition("/")
        self.query = ""
        encoded_slash = False
        if self.scheme in HTTP:
            parts = urlsplit(url)
            self.bucket = parts.netloc
            self.key = unquote(parts.path[1:])
            self.query = parts.query
            encoded_slash = "%2f" in parts.path.lower()
            if parts.fragment:
                raise StorageError(
                    f"{self}: what follows '#' is never sent to a server; write '#' in a key as %23"
                )
        if not self.bucket or not self.key:
            raise StorageError(
                f"{self} does not name an object: a URL is a bucket or host, '/' and a key"
            )
        if encoded_slash or {"", ".", ".."} & set(self.key.split("/")):
            raise StorageError(
                f"{self}: keys with '//', '/./', '/../' or %2F cannot be read; "
                "copy it to another key"
            )

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return redact(self.url)

    def __repr__(self) -> str:
        return f"BucketPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketPath) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def identity(self) -> tuple[str, ...]:
        """What names the object: scheme, bucket or host, key and query, but no password.

        A query may name an object (?id=1) or be a signature; with a new signature, the object
        counts as another one. Never show it.
        """
        host = self.bucket.rpartition("@")[2]
        return self.scheme, host, self.key, self.query

    @property
    def name(self) -> str:
        """The part of the key after its last slash."""
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        """The name from its last dot on."""
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
        """Whether the object exists."""
        return file_version(self) is not None

    def is_denied(self) -> bool:
        """Whether the server denies access; a signed query gives access to a single object."""
        try:
            self.exists()
        except DeniedError:
            return True
        return False

    def is_file(self) -> bool:
        """Whether the object exists and may be read; some servers deny absent objects, too."""
        with contextlib.suppress(DeniedError):
            return self.exists()
        return False

    def read_bytes(self) -> bytes:
        """The content of the object."""
        return b"".join(read_in_blocks(self))

    def read_version(self, version: FileVersion | None) -> bytes:
        """The content of one version of a small object, read with one request.

        Raises:
            FileNotFoundError: `version` is None, as `file_version` says that there is no object.
        """
        if version is None:
            raise FileNotFoundError(f"{self} does not exist")
        if version[0] == 0:  # no range is empty
            return b""
        # a path loads no client
        from nanoset_ref.io.object_versions import ObjectVersion, read_range

        checked = ObjectVersion(*version)
        return bytes(read_range(self, 0, checked.size, checked))

    def unlink(self) -> None:
        """Delete the object."""
        from nanoset_ref.io.buckets import call_obstore  # a path loads no client

        call_obstore(self, "delete")


def url_or_path(path: PathLike, allow_unversioned: bool = False) -> Path | BucketPath:
    """Parse a name that contains ":/" as a URL or a path; see `paths.as_path`."""
    text = os.fspath(path)
    if URL.match(text):
        return BucketPath(
            text, allow_unversioned or os.environ.get(UNVERSIONED_VARIABLE) == "1"
        )
    if LOST_SLASH.match(text) and isinstance(path, Path):
        raise StorageError(
            f"{redact(text)} must be a local path, or a token file whose URL is a string: a Path "
            "drops one of its two slashes"
        )
    return Path(path)


def local_path(path: PathLike, what: str) -> Path:
    """The path of a file or folder that cannot be in a bucket.

    Args:
        path: the path as given, not yet a Path: that drops one of the slashes of a URL.
        what: its name in the message.

    Raises:
        ValueError: it is a URL.
    """
    text = os.fspath(path)
    if URL.match(text) or (LOST_SLASH.match(text) and isinstance(path, Path)):
        raise ValueError(
            f"{what} must be a local path, got {redact(text)}: only token files may be in a "
            "bucket; give a path on the disk"
        )
    return Path(path)


def absolute(path: PathLike) -> str:
    """The absolute path; a URL is returned unchanged."""
    if isinstance(as_path(path), BucketPath):
        return os.fspath(path)
    return os.path.abspath(path)


@contextlib.contextmanager
def local_copy(path: PathLike) -> Iterator[Path]:
    """Yield a local file's own path, or the path of a temporary copy of an object.

    A mapping of the copy stays valid after the copy is deleted.
    """
    if not in_bucket(path):
        yield Path(path)
        return
    with explain_full_tmpdir(), tempfile.NamedTemporaryFile() as copy:
        copy.writelines(read_in_blocks(path))
        copy.flush()
        yield Path(copy.name)
