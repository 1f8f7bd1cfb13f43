"""Open files of token ids in any format: `open_tokens` one of them, `open_all` many."""

import os
import time
from collections.abc import Sequence

from numpy.typing import DTypeLike

from nanoset_ref.io.paths import PathLike, as_path, in_bucket, location_of
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.manifest import DOCUMENTS_SUFFIX, TokenFileError
from nanoset_ref.tokens.npy import TokenFile

# after waiting longer than this, in seconds, `open_all` opens the rest in threads
MAX_WAIT = 0.05
MAX_WAIT_PER_FILE = 0.0005
FILES_PER_CHECK = 8  # reading the clocks for every file would take longer


def open_tokens(
    path: PathLike,
    token_dtype: DTypeLike | None = None,
    eos_token_id: int | None = None,
    *,
    allow_unversioned: bool = False,
) -> Tokens:
    """Open a file of token ids.

    It is a .npy token file, a .bin/.idx pair (named by either file, or on the disk by their common
    prefix), a .ds file, or a .bin with the header of llm.c.

    Args:
        path: the file, or the URL of a .npy, .bin/.idx or .ds (see `nanoset_ref.io.buckets`).
        token_dtype: the ids' dtype, for a .npy or .ds file that does not record it; any other
            file must agree with it.
        eos_token_id: the id that ends each document, for a .npy file that does not record it; the
            id that begins each, for a shard of llm.c.
        allow_unversioned: whether to read from a server that reports no object versions, so that a
            replaced object goes undetected.

    Raises:
        FileNotFoundError, TokenFileError: see the format's reader. `token_dtype` contradicts the
            file, or the file is text, or a companion of a token file.
        StorageError: a URL cannot be read (see `nanoset_ref.io.buckets`).
    """
    location = location_of(path, allow_unversioned)
    name = location if isinstance(location, str) else location.name
    if name.endswith(".npy"):
        if name.endswith(DOCUMENTS_SUFFIX):
            owner = os.path.basename(name).removesuffix(DOCUMENTS_SUFFIX) + ".npy"
            raise TokenFileError(
                f"{location} holds the document boundaries of {owner}; name that file instead"
            )
        return TokenFile(location, token_dtype, eos_token_id)
    # only other formats need it
    from nanoset_ref.tokens.other_formats import open_other_format

    return open_other_format(as_path(location), token_dtype, eos_token_id)


def open_all(
    files: Sequence[PathLike | Tokens], token_dtype: DTypeLike | None
) -> list[Tokens]:
    """Open files one after another, and the rest in threads once opening proves slow.

    Buckets are slow, and so are disks whose directories are not cached. Elsewhere threads would
    only take turns holding the GIL.

    Raises:
        ValueError: there are no files.
        TokenFileError: see `open_tokens`; `token_dtype` contradicts an open file.

    Warns (by logging): two files record different vocabularies.
    """
    if not files:
        raise ValueError("dataset_paths must name at least one token file, got none")

    def open_one(file: PathLike | Tokens) -> Tokens:
        if isinstance(file, Tokens):
            # only open files need it
            from nanoset_ref.tokens.other_formats import require_dtype

            require_dtype(file, token_dtype)
            return file
        return open_tokens(file, token_dtype)

    opened = []
    waited_before = _seconds_waited()
    for file in files:
        opened.append(open_one(file))
        if len(opened) % FILES_PER_CHECK == 1:
            waited = _seconds_waited() - waited_before
            allowed = MAX_WAIT + MAX_WAIT_PER_FILE * len(opened)
            if waited > allowed or in_bucket(opened[-1].location):
                break
    rest = files[len(opened) :]
    if rest:
        from nanoset_ref.io.threads import thread_map  # only slow files need it

        opened += thread_map(open_one, rest)
    if len(opened) > 1:
        # one file needs no comparison
        from nanoset_ref.tokens.vocabularies import warn_of_other_vocabularies

        warn_of_other_vocabularies(opened)
    return opened


def _seconds_waited() -> float:
    """Seconds that this thread did not run; only differences mean anything."""
    return time.perf_counter() - time.thread_time()
