"""Files that are complete or absent.

A writer works on a hidden temporary beside its target, flushes it to the disk and renames it: a reader sees the whole
file or none, on every POSIX filesystem. A writer that is killed leaves its temporary; the next writer of the same
target recognises it, because a live writer holds an `flock` on its own. The cost is one `fsync` per file. The rejected
alternative, a `finally` that deletes, does not survive SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import xxhash


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Write `path` completely or not at all.

    Args:
        path: the target; its folder must exist. An existing target is replaced in the last step.
        mode: "wb" for bytes, "w" for UTF-8 text with "\\n" line ends.

    Yields:
        The open temporary file. On a clean exit it is flushed, synced and renamed to `path`; on an exception it is
        removed.

    Raises:
        ValueError: for another mode.
        FileNotFoundError: if the folder of `path` does not exist.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f'atomic_write takes mode "wb" or "w", got {mode!r}')
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
    remove_leftovers(path)
    text: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        file = open(temporary, mode.replace("w", "x"), **text)  # noqa: SIM115 - closed below
        with contextlib.suppress(OSError):  # a filesystem without locks only loses the clean-up of leftovers
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink > 0:
            break
        file.close()  # before it was locked, another writer has taken it for a leftover
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_leftovers(path: str | os.PathLike[str]) -> list[Path]:
    """Remove the temporaries that dead writers of `path` left; those of live writers stay.

    Returns:
        The files that were removed.
    """
    path = Path(path)
    removed = []
    for entry in os.scandir(path.parent):
        if not (entry.name.startswith(f".{path.name}.") and entry.name.endswith(".tmp")):
            continue
        with contextlib.suppress(OSError), open(entry.path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the writer lives
            os.unlink(entry.path)
            removed.append(Path(entry.path))
    return removed


def checksum(path: str | os.PathLike[str]) -> str:
    """The content of a file as "xxh3_128:<32 hexadecimal digits>", read in pieces of 4 MiB."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return f"xxh3_128:{digest.hexdigest()}"


def sync_folder(folder: Path) -> None:
    """Make a rename itself survive a power cut."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
