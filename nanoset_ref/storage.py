"""Token files in buckets: s3://, gs://, az:// and http(s):// wherever a file is named, by the obstore library.

A `BucketPath` answers what this package asks a Path (its name, its status, its bytes), so that a token file in a bucket
is opened as one on the disk. Its ids are read by ranges (`fetch`):

    1. the ranges of a whole block of rows are sorted, and neighbours that are close become one request
    2. LANES threads ask for them, a few ranges each: up to some 500 requests are in flight
    3. the object is looked at once more: if it changed meanwhile, nothing that was read is handed out

Nothing is kept, neither in memory nor on the disk, unless NANOSET_REF_CACHE names a folder: then pieces of the objects
are kept there, up to NANOSET_REF_CACHE_GB (default 10), see `cache`. Copies of boundaries, and parts that are written,
are temporaries in TMPDIR.

A server that fails or is silent is asked again, with growing pauses, and given up after NANOSET_REF_TIMEOUT seconds
(default 60), or twice as long if it falls silent in the midst of an answer. Credentials are found where obstore looks
for them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_ENDPOINT_URL for another server than Amazon's,
AWS_SKIP_SIGNATURE=true for a public bucket), GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and _KEY, or in
the machine's own role.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import groupby
from pathlib import Path, PosixPath
from typing import Any

import numpy as np

from nanoset_ref.cache import PIECE, read_kept

OBJECT = re.compile("(s3|gs|az|https?)://.*/")  # what the URL of one begins with
LANES, RANGES = 64, 8  # threads, and ranges that each asks for at a time
GAP = 1 << 12  # bytes: ranges that are no further apart are one request
WINDOW = 32 * PIECE  # bytes that are read in a row and then handed on
LEAST_PART, MOST_PARTS = 16 << 20, 9_000  # bytes, and number, of the parts of an upload
DENIALS = ("PermissionDeniedError", "UnauthenticatedError")  # of obstore
CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket; on gs:// "
    "GOOGLE_APPLICATION_CREDENTIALS; on az:// AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
)
WAY_OUT = "take 0 workers and read_ahead=2, which reads ahead in a thread"

PathLike = str | os.PathLike[str]


class StorageError(OSError):
    """A bucket cannot be read or written; the message is one line that names the object."""


class BucketPath(PosixPath):
    """The URL of an object: s3://bucket/key, gs://bucket/key, az://container/key, http(s)://host/key."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def ask(self, what: str, *arguments: Any, **options: Any) -> Any:
        """What the function `what` of obstore returns for this object.

        Raises:
            FileNotFoundError: no such object or bucket.
            StorageError: the extra is missing, the process is forked, access is denied, the server does not answer.
        """
        _refuse_forked()
        scheme, bucket, *key = self.parts
        patience = _number("NANOSET_REF_TIMEOUT", 60)
        try:
            import obstore

            store = _store(f"{scheme}//{bucket}", patience)
            return getattr(obstore, what)(store, "/".join(key), *arguments, **options)
        except ModuleNotFoundError as error:
            raise StorageError(f"{self}: a bucket is read by obstore: pip install 'nanoset_ref[bucket]'") from error
        except FileNotFoundError as error:
            raise FileNotFoundError(f"there is no object {self}") from error
        except Exception as error:  # obstore's own, which have no other base
            why, line = "the server is not there, fails or falls silent, or the URL is wrong", str(error).split("\n")[0]
            if type(error).__name__ in DENIALS or "169.254.169.254" in line:
                why = f"access is denied, or credentials are missing: {CREDENTIALS}"
            raise StorageError(f"{self}: {why} ({line[:300]})") from error

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size in bytes and, as inode, a number that is another one for another ETag or time of change."""
        meta = self.ask("head")
        version = hashlib.sha256(f"{meta['e_tag']} {meta['last_modified']}".encode()).digest()
        return os.stat_result((stat.S_IFREG, int.from_bytes(version[:7]), 0, 0, 0, 0, meta["size"], 0, 0, 0))

    def exists(self) -> bool:
        return identity(self) is not None

    is_file = exists

    def read_bytes(self) -> bytes:
        return b"".join(pieces(self))

    def unlink(self, missing_ok: bool = False) -> None:
        self.ask("delete")


def located(path: PathLike) -> Path:
    """A Path, which is a `BucketPath` for the URL of an object."""
    return BucketPath(path) if OBJECT.match(os.fspath(path)) else Path(path)


def absolute(path: PathLike) -> str:
    """A path from the root of the file system; a URL as it is."""
    return str(path) if isinstance(located(path), BucketPath) else os.path.abspath(path)


def refuse_forks(paths: Iterable[Path], start_method: str) -> None:
    """StorageError if a file is in a bucket and workers would be forked, which connections do not survive."""
    if start_method == "fork" and (inside := [path for path in paths if isinstance(path, BucketPath)]):
        raise StorageError(f"{inside[0]}: forked workers cannot read from a bucket; {WAY_OUT}")


def identity(path: PathLike) -> tuple[int, int, int] | None:
    """Size in bytes, time of the last change in nanoseconds, and inode: another file has another one; None: no file."""
    try:
        status = located(path).stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


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
        raise StorageError(f"a forked process cannot read from the bucket that its parent reads; {WAY_OUT}")


@functools.cache
def _lanes() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(LANES, thread_name_prefix="nanoset_ref-bucket")


@functools.cache
def _store(root: str, patience: float) -> Any:
    from obstore.store import from_url

    whole, part = timedelta(seconds=patience), timedelta(seconds=patience / 4)
    retries: Any = {"max_retries": 99, "retry_timeout": whole, "backoff": {"max_backoff": part}}
    client: Any = {"timeout": whole, "read_timeout": part, "connect_timeout": part, "allow_http": True}
    return from_url(root, client_options=client, retry_config=retries)


# ---- reading


class BucketIds:
    """The ids of an object as an array [count], read where it is indexed: by a slice, a number or an array of these.

    Args:
        path: the object. opened: its `identity` when it was opened.
        dtype: of the ids.

    Attributes:
        size: of the object, in bytes. key: names this version of it.

    Raises (by all that reads):
        StorageError: it cannot be read, or was replaced since.
    """

    def __init__(self, path: BucketPath, opened: tuple[int, int, int] | None, dtype: np.dtype[Any]) -> None:
        self.path, self.opened, self.dtype = path, opened, dtype
        self.size = opened[0] if opened else 0
        self.key = hashlib.sha256(f"{path} {opened}".encode()).hexdigest()[:24]

    def __len__(self) -> int:
        return self.size // self.dtype.itemsize

    def __getitem__(self, index: Any) -> Any:
        size, step = self.dtype.itemsize, PIECE
        if isinstance(index, slice):
            first, last = (place * size for place in index.indices(len(self))[:2])
            begins = [*range(first, last, step)]
        else:
            begins = np.ravel(np.asarray(index) % len(self) * size).tolist()
            last, step = len(self) * size, size
        found = np.frombuffer(b"".join(fetch([(self, begin, min(begin + step, last)) for begin in begins])), self.dtype)
        return found if isinstance(index, slice) else found.reshape(np.shape(index))[()]

    def check_unchanged(self) -> None:
        if identity(self.path) != self.opened:
            raise StorageError(f"{self.path} was replaced after it was opened; build the dataset again")


def fetch(extents: Sequence[tuple[BucketIds, int, int]]) -> list[Any]:
    """The bytes [begin, end) of an object for each (object, begin, end), as objects with the buffer protocol."""
    if folder := os.environ.get("NANOSET_REF_CACHE"):
        return read_kept(Path(folder), _number("NANOSET_REF_CACHE_GB", 10) * 1e9, extents, _fetch)
    return _fetch(extents)


def _fetch(extents: Sequence[tuple[BucketIds, int, int]]) -> list[Any]:
    found: list[Any] = [None] * len(extents)
    size = max(1, min(RANGES, len(extents) // LANES))
    # 1.
    jobs: list[list[int]] = []
    order = sorted(range(len(extents)), key=lambda i: (id(extents[i][0]), extents[i][1]))
    for _, group in groupby(order, lambda i: extents[i][0]):
        chosen = [*group]
        jobs += [chosen[first : first + size] for first in range(0, len(chosen), size)]

    def work(chosen: list[int]) -> None:
        (source, *_), begins, ends = zip(*(extents[i] for i in chosen), strict=True)
        parts = source.path.ask("get_ranges", starts=begins, ends=ends, coalesce=GAP)
        for i, begin, end, part in zip(chosen, begins, ends, parts, strict=True):
            if len(part) != end - begin:
                raise StorageError(f"{source.path}: the server sends fewer bytes than asked for; upload it again")
            found[i] = part

    _refuse_forked()
    # 2.
    list(_lanes().map(work, jobs))
    # 3.
    list(_lanes().map(BucketIds.check_unchanged, {source for source, _, _ in extents}))
    return found


def pieces(path: PathLike) -> Iterator[Any]:
    """The content of a file in pieces of 256 KiB, which stay in the cache, or of an object in pieces of 32 MiB."""
    place = located(path)
    if isinstance(place, BucketPath):
        content = BucketIds(place, identity(place), np.dtype(np.uint8))
        yield from (content[first : first + WINDOW] for first in range(0, len(content), WINDOW))
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
    trial = targets[-1].with_suffix(".trial")
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
