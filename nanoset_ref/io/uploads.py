"""Writing a set of objects into a bucket, which is valid once its last object is there."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nanoset_ref.io.buckets import call_obstore
from nanoset_ref.io.full_disk import explain_full_tmpdir
from nanoset_ref.io.urls import BucketPath, StorageError

MIN_PART_BYTES = 16 << 20  # of an upload
MAX_PARTS = 9_000  # of an upload
TRIAL_SUFFIX = ".nanoset_ref-trial"  # suffix of an object written to test write access


@contextlib.contextmanager
def write_to_bucket(targets: Sequence[BucketPath]) -> Iterator[list[Any]]:
    """Write a set of objects: yield a temporary for each, upload them on a clean exit.

    1. Write and delete a trial object, so that missing write access is found before the work.
    2. Delete the old last object: without it the old set is not valid.
    3. Upload in the order of `targets`, the new last object last.

    A failed upload leaves no valid set: the last object is missing. Objects before it may stay,
    until the next run replaces them, and parts of an upload, until the bucket's lifecycle rules
    remove them. The temporaries are in TMPDIR.

    Raises:
        StorageError: write access is missing, a target has a query, or an upload failed.
        OSError: the disk of TMPDIR is full.
    """
    last = targets[-1]
    if last.query:
        raise StorageError(
            f"{last}: a query cannot be part of a target: it opens one object, a set has several"
        )
    # 1. try write access
    trial = last.with_suffix(TRIAL_SUFFIX)
    call_obstore(trial, "put", b"")
    trial.unlink()
    with explain_full_tmpdir(), contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.NamedTemporaryFile()) for _ in targets]
        yield files
        # 2. delete the old last object
        if last.exists():
            last.unlink()
        # 3. upload, the last object last
        for file, target in zip(files, targets, strict=True):
            file.flush()
            size = max(MIN_PART_BYTES, os.path.getsize(file.name) // MAX_PARTS)
            call_obstore(
                target, "put", Path(file.name), chunk_size=size, max_concurrency=4
            )
