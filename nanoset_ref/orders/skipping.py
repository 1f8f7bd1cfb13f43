"""Another order without some of its positions: for batches that a run should not see.

The ranges are absolute, in positions of the order they are taken from; everything else keeps its place in the sequence.
A lookup costs a binary search in the ranges.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.orders.base import Int64Array, Order, Pairs


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
        edges = np.array([0, *itertools.chain(*self.ranges), len(order)])
        kept, skipped = (
            np.diff(edges)[::2],
            np.diff(edges)[1::2],
        )  # lengths, one after the other: 2 2 96
        if min(kept) < 0 or min(skipped, default=1) < 1:
            raise ValueError(
                f"skip ranges must not be empty, overlap or leave the {len(order)} positions of the order; "
                f"got {self.ranges}"
            )
        self._kept = edges.reshape(
            -1, 2
        )  # first and stop of each stretch that is kept, in the order: 0 2, 4 100
        self._shifts = np.append(
            0, np.cumsum(skipped)
        )  # how much further a stretch lies there than here: 0 2
        super().__init__(order.dataset_lengths, None, int(kept.sum()), order.random_seed)
        self.name, self.dataset_weights, self.weighted = (
            order.name,
            order.dataset_weights,
            order.weighted,
        )
        self.keeps_shares, self.endless = order.keeps_shares, order.endless

    def original(self, positions: Int64Array) -> Int64Array:
        """Positions in the order that ranges were taken from."""
        begins = self._kept[:, 0] - self._shifts
        return positions + self._shifts[np.searchsorted(begins, positions, side="right") - 1]

    @property
    def first_position(self) -> int:  # type: ignore[override]
        first = self.order.first_position
        return first - sum(min(stop, first) - min(begin, first) for begin, stop in self.ranges)

    @property
    def identity(self) -> dict[str, Any]:
        """The order's, and the ranges, of which neighbours are one; without a range it is the order's."""
        skipped: list[list[int]] = []
        for first, stop in self.ranges:
            if skipped and skipped[-1][1] == first:
                skipped[-1][1] = stop
            else:
                skipped.append([first, stop])
        inner = self.order.identity
        return inner | {"skipped": [*inner.get("skipped", []), skipped]} if skipped else inner

    @property
    def recipe(self) -> None:
        """None: the ranges are no option of `build_order`."""

    def epoch_of(self, position: int) -> int:
        return self.order.epoch_of(int(self.original(np.array(position))))

    def lookup(self, positions: Int64Array) -> Pairs:
        return self.order.lookup(self.original(positions))

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        found = self.order.positions(dataset, sample, int(self.original(np.array(until))))
        stretch = np.searchsorted(self._kept[:, 0], found, side="right") - 1
        return (found - self._shifts[stretch])[found < self._kept[stretch, 1]]

    def _counts(self, until: int) -> Int64Array:
        end, begin = int(self.original(np.array(until))), self.order.first_position
        counts = self.order.counts(end)
        for first, stop in self.ranges:
            if begin < stop and first < end:
                counts -= self.order.counts(stop) - self.order.counts(max(first, begin))
        return counts
