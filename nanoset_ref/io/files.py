"""Files that are complete or absent, alone or as a set.

A writer works on hidden temporaries beside its targets, flushes them to the disk and renames them: a reader sees whole
files or none, on every POSIX filesystem. A killed writer leaves its temporaries behind; the next writer of the same
target recognizes and removes them, because a live writer holds a lock on each of its own. The cost is one `fsync` per
file.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from nanoset_ref.io.paths import PathLike as PathLike
from nanoset_ref.io.paths import checksum as checksum
from nanoset_ref.io.paths import in_bucket, located
from nanoset_ref.io.paths import listed as listed
from nanoset_ref.io.paths import read_json as read_json
from nanoset_ref.io.paths import require_regular as require_regular
from nanoset_ref.io.paths import seal as seal

_together: ContextVar[Any] = ContextVar(
    "together", default=None
)  # of `written_together`: its stack and its sets


@contextlib.contextmanager
def atomic_write(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Write one file completely or not at all; an existing one is replaced in the last step.

    Args:
        path: the target; its folder must exist.
        mode: "wb" for bytes, "w" for UTF-8 text with "\\n" line ends.

    Yields:
        The open temporary. On a clean exit it is flushed, synced and renamed to `path`; on an exception it is removed.

    Raises:
        FileNotFoundError: the folder of `path` does not exist.
    """
    with atomic_write_set([path], overwrite=True, mode=mode) as (file,):
        yield file


@contextlib.contextmanager
def atomic_write_set(
    paths: Sequence[PathLike], *, overwrite: bool = False, mode: str = "wb"
) -> Iterator[list[IO[Any]]]:
    """Write files that belong together: a reader finds all of them, or no set at all.

    1. all are written to temporaries beside their targets, then flushed and synced: a full disk shows here, while an
       old set is still whole
    2. the last of `paths` is what makes the set valid: of several files, an old last one is removed first
    3. the temporaries are renamed in the order of `paths`, so the new last one comes last

    A writer killed between 2 and 3 leaves an unfinished set without its last file; the next writer replaces it without
    being asked. Ctrl-C waits until 3 is done.

    Args:
        paths: the targets, in one or several existing folders.
        overwrite: whether a complete old set may be replaced.
        mode: as in `atomic_write`.

    Yields:
        The open temporaries, in the order of `paths`.

    Raises:
        FileExistsError: the last of `paths` exists and `overwrite` is False; also if it appeared meanwhile.
        FileNotFoundError: a folder does not exist.
        StorageError: the targets are in a bucket (see `buckets.written_to_bucket`), and it cannot be written.
    """
    targets = [located(path) for path in paths]
    if any(map(in_bucket, targets)):
        from nanoset_ref.io.buckets import written_to_bucket  # only where a URL is met

        refuse_existing(targets[-1], overwrite)
        with written_to_bucket([target for target in targets if in_bucket(target)]) as parts:  # type: ignore[misc]
            yield parts
            refuse_existing(targets[-1], overwrite)
        return
    with contextlib.ExitStack() as own:
        stack, sets = _together.get() or (own, list[list[tuple[Path, Path]]]())
        files = [stack.enter_context(_temporary(target, mode)) for target in targets]
        refuse_existing(targets[-1], overwrite)
        yield files
        # 1.
        for file in files:
            file.flush()
            os.fsync(file.fileno())
        refuse_existing(targets[-1], overwrite)
        sets.append(
            [(Path(file.name), target) for file, target in zip(files, targets, strict=True)]
        )
        if stack is own:
            uninterrupted(lambda: _appear(sets))


@contextlib.contextmanager
def written_together() -> Iterator[None]:
    """Make two sets that are written inside one: neither appears, or loses its old last part, before both are complete.

    While the first is there alone, the last part of the second waits beside it, under a name that says so. One rename
    takes it away and completes both; the writer after a killed one knows by it what to replace without being asked.
    """
    with contextlib.ExitStack() as stack:
        sets: list[list[tuple[Path, Path]]] = []
        token = _together.set((stack, sets))
        try:
            yield
        finally:
            _together.reset(token)
        uninterrupted(lambda: _appear(sets))


def _appear(sets: list[list[tuple[Path, Path]]]) -> None:
    """Steps 2 and 3, for several sets as for one."""
    lasts = [parts[-1] for parts in sets]
    others = [part for parts in sets for part in parts[:-1]]
    for _, target in lasts[::-1] if others or len(sets) > 1 else ():  # the last to come goes first
        target.unlink(missing_ok=True)
    for temporary, target in others:
        os.replace(temporary, target)
    *firsts, (last, end) = lasts
    for temporary, target in firsts:
        waiting = temporary.with_suffix(f".{temporary.stat().st_ino}.tmp")
        with contextlib.suppress(
            OSError
        ):  # on another disk: a kill here leaves a first set that looks complete
            last = last.replace(waiting)
        os.replace(temporary, target)
    os.replace(last, end)
    for folder in {target.parent for parts in sets for _, target in parts}:
        sync_folder(folder)


def uninterrupted(act: Callable[[], None]) -> None:
    """Do it in a thread of its own: Ctrl-C, which interrupts the main thread only, waits for its end."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(int).result()  # an interrupt while a thread starts would not wait for it
        thread.submit(act).result()


def refuse_existing(path: Path, overwrite: bool) -> None:
    """FileExistsError if the file is there and may not be replaced."""
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path} exists and is left unchanged; --overwrite (overwrite=True) replaces it"
        )


@contextlib.contextmanager
def _temporary(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A new, locked temporary beside `path`, after those that dead writers left there are gone."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path}: the folder {path.parent} does not exist; create it first"
        )
    remove_leftovers(path)
    text: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        with _named_where_full(path), open(temporary, mode.replace("w", "x"), **text) as file:
            lock(file, wait=True)
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # before it was locked, another writer took it for a leftover
            try:
                yield file
            finally:
                temporary.unlink(missing_ok=True)
            return


@contextlib.contextmanager
def _named_where_full(path: Path) -> Iterator[None]:
    """An error of a full disk names the file and says what is free there; those of NumPy and the system do neither."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if error.filename or not (
            full or "requested and" in str(error)
        ):  # NumPy: "64 requested and 12 written"
            raise
        folder = path.parent
        free = (
            f"{shutil.disk_usage(folder).free:,} bytes are free without it on the disk of {folder}"
        )
        why = f"cannot be written ({error.strerror or error}); {free}: make room, or name another folder"
        raise OSError(error.errno or errno.ENOSPC, why, os.fspath(path)) from error


def remove_leftovers(path: Path) -> bool:
    """Remove the temporaries that dead writers of `path` left, and `path` if it is half of two sets that are one (see
    `written_together`).

    Those of live writers, and links and pipes, stay.

    Returns:
        Whether there is a live writer.
    """
    live = False
    for entry in os.scandir(path.parent):
        named = entry.name.startswith(f".{path.name}.") and entry.name.endswith(".tmp")
        if named and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                if lock(file):
                    if path.exists() and entry.name.endswith(f".{path.stat().st_ino}.tmp"):
                        path.unlink()
                    os.unlink(entry.path)
                else:
                    live = True
    return live


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Hold the exclusive lock of an open file until it is closed or its process ends, however it ends.

    Returns:
        Whether the lock is held now. With `wait` it is, unless the filesystem knows no locks: then leftovers stay, and
        what one process was to do for all of them is done by each.

    Raises:
        OSError: the filesystem knows no locks; never with `wait`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if not wait and not isinstance(error, BlockingIOError):
            raise
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
