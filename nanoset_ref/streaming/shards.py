"""One shard of a text: its rows, in windows that are shuffled one by one.

A window is M rows that follow each other. It is gathered, and given out in an order keyed by (seed, epoch, shard, first
row), so a state needs no memory of what was drawn. To continue in the middle of a window, gather it again. Memory: one
window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from nanoset_ref.orders.permutation import derive, permute
from nanoset_ref.streaming.options import StreamOptions
from nanoset_ref.streaming.packed import Cursor, Row

Place = dict[str, int]


class Shard:
    """The rows of one shard, from a window on.

    Args:
        rows_from: reads the shard's text from a cursor on.
        number: of the shard.
        options: `repeat`, `shuffle_buffer` and `seed` matter here.
        epoch: the pass over the text, where there is no cursor.
        cursor: of a window; None is the beginning.

    Attributes:
        cursor: the window at hand: {"row", "epoch", "block", "document", "offset"}; rows count over all passes.

    Raises:
        ValueError: while reading, a shard without a single row.
    """

    def __init__(
        self,
        rows_from: Callable[[Cursor], Iterator[tuple[Cursor, Row]]],
        number: int,
        options: StreamOptions,
        epoch: int = 0,
        cursor: Place | None = None,
    ) -> None:
        self._rows_from, self._number, self._options = rows_from, number, options
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
            rows, first = self._rows_from(cursor), row
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
