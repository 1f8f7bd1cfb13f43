"""Rows joined from pieces of files: packed documents, and Megatron's samples."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.arrays import Int64Array
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.njit import njit
from nanoset_ref.io.paths import in_bucket
from nanoset_ref.tokens import Tokens


def copy_from_file(file: Tokens, pieces: Int64Array, out: NDArray[Any]) -> None:
    """Copy pieces of rows out of a mapped file or an object in a bucket; see `copy_pieces`.

    Raises:
        OSError: the file was truncated after it was opened.
        StorageError: the object cannot be read, or was replaced.
    """
    if not in_bucket(file.path):
        check_not_truncated(file.tokens)
        copy_pieces(file.tokens, pieces, out)
        return
    pieces = pieces[pieces[:, 1] < pieces[:, 2]]
    copy_pieces(_fetch_pieces(file, pieces), _offsets_in_copy(pieces), out)


def _fetch_pieces(file: Tokens, pieces: Int64Array) -> NDArray[Any]:
    """The tokens of the pieces, back to back, by one round of requests."""
    from nanoset_ref.io.bucket_ranges import fetch  # only buckets need it

    ids: Any = file.tokens
    byte_ranges = (pieces[:, 1:3] * file.dtype.itemsize).tolist()
    parts = fetch([(ids, start, stop) for start, stop in byte_ranges])
    return np.frombuffer(b"".join(parts), file.dtype)


def _offsets_in_copy(pieces: Int64Array) -> Int64Array:
    """The same pieces, with offsets into their concatenation."""
    moved = pieces.copy()
    ends = np.cumsum(pieces[:, 2] - pieces[:, 1])
    moved[:, 1:3] -= (pieces[:, 2] - ends)[:, None]
    return moved


@njit(work=lambda tokens, pieces, out: out.size)
def copy_pieces(tokens, pieces, out):
    """Join rows from pieces of one file.

    Args:
        tokens: integers [num_tokens], the ids of the file. Bounds are not checked.
        pieces: int64 [n, 4], (row, start, stop, column): tokens start:stop go to out[row, column:].
        out: integers [rows, length]. Places that no piece covers keep their values.
    """
    for n in range(len(pieces)):
        ids = tokens[pieces[n, 1] : pieces[n, 2]]
        target = out[pieces[n, 0], pieces[n, 3] :]
        for i in range(len(ids)):  # over two slices, which the compiler vectorizes
            target[i] = ids[i]
