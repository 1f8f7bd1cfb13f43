"""Versions of objects in buckets: all bytes that are read belong to the version that was opened.

Every GET carries If-Match with the ETag that the object had when it was opened. If the server sends
no ETag, the request carries the version id or If-Unmodified-Since instead. The ETag, the range and
the length of each answer are checked, but for many ranges in one call of obstore, which returns
bytes alone: there the length is checked, and the server has to have refused a wrong If-Match once
(`checks_if_match`). A server that reports no version at all is refused, unless
`open_tokens(..., allow_unversioned=True)` or NANOSET_REF_ALLOW_UNVERSIONED=1 allows it; its answers
are never cached.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from nanoset_ref.io.buckets import (
    MethodError,
    ReplacedError,
    TryAgainError,
    call_obstore,
    obstore_function,
    replaced_error,
    request,
)
from nanoset_ref.io.urls import UNVERSIONED_VARIABLE, BucketPath, StorageError

COMPRESSIONS = "gzip", "br", "deflate", "zstd"


class ObjectVersion(NamedTuple):
    """A server's description of an object's content: equal versions have equal content.

    Attributes:
        size: bytes.
        e_tag: None if the server sends none.
        version: None if the server has none, or sends a strong ETag.
        last_modified: None if the server sends none, or sends a strong ETag.
    """

    size: int
    e_tag: str | None = None
    version: str | None = None
    last_modified: datetime | None = None

    @classmethod
    def of(cls, meta: Any) -> ObjectVersion:
        """The version in obstore's description of an object."""
        version = cls(meta["size"], meta["e_tag"])
        if version.is_strong:
            return version
        changed = meta["last_modified"]
        if not changed.timestamp():  # obstore's default for a server that sends none
            changed = None
        return version._replace(version=meta["version"], last_modified=changed)

    @property
    def is_known(self) -> bool:
        """Whether the server reports anything that changes with the content."""
        return self != ObjectVersion(self.size)

    @property
    def is_strong(self) -> bool:
        """Whether equal versions mean equal bytes."""
        return bool(self.e_tag) and not str(self.e_tag).startswith("W/")

    @property
    def condition(self) -> dict[str, Any]:
        """The options that limit a request to this version."""
        if self.is_strong:
            return {"if_match": self.e_tag}
        if self.version:
            return {"version": self.version}
        if self.last_modified:
            return {"if_unmodified_since": self.last_modified}
        return {}


def known_version(path: BucketPath) -> ObjectVersion:
    """The current version of an object.

    Raises:
        FileNotFoundError: the object or the bucket does not exist.
        StorageError: the server reports no versions, and that was not allowed; or the object is
            compressed.
    """
    # a signed URL allows GET only, and so do some servers: read one byte
    byte = {"range": (0, 1)}
    try:
        options = byte if path.query else {"head": True}
        try:
            answer = call_obstore(path, "get", options=options)
        except MethodError:
            answer = call_obstore(path, "get", options=byte)
    except ReplacedError as error:  # the range is refused
        raise StorageError(f"{path} is empty") from error
    # a list: an upload in pieces may add aws-chunked
    encoding = answer.attributes.get("Content-Encoding", "")
    if any(name in encoding.lower() for name in COMPRESSIONS):
        raise StorageError(
            f"{path} is compressed (Content-Encoding: {encoding}): upload it again uncompressed"
        )
    version = ObjectVersion.of(answer.meta)
    if not version.is_known and not path.allow_unversioned:
        raise StorageError(
            f"{path}: its server reports neither ETag nor Last-Modified, so a replaced object "
            f"would go undetected; open_tokens(..., allow_unversioned=True) or "
            f"{UNVERSIONED_VARIABLE}=1 reads it"
        )
    return version


def read_range(path: BucketPath, start: int, stop: int, version: ObjectVersion) -> Any:
    """Read the bytes start:stop of a version with one request, and check its answer."""

    def send(store: Any) -> Any:
        options = {"range": (start, stop), **version.condition}
        answer = obstore_function("get")(store, path.key, options=options)
        if ObjectVersion.of(answer.meta) != version or answer.range != (start, stop):
            raise replaced_error(path)
        content = answer.bytes()
        if len(content) != stop - start:
            raise TryAgainError(f"{path}: the server sends less than its Content-Range")
        return content

    return request(path, send)


def checks_if_match(path: BucketPath) -> bool:
    """Whether the server answers 412 to a wrong If-Match."""
    try:
        call_obstore(
            path,
            "get",
            options={"range": (0, 1), "if_match": '"no version of nanoset_ref"'},
        )
    except ReplacedError:
        return True
    return False
