"""Files that are complete or absent, alone or as a set.

A writer writes hidden temporaries next to its targets, flushes them to the disk and renames them: a
reader sees whole files or none, on every POSIX filesystem. A killed writer leaves its temporaries
behind, and the next writer of the same target removes them. A live writer holds a lock on each of
its temporaries, so they stay. The cost is one `fsync` per file.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from nanoset_ref.io.full_disk import explain_full_disk
from nanoset_ref.io.locks import lock, locked
from nanoset_ref.io.overwriting import refuse_existing
from nanoset_ref.io.paths import PathLike, as_path, in_bucket

# disks take 255; the name of a temporary adds a process and an inode, up to 43 bytes
MAX_NAME_BYTES = 210


class _PendingFile(NamedTuple):
    """A file that is written but not published: its temporary, and the path that it will have."""

    temporary: Path
    target: Path

    def marked_name(self, number: int) -> Path:
        """The temporary's name with a number: .<target>.<writer>.<number>.tmp."""
        return self.temporary.with_name(
            re.sub(r"(\.\d+)?\.tmp$", f".{number}.tmp", self.temporary.name)
        )

    def rename_temporary(self, temporary: Path) -> Self:
        """Rename the temporary on the disk; return this file with its new name."""
        return self._replace(temporary=self.temporary.replace(temporary))


class _Group(NamedTuple):
    """The sets of a `write_together`.

    Attributes:
        sets: the files of each.
        temporaries: the stack that keeps their temporaries open.
        leftovers: temporaries of killed writers that were found.
    """

    sets: list[list[_PendingFile]]
    temporaries: ExitStack
    leftovers: list[Path]


_group: ContextVar[_Group | None] = ContextVar("group", default=None)


@contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[Any]]:
    """Write one file completely or not at all; an existing one is replaced in the last step.

    Args:
        path: the target; its folder must exist.

    Yields:
        The open temporary. On a clean exit it is flushed, synced and renamed to `path`; on an
        exception it is removed.

    Raises:
        FileNotFoundError: the folder of `path` does not exist.
    """
    with atomic_write_set([path], overwrite=True) as (file,):
        yield file


def write_text(path: PathLike, text: str) -> None:
    """Write a file of UTF-8 text completely or not at all; see `atomic_write`.

    A lone surrogate, of a name that is not UTF-8, becomes its escape, such as \\udcff.
    """
    with atomic_write(path) as file:
        file.write(text.encode(errors="backslashreplace"))


@contextmanager
def atomic_write_set(
    paths: Sequence[PathLike], *, overwrite: bool = False
) -> Iterator[list[IO[Any]]]:
    """Write files that belong together: a reader finds the whole set, or no set.

    1. Write all files to temporaries next to their targets, flush and sync them. A full disk shows
       here, while an old set is still whole.
    2. A set is valid if its last file exists. So rename the last temporary (the mark), and remove
       the old last file; a single file needs neither.
    3. Rename the temporaries in the order of `paths`, so the new last file comes last.

    A writer that is killed after step 2 leaves the mark and a set without its last file; the next
    writer replaces this set without `overwrite`. Without the mark, files that lack the last one are
    foreign. Ctrl-C takes effect after step 3.

    Args:
        paths: the targets, in one or several existing folders.
        overwrite: whether a complete old set may be replaced.

    Yields:
        The open temporaries, in the order of `paths`.

    Raises:
        FileExistsError: one of `paths` exists, before the files are written, or the last one
            after, and `overwrite` is False.
        FileNotFoundError: a folder does not exist.
        IsADirectoryError: one of `paths` is a folder.
        ValueError: a name has more than 210 bytes.
        StorageError: the targets are in a bucket that cannot be written to (see
            `uploads.write_to_bucket`).
    """
    targets = [as_path(path) for path in paths]
    if any(map(in_bucket, targets)):
        from nanoset_ref.io.uploads import write_to_bucket  # only URLs need it

        refuse_existing(targets[-1], overwrite)
        with write_to_bucket(targets) as files:  # type: ignore[arg-type]
            yield files
            refuse_existing(targets[-1], overwrite)
        return
    group = _group.get()
    with ExitStack() as own:
        temporaries = group.temporaries if group else own
        leftovers = group.leftovers if group else []
        files = []
        for target in targets:
            leftovers += _temporaries_of(target)
            files.append(temporaries.enter_context(_temporary(target)))
        # where a killed writer left its mark, a set is whole only if its last file exists
        has_mark = any(re.search(r"\.\d+\.tmp$", path.name) for path in leftovers)
        guarded = targets[-1:] if has_mark else reversed(targets)
        for target in guarded:
            refuse_existing(target, overwrite)
        for target in filter(Path.is_dir, targets):
            raise IsADirectoryError(
                f"{target} is a folder, but a file of this name would be written; move it"
            )
        yield files
        # 1. flush and sync the temporaries
        for file in files:
            file.flush()
            os.fsync(file.fileno())
        refuse_existing(targets[-1], overwrite)
        pending = [
            _PendingFile(Path(file.name), target)
            for file, target in zip(files, targets, strict=True)
        ]
        if group:
            group.sets.append(pending)
        else:
            run_uninterrupted(lambda: _publish([pending]))


@contextmanager
def write_together(*last_files: Path) -> Iterator[list[list[_PendingFile]]]:
    """Publish two or more sets of files at once, when all are complete.

    Write the sets inside this block; until its end the old sets stay, and an error leaves no new
    one. Process 7 replaces the sets (a.bin, a.idx) and (b.bin, b.idx); * marks a new file, and the
    inode of the new a.idx is 42:

        visible                         hidden
        a.bin  a.idx  b.bin  b.idx      .a.bin.7-5f.tmp*  .a.idx.7-c1.tmp*  .b.bin...*  .b.idx...*
        a.bin  a.idx  b.bin  b.idx      the last ones are marked: .a.idx.7-c1.0.tmp*  .b.idx...*
        a.bin  a.idx  b.bin             the same four: the old last files are removed, b.idx first
        a.bin         b.bin             the same four
        a.bin*        b.bin*            .a.idx.7-c1.0.tmp*  .b.idx.7-08.0.tmp*
        a.bin*        b.bin*            .a.idx.7-c1.0.tmp*  .a.idx.7-c1.42.tmp*   this is b.idx
        a.bin* a.idx* b.bin*            .a.idx.7-c1.42.tmp*   the first set is published
        a.bin* a.idx* b.bin* b.idx*     the second set is published

    While only the first set is published, the last file of the second has a hidden name that
    contains the inode of the first set's last file. A later writer that finds this name knows that
    only one of the two sets is there, and replaces it. Of three or more sets, only the newest
    published one is marked: after a kill between these last renames, the earlier ones stay.

    Args:
        last_files: the last file of each set that will be written.

    Yields:
        The pending files of all sets, in the order of writing; complete at the end of the block.
    """
    with ExitStack() as temporaries:
        marks = list(chain.from_iterable(map(_temporaries_of, last_files)))
        group = _Group([], temporaries, marks)
        token = _group.set(group)
        try:
            yield group.sets
        finally:
            _group.reset(token)
        run_uninterrupted(lambda: _publish(group.sets))


def _publish(sets: list[list[_PendingFile]]) -> None:
    """Steps 2 and 3 of `atomic_write_set`, for one set or for those of `write_together`."""
    last_files = [files[-1] for files in sets]
    # 2. remove the old last files (the rename of a single file replaces the old one)
    if len(sets) > 1 or len(sets[0]) > 1:
        last_files = [file.rename_temporary(file.marked_name(0)) for file in last_files]
        for file in reversed(last_files):
            file.target.unlink(missing_ok=True)
    # 3. rename the temporaries, the last files last
    for files in sets:
        for file in files[:-1]:
            os.replace(file.temporary, file.target)
    *others, last = last_files
    for file in others:
        last = _mark_incomplete(file, last)
        os.replace(file.temporary, file.target)
    os.replace(last.temporary, last.target)
    for folder in {file.target.parent for files in sets for file in files}:
        sync_folder(folder)


def _mark_incomplete(file: _PendingFile, last: _PendingFile) -> _PendingFile:
    """Rename the last temporary to the hidden name that marks `file` as published alone.

    On another disk the rename fails and the temporary keeps its name; if the writer is killed at
    this point, the first set looks complete.
    """
    inode = file.temporary.stat().st_ino
    try:
        return last.rename_temporary(file.marked_name(inode))
    except OSError:
        return last


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, unless it exists.

    Raises:
        NotADirectoryError: something else has its name, or that of a parent.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        obstacle = next(filter(os.path.lexists, (folder, *folder.parents)))
        raise NotADirectoryError(
            f"the folder {folder} cannot be made, because {obstacle} is not a folder: name another "
            "one, or move that file"
        ) from error


def run_uninterrupted(action: Callable[[], None]) -> None:
    """Run `action` in a thread, because Ctrl-C interrupts only the main thread."""
    with ThreadPoolExecutor(1) as thread:
        # Ctrl-C while the thread starts would not wait for it
        try:
            thread.submit(int).result()
        except RuntimeError:  # the main thread has ended, and starts no other
            action()
            return
        thread.submit(action).result()


@contextmanager
def _temporary(path: Path) -> Iterator[IO[Any]]:
    """Remove the leftovers of killed writers, then open and lock a new temporary next to `path`."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path}: the folder {path.parent} does not exist; create it first"
        )
    if len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise ValueError(
            f"cannot write {path}: its name must have at most {MAX_NAME_BYTES} bytes, because a "
            "hidden temporary has a longer one; choose a shorter name"
        )
    clean_up_after_killed_writers(path)
    while True:
        temporary = path.with_name(
            f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        )
        with (
            explain_full_disk(path, path.parent),
            open(temporary, "xb") as file,
            locked(file),
        ):
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # another writer removed it as a leftover, before it was locked
            try:
                yield file
            finally:
                temporary.unlink(missing_ok=True)
            return


def clean_up_after_killed_writers(path: Path) -> None:
    """Remove the temporaries that killed writers of `path` left behind.

    If one of them marks `path` as published without the next set (see `write_together`),
    `path` is removed too. The temporaries of live writers stay, and so do links and pipes.
    """
    for temporary in _temporaries_of(path):
        with suppress(OSError), open(temporary, "rb") as file:
            if not lock(file):
                continue
            if path.exists() and temporary.name.endswith(f".{path.stat().st_ino}.tmp"):
                path.unlink()
            temporary.unlink()


def has_live_writer(path: Path) -> bool:
    """Whether a process is writing `path`."""
    for temporary in _temporaries_of(path):
        with suppress(OSError), open(temporary, "rb") as file:
            if not lock(file):
                return True
    return False


def _temporaries_of(path: Path) -> list[Path]:
    """The temporaries of `path`, of live and of killed writers; no links, no foreign files."""
    name = re.compile(rf"\.{re.escape(path.name)}\.\d+-[0-9a-f]{{8}}(\.\d+)?\.tmp")
    if not path.parent.is_dir():
        return []
    return [
        Path(entry.path)
        for entry in os.scandir(path.parent)
        if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
    ]


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
