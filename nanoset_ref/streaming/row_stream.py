"""Text to tokens, packed rows and shuffled buffers, starting at any place in the text.

1. Read documents from blocks in order, encode them a few batches ahead, and join them; with
   append_eod an EOS follows each.
2. Cut rows: row j is tokens[j*S : j*S + S + 1], so neighbors share one token, as in a token file.
3. Drop tokens at the end of the text that do not fill a row.

    documents  a b c / d e f g / h      S = 3, E = EOS
    tokens     a b c E d e f g E h E
    rows       a b c E,  E d e f,  f g E h      (E dropped)

A `Cursor` names a row and its first token: (block, document in it, token of the document). To
resume there, open this block, skip the documents before this one without encoding them, and encode
this document again.

4. Shuffle buffers of M consecutive rows. The order is keyed by (seed, epoch, shard, first row), so
   a state contains nothing of the shuffle. A resume within a buffer gathers it again.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from typing import NamedTuple

import numpy as np

from nanoset_ref.io.checks import refuses_unknown, whole_number
from nanoset_ref.io.types import Int32Array
from nanoset_ref.orders.permutation import derive, permute
from nanoset_ref.preprocess import Backend, Encoder, SpecialTokens
from nanoset_ref.preprocess.text import TextSource
from nanoset_ref.preprocess.text_blocks import TextBatch, TextBlock
from nanoset_ref.streaming.resumable import State

# version of rows and buffers: raised, with a line in CHANGELOG, if a text gives different rows
ALGORITHM = 3


# the least value of each number in StreamOptions
MINIMUMS = {
    "sequence_length": 1,
    "micro_batch_size": 1,
    "shards": 1,
    "shuffle_buffer": 0,
    "seed": None,
}


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """A stream's options; all but `backend` and `micro_batch_size` determine rows or their order.

    Args:
        sequence_length: S, in tokens; rows have S + 1.
        micro_batch_size: B, rows per batch of one rank; a DataLoader must use the same number.
        shards: K; the text is split into K texts that are encoded separately (see `token_stream`).
        repeat: start over at the end of the text, so that an iteration never ends; False: it is
            one epoch. Shards end at different times, so several shards require it.
        shuffle_buffer: M, in rows; 0: no shuffle.
        seed: the seed of the shuffle.
        append_eod: append the EOS id to each document; off by default, as in preprocessing.
        add_special_tokens, backend: see Encoder.
        special_tokens: "keep", "split" or "refuse" the special tokens that documents contain as
            text (see `preprocess.special_tokens`). "keep" warns of the first one; a stream without
            `repeat` also counts them.

    Raises:
        ValueError: a number is out of range, or there are several shards without `repeat`.
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
        for name, minimum in MINIMUMS.items():
            plain = whole_number(getattr(self, name), name, minimum)
            object.__setattr__(self, name, plain)
        if self.shards > 1 and not self.repeat:
            raise ValueError(
                f"shards={self.shards} end at different times; "
                "pass repeat=True and train for a number of steps"
            )


class Cursor(NamedTuple):
    """Where a row and its first token lie in the text.

    Attributes:
        row: the row's number in the shard, counted over all epochs.
        epoch: the pass over the text, from 0.
        block: the block's number in the shard.
        document: the document's number in the block.
        offset: of the row's first token in the document, in tokens.
    """

    row: int = 0
    epoch: int = 0
    block: int = 0
    document: int = 0
    offset: int = 0


def packed_rows(
    blocks: Iterable[TextBlock], encoder: Encoder, options: StreamOptions, start: Cursor
) -> Iterator[tuple[Cursor, Int32Array]]:
    """Pack blocks of text; yield (cursor, row int32 [S + 1]).

    Args:
        blocks: the shard's blocks, in order; those before `start` are not read.
        encoder: appends the EOS to each document (append_eod).
        options: the stream's options.
        start: the first row.
    """
    length = options.sequence_length
    # (block, document) of each document in `starts`
    places: list[tuple[int, int]] = []
    # of the batches that are being encoded
    pending_blocks: deque[int] = deque()

    def batches() -> Iterator[TextBatch]:
        for number, block in islice(enumerate(blocks), start.block, None):
            skip_before = start.document if number == start.block else 0
            for batch in block.batches():
                pending_blocks.append(number)
                yield dataclasses.replace(batch, skip_before=skip_before)

    tokens = np.empty(0, np.int32)  # encoded, but not yet in a row
    # document starts in `tokens`; the first may be negative
    starts = np.empty(0, np.int64)
    row_start = start.offset  # of the next row in `tokens`
    row_numbers = count(start.row)
    for _, encoded in encoder.stream(batches()):
        number = pending_blocks.popleft()
        places += zip(repeat(number), encoded.document_numbers, strict=False)
        if not encoded.document_numbers:
            continue
        ends = np.cumsum(encoded.lengths)
        starts = np.append(starts, len(tokens) + ends - encoded.lengths)
        tokens = np.append(tokens, encoded.ids.astype(np.int32))
        while row_start + length < len(tokens):
            document = np.searchsorted(starts, row_start, "right") - 1
            offset = row_start - int(starts[document])
            place = places[document]
            cursor = Cursor(next(row_numbers), start.epoch, *place, offset)
            yield cursor, tokens[row_start : row_start + length + 1].copy()
            row_start += length
        # drop everything before the next row
        document = np.searchsorted(starts, row_start, "right") - 1
        del places[:document]
        starts = starts[document:] - row_start
        tokens = tokens[row_start:]
        row_start = 0


def shuffled_rows(
    text: TextSource,
    encoder: Encoder,
    options: StreamOptions,
    shard: int,
    start: Cursor,
) -> Iterator[tuple[int, State, Int32Array]]:
    """Shuffle the rows of one shard; yield (number of the row, cursor of its buffer, row).

    Args:
        text: the text of all shards.
        encoder: appends the EOS to each document (append_eod).
        options: the stream's options.
        shard: the shard's number.
        start: the first row of a buffer.

    Raises:
        ValueError: the shard is too short for a row.
    """
    while True:
        blocks = islice(text.blocks(), shard, None, options.shards)
        packed = packed_rows(blocks, encoder, options, start)
        row_number = start.row
        while buffer := list(islice(packed, max(1, options.shuffle_buffer))):
            first, _ = buffer[0]
            for place in buffer_order(len(buffer), options.seed, shard, first):
                _, row = buffer[place]
                yield row_number, first._asdict(), row
                row_number += 1
        if row_number == start.row:
            raise ValueError(
                f"shard {shard} has no row of {options.sequence_length + 1} tokens: "
                "the text is too short, or has too few blocks"
            )
        if not options.repeat:
            encoder.special_token_counts.warn()
            return
        start = Cursor(row_number, start.epoch + 1)


def buffer_order(n: int, seed: int, shard: int, first: Cursor) -> Sequence[int]:
    """The keyed permutation of the n rows of one shuffle buffer."""
    if n == 1:
        return [0]
    key = np.uint64(seed % 2**64)
    for number in (0, first.epoch, shard, first.row):
        key = np.uint64(derive(key, number))
    return [permute(place, n, key) for place in range(n)]
