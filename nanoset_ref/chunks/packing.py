"""Packing: documents become rows of exactly `row_length` tokens.

    wrap:     the documents lie back to back and are cut every row_length tokens; a document may go on in the next row
    no wrap:  as soon as a row is full the rest of its last document is cut away, so that every row begins with a
    document

What no row holds in the end is the tail, fewer than row_length tokens. One packer over all documents of a subset makes
the rows independent of the number of workers: that is the default. `interleave_workers` is the other way, how the Amber
corpus was made: every worker packs the files it was given and drops a tail of its own, so the result depends on the
number of workers. The cost of packing is a copy of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORKER_BATCH = 512  # rows that a worker of the original script hands over at once


class Packer:
    """Rows out of documents that arrive in pieces; the rows do not depend on how the documents are cut into pieces.

    Args:
        row_length: tokens per row; for training with labels shifted by one, sequence_length + 1.
        wrap: whether documents go on in the next row.
        carried: integers [fewer than row_length], the tail of another packer, to begin with.

    Attributes:
        tail: integers [fewer than row_length], the tokens that no row holds yet.
        cut_tokens: tokens cut away so far; 0 with wrap.

    Raises:
        ValueError: a row_length below 1, or a carried tail that is a row or more.
    """

    def __init__(self, row_length: int, *, wrap: bool = True, carried: ArrayLike = ()) -> None:
        if row_length < 1:
            raise ValueError(f"a row holds at least 1 token, got row_length={row_length}")
        self.tail: NDArray[np.integer] = np.asarray(carried, dtype=np.int64)
        if len(self.tail) >= row_length:
            raise ValueError(f"a carried tail is shorter than a row of {row_length} tokens, got {len(self.tail)}")
        self.row_length, self.wrap, self.cut_tokens = row_length, wrap, 0

    def add(self, ids: NDArray[np.integer], lengths: NDArray[np.int64]) -> NDArray[np.integer]:
        """Add documents; returns the rows that became full.

        Args:
            ids: integers [sum(lengths)], the documents back to back, separators included.
            lengths: int64 [documents], the tokens of each; needed without wrap only.

        Returns:
            Integers [rows, row_length] of the dtype of `ids`.
        """
        ids = np.concatenate([self.tail, ids]).astype(ids.dtype)
        starts = np.arange(0, len(ids) - self.row_length + 1, self.row_length)
        end = len(starts) * self.row_length
        if not self.wrap:
            starts, end = self._starts_of_documents(np.cumsum(lengths) + len(self.tail))
        self.tail = ids[end:].copy()
        if self.wrap:
            return ids[:end].reshape(-1, self.row_length)
        return ids[np.add.outer(starts, np.arange(self.row_length))]

    def _starts_of_documents(self, document_ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Where rows begin, and where the next would: ends [30, 40, 95], rows of 33: [0, 40], 95; 7 and 22 are cut."""
        starts, start = [], 0
        while (full := int(np.searchsorted(document_ends, start + self.row_length))) < len(document_ends):
            starts.append(start)
            self.cut_tokens += int(document_ends[full]) - start - self.row_length
            start = int(document_ends[full])
        return np.array(starts, dtype=np.int64), start


def interleave_workers(workers: Sequence[NDArray[np.integer]]) -> Iterator[NDArray[np.integer]]:
    """The rows of several workers, [rows, row_length] each, in the order of the original script: 512 in turn."""
    for begin in range(0, max(map(len, workers), default=0), WORKER_BATCH):
        for rows in workers:
            if begin < len(rows):
                yield rows[begin : begin + WORKER_BATCH]
