"""Errors of a full disk that say how much is needed, how much is free, and the way out."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

# a full disk, an exceeded quota and a file that is too large
DISK_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


@contextmanager
def explain_full_disk(
    path: Path, folder: Path, needs: str = "", option: str = "folder"
) -> Iterator[None]:
    """Add the path, the bytes needed and the bytes free to a disk-full error.

    Args:
        path: the file or folder that is written.
        folder: a folder on its disk.
        needs: a clause such as "the index needs 10 bytes, "; "" leaves it out.
        option: the option that names another folder.

    Raises:
        OSError: the disk is full; an error that already names a file is raised unchanged.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        # a folder's error may name a file inside it
        is_other = name is not None and path not in Path(str(name)).parents
        if error.errno not in DISK_FULL or is_other:
            raise
        free = shutil.disk_usage(folder).free
        message = (
            f"cannot be written ({error.strerror}); {needs}{free:,} bytes are free "
            f"on the disk of {folder}, besides what unfinished files hold until they are removed: "
            f"make room, or name another {option}"
        )
        raise OSError(error.errno, message, os.fspath(path)) from error


def explain_full_tmpdir() -> AbstractContextManager[None]:
    """Explain a full disk while temporary files are written."""
    folder = Path(tempfile.gettempdir())
    return explain_full_disk(folder, folder, "bucket files pass through it, ", "TMPDIR")
