"""Rows joined from pieces of files: packed documents, and Megatron's samples."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.njit import njit
from nanoset_ref.io.paths import in_bucket
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.load.document_spans import document_spans
from nanoset_ref.load.rows import Rows, Span, Starts
from nanoset_ref.tokens import Tokens


class JoinedRows(Rows):
    """Rows that are joined from pieces of files; a subclass finds the pieces.

    `spans` takes the files of a row one after another; where a row returns to an earlier file, the
    subclass has its own.
    """

    @abstractmethod
    def pieces(self, positions: Int64Array) -> Iterator[tuple[Tokens, Int64Array]]:
        """Yield the pieces of the rows at these positions, int64 [n], each group with its file.

        Pieces are int64 [pieces, 4], as `copy_pieces` takes them: the number of the row, the start
        and the end in the file (in tokens), and the column at which the piece begins in the row.
        The pieces of a row lie back to back, from column 0 on.
        """

    def fill(self, positions: Int64Array, out: Array) -> None:
        """See `Rows.fill`."""
        if self.padded:
            out[:] = self.pad_id
        for file, pieces in self.pieces(positions):
            copy_from_file(file, pieces, out)

    def _starts(self, positions: Int64Array) -> Starts:
        """Each piece starts a document, and so does each padding token."""
        starts = np.zeros((len(positions), self.row_length), dtype=np.bool_)
        starts[:, 0] = True
        filled = np.zeros((len(positions), 1), dtype=np.int64)
        for _, pieces in self.pieces(positions):
            rows, first_tokens, stops, columns = pieces.T
            is_empty = first_tokens == stops
            starts[rows, np.where(is_empty, 0, columns)] = True
            np.add.at(filled, (rows, 0), stops - first_tokens)
        return starts | (np.arange(self.row_length) >= filled)

    def spans(self, position: int) -> list[Span]:
        """See `Rows.spans`."""
        spans = []
        for file, pieces in self.pieces(np.array([position], np.int64)):
            for _, start, stop, _ in pieces.tolist():
                spans += document_spans(file, start, stop)
        return spans


def copy_from_file(file: Tokens, pieces: Int64Array, out: Array) -> None:
    """Copy pieces of rows out of a mapped file or an object in a bucket; see `copy_pieces`.

    Raises:
        OSError: the file was truncated after it was opened.
        StorageError: the object cannot be read, or was replaced.
    """
    ids: Any = file.tokens
    if in_bucket(file.path):
        copy_pieces(ids.read_spans(pieces[:, 1:3]), _offsets_in_copy(pieces), out)
        return
    check_not_truncated(ids)
    copy_pieces(ids, pieces, out)


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
