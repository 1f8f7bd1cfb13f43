"""Token files in buckets: s3://, gs://, az:// and http(s):// wherever a file is named, by the obstore library.

A `BucketPath` answers what this package asks a Path (its name, its size, its bytes), so that a token file in a bucket
is opened as one on the disk. Its ids are read by ranges (`fetch`):

    1. the ranges of a whole block of rows are sorted, and neighbors that are close become one request
    2. LANES threads send the requests, a few each: up to some 500 are in flight
    3. every request is for the version that was opened, and what comes back is cut into the ranges

Every GET carries If-Match with the ETag that the object had when it was opened (the version id, or
If-Unmodified-Since, where a server offers nothing better). A server that was seen to refuse a wrong ETag is trusted to
refuse a replaced object as well, and many ranges are asked for by one call of the library. Of any other server each
answer is taken alone, and its ETag compared. A server that tells no versions is refused: `allow_unversioned=True` of
`open_tokens`, or NANOSET_REF_ALLOW_UNVERSIONED=1, reads from it all the same, and keeps nothing.

Nothing is kept, neither in memory nor on the disk, unless NANOSET_REF_CACHE names a folder: then pieces of the objects
are kept there, up to NANOSET_REF_CACHE_GB (default 10), see `cache`. Pieces of the version that was opened are used as
long as they are there, also after the object was replaced. Copies of boundaries, and parts that are written, are
temporaries in TMPDIR.

A server that fails, is silent or cuts its answers short is asked again, with growing pauses and a line in the log, and
given up after NANOSET_REF_TIMEOUT seconds (default 60), or twice as long if its last answer trickles. Credentials are
found where obstore looks for them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_ENDPOINT_URL for another server
than Amazon's, AWS_SKIP_SIGNATURE=true for a public bucket), GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME
and _KEY, or in the machine's own role. A URL may hold a password or a signed query; no message shows them.
"""

from __future__ import annotations

import base64
import bisect
import contextlib
import functools
import hashlib
import logging
import os
import random
import re
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra
from nanoset_ref.io.pieces import PIECE, read_kept

SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "http": "http", "https": "https"}
URL = re.compile("([A-Za-z][A-Za-z0-9+.-]*)://.*", re.DOTALL)
ADDRESS = re.compile(r"[a-z0-9]+://[^\s\"')]+")  # in the library's messages
LOST_SLASH = re.compile("(s3|gs|gcs|az|https?):/[^/]")  # a URL that went through pathlib
LANES, RANGES = 64, 8  # threads, and requests that each sends at a time
LONE_LANES = 256  # threads where each sends one request
GAP = 1 << 12  # bytes: ranges that are no further apart are one request
WINDOW = 32 * PIECE  # bytes that are read in a row and then handed on
OWN_CLIENTS = 64  # objects with connections of their own, on which every request carries If-Match
FIRST_PAUSE = 0.1  # seconds
LEAST_PART, MOST_PARTS = 16 << 20, 9_000  # bytes, and number, of the parts of an upload
DENIALS = ("PermissionDeniedError", "UnauthenticatedError")  # of obstore
CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket; on gs:// "
    "GOOGLE_APPLICATION_CREDENTIALS; on az:// AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
)
TRIAL = (
    ".nanoset_ref-trial"  # the ending of an object that is written to see whether that is allowed
)
UNVERSIONED = "NANOSET_REF_ALLOW_UNVERSIONED"
WAY_OUT = "take 0 workers and read_ahead=2, which reads ahead in a thread"

PathLike = str | os.PathLike[str]
logger = logging.getLogger(__name__)


class StorageError(OSError):
    """A bucket cannot be read or written; the message is one line that names the object."""


class ReplacedError(StorageError):
    """The object is not the one that was opened."""


class DeniedError(StorageError):
    """The object may not be read or written with the credentials at hand."""


class _TryAgainError(StorageError):
    """The server may answer later."""


class Version(NamedTuple):
    """What a server says about the content of an object: equal ones are of equal content.

    Attributes:
        size: bytes.
        e_tag, version, last_modified: the best that the server offers; where its ETag is a strong one, that alone.
    """

    size: int
    e_tag: str | None = None
    version: str | None = None
    last_modified: datetime | None = None

    @classmethod
    def of(cls, meta: Any) -> Version:
        """The version in the description of an object that obstore gives."""
        e_tag, changed = meta["e_tag"], meta["last_modified"]
        if e_tag and not e_tag.startswith("W/"):
            return cls(meta["size"], e_tag)
        return cls(meta["size"], e_tag, meta["version"], changed if changed.timestamp() else None)

    @property
    def is_known(self) -> bool:
        return self != Version(self.size)

    @property
    def is_strong(self) -> bool:
        return self.e_tag is not None and not self.e_tag.startswith("W/")

    @property
    def condition(self) -> dict[str, Any]:
        """The options of a request that is for this version only."""
        if self.is_strong:
            return {"if_match": self.e_tag}
        if self.version:
            return {"version": self.version}
        return {"if_unmodified_since": self.last_modified} if self.last_modified else {}


# ---- names


class BucketPath:
    """The URL of an object: s3://bucket/key, gs://bucket/key, az://container/key, http(s)://host/key[?query].

    `str` shows it without its password and query; `os.fspath` returns the URL as it was given.

    Args:
        url: the URL; one of http(s) is percent-encoded, as everywhere. gcs:// is gs://, S3:// is s3://.
        allow_unversioned: read also from a server that tells no versions (see the top of this module).

    Raises:
        StorageError: another scheme, no key, or one that obstore cannot name.
    """

    def __init__(self, url: str, allow_unversioned: bool = False) -> None:
        self.url, self.allow_unversioned = url, allow_unversioned
        scheme, _, rest = url.partition("://")
        if scheme.lower() not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise StorageError(
                f"{self}: {scheme}:// is not read here, only {known}; take a copy on the disk"
            )
        self.scheme = SCHEMES[scheme.lower()]
        bucket, _, key = rest.partition("/")
        self.query = ""
        if self.scheme in ("http", "https"):
            parts = urlsplit(url)
            bucket, key, self.query = parts.netloc, unquote(parts.path[1:]), parts.query
        self.bucket, self.key = bucket, key
        if not bucket or not key:
            raise StorageError(
                f"{self} names no object: that takes a bucket or host, a slash and a key"
            )
        encoded_slash = (
            bool(self.query or self.scheme.startswith("http"))
            and "%2f" in url.partition("?")[0].lower()
        )
        if encoded_slash or {"", ".", ".."} & set(key.split("/")):
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

    def with_suffix(self, suffix: str) -> BucketPath:
        """The URL with another ending of its key; its query stays."""
        path, mark, query = self.url, "", ""
        if self.query:
            path, mark, query = self.url.partition("?")
        return BucketPath(
            f"{path.removesuffix(self.suffix)}{suffix}{mark}{query}", self.allow_unversioned
        )

    def exists(self) -> bool:
        return identity(self) is not None

    is_file = exists

    def read_bytes(self) -> bytes:
        return b"".join(pieces(self))

    def unlink(self, missing_ok: bool = False) -> None:
        self.ask("delete")

    # ---- requests

    def ask(self, what: str, *arguments: Any, **options: Any) -> Any:
        """What the function `what` of obstore returns for this object; an upload is tried again part by part.

        Raises:
            As `patiently`.
        """
        retries = 99 if what == "put" else 0
        return self.patiently(
            lambda store: _obstore(what)(store, self.key, *arguments, **options), retries
        )

    def version(self) -> Version:
        """What the server says about the object; a signed URL is for GET only, so a byte of it is read."""
        if not self.query:
            return Version.of(self.ask("head"))
        return Version.of(self.ask("get", options={"range": (0, 1)}).meta)

    def read(self, begin: int, end: int, opened: Version) -> Any:
        """The bytes begin:end of the version that was opened, taken alone and compared with it."""

        def act(store: Any) -> Any:
            found = _obstore("get")(
                store, self.key, options={"range": (begin, end), **opened.condition}
            )
            if Version.of(found.meta) != opened or found.range != (begin, end):
                raise ReplacedError(_replaced(self))
            content = found.bytes()
            if len(content) != end - begin:
                raise _TryAgainError(
                    f"{self}: the server cuts its answers short, by other lengths than it says"
                )
            return content

        return self.patiently(act)

    def patiently(self, act: Callable[[Any], Any], retries: int = 0) -> Any:
        """What `act` returns, tried again while the server fails.

        Args:
            act: sends a request over the bucket's connections.
            retries: of each of its requests, by obstore.

        Raises:
            FileNotFoundError: no such object or bucket.
            ReplacedError: the object is another version than the request is for.
            DeniedError: access is denied.
            StorageError: the extra is missing, the process is forked, the server does not answer in time.
        """
        _refuse_forked()
        patience = _number("NANOSET_REF_TIMEOUT", 60)
        deadline = time.monotonic() + patience
        store, error = self.attempt(_store, self.root, patience, retries)
        if error is not None:
            raise error
        pause = FIRST_PAUSE
        while True:
            found, error = self.attempt(act, store)
            if error is None:
                return found
            if not isinstance(error, _TryAgainError):
                raise error
            if time.monotonic() + pause > deadline:
                raise StorageError(str(error))
            if pause == FIRST_PAUSE:
                logger.warning("%s; it is asked again for up to %g s", error, patience)
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, patience / 4)

    @property
    def root(self) -> str:
        """The URL that the objects of this bucket share."""
        return f"{self.scheme}://{self.bucket}" + (f"/?{self.query}" if self.query else "")

    def attempt(self, act: Callable[..., Any], *arguments: Any) -> tuple[Any, OSError | None]:
        """(what `act` returns, None), or (None, its error as one of ours).

        The library's error shows the URL, so it must not stay behind ours: nothing is raised while it is handled.
        """
        try:
            return act(*arguments), None
        except ModuleNotFoundError as error:
            return None, StorageError(f"{self}: {error}")
        except FileNotFoundError:
            return None, FileNotFoundError(f"there is no object {self}")
        except StorageError as error:
            return None, error
        except BaseException as error:  # a panic of the library is no Exception
            kind = type(error).__name__
            if not isinstance(error, Exception) and kind != "PanicException":
                raise
            return None, self._named(
                kind, ADDRESS.sub(lambda it: shown(it[0]), str(error)).split("\n")[0][:300]
            )

    def _named(self, kind: str, line: str) -> StorageError:
        """Our error for one of the library's: its type and its first line."""
        found = re.search(r"status code: (\d+)", line)
        status = found[1] if found else ""
        if kind == "PreconditionError" or status == "416":
            return ReplacedError(_replaced(self))
        if kind == "NotSupportedError":
            return StorageError(
                f"{self}: the server knows no ranges, it sends whole objects; take another server"
            )
        if kind in DENIALS:
            why = f"access is denied, or credentials are missing: {CREDENTIALS}"
            if self.query:
                why = "access is denied: a signed query opens one object (no companion of it), and for a time only"
            return DeniedError(f"{self}: {why} ({line})")
        why = "the server is not there, fails or falls silent, or the URL is wrong"
        if "169.254.169.254" in line:
            why = f"access is denied, or credentials are missing: {CREDENTIALS}"
        elif "body error" in line:
            why = "the server cuts its answers short, or falls silent in them"
        refused = status.startswith("4") and status not in ("408", "429")
        return (StorageError if refused else _TryAgainError)(f"{self}: {why} ({line})")


def _replaced(path: BucketPath) -> str:
    return f"{path} was replaced after it was opened; build the dataset again"


def shown(path: PathLike) -> str:
    """A path or URL as people may see it: without a password and without a query, which may be signed."""
    text = os.fspath(path)
    scheme, mark, rest = text.partition("://")
    if not mark or not URL.match(text):
        return text
    host, slash, key = rest.partition("/")
    if scheme.lower() in ("http", "https"):
        key, asked, _ = key.partition("?")
        key += "?..." if asked else ""
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"


def located(path: PathLike | BucketPath, allow_unversioned: bool = False) -> Path:
    """A Path, or the `BucketPath` of a URL, which answers what this package asks of a Path.

    Raises:
        StorageError: as `BucketPath`; a URL that was made a Path, which keeps one of its slashes.
    """
    found: Any = path
    if isinstance(path, BucketPath):
        return found
    text = os.fspath(path)
    if URL.match(text):
        found = BucketPath(text, allow_unversioned or os.environ.get(UNVERSIONED) == "1")
        return found
    if LOST_SLASH.match(text) and isinstance(path, Path):
        raise StorageError(f"{text}: give a URL as a string: a Path keeps one of its two slashes")
    return Path(path)


def absolute(path: PathLike) -> str:
    """A path from the root of the file system; a URL as it is."""
    return os.fspath(path) if isinstance(located(path), BucketPath) else os.path.abspath(path)


def refuse_forks(paths: Iterable[Path], start_method: str) -> None:
    """StorageError if a file is in a bucket and workers would be forked, which connections do not survive."""
    inside = [path for path in paths if isinstance(path, BucketPath)]
    if start_method == "fork" and inside:
        raise StorageError(f"{inside[0]}: forked workers cannot read from a bucket; {WAY_OUT}")


def identity(path: PathLike) -> tuple[Any, ...] | None:
    """What another file, or another content, has another one of; its size in bytes comes first. None: no file.

    Of a local file it is size, time of the last change in nanoseconds, and inode: an alarm between opening and reading,
    never a reason to use a file again in another run. Of an object it is its `Version`.

    Raises:
        ValueError: a folder, a pipe, whose reader would wait, or a device without an end.
        StorageError: the server of an object tells no versions, and that was not allowed.
    """
    place: Any = located(path)
    try:
        if isinstance(place, BucketPath):
            return _known_version(place)
        status = place.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{place} is not a regular file; copy what it holds into one")
    return status.st_size, status.st_mtime_ns, status.st_ino


def _known_version(path: BucketPath) -> Version:
    found = path.version()
    if not found.is_known and not path.allow_unversioned:
        what = "its server tells neither ETag nor Last-Modified, so a replaced object would go unnoticed"
        raise StorageError(
            f"{path}: {what}; open_tokens(..., allow_unversioned=True) or {UNVERSIONED}=1 reads it"
        )
    return found


def readable(path: PathLike) -> bool:
    """Whether a file may be looked at: what a signed query does not open may not."""
    try:
        identity(path)
    except DeniedError:
        return False
    return True


def _number(variable: str, default: float) -> float:
    """The positive number in an environment variable."""
    given = os.environ.get(variable, default)
    with contextlib.suppress(ValueError):
        if 0 < float(given) < float("inf"):
            return float(given)
    raise StorageError(f"{variable} must be a positive number, such as {default}; got {given!r}")


# ---- connections


@functools.cache
def _owner() -> int:
    """The process that made the connections; also in those that are forked from it."""
    return os.getpid()


def _refuse_forked() -> None:
    if _owner() != os.getpid():
        raise StorageError(
            f"a forked process cannot read from the bucket that its parent reads; {WAY_OUT}"
        )


@functools.cache
def _lanes(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="nanoset_ref-bucket")


def _obstore(what: str) -> Any:
    with extra("bucket", "reading a bucket"):
        import obstore

    return getattr(obstore, what)


@functools.cache
def _store(root: str, patience: float, retries: int = 0) -> Any:
    return _connected(root, patience, retries, {})


def _connected(root: str, patience: float, retries: int, headers: dict[str, str]) -> Any:
    """Connections to a bucket.

    Args:
        root: its URL. patience: seconds, of a whole answer; a silence in it takes a quarter of them.
        retries: of each request. headers: of each request, added after it was signed.
    """
    with extra("bucket", "reading a bucket"):
        from obstore.store import from_url

    parts = urlsplit(root)
    if parts.username and parts.scheme in ("http", "https"):
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = headers | {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    whole, part = timedelta(seconds=patience), timedelta(seconds=patience / 4)
    again: Any = {"max_retries": retries, "retry_timeout": whole, "backoff": {"max_backoff": part}}
    client: Any = {
        "timeout": whole,
        "read_timeout": part,
        "connect_timeout": part,
        "allow_http": True,
    }
    return from_url(root, client_options=client | {"default_headers": headers}, retry_config=again)


_turn = threading.Lock()
_connected_ids: weakref.WeakSet[BucketIds] = weakref.WeakSet()
os.register_at_fork(after_in_child=_connected_ids.clear)


def _refuses_other_versions(path: BucketPath) -> bool:
    """Whether the server of an object answers 412 to a wrong If-Match."""
    try:
        path.ask("get", options={"range": (0, 1), "if_match": '"no version of nanoset_ref"'})
    except ReplacedError:
        return True
    return False


# ---- reading


class BucketIds:
    """The ids of an object as an array [count], read where it is indexed, as NumPy indexes: by a slice, a number, or an
    array of numbers or of truth values.

    Args:
        path: the object. opened: its `Version` when it was opened.
        dtype: of the ids.

    Attributes:
        size: of the object, in bytes. key: names this version of it, 24 hexadecimal digits.

    Raises (by all that reads):
        IndexError: as NumPy.
        StorageError: it cannot be read, or was replaced since.
    """

    def __init__(self, path: BucketPath, opened: Version, dtype: np.dtype[Any]) -> None:
        self.path, self.opened, self.dtype = path, opened, dtype
        self.size = opened.size
        place = f"{path.scheme}://{path.bucket.rpartition('@')[2]}/{path.key} {os.environ.get('AWS_ENDPOINT_URL')}"
        self.key = hashlib.sha256(f"{place} {opened}".encode()).hexdigest()[:24]
        self._connections: Any = None
        self._decided = False

    def __len__(self) -> int:
        return self.size // self.dtype.itemsize

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                return self._run(first, max(first, last))
            index = np.arange(first, last, step)
        places = _checked_places(index, len(self))
        size = self.dtype.itemsize
        extents = [(self, begin, begin + size) for begin in (places.ravel() * size).tolist()]
        return np.frombuffer(b"".join(fetch(extents)), self.dtype).reshape(places.shape)[()]

    def _run(self, first: int, last: int) -> Any:
        """The ids first:last."""
        begin, end = first * self.dtype.itemsize, last * self.dtype.itemsize
        extents = [(self, at, min(at + PIECE, end)) for at in range(begin, end, PIECE)]
        return np.frombuffer(b"".join(fetch(extents)), self.dtype)

    def connect(self) -> bool:
        """Whether the object has connections of its own, on which every request carries If-Match. They are made when
        it is first read, for OWN_CLIENTS objects at most, if its server refuses other versions.
        """
        if not self._decided:
            with _turn:
                wanted = (
                    self.opened.is_strong
                    and self.path.scheme != "az"
                    and len(_connected_ids) < OWN_CLIENTS
                )
                if wanted:
                    _connected_ids.add(self)
            if wanted and _refuses_other_versions(self.path):
                patience = _number("NANOSET_REF_TIMEOUT", 60)
                self._connections = _connected(
                    self.path.root, patience, 0, {"if-match": str(self.opened.e_tag)}
                )
            self._decided = True
        return self._connections is not None

    def read(self, spans: Sequence[tuple[int, int]]) -> list[Any]:
        """The bytes of each span [begin, end) of the version that was opened."""
        if self._connections is not None:
            begins, ends = zip(*spans, strict=True)
            found, _ = self.path.attempt(self._read_at_once, begins, ends)
            lengths = [len(content) for content in found or ()]
            if lengths == [end - begin for begin, end in spans]:
                return found
        # one by one, which finds out what is wrong
        return [self.path.read(begin, end, self.opened) for begin, end in spans]

    def _read_at_once(self, begins: Sequence[int], ends: Sequence[int]) -> list[Any]:
        return _obstore("get_ranges")(
            self._connections, self.path.key, starts=begins, ends=ends, coalesce=0
        )


def _checked_places(index: Any, count: int) -> NDArray[np.int64]:
    """The places that an index other than a slice means, int64, of its shape.

    Raises:
        IndexError: one is outside of the `count` ids, or the index is of another type.
    """
    given = np.asarray(index)
    if given.dtype == np.bool_ and given.shape == (count,):
        return np.flatnonzero(given)
    if given.size == 0 and isinstance(index, list):
        return np.zeros(given.shape, dtype=np.int64)
    if given.dtype.kind not in "iu":
        raise IndexError(f"ids are indexed by slices, numbers and arrays of numbers; got {index!r}")
    outside = (given < -count) | (given >= count)
    if outside.any():
        raise IndexError(f"index {given[outside].flat[0]} is outside of the {count} ids")
    places = given.astype(np.int64)
    return np.where(places < 0, places + count, places)


def fetch(extents: Sequence[tuple[BucketIds, int, int]]) -> list[Any]:
    """The bytes [begin, end) of an object for each (object, begin, end), as objects with the buffer protocol."""
    folder = os.environ.get("NANOSET_REF_CACHE")
    if folder and all(source.opened.is_known for source, _, _ in extents):
        return read_kept(Path(folder), _number("NANOSET_REF_CACHE_GB", 10) * 1e9, extents, _fetch)
    return _fetch(extents)


def _fetch(extents: Sequence[tuple[BucketIds, int, int]]) -> list[Any]:
    _refuse_forked()
    found: list[Any] = [None] * len(extents)
    sources = list({source for source, _, _ in extents})
    connected = list(_lanes(LANES).map(BucketIds.connect, sources))
    together = {source for source, yes in zip(sources, connected, strict=True) if yes}
    size = max(1, min(RANGES, len(extents) // LANES))
    # 1.
    jobs: list[list[int]] = []
    order = sorted(
        range(len(extents)), key=lambda number: (id(extents[number][0]), extents[number][1])
    )
    for source, group in groupby(order, lambda number: extents[number][0]):
        chosen = [*group]
        step = size if source in together else 1
        jobs += [chosen[first : first + step] for first in range(0, len(chosen), step)]

    # 2.
    def work(chosen: list[int]) -> None:
        source = extents[chosen[0]][0]
        spans = _merged([extents[number][1:] for number in chosen])
        contents = source.read(spans)
        # 3.
        if len(spans) == len(chosen):
            for number, content in zip(chosen, contents, strict=True):
                found[number] = content
            return
        firsts = [first for first, _ in spans]
        for number in chosen:
            _, begin, end = extents[number]
            place = bisect.bisect_right(firsts, begin) - 1
            found[number] = memoryview(contents[place])[begin - firsts[place] : end - firsts[place]]

    list(_lanes(LANES if all(connected) else LONE_LANES).map(work, jobs))
    return found


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in ascending order, as spans: those that are no further apart than GAP are one.

    (0, 10), (10, 20), (9000, 9010) -> (0, 20), (9000, 9010)
    """
    spans = [ranges[0]]
    for begin, end in ranges[1:]:
        first, last = spans[-1]
        if begin <= last + GAP:
            spans[-1] = first, max(last, end)
        else:
            spans.append((begin, end))
    return spans


def pieces(path: PathLike) -> Iterator[Any]:
    """The content of a file in pieces of 256 KiB, which stay in the cache, or of an object in pieces of 32 MiB."""
    place: Any = located(path)
    if isinstance(place, BucketPath):
        content = BucketIds(place, _known_version(place), np.dtype(np.uint8))
        for first in range(0, len(content), WINDOW):
            yield content[first : first + WINDOW]
        return
    with open(place, "rb") as file:
        while piece := file.read(1 << 18):
            yield piece


@contextlib.contextmanager
def copied(path: Path) -> Iterator[Path]:
    """A file, or of an object a copy, which is gone afterwards; a mapping of it stays."""
    if not isinstance(path, BucketPath):
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy:
        copy.writelines(pieces(path))
        copy.flush()
        yield Path(copy.name)


# ---- writing


@contextlib.contextmanager
def written_to_bucket(targets: Sequence[BucketPath]) -> Iterator[list[Any]]:
    """Temporaries for the parts of a set, uploaded on a clean exit: the last part, which makes the set valid, at the
    end; an old one is removed before the first. An upload that breaks off leaves no object, but perhaps parts that the
    bucket's own rules have to remove.

    Raises:
        StorageError: it cannot be written there, which is found out before the work begins, or the upload fails.
    """
    trial = targets[-1].with_suffix(TRIAL)
    trial.ask("put", b"")
    trial.unlink()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.NamedTemporaryFile()) for _ in targets]
        yield files
        if targets[-1].exists():
            targets[-1].unlink()
        for file, target in zip(files, targets, strict=True):
            file.flush()
            size = max(LEAST_PART, os.path.getsize(file.name) // MOST_PARTS)
            target.ask("put", Path(file.name), chunk_size=size, max_concurrency=4)
