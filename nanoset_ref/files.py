"""Files that are complete or absent, alone or as a set.

A writer works on hidden temporaries beside its targets, flushes them to the disk and renames them: a reader sees whole
files or none, on every POSIX filesystem. A killed writer leaves its temporaries behind; the next writer of the same
target recognises and removes them, because a live writer holds a lock on each of its own. The cost is one `fsync` per
file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import xxhash

MAX_JSON_BYTES = 1 << 26

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def atomic_write(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Write one file completely or not at all; an existing one is replaced in the last step.

    Args:
        path: the target; its folder must exist.
        mode: "wb" for bytes, "w" for UTF-8 text with "\\n" line ends.

    Yields:
        The open temporary. On a clean exit it is flushed, synced and renamed to `path`; on an exception it is removed.

    Raises:
        ValueError: for another mode.
        FileNotFoundError: the folder of `path` does not exist.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f'atomic_write takes mode "wb" or "w", got {mode!r}')
    path = Path(path)
    temporary, file = _open_temporary(path, mode)
    try:
        with file:
            yield file
            sync(file)
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def atomic_write_set(paths: Sequence[PathLike], *, overwrite: bool = False) -> Iterator[list[IO[bytes]]]:
    """Write files that belong together: a reader finds all of them, or no set at all.

    1. all are written to temporaries beside their targets, then flushed and synced: a full disk shows here, while an
       old set is still whole
    2. the last of `paths` is what makes the set valid: an old one is removed first
    3. the temporaries are renamed in the order of `paths`, so the new last one comes last

    A writer killed between 2 and 3 leaves an unfinished set without its last file; the next writer replaces it without
    being asked.

    Args:
        paths: the targets, in one or several existing folders.
        overwrite: whether a complete old set may be replaced.

    Yields:
        The open temporaries, in the order of `paths`.

    Raises:
        FileExistsError: the last of `paths` exists and `overwrite` is False; also if it appeared meanwhile.
        FileNotFoundError: a folder does not exist.
    """
    targets = [Path(path) for path in paths]
    last = targets[-1]
    if not overwrite:
        _refuse_existing(last)
    with contextlib.ExitStack() as stack:
        files = []
        for target in targets:
            temporary, file = _open_temporary(target, "wb")
            stack.callback(temporary.unlink, missing_ok=True)
            files.append(stack.enter_context(file))
        yield files
        for file in files:
            sync(file)
        if not overwrite:
            _refuse_existing(last)
        last.unlink(missing_ok=True)
        for file, target in zip(files, targets, strict=True):
            os.replace(file.name, target)
    for folder in {target.parent for target in targets}:
        sync_folder(folder)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{path} exists and is left unchanged; remove it, or ask for overwriting")


def _open_temporary(path: Path, mode: str) -> tuple[Path, IO[Any]]:
    """A new, locked temporary beside `path`, after those that dead writers left there are gone."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
    remove_leftovers(path)
    text: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        file = open(temporary, mode.replace("w", "x"), **text)  # noqa: SIM115 - the caller closes it
        with contextlib.suppress(OSError):  # a filesystem without locks only loses the clean-up of leftovers
            lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink > 0:
            return temporary, file
        file.close()  # before it was locked, another writer took it for a leftover


def remove_leftovers(path: PathLike) -> list[Path]:
    """Remove the temporaries that dead writers of `path` left; those of live writers, and links and pipes, stay.

    Returns:
        The files that were removed.
    """
    path = Path(path)
    removed = []
    for entry in os.scandir(path.parent):
        named = entry.name.startswith(f".{path.name}.") and entry.name.endswith(".tmp")
        if not (named and entry.is_file(follow_symlinks=False)):
            continue
        with contextlib.suppress(OSError), open(entry.path, "rb") as file:
            if lock(file):
                os.unlink(entry.path)
                removed.append(Path(entry.path))
    return removed


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Hold the exclusive lock of an open file until it is closed or its process ends, however it ends.

    Returns:
        Whether the lock is held now; always True with `wait`.

    Raises:
        OSError: the filesystem knows no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def read_json(path: PathLike) -> Any:
    """The value in a JSON file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a regular file, over 64 MiB, or not JSON; the message names the file.
    """
    path = Path(path)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file")
    if status.st_size > MAX_JSON_BYTES:
        raise ValueError(f"{path} has {status.st_size} bytes; no JSON file of this package exceeds {MAX_JSON_BYTES}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def checksum(path: PathLike) -> str:
    """The content of a file as "xxh3_128:<32 hexadecimal digits>", read in pieces of 4 MiB."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return f"xxh3_128:{digest.hexdigest()}"


def sync(file: IO[Any]) -> None:
    """Bring what was written to the disk; a full disk is an OSError here."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
