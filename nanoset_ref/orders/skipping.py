"""Another order without some of its positions: for batches that a run should not read.

The ranges are absolute, in positions of the original order; all other samples keep their sequence.
A lookup costs a binary search in the ranges.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.arrays import Int64Array
from nanoset_ref.io.checks import whole_number
from nanoset_ref.orders.base import Json, Order, Pairs


class SkippingOrder(Order):
    """Another order without the positions in some ranges.

    Position k here is the k-th position there that is in no range. So ranges after the samples
    consumed so far change nothing that has been read, and `consumed_train_samples` stays as it was;
    a range added before them would shift it.

    Example, ranges [(2, 4)]: positions 0 1 2 3 here are 0 1 4 5 there.

    Args:
        order: the original order.
        ranges: (start, stop) pairs, in any order, within the order and not overlapping.

    Raises:
        ValueError: an empty, overlapping or outlying range.
    """

    def __init__(self, order: Order, ranges: Sequence[tuple[int, int]]) -> None:
        self.order = order
        self.ranges = sorted(map(_checked_range, ranges))
        # e.g. 100 positions without 2 .. 3: the intervals 0 .. 1 and 4 .. 99 are kept
        table = np.array(self.ranges, dtype=int).reshape(-1, 2)
        firsts = table[:, 0]
        stops = table[:, 1]
        self._kept_firsts = np.array([0, *stops])  # 0 4
        self._kept_stops = np.array([*firsts, len(order)])  # 2 100
        kept_sizes = self._kept_stops - self._kept_firsts  # 2 96
        skipped = stops - firsts  # 2
        if min(kept_sizes) < 0 or min(skipped, default=1) < 1:
            raise ValueError(
                "skip ranges must not be empty, overlap or leave the "
                f"{len(order)} positions of the order; got {self.ranges}"
            )
        # 0 2: position there - position here
        self._shifts = np.append(0, np.cumsum(skipped))
        num_samples = int(kept_sizes.sum())
        super().__init__(order.dataset_lengths, None, num_samples, order.random_seed)
        self.name = order.name
        self.dataset_weights = order.dataset_weights
        self.weighted = order.weighted
        self.keeps_shares = order.keeps_shares
        self.endless = order.endless

    def original(self, positions: Int64Array) -> Int64Array:
        """Positions in the original order."""
        firsts_here = self._kept_firsts - self._shifts
        interval = np.searchsorted(firsts_here, positions, side="right") - 1
        return positions + self._shifts[interval]

    def _original_of(self, position: int) -> int:
        return int(self.original(np.array(position)))

    @property
    def first_position(self) -> int:  # type: ignore[override]
        """See `Order.first_position`."""
        first = self.order.first_position
        skipped = 0
        for start, stop in self.ranges:
            skipped += min(stop, first) - min(start, first)
        return first - skipped

    @property
    def identity(self) -> Json:
        """The identity of the innermost order, and the ranges of it that are left out, if any."""
        ranges = self.ranges_of_innermost()
        identity = self.innermost.identity
        return identity | {"skipped": ranges} if ranges else identity

    @property
    def innermost(self) -> Order:
        """The order below all SkippingOrders."""
        if isinstance(self.order, SkippingOrder):
            return self.order.innermost
        return self.order

    def ranges_of_innermost(self) -> list[list[int]]:
        """The ranges in positions of the innermost order, sorted; adjacent ones are merged."""
        ranges = [list(pair) for pair in self.ranges]
        if isinstance(self.order, SkippingOrder):
            bounds = np.array(ranges, dtype=int).reshape(-1, 2)
            bounds[:, 0] = self.order.original_of_innermost(bounds[:, 0])
            bounds[:, 1] = self.order.original_of_innermost(bounds[:, 1] - 1) + 1
            ranges = sorted([*self.order.ranges_of_innermost(), *bounds.tolist()])
        merged: list[list[int]] = []
        for start, stop in ranges:
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(stop, merged[-1][1])
            else:
                merged.append([start, stop])
        return merged

    def original_of_innermost(self, positions: Int64Array) -> Int64Array:
        """Positions in the innermost order."""
        original = self.original(positions)
        if isinstance(self.order, SkippingOrder):
            return self.order.original_of_innermost(original)
        return original

    def epoch_of(self, position: int) -> int:
        """See `Order.epoch_of`."""
        return self.order.epoch_of(self._original_of(position))

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        return self.order.lookup(self.original(positions))

    def reverse_lookup(
        self,
        source: int,
        sample: int,
        until: int,
    ) -> Int64Array:
        """See `Order.reverse_lookup`."""
        end = self._original_of(until)
        there = self.order.positions(source, sample, end)
        interval = np.searchsorted(self._kept_firsts, there, side="right") - 1
        is_kept = there < self._kept_stops[interval]
        here = there - self._shifts[interval]
        return here[is_kept]

    def _counts(self, until: int) -> Int64Array:
        first = self.order.first_position
        end = self._original_of(until)
        counts = self.order.counts(end)
        for start, stop in self.ranges:
            if first < stop and start < end:
                counts += self.order.counts(max(start, first))
                counts -= self.order.counts(stop)
        return counts


def _checked_range(bounds: Any) -> tuple[int, int]:
    """(start, stop) as ints."""
    if np.shape(bounds) != (2,):
        raise ValueError(
            f"a range to skip is a pair (start, stop), got {bounds!r:.200}"
        )
    start, stop = (whole_number(bound, "a bound", bits=62) for bound in bounds)
    return start, stop
