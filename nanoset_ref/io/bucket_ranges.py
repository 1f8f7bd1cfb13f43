"""The ids of an object in a bucket as an array, read by ranges.

    1. Sort the ranges of a whole block of rows, and merge close neighbors into one request.
    2. Send the requests from THREADS threads, up to MAX_RANGES each: some 500 are in flight.
    3. Cut the answers into the ranges. Every request is for the version that was opened.

A server that refuses a wrong ETag will also refuse a replaced object, so one call of obstore asks
it for many ranges. For any other server each range is a separate request, whose answer is compared
with the opened version.

Nothing is cached, unless NANOSET_REF_CACHE names a folder: then pieces of the objects are cached
there, up to NANOSET_REF_CACHE_GB (default 10), see `io.object_cache`. Cached pieces of the opened
version stay valid even after the object has been replaced. A newly signed URL is read anew: its
query might name another object.
"""

import bisect
import functools
import hashlib
import os
import re
import threading
import weakref
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.io import buckets
from nanoset_ref.io.checks import normalize_indices
from nanoset_ref.io.object_cache import PIECE_BYTES, Extent, read_cached
from nanoset_ref.io.object_versions import (
    ObjectVersion,
    checks_if_match,
    known_version,
    read_range,
)
from nanoset_ref.io.threads import thread_map
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.io.urls import BucketPath, local_path

THREADS = 64
MAX_RANGES = 8  # ranges per call of obstore
THREADS_OF_SINGLE_RANGES = 256  # if each range is a separate request
MAX_GAP = 1 << 12  # bytes; ranges no further apart become one request
# variables that decide which server has the bucket or container of a URL
SERVER = re.compile("AWS_ENDPOINT|AZURE_.*(ENDPOINT|ACCOUNT_NAME)|GOOGLE_.*URL")
# objects with separate connections, on which every request has If-Match
MAX_CLIENTS = 64

_lock = threading.Lock()
# BucketIds with separate connections
_connected: weakref.WeakSet[Any] = weakref.WeakSet()


class BucketIds:
    """The ids of an object as an array [count], read when indexed.

    It is indexed as in NumPy: by a slice, a number, or an array of numbers or booleans.

    Args:
        path: the object.
        version: the object's `ObjectVersion` when it was opened.
        dtype: the type of the ids.

    Attributes:
        size: the object's size in bytes.
        cache_key: 24 hexadecimal digits that name this version of the object, on this server.

    Raises (on every read):
        IndexError: the index is out of range or of another type, as in NumPy.
        StorageError: the object cannot be read, or was replaced since it was opened.
    """

    def __init__(
        self, path: BucketPath, version: ObjectVersion, dtype: np.dtype[Any]
    ) -> None:
        self.path = path
        self.version = version
        self.dtype = dtype
        self.size = version.size
        servers = sorted(item for item in os.environ.items() if SERVER.match(item[0]))
        text = f"{path.identity} {servers} {version}"
        self.cache_key = hashlib.sha256(text.encode()).hexdigest()[:24]

    def __len__(self) -> int:
        return self.size // self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """All ids; without this method, NumPy would request them one by one."""
        return np.asarray(self[:], dtype)

    def __getitem__(self, index: Any) -> Any:
        size = self.dtype.itemsize
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self.read_spans(np.array([[start, stop]]))
            index = np.arange(start, stop, step)
        indices = _checked_indices(index, len(self))
        starts = (indices.ravel() * size).tolist()
        content = fetch([(self, start, start + size) for start in starts])
        return np.frombuffer(b"".join(content), self.dtype).reshape(indices.shape)[()]

    def read_spans(self, spans: Int64Array) -> Array:
        """The ids of each span [start, stop), back to back, by one round of requests."""
        extents = [
            (self, first, min(first + PIECE_BYTES, end))
            for start, end in (spans * self.dtype.itemsize).tolist()
            for first in range(start, end, PIECE_BYTES)
        ]
        return np.frombuffer(b"".join(fetch(extents)), self.dtype)

    @functools.cached_property
    def connections(self) -> Any:
        """Separate connections, on which every request has If-Match.

        None if the server does not refuse other versions, and beyond MAX_CLIENTS objects.
        """
        if not self.version.is_strong or self.path.scheme == "az":
            return None
        with _lock:
            if len(_connected) >= MAX_CLIENTS:
                return None
            _connected.add(self)
        if not checks_if_match(self.path):
            return None
        e_tag = str(self.version.e_tag)
        return buckets.connect(self.path.root, buckets.timeout(), if_match=e_tag)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """The bytes of each range [start, stop) of the opened version."""
        if self.connections is not None:
            contents, _ = buckets.try_once(self.path, self._read_in_one_call, ranges)
            lengths = [len(content) for content in contents or ()]
            if lengths == [stop - start for start, stop in ranges]:
                return contents
        # one by one: each has retries and its error message
        return [
            read_range(self.path, start, stop, self.version) for start, stop in ranges
        ]

    def _read_in_one_call(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Read the ranges by one call of obstore, which requests each of them."""
        starts, stops = zip(*ranges, strict=True)
        get_ranges = buckets.obstore_function("get_ranges")
        return get_ranges(
            self.connections, self.path.key, starts=starts, ends=stops, coalesce=0
        )


def bytes_of(path: BucketPath) -> BucketIds:
    """The current version of an object as an array of its bytes."""
    return BucketIds(path, known_version(path), np.dtype(np.uint8))


def _checked_indices(index: Any, count: int) -> Int64Array:
    """The ids that an index selects (other than a slice), int64, in the index's shape.

    Raises:
        IndexError: one is outside of the `count` ids, or the index has another type.
    """
    mask = np.asarray(index)
    if mask.dtype == np.bool_ and mask.shape == (count,):
        return np.flatnonzero(mask)
    try:
        return normalize_indices(index, count, "ids")
    except TypeError as error:
        raise IndexError(str(error)) from None


def fetch(extents: Sequence[Extent]) -> list[Any]:
    """Read the bytes of each extent, from the cache if there is one; returns buffers."""
    folder = os.environ.get("NANOSET_REF_CACHE")
    if folder and all(ids.version.is_known for ids, _, _ in extents):
        limit = buckets.positive_setting("NANOSET_REF_CACHE_GB", 10) * 1e9
        cache = local_path(folder, "NANOSET_REF_CACHE")
        return read_cached(cache, limit, extents, _fetch)
    return _fetch(extents)


def _fetch(extents: Sequence[Extent]) -> list[Any]:
    """Read the bytes of each extent without the cache: steps 1 to 3 of the module's docstring."""
    buckets.check_not_forked()
    indices_of = defaultdict(list)
    for index, (ids, _, _) in enumerate(extents):
        indices_of[ids].append(index)
    connected = thread_map(lambda ids: ids.connections, list(indices_of), THREADS)
    # 1. sort, and group the ranges of one object into jobs
    ranges_per_job = max(1, min(MAX_RANGES, len(extents) // THREADS))
    jobs = []
    for connections, indices in zip(connected, indices_of.values(), strict=True):
        indices.sort(key=lambda index: extents[index][1])
        step = 1 if connections is None else ranges_per_job
        for first in range(0, len(indices), step):
            jobs.append(indices[first : first + step])
    # 2. and 3. send the requests, and cut the answers into the ranges
    contents = [None] * len(extents)

    def work(indices: list[int]) -> None:
        ids, _, _ = extents[indices[0]]
        ranges = [extents[index][1:] for index in indices]
        parts = _read_ranges(ids, ranges)
        for index, part in zip(indices, parts, strict=True):
            contents[index] = part

    threads = THREADS_OF_SINGLE_RANGES if None in connected else THREADS
    thread_map(work, jobs, threads)
    return contents


def _read_ranges(ids: BucketIds, ranges: Sequence[tuple[int, int]]) -> list[Any]:
    """Read the bytes of each range, in ascending order.

    Ranges that are no further apart than MAX_GAP become one request:
    (0, 10), (10, 20), (9000, 9010) -> (0, 20), (9000, 9010)
    """
    merged = [ranges[0]]
    for start, stop in ranges[1:]:
        last_start, last_stop = merged[-1]
        if start <= last_stop + MAX_GAP:
            merged[-1] = last_start, max(last_stop, stop)
        else:
            merged.append((start, stop))
    contents = ids.read(merged)
    if len(merged) == len(ranges):
        return contents
    firsts = [first for first, _ in merged]
    parts = []
    for start, stop in ranges:
        number = bisect.bisect_right(firsts, start) - 1
        first = firsts[number]
        parts.append(memoryview(contents[number])[start - first : stop - first])
    return parts
