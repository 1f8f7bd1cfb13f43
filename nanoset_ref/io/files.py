"""Files that are complete or absent, alone or as a set.

A writer writes hidden temporaries beside its targets, flushes them to the disk and renames them: a
reader sees whole files or none, on every POSIX filesystem. A killed writer leaves its temporaries
behind. The next writer of the same target removes them; those of a live writer, which holds a lock
on each, stay. The cost is one `fsync` per file.
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
from typing import IO, Any, NamedTuple

from nanoset_ref.io.paths import PathLike, in_bucket, located


class _Part(NamedTuple):
    """A file of a set: its finished temporary, and the path that it will have."""

    temporary: Path
    target: Path


class _Group(NamedTuple):
    """The sets of a `written_together`, and what keeps their temporaries open and locked."""

    sets: list[list[_Part]]
    temporaries: contextlib.ExitStack


_group: ContextVar[_Group | None] = ContextVar("group", default=None)


@contextlib.contextmanager
def atomic_write(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Write one file completely or not at all; an existing one is replaced in the last step.

    Args:
        path: the target; its folder must exist.
        mode: "wb" for bytes, "w" for UTF-8 text with "\\n" line ends.

    Yields:
        The open temporary. On a clean exit it is flushed, synced and renamed to `path`; on an
        exception it is removed.

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

    1. Write all files to temporaries beside their targets, flush and sync them. A full disk shows
       here, while an old set is still whole.
    2. A set is valid if its last file exists: remove the old last file of a set of several files.
    3. Rename the temporaries in the order of `paths`, so the new last file comes last.

    A writer that is killed between 2 and 3 leaves a set without its last file; the next writer
    replaces it without `overwrite`. Ctrl-C takes effect after step 3.

    Args:
        paths: the targets, in one or several existing folders.
        overwrite: whether a complete old set may be replaced.
        mode: as in `atomic_write`.

    Yields:
        The open temporaries, in the order of `paths`.

    Raises:
        FileExistsError: the last of `paths` exists, before the files are written or after, and
            `overwrite` is False.
        FileNotFoundError: a folder does not exist.
        StorageError: the targets are in a bucket (see `buckets.written_to_bucket`) that cannot be
            written to.
    """
    targets = [located(path) for path in paths]
    if any(map(in_bucket, targets)):
        from nanoset_ref.io.buckets import written_to_bucket  # only where a URL is met

        refuse_existing(targets[-1], overwrite)
        with written_to_bucket([target for target in targets if in_bucket(target)]) as parts:  # type: ignore[misc]
            yield parts
            refuse_existing(targets[-1], overwrite)
        return
    group = _group.get()
    with contextlib.ExitStack() as own:
        temporaries = group.temporaries if group else own
        files = [temporaries.enter_context(_temporary(target, mode)) for target in targets]
        refuse_existing(targets[-1], overwrite)
        yield files
        # 1.
        for file in files:
            file.flush()
            os.fsync(file.fileno())
        refuse_existing(targets[-1], overwrite)
        parts = [
            _Part(Path(file.name), target) for file, target in zip(files, targets, strict=True)
        ]
        if group:
            group.sets.append(parts)
        else:
            uninterrupted(lambda: _publish([parts]))


@contextlib.contextmanager
def written_together() -> Iterator[None]:
    """Publish the two sets that are written inside together, when both are complete.

    Until then both old sets stay as they are. Process 7 replaces the sets (a.bin, a.idx) and
    (b.bin, b.idx); * marks a new file, and the inode of the new a.idx is 42:

        visible                         hidden
        a.bin  a.idx  b.bin  b.idx      .a.bin.7-5f.tmp*  .a.idx.7-c1.tmp*  .b.bin...*  .b.idx...*
        a.bin  a.idx  b.bin             the same four: the old last files are removed, b.idx first
        a.bin         b.bin             the same four
        a.bin*        b.bin*            .a.idx.7-c1.tmp*  .b.idx.7-08.tmp*
        a.bin*        b.bin*            .a.idx.7-c1.tmp*  .a.idx.7-c1.42.tmp*   this is b.idx
        a.bin* a.idx* b.bin*            .a.idx.7-c1.42.tmp*   the first set is published
        a.bin* a.idx* b.bin* b.idx*     the second set is published

    While only the first set is published, the last file of the second has a hidden name that
    contains the inode of the first set's last file. A later writer that finds this name knows that
    the pair is incomplete, and replaces it.
    """
    with contextlib.ExitStack() as temporaries:
        group = _Group([], temporaries)
        token = _group.set(group)
        try:
            yield
        finally:
            _group.reset(token)
        uninterrupted(lambda: _publish(group.sets))


def _publish(sets: list[list[_Part]]) -> None:
    """Steps 2 and 3 of `atomic_write_set`, for one set or for the two of `written_together`."""
    last_parts = [parts[-1] for parts in sets]
    # 2. a single file needs none of this: its rename replaces the old one
    if len(sets) > 1 or len(sets[0]) > 1:
        for part in reversed(last_parts):
            part.target.unlink(missing_ok=True)
    # 3.
    for parts in sets:
        for part in parts[:-1]:
            os.replace(part.temporary, part.target)
    *first_parts, (remaining, target) = last_parts
    for part in first_parts:
        remaining = _hidden_beside(part, remaining)
        os.replace(part.temporary, part.target)
    os.replace(remaining, target)
    for folder in {part.target.parent for parts in sets for part in parts}:
        sync_folder(folder)


def _hidden_beside(part: _Part, remaining: Path) -> Path:
    """Rename the file that remains to be published to the hidden name that marks `part` as half of a
    pair, and return that name.

    On another disk it cannot be renamed and keeps its name: a kill now leaves a first set that
    looks complete.
    """
    inode = part.temporary.stat().st_ino
    try:
        return remaining.replace(part.temporary.with_suffix(f".{inode}.tmp"))
    except OSError:
        return remaining


def uninterrupted(act: Callable[[], None]) -> None:
    """Run `act` in a thread: Ctrl-C interrupts only the main thread, and takes effect when `act` has ended."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(int).result()  # an interrupt while a thread starts would not wait for it
        thread.submit(act).result()


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise FileExistsError if the file exists and may not be replaced."""
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path} exists and is left unchanged; --overwrite (overwrite=True) replaces it"
        )


@contextlib.contextmanager
def _temporary(path: Path, mode: str) -> Iterator[IO[Any]]:
    """Remove the leftovers of killed writers, then open and lock a new temporary beside `path`."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path}: the folder {path.parent} does not exist; create it first"
        )
    remove_leftovers(path)
    text: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        with _disk_full_explained(path), open(temporary, mode.replace("w", "x"), **text) as file:
            lock(file, wait=True)
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # another writer removed it as a leftover, before it was locked
            try:
                yield file
            finally:
                temporary.unlink(missing_ok=True)
            return


@contextlib.contextmanager
def _disk_full_explained(path: Path) -> Iterator[None]:
    """Add the path and the free space to a disk-full error, which NumPy and the OS leave out."""
    try:
        yield
    except OSError as error:
        if error.filename or not _is_disk_full(error):
            raise
        folder = path.parent
        free = shutil.disk_usage(folder).free
        why = (
            f"cannot be written ({error.strerror or error}); {free:,} bytes are free without it on "
            f"the disk of {folder}: make room, or name another folder"
        )
        raise OSError(error.errno or errno.ENOSPC, why, os.fspath(path)) from error


def _is_disk_full(error: OSError) -> bool:
    """Whether the disk, a quota or the largest size of a file is the limit that was met."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    return "requested and" in str(error)  # NumPy has no errno: "64 requested and 12 written"


def remove_leftovers(path: Path) -> bool:
    """Remove the temporaries that killed writers of `path` left behind.

    `path` itself is removed too if one of them marks it as the first half of an incomplete pair
    (see `written_together`). The temporaries of live writers stay, and so do links and pipes.

    Returns:
        Whether there is a live writer.
    """
    live = False
    for entry in os.scandir(path.parent):
        if not _is_temporary(entry, path):
            continue
        with contextlib.suppress(OSError), open(entry.path, "rb") as file:
            if not lock(file):
                live = True
                continue
            if path.exists() and entry.name.endswith(f".{path.stat().st_ino}.tmp"):
                path.unlink()
            os.unlink(entry.path)
    return live


def _is_temporary(entry: os.DirEntry[str], path: Path) -> bool:
    """Whether a file in the folder of `path` is a temporary of `path`."""
    if not entry.name.startswith(f".{path.name}.") or not entry.name.endswith(".tmp"):
        return False
    return entry.is_file(follow_symlinks=False)


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Take the exclusive lock of an open file, held until the file is closed or the process ends.

    Args:
        wait: whether to wait until another process releases the lock.

    Returns:
        Whether the lock is held now. With `wait` it is, unless the filesystem has no locks: then
        leftovers stay, and each process does the work that one was to do for all.

    Raises:
        OSError: the filesystem has no locks; never with `wait`.
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
