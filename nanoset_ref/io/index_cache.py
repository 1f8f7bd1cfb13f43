"""Cached indexes: built once, mapped by every process, checked before use.

An entry consists of arrays and a description of everything they depend on. Its name is the hash of
the description, so another seed, flag or corpus is another entry. The first process builds the
entry under a lock; the others wait and map it. Without shared locks every process builds its own;
the atomic rename keeps that safe. Neither torch.distributed nor pickle is used.

    <folder>/<hash>.<array>.npy    the arrays
    <folder>/<hash>.json           the description, and a checksum of all files; written last

Loading maps large arrays, so processes share their memory. It reads them once for their checksums
(under 0.2 s per GB): a bit that flips on the disk changes no time stamp. A damaged entry is
rebuilt, with a warning. Megatron-LM keys on the path without a check, so it reuses the indexes of a
replaced corpus, or of other flags (add_extra_token_to_sequence,
drop_last_partial_validation_sequence).
"""

import json
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from nanoset_ref.io.files import atomic_write_set, make_folder
from nanoset_ref.io.locks import locked
from nanoset_ref.io.mmap_limit import should_map
from nanoset_ref.io.paths import PathLike, checksum_of_set, read_json
from nanoset_ref.io.types import Array, Json
from nanoset_ref.io.urls import local_path

FORMAT_VERSION = 6  # of entries
Arrays = Sequence[Array]


class IndexCacheWarning(UserWarning):
    """A cached index is damaged, or a foreign file has its name."""


def load_or_build(
    folder: PathLike | None,
    description: Json,
    names: Sequence[str],
    build: Callable[[], Arrays],
) -> Arrays:
    """Load arrays from the cache; if they are not there, build and cache them.

    Args:
        folder: the cache, created if needed; None builds in memory and writes nothing.
        description: everything the arrays depend on; JSON-serializable.
        names: the arrays' names, which are part of the file names.
        build: returns the arrays.

    Returns:
        The arrays; with a cache they are read-only, and large ones are mapped.

    Raises:
        OSError: there is no such entry yet, and the folder cannot be written to.

    Warns:
        IndexCacheWarning: the entry is damaged and is built again. Or something other than a
            regular file has its name: it stays there, and the arrays are built in memory.
    """
    if folder is None:
        return build()
    text = json.dumps({"format_version": FORMAT_VERSION, **description}, sort_keys=True)
    entry = (
        local_path(folder, "path_to_cache")
        / f"{xxhash.xxh3_128(text.encode()).hexdigest()}.json"
    )
    paths = [entry.with_suffix(f".{name}.npy") for name in names]
    for path in (*paths, entry):
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            _warn(
                f"{path} is not a file of an index: it is left unchanged, and the index is built "
                "in memory"
            )
            return build()
    arrays = _load(text, paths, entry)
    if arrays is not None:
        return arrays
    with _lock_file(folder) as file, locked(file):
        # another process may have built it meanwhile
        arrays = _load(text, paths, entry)
        if arrays is not None:
            return arrays
        arrays = build()
        _write(arrays, text, paths, entry)
    return _load(text, paths, entry) or arrays


def _load(text: str, paths: Sequence[Path], entry: Path) -> Arrays | None:
    """Map the entry; None if there is none, or, with a warning, if it is damaged."""
    if not entry.exists():
        return None
    try:
        if read_json(entry) != _record(text, paths):
            raise ValueError("its content is not what was written")
        arrays = []
        for path in paths:
            mode: Any = "r" if should_map(path.stat().st_size) else None
            array = np.load(path, mmap_mode=mode, allow_pickle=False)
            array.flags.writeable = False
            arrays.append(array.view(np.ndarray))
        return arrays
    except (OSError, ValueError) as error:
        _warn(f"the cached index {entry} is built again: {error}")
        return None


def _write(arrays: Arrays, text: str, paths: Sequence[Path], entry: Path) -> None:
    """Write the arrays and, last, the description."""
    with atomic_write_set([*paths, entry], overwrite=True) as (*files, last):
        for file, array in zip(files, arrays, strict=True):
            np.lib.format.write_array_header_1_0(
                file, np.lib.format.header_data_from_array_1_0(array)
            )
            # np.save misses the error of a full disk
            file.write(np.ascontiguousarray(array))
            file.flush()
        last.write(
            json.dumps(_record(text, [file.name for file in files]), indent=1).encode()
        )


def _record(text: str, files: Sequence[PathLike]) -> Json:
    """The content of the .json of an entry whose arrays are in these files."""
    return {"description": json.loads(text), "seal": checksum_of_set(text, *files)}


def _lock_file(folder: PathLike) -> IO[bytes]:
    """Open the lock of a cache; OSError if the folder cannot be used."""
    path = Path(folder, "index.lock")
    try:
        make_folder(path.parent)
        if path.exists() and not path.is_file():
            raise FileExistsError(f"{path} is not a regular file")
        try:
            return open(path, "ab")
        except PermissionError:
            if not os.access(folder, os.W_OK):
                raise
            return open(path, "rb")  # another user's; NFS locks only what it may write
    except OSError as error:
        raise OSError(
            f"cannot write the index cache {folder}: name another folder, or none ({error})"
        ) from error


def _warn(message: str) -> None:
    """Warn at the line that called `load_or_build`."""
    warnings.warn(message, IndexCacheWarning, stacklevel=4)
