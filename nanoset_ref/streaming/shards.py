"""One shard of a text: its rows, in windows that are shuffled one by one.

A window is M rows that follow each other. It is gathered, and given out in an order keyed by (seed, epoch, shard, first
row), so a state needs no memory of what was drawn. To continue in the middle of a window, gather it again. Memory: one
window.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from nanoset_ref.orders.permutation import derive, permute
from nanoset_ref.streaming.options import StreamOptions
from nanoset_ref.streaming.packed import Cursor, Row, packed_rows
from nanoset_ref.text import TextSource
from nanoset_ref.tokenise.encode import Encoder

Place = dict[str, int]


class Shard:
    """The rows of one shard, from a window on.

    Args:
        text: of all shards.
        encoder: sets the EOS after each document (append_eod).
        options: of the stream.
        number: of the shard.
        epoch: the pass over the text, where there is no cursor.
        cursor: of a window; None is the beginning.

    Attributes:
        cursor: the window at hand: {"row", "epoch", "block", "document", "offset"}; rows count over all passes.

    Raises:
        ValueError: while reading, a shard without a single row.
    """

    def __init__(
        self,
        text: TextSource,
        encoder: Encoder,
        options: StreamOptions,
        number: int,
        epoch: int = 0,
        cursor: Place | None = None,
    ) -> None:
        self._text, self._encoder, self._options, self._number = text, encoder, options, number
        self.cursor: Place = cursor or {"row": 0, "epoch": epoch, **Cursor()._asdict()}
        self._window: list[Row] = []
        self._windows = self._read(**self.cursor)

    def row(self, index: int) -> Row | None:
        """Row `index`, not before the window; None after the last one."""
        while index >= self.cursor["row"] + len(self._window):
            following = next(self._windows, None)
            if following is None:
                return None
            self.cursor, self._window = following
        return self._window[index - self.cursor["row"]]

    def _read(self, row: int, epoch: int, **start: int) -> Iterator[tuple[Place, list[Row]]]:
        options, cursor = self._options, Cursor(**start)
        while True:
            blocks = islice(self._text.blocks(), self._number, None, options.shards)
            rows = packed_rows(blocks, self._encoder, options.sequence_length, cursor, options.position_ids)
            first = row
            while window := list(islice(rows, max(1, options.shuffle_buffer))):
                order = range(len(window))
                if options.shuffle_buffer:
                    order = window_order(len(window), options.seed, epoch, self._number, row)
                yield {"row": row, "epoch": epoch, **window[0][0]._asdict()}, [window[place][1] for place in order]
                row += len(window)
            if row == first:
                raise ValueError(
                    f"shard {self._number} has no row of {options.sequence_length + 1} tokens: the text is too "
                    "short, or has fewer blocks (of about a MiB) than shards"
                )
            if not options.repeat:
                return
            epoch, cursor = epoch + 1, Cursor()


def window_order(n: int, seed: int, epoch: int, shard: int, first: int) -> list[int]:
    """The keyed permutation of the n rows of one window."""
    key = np.uint64(seed % 2**64)
    for number in (0, epoch, shard, first):
        key = np.uint64(derive(key, number))
    return [permute(place, n, key) for place in range(n)]
