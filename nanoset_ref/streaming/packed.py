"""Text to tokens to packed rows to shuffled windows, from any place in the text on.

1. Documents come out of blocks in order, are encoded one batch ahead, an EOS after each (append_eod), and laid end to
   end.
2. Row j is tokens[j*S : j*S + S + 1]: neighbours share one token, as in a token file.
3. What does not fill a row at the end of the text is left out.

    documents  a b c / d e f g / h      S = 3, E = EOS
    tokens     a b c E d e f g E h E
    rows       a b c E,  E d e f,  f g E h      (E left out)

A `Cursor` names a row and its first token: (block, document in it, token of the document). To go there, open that
block, pass over the documents before without encoding them, and encode one document again.

4. A window is M rows that follow each other. It is gathered, and given out in an order keyed by (seed, epoch, shard,
   first row), so a state needs no memory of what was drawn. To continue within a window, gather it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.files import refuses_unknown
from nanoset_ref.orders.permutation import derive, permute
from nanoset_ref.preprocess import Backend, Encoder, SpecialTokens
from nanoset_ref.preprocess.text import Block, Document, TextSource
from nanoset_ref.streaming.resumable import State, at_least

ALGORITHM = 2  # version of rows and windows: raised, and named in CHANGELOG, whenever the same text gives others


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How text becomes rows, and in which order they come.

    Args:
        sequence_length: S, in tokens; rows have S + 1.
        micro_batch_size: B, rows per batch of one rank; a DataLoader must use the same.
        shards: K; the text is cut into K texts that are encoded apart (see `stream`).
        repeat: at the end of the text begin again: one `for` never ends. Without it a `for` is one epoch. The shards of
            a text end at different times, so more than one of them can only repeat.
        shuffle_buffer: M, in rows; 0: no shuffle.
        seed: of the shuffle.
        append_eod: put the EOS id after each document; off by default, as in preprocessing, which says why.
        add_special_tokens, backend: see Encoder.
        special_tokens: for special tokens that documents hold as text: "keep", "split" or "refuse" (see
            `tokenise.special`). A stream without an end warns of the first that it keeps, one with an end counts them.

    Raises:
        ValueError: a number out of its range, several shards without `repeat`.
    """

    sequence_length: int
    micro_batch_size: int = 1
    shards: int = 1
    repeat: bool = False
    shuffle_buffer: int = 0
    seed: int = 1234
    append_eod: bool = False
    add_special_tokens: bool = False
    backend: Backend = "auto"
    special_tokens: SpecialTokens = "keep"

    def __post_init__(self) -> None:
        for name in ("sequence_length", "micro_batch_size", "shards"):
            at_least(1, name, getattr(self, name))
        at_least(0, "shuffle_buffer", self.shuffle_buffer)
        if self.shards > 1 and not self.repeat:
            raise ValueError(
                f"shards={self.shards} end at different times; pass repeat=True and train for some steps"
            )


class Cursor(NamedTuple):
    """A row of a shard, and its first token: `offset` tokens into document number `document` of block `block`.

    Rows count over all passes over the text, which are the epochs.
    """

    row: int = 0
    epoch: int = 0
    block: int = 0
    document: int = 0
    offset: int = 0


def packed_rows(
    blocks: Iterable[Block], encoder: Encoder, options: StreamOptions, start: Cursor
) -> Iterator[tuple[Cursor, NDArray[np.int32]]]:
    """The rows of some blocks of text, int32 [S + 1], each after its cursor.

    Args:
        blocks: in order; only those from `start` on are read.
        encoder: sets the EOS after each document (append_eod).
        options: of the stream.
        start: the first row.
    """
    length = options.sequence_length
    sent: list[
        tuple[int, int]
    ] = []  # (block, document) of the texts the encoder was given, from the first in `begins`

    def documents() -> Iterator[Document]:
        for number, block in islice(enumerate(blocks), start.block, None):
            for document in block.documents():
                if (number, document.number) >= (start.block, start.document):
                    sent.append((number, document.number))
                    yield document

    # tokens at hand, where each document begins in them (the first one: or before), and where the next row does
    tokens, begins, at = np.empty(0, np.int32), np.empty(0, np.int64), start.offset
    numbers = count(start.row)
    for ids, lengths in encoder.stream(documents()):
        begins = np.append(begins, len(tokens) + np.cumsum(lengths) - lengths)
        tokens = np.append(tokens, ids.astype(np.int32))
        while at + length < len(tokens):
            document = np.searchsorted(begins, at, "right") - 1
            cursor = Cursor(next(numbers), start.epoch, *sent[document], at - int(begins[document]))
            yield cursor, tokens[at : at + length + 1].copy()
            at += length
        # let go of what lies before the next row
        document = np.searchsorted(begins, at, "right") - 1
        del sent[:document]
        tokens, begins, at = tokens[at:], begins[document:] - at, 0


def shuffled_rows(
    text: TextSource, encoder: Encoder, options: StreamOptions, number: int, start: Cursor
) -> Iterator[tuple[int, State, NDArray[np.int32]]]:
    """The rows of one shard as they are given out: how many came before, the cursor of the window, the row.

    Args:
        text: of all shards.
        encoder: sets the EOS after each document (append_eod).
        options: of the stream.
        number: of the shard.
        start: the first row of a window.

    Raises:
        ValueError: a shard without a single row.
    """
    while True:
        packed = packed_rows(
            islice(text.blocks(), number, None, options.shards), encoder, options, start
        )
        given = start.row
        while window := list(islice(packed, max(1, options.shuffle_buffer))):
            first = window[0][0]
            for place in (
                window_order(len(window), options.seed, number, first)
                if options.shuffle_buffer
                else [0]
            ):
                yield given, first._asdict(), window[place][1]
                given += 1
        if given == start.row:
            length = options.sequence_length + 1
            raise ValueError(
                f"shard {number} has no row of {length} tokens: too short a text, or too few blocks of it"
            )
        if not options.repeat:
            encoder.found.warn()
            return
        start = Cursor(given, start.epoch + 1)


def window_order(n: int, seed: int, shard: int, first: Cursor) -> Sequence[int]:
    """The keyed permutation of the n rows of one window."""
    key = np.uint64(seed % 2**64)
    for number in (0, first.epoch, shard, first.row):
        key = np.uint64(derive(key, number))
    return [permute(place, n, key) for place in range(n)]
