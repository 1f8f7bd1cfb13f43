"""Packing: documents become rows of exactly `row_length` tokens.

    wrap       documents are joined and cut every row_length tokens; a document may continue in the
               next row
    no wrap    when a row is full, the rest of its last document is cut off, so every row starts
               with a document
    best fit   whole documents, each in the row that it fills best (see
               `nanoset_ref.load.best_fit`), and padding

Fewer than row_length tokens are left over at the end: the tail. By default one packer
reads all documents of a subset, so the rows do not depend on the number of workers.
`interleave_workers` reproduces the Amber corpus instead: every worker packs its own files and drops
its own tail, so the rows depend on the number of workers. Packing copies the tokens once. Best fit
does not leave a tail, puts long documents first, and needs some 60 bytes of memory per document.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise, zip_longest
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import IntegerArray
from nanoset_ref.tokens import Tokens

WORKER_BATCH = 512  # rows that a worker of the original script returns at once
T = TypeVar("T")
# ids; with best fit, document lengths
PackedRow = tuple[IntegerArray, list[int] | None]


class Packer:
    """Packs documents into rows; how they are divided among calls does not change the rows.

    Args:
        row_length: tokens per row; for training with labels shifted by one, sequence_length + 1.
        wrap: whether documents continue in the next row.

    Attributes:
        tail: integers [fewer than row_length], the tokens that are not in a row yet.
        cut_tokens: tokens cut off so far; 0 with wrap.

    Raises:
        ValueError: row_length is below 1.
    """

    def __init__(self, row_length: int, *, wrap: bool = True) -> None:
        self.row_length = whole_number(row_length, "row_length", 1)
        self.wrap = wrap
        self.tail: IntegerArray = np.empty(0, dtype=np.uint16)
        self.cut_tokens = 0

    def add(self, ids: IntegerArray, lengths: ArrayLike) -> IntegerArray:
        """Add documents, and return the rows that became full.

        Args:
            ids: integers [sum(lengths)], the documents back to back, separators included.
            lengths: integers [documents], in tokens.

        Returns:
            Integers [rows, row_length] of the dtype of `ids`.
        """
        ids = np.concatenate([self.tail, ids]).astype(ids.dtype)
        document_ends = np.cumsum(lengths) + len(self.tail)
        rows = [ids[:0]]
        start = 0
        # row_length 33, documents that end at 30, 40 and 95: without wrap, rows 0:33 and 40:73
        while (end := start + self.row_length) <= len(ids):
            rows.append(ids[start:end])
            start = end
            if not self.wrap:
                start = int(document_ends[np.searchsorted(document_ends, end)])
                self.cut_tokens += start - end
        self.tail = ids[start:].copy()
        return np.concatenate(rows).reshape(-1, self.row_length)


def best_fit_rows(file: Tokens, row_length: int, pad_id: int) -> Iterator[PackedRow]:
    """Pack the documents of a file by best fit; fill up rows of `row_length` with `pad_id`."""
    from nanoset_ref.load.best_fit import pack_documents  # only best fit needs it

    document_offsets = file.require_document_offsets()
    row_offsets, starts, lengths = pack_documents(document_offsets, row_length)
    stops = starts + lengths
    for start, stop in pairwise(row_offsets.tolist()):
        documents = [file.tokens[starts[n] : stops[n]] for n in range(start, stop)]
        ids = np.concatenate(documents)
        row = np.full(row_length, pad_id, dtype=file.dtype)
        row[: len(ids)] = ids
        yield row, lengths[start:stop].tolist()


def interleave_workers(workers: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the rows of several workers in the original script's order: 512 of each in turn."""
    batches_of = [batched(rows, WORKER_BATCH) for rows in workers]
    for one_of_each in zip_longest(*batches_of, fillvalue=()):
        yield from chain.from_iterable(one_of_each)


def batched(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` rows; the last may be shorter. (In itertools from Python 3.12 on.)"""
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
