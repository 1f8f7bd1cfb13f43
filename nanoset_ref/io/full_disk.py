"""Errors of a full disk that say how much is needed, how much is free, and the way out."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


@contextmanager
def explain_full_disk(
    path: Path, folder: Path, needs: str = "", option: str = "folder"
) -> Iterator[None]:
    """Add the path, the bytes needed and the bytes free to a disk-full error.

    Args:
        path: the file or folder that is written.
        folder: a folder on its disk.
        needs: a clause such as "the index needs 10 bytes"; "" leaves it out.
        option: the option that names another folder.

    Raises:
        OSError: the disk is full; an error that already names a file is raised unchanged.
    """
    try:
        yield
    except OSError as error:
        if not _is_disk_full(error) or _names_other_file(error, path):
            raise
        free = shutil.disk_usage(folder).free
        clause = f"{needs}, " if needs else ""
        message = (
            f"cannot be written ({error.strerror or error}); {clause}{free:,} bytes are free "
            f"on the disk of {folder}, besides what unfinished files hold until they are removed: "
            f"make room, or name another {option}"
        )
        raise OSError(error.errno or errno.ENOSPC, message, os.fspath(path)) from error


def explain_full_tmpdir() -> AbstractContextManager[None]:
    """Explain a full disk while temporary files are written."""
    folder = Path(tempfile.gettempdir())
    return explain_full_disk(folder, folder, "bucket files pass through it", "TMPDIR")


def _names_other_file(error: OSError, path: Path) -> bool:
    """Whether the error names a file, and that file is not inside the folder `path`."""
    return error.filename is not None and path not in Path(str(error.filename)).parents


def _is_disk_full(error: OSError) -> bool:
    """Whether the error is a full disk, an exceeded quota or a file that is too large."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    # NumPy has no errno: "64 requested and 12 written"
    return "requested and" in str(error)
