"""One shard of a text: its rows, pass after pass, in windows that each have an order of their own.

A window is M rows that follow each other; it is gathered, and given out in an order keyed by (seed, pass, shard, first
row). Going on in the middle of a window means to gather it again. Memory: one window.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.orders.permutation import derive, permute
from nanoset_ref.streaming.packed import Cursor, PackedRows, Row


class Shard:
    """The rows of one shard, from a window on.

    Args:
        rows_from: opens the shard's text at a cursor.
        number: of the shard.
        endless: when the text is over, begin it again.
        shuffle_buffer: M, in rows; 0 for no shuffle.
        seed: of the shuffle.
        epoch: the pass, where there is no cursor.
        cursor: of a window, as `cursor()` gives it; None is the beginning.

    Raises:
        ValueError: while reading, a shard without a single row.
    """

    def __init__(
        self,
        rows_from: Callable[[Cursor], PackedRows],
        number: int,
        endless: bool,
        shuffle_buffer: int,
        seed: int,
        epoch: int,
        cursor: dict[str, int] | None = None,
    ) -> None:
        self._rows_from, self._number, self._endless = rows_from, number, endless
        self._shuffle_buffer, self._seed = shuffle_buffer, seed
        # of the window: its first row, counted over all passes; its pass; where in the text it begins; its rows
        self._first, self._epoch, self._start = 0, epoch, Cursor()
        self._window: list[Row] = []
        if cursor:
            self._first, self._epoch = cursor["row"], cursor["epoch"]
            self._start = Cursor(cursor["block"], cursor["document"], cursor["offset"])
        self._packed = rows_from(self._start)
        self._fruitful = cursor is not None  # this pass has had rows

    def row(self, index: int) -> Row | None:
        """Row `index`, not before the window; None after the last one. A view: copy what you keep."""
        while index >= self._first + len(self._window):
            self._first += len(self._window)
            self._window = self._next_window()
            if not self._window:
                return None
        return self._window[index - self._first]

    def cursor(self) -> dict[str, int]:
        """The window: {"row", "epoch", "block", "document", "offset"}."""
        return {"row": self._first, "epoch": self._epoch, **self._start._asdict()}

    def _next_window(self) -> list[Row]:
        self._start = self._packed.cursor
        rows = list(islice(iter(self._packed.take, None), max(1, self._shuffle_buffer)))
        if not rows and not self._fruitful:
            raise ValueError(
                f"shard {self._number} has no row of {self._packed.sequence_length + 1} tokens: the text is too short, "
                "or has fewer blocks (of about a MiB) than shards"
            )
        if not rows and self._endless:
            self._epoch, self._start, self._fruitful = self._epoch + 1, Cursor(), False
            self._packed = self._rows_from(self._start)
            return self._next_window()
        self._fruitful = True
        if not self._shuffle_buffer:
            return rows
        order = window_order(len(rows), self._seed % 2**64, self._epoch, self._number, self._first)
        return [rows[place] for place in order]


@njit(cache=True)
def window_order(n: int, seed: int, epoch: int, shard: int, first: int) -> NDArray[np.int64]:
    """The keyed permutation of the n rows of one window, int64 [n]."""
    key = derive(derive(derive(derive(seed, 0), epoch), shard), first)
    order = np.empty(n, np.int64)
    for place in range(n):
        order[place] = permute(place, n, key)
    return order
