"""Indexes on disk: built once, mapped by everybody, never trusted blindly.

An entry is a few arrays and a description of everything they depend on; its name is the hash of that description, so a
changed seed, flag or corpus is another entry and nothing stale can be found. Loading maps the files: no memory per
process, no work. The first process to come builds, under a lock, the others wait and map; where a filesystem has no
locks, or nodes share none, each builds its own, which the rename makes harmless. No torch.distributed, no pickle.

    <folder>/<hash>.<array>.npy    the arrays
    <folder>/<hash>.json           the description, and of each array the checksum and the time of its last change

The .json is written last, so its presence is completeness.

A file whose time is not the one noted (copied, or tampered with) is read once for its checksum. What does not hold is
rebuilt, with a warning. Upstream checks nothing and keys on the path, so that it reuses the indexes of a corpus that
was replaced, or of other flags (add_extra_token_to_sequence, drop_last_partial_validation_sequence).
"""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.files import PathLike, atomic_write, checksum, lock, read_json

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
Arrays = dict[str, NDArray[Any]]


class IndexCacheWarning(UserWarning):
    """A cached index was damaged or foreign and is built again, or the cache cannot be written."""


def cached(folder: PathLike | None, description: dict[str, Any], build: Callable[[], Arrays]) -> Arrays:
    """The arrays of `build`, from the cache if they lie there.

    Args:
        folder: the cache, made if missing; None builds in memory and writes nothing.
        description: everything the arrays depend on; JSON-serialisable.
        build: makes the arrays.

    Returns:
        The arrays by name, read-only; mapped if they come from the cache.

    Warns:
        IndexCacheWarning: an entry was damaged and is built again; or the folder cannot be written, and the arrays stay
            in memory.
    """
    arrays = None
    if folder is not None:
        text = json.dumps({"format_version": FORMAT_VERSION, **description}, sort_keys=True)
        entry = Path(folder) / f"{xxhash.xxh3_128(text.encode()).hexdigest()}.json"
        try:
            arrays = _load(entry, text) or _build(entry, text, build)
        except OSError as error:
            message = f"the index cache {folder} is of no use, the index is built in memory: {error}"
            warnings.warn(message, IndexCacheWarning, stacklevel=2)
    if arrays is None:
        arrays = build()
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _build(entry: Path, text: str, build: Callable[[], Arrays]) -> Arrays | None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    with open(entry.with_name("index.lock"), "ab") as file:
        with contextlib.suppress(OSError):  # a filesystem without locks
            lock(file, wait=True)
        if arrays := _load(entry, text):
            return arrays
        logger.info("building the index %s", entry)
        arrays, records = build(), {}
        entry.unlink(missing_ok=True)  # incomplete from here on
        for name, array in arrays.items():
            path = entry.with_suffix(f".{name}.npy")
            with atomic_write(path) as target:
                np.save(target, array, allow_pickle=False)
            records[name] = [checksum(path), path.stat().st_ctime_ns]
        with atomic_write(entry, "w") as target:
            json.dump({"description": json.loads(text), "arrays": records}, target, indent=1)
    return _load(entry, text)


def _load(entry: Path, text: str) -> Arrays | None:
    """Map an entry; None if there is none, or, with a warning, if it is damaged."""
    if not entry.exists():
        return None
    try:
        record, arrays = read_json(entry), {}
        if record["description"] != json.loads(text):
            raise ValueError("it describes another index than its name says")
        for name, (digest, changed) in record["arrays"].items():
            path = entry.with_suffix(f".{name}.npy")
            if path.stat().st_ctime_ns != changed and checksum(path) != digest:
                raise ValueError(f"{path.name} has another content than was written")
            arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        return arrays
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        warnings.warn(f"the cached index {entry} is built again: {error}", IndexCacheWarning, stacklevel=4)
        return None
