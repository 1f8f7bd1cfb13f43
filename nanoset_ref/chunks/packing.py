"""Packing: documents become rows of exactly `row_length` tokens.

    wrap:     the documents lie back to back and are cut every row_length tokens; a document may go on in the next row
    no wrap:  as soon as a row is full the rest of its last document is cut away, so that every row begins with a
    document
    best fit: whole documents, each in the row that it fills best (see `nanoset_ref.load.best_fit`), and
    padding at the end

What no row holds in the end is the tail, fewer than row_length tokens. One packer over all documents of a subset makes
the rows independent of the number of workers: that is the default. `interleave_workers` is the other way, how the Amber
corpus was made: every worker packs the files it was given and drops its own tail, so the result depends on the
number of workers. The cost of packing is a copy of the tokens. Best fit leaves no tail, puts long documents first, and
holds some 60 bytes per document in memory.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise, zip_longest
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nanoset_ref.tokens import Tokens

WORKER_BATCH = 512  # rows that a worker of the original script hands over at once
Row = TypeVar("Row")
PackedRow = tuple[
    NDArray[np.integer], list[int] | None
]  # ids; tokens of each document in it, if it holds whole ones


class Packer:
    """Rows out of documents that arrive in pieces; the rows do not depend on how the documents are cut into pieces.

    Args:
        row_length: tokens per row; for training with labels shifted by one, sequence_length + 1.
        wrap: whether documents go on in the next row.

    Attributes:
        tail: integers [fewer than row_length], the tokens that no row holds yet.
        cut_tokens: tokens cut away so far; 0 with wrap.

    Raises:
        ValueError: a row_length below 1.
    """

    def __init__(self, row_length: int, *, wrap: bool = True) -> None:
        if row_length < 1:
            raise ValueError(f"a row holds at least 1 token, got row_length={row_length}")
        self.row_length = row_length
        self.wrap = wrap
        self.tail: NDArray[np.integer] = np.empty(0, dtype=np.uint16)
        self.cut_tokens = 0

    def add(self, ids: NDArray[np.integer], lengths: ArrayLike) -> NDArray[np.integer]:
        """Add documents; returns the rows that became full.

        Args:
            ids: integers [sum(lengths)], the documents back to back, separators included.
            lengths: integers [documents], the tokens of each.

        Returns:
            Integers [rows, row_length] of the dtype of `ids`.
        """
        ids = np.concatenate([self.tail, ids]).astype(ids.dtype)
        document_ends = np.cumsum(lengths) + len(self.tail)
        rows, start = [ids[:0]], 0
        while (end := start + self.row_length) <= len(
            ids
        ):  # documents end at 30, 40, 95; rows of 33 are 0:33, 40:73
            rows.append(ids[start:end])
            start = end if self.wrap else int(document_ends[np.searchsorted(document_ends, end)])
            self.cut_tokens += start - end
        self.tail = ids[start:].copy()
        return np.concatenate(rows).reshape(-1, self.row_length)


def best_fit_rows(file: Tokens, row_length: int, pad_id: int) -> Iterator[PackedRow]:
    """The documents of a file in rows of `row_length` tokens by best fit, filled up with `pad_id`."""
    from nanoset_ref.load.best_fit import pack_documents  # which loads torch

    first, begins, sizes = pack_documents(file.known_documents(), row_length)
    for low, high in pairwise(first.tolist()):
        row = np.full(row_length, pad_id, dtype=file.dtype)
        lengths = sizes[low:high].tolist()
        parts = [
            file.tokens[begin : begin + size]
            for begin, size in zip(begins[low:high], lengths, strict=True)
        ]
        row[: sum(lengths)] = np.concatenate(parts)
        yield row, lengths


def interleave_workers(workers: Iterable[Iterable[Row]]) -> Iterator[Row]:
    """The rows of several workers in the order of the original script: 512 of each in turn."""
    for turn in zip_longest(*(batches(rows, WORKER_BATCH) for rows in workers), fillvalue=()):
        for rows in turn:
            yield from rows


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """`size` rows at a time, and what is left."""
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
