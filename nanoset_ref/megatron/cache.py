"""Indexes on disk: built once, mapped by everybody, never trusted blindly.

An entry is a few arrays and a description of everything they depend on; its name is the hash of that description, so a
changed seed, flag or corpus is another entry and nothing stale can be found. Loading maps the files: no memory per
process, no work. The first process to come builds, under a lock, the others wait and map; where a filesystem has no
locks, or nodes share none, each builds its own, which the rename makes harmless. No torch.distributed, no pickle.

    <folder>/<hash>.<array>.npy    the arrays
    <folder>/<hash>.json           the description, and of each array dtype, shape, checksum and time of writing

The .json is written last, so its presence is completeness.

A file whose time stamp is not the one noted (copied, or tampered with) is read once for its checksum. What does not
hold is rebuilt, with a warning. The rejected alternative, to hash every file at each start, reads gigabytes per rank;
upstream checks nothing and keys on the path, so that it reuses the indexes of a corpus that was replaced, or of other
flags (add_extra_token_to_sequence, drop_last_partial_validation_sequence).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.files import atomic_write, checksum

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
Arrays = dict[str, NDArray[Any]]


class IndexCacheWarning(UserWarning):
    """A cached index was damaged or foreign and is built again, or the cache cannot be written."""


def cached(folder: str | os.PathLike[str] | None, description: dict[str, Any], build: Callable[[], Arrays]) -> Arrays:
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
    if folder is None:
        return {name: _readonly(array) for name, array in build().items()}
    description = json.loads(json.dumps({"format_version": FORMAT_VERSION, **description}))
    entry = Path(folder) / xxhash.xxh3_128(json.dumps(description, sort_keys=True).encode()).hexdigest()
    with contextlib.suppress(_Damaged, OSError):  # whoever holds the lock says what is wrong
        arrays = _load(entry, description)
        if arrays is not None:
            return arrays
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with _lock(Path(folder) / "index.lock"):
            try:
                arrays = _load(entry, description)
            except _Damaged as damage:
                warnings.warn(
                    f"the cached index {entry}.json is built again: {damage}", IndexCacheWarning, stacklevel=2
                )
                arrays = None
            if arrays is None:
                logger.info("building the index %s", entry)
                _store(entry, description, build())
                arrays = _load(entry, description)
        if arrays is not None:
            return arrays
        raise OSError("the entry vanished while it was read")
    except (OSError, _Damaged) as error:
        warnings.warn(
            f"the index cache {folder} is of no use, the index is built in memory: {error}",
            IndexCacheWarning,
            stacklevel=2,
        )
        return {name: _readonly(array) for name, array in build().items()}


class _Damaged(Exception):
    """An entry exists but does not hold together."""


def _array_path(entry: Path, name: str) -> Path:
    return entry.with_name(f"{entry.name}.{name}.npy")


def _store(entry: Path, description: dict[str, Any], arrays: Arrays) -> None:
    records = {}
    entry.with_name(f"{entry.name}.json").unlink(missing_ok=True)  # incomplete from here on
    for name, array in arrays.items():
        path = _array_path(entry, name)
        with atomic_write(path) as file:
            np.save(file, array, allow_pickle=False)
        records[name] = {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "checksum": checksum(path),
            "mtime_ns": path.stat().st_mtime_ns,
        }
    with atomic_write(entry.with_name(f"{entry.name}.json"), "w") as file:
        file.write(json.dumps({"description": description, "arrays": records}, indent=1) + "\n")


def _load(entry: Path, description: dict[str, Any]) -> Arrays | None:
    """Map an entry; None if there is none. Raises _Damaged, saying what does not hold."""
    try:
        record = json.loads(entry.with_name(f"{entry.name}.json").read_text(encoding="utf-8"))
        if record["description"] != description:
            raise _Damaged("it describes another index than its name says")
        arrays = {}
        for name, expected in record["arrays"].items():
            path = _array_path(entry, name)
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if array.dtype.str != expected["dtype"] or list(array.shape) != expected["shape"]:
                raise _Damaged(
                    f"{path.name} holds {array.dtype.str} {list(array.shape)}, not {expected['dtype']} "
                    f"{expected['shape']}"
                )
            if path.stat().st_mtime_ns != expected["mtime_ns"] and checksum(path) != expected["checksum"]:
                raise _Damaged(f"{path.name} has another content than was written")
            arrays[name] = _readonly(array)
        return arrays
    except FileNotFoundError as error:
        if entry.with_name(f"{entry.name}.json").exists():
            raise _Damaged(f"{Path(error.filename).name} is missing") from error
        return None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise _Damaged(str(error)) from error


def _readonly(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold `path` exclusively, where the filesystem has locks."""
    with open(path, "ab") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
