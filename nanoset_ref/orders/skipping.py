"""Another order without some of its positions: for batches that a run should not see.

The ranges are absolute, in positions of the order they are taken from; everything else keeps its place in the sequence.
A lookup costs a binary search in the ranges. The rejected alternative, to filter samples while reading, gives the ranks
unequal numbers of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.orders.base import Int64Array, Order


class SkippingOrder(Order):
    """The positions of another order in which some ranges are left out.

    Position k here is the k-th position there that lies in no range. So ranges after the samples consumed so far
    change nothing in what has been read, and `consumed_train_samples` stays what it was; a range added before them
    would shift it.

    Example, ranges [(2, 4)]: positions 0 1 2 3 here are 0 1 4 5 there.

    Args:
        order: the order that ranges are taken from.
        ranges: (first, stop) pairs, in any order, within the order and not overlapping.

    Raises:
        ValueError: an empty, overlapping or outlying range.
    """

    def __init__(self, order: Order, ranges: Sequence[tuple[int, int]]) -> None:
        self.order, self.ranges = order, sorted((int(first), int(stop)) for first, stop in ranges)
        end = 0
        for first, stop in self.ranges:
            if not end <= first < stop <= len(order):
                raise ValueError(
                    f"skip ranges must not be empty, overlap or leave the {len(order)} positions of the order; "
                    f"got {self.ranges}"
                )
            end = stop
        edges = np.array(self.ranges, dtype=np.int64).reshape(-1, 2)
        self._skipped: Int64Array = np.concatenate([[0], np.cumsum(edges[:, 1] - edges[:, 0])])
        self._gaps: Int64Array = edges[:, 0] - self._skipped[:-1]  # the position here at which each range is left out
        self.name = order.name  # type: ignore[misc]
        self.dataset_lengths, self.dataset_weights = order.dataset_lengths, order.dataset_weights
        self.samples_per_epoch, self.random_seed, self.weighted = (
            order.samples_per_epoch,
            order.random_seed,
            order.weighted,
        )
        self.num_samples = len(order) - int(self._skipped[-1])

    def original(self, positions: Int64Array) -> Int64Array:
        """Positions in the order that ranges were taken from."""
        return positions + self._skipped[np.searchsorted(self._gaps, positions, side="right")]

    def _identity(self) -> dict[str, Any]:
        return {"order": self.order._identity(), "skipped": self.ranges}

    def _lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return self.order._lookup(self.original(positions))

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        if until == 0:
            return np.empty(0, dtype=np.int64)
        found = self.order._positions(dataset, sample, self._end(until))
        before = np.searchsorted(np.array([first for first, _ in self.ranges], dtype=np.int64), found, side="right")
        stops = np.array([0, *(stop for _, stop in self.ranges)], dtype=np.int64)
        kept = found >= stops[before]
        return found[kept] - self._skipped[before[kept]]

    def _counts(self, until: int) -> Int64Array:
        end = self._end(until)
        found = self.order._counts(end)
        for first, stop in self.ranges:
            if first < end:
                found = found - self.order._counts(stop) + self.order._counts(first)
        return found

    def _end(self, until: int) -> int:
        """The position there after position until - 1 here."""
        return int(self.original(np.array([until - 1], dtype=np.int64))[0]) + 1 if until else 0
