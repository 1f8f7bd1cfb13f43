"""Indexes on disk: built once, mapped by everybody, never trusted blindly.

An entry is a few arrays and a description of everything they depend on; its name is the hash of that description, so a
changed seed, flag or corpus is another entry and nothing stale can be found. The first process to come builds, under a
lock, the others wait and map; where a filesystem has no locks, or nodes share none, each builds its own, which the
rename makes harmless. No torch.distributed, no pickle.

    <folder>/<hash>.<array>.npy    the arrays
    <folder>/<hash>.json           the description, and a seal over it and the arrays; written last

Loading costs no memory per process, and one pass over the files for their checksums (under 0.2 s per GB): a bit that
flipped on the disk changes no time stamp. What does not hold is rebuilt, with a warning. Upstream checks nothing and
keys on the path, so that it reuses the indexes of a corpus that was replaced, or of other flags
(add_extra_token_to_sequence, drop_last_partial_validation_sequence).
"""

import contextlib
import json
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.files import PathLike, atomic_write_set, lock, read_json, seal

FORMAT_VERSION = 5
Arrays = Sequence[NDArray[Any]]


class IndexCacheWarning(UserWarning):
    """A cached index was damaged or foreign and is built again."""


def cached(
    folder: PathLike | None,
    description: dict[str, Any],
    names: Sequence[str],
    build: Callable[[], Arrays],
) -> Arrays:
    """The arrays of `build`, from the cache if they lie there.

    Args:
        folder: the cache, made if missing; None builds in memory and writes nothing.
        description: everything the arrays depend on; JSON-serialisable.
        names: of the arrays, in their files.
        build: makes the arrays.

    Returns:
        The arrays; mapped, and so read-only, if there is a cache.

    Raises:
        OSError: there is no such entry yet, and the folder cannot be written.

    Warns:
        IndexCacheWarning: an entry was damaged and is built again; or what lies in its place is no file, stays there,
            and the arrays are built in memory.
    """
    if folder is None:
        return build()
    text = json.dumps({"format_version": FORMAT_VERSION, **description}, sort_keys=True)
    entry = Path(folder) / f"{xxhash.xxh3_128(text.encode()).hexdigest()}.json"
    paths = [entry.with_suffix(f".{name}.npy") for name in names]
    foreign = [path for path in (*paths, entry) if _is_foreign(path)]
    if foreign:
        _say_foreign(foreign[0])
        return build()

    def load() -> Arrays | None:
        """Map the entry; None if there is none, or, with a warning, if it is damaged."""
        if not entry.exists():
            return None
        try:
            if read_json(entry) != _record(text, paths):
                raise ValueError("its content is not what was written")
            return [
                np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray) for path in paths
            ]
        except (OSError, ValueError) as error:
            warnings.warn(
                f"the cached index {entry} is built again: {error}", IndexCacheWarning, stacklevel=3
            )
            return None

    if arrays := load():
        return arrays
    with contextlib.ExitStack() as stack:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            turn = stack.enter_context(_opened_lock(entry.with_name("index.lock")))
        except OSError as error:
            raise OSError(
                f"cannot write the index cache {folder}: name another folder, or none ({error})"
            ) from error
        lock(turn, wait=True)
        if arrays := load():
            return arrays
        arrays = build()
        with atomic_write_set([*paths, entry], overwrite=True) as (*files, last):
            for file, array in zip(files, arrays, strict=True):
                header = np.lib.format.header_data_from_array_1_0(array)
                np.lib.format.write_array_header_1_0(file, header)
                file.write(
                    np.ascontiguousarray(array)
                )  # not np.save, which does not hear of a disk that is full
                file.flush()
            last.write(json.dumps(_record(text, [file.name for file in files]), indent=1).encode())
    return load() or arrays


def _is_foreign(path: Path) -> bool:
    """Whether something is there that is no regular file, so that nobody here wrote it."""
    return os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode)


def _say_foreign(path: Path) -> None:
    left = f"{path} is no file of an index: it is left unchanged, and the index is built in memory"
    warnings.warn(left, IndexCacheWarning, stacklevel=3)


def _opened_lock(path: Path) -> IO[bytes]:
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no regular file")
    return open(path, "ab")


def _record(text: str, files: Sequence[PathLike]) -> dict[str, Any]:
    """What the .json holds of an entry whose arrays lie in these files."""
    return {"description": json.loads(text), "seal": seal(text, *files)}
