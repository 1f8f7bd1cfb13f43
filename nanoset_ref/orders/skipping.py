"""Another order without some of its positions: for batches that a run should not read.

The ranges are absolute, in positions of the original order; all other samples keep their sequence.
A lookup costs a binary search in the ranges.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.orders.base import Order, Pairs


class SkippingOrder(Order):
    """Another order without the positions in some ranges.

    Position k here is the k-th position there that is in no range. So ranges after the samples
    consumed so far change nothing that has been read, and `consumed_train_samples` stays as it was;
    a range added before them would shift it.

    Example, ranges [(2, 4)]: positions 0 1 2 3 here are 0 1 4 5 there.

    Args:
        order: the original order. If it skips ranges itself, both are left out of the order below.
        ranges: (start, stop) pairs, in any order, within the order and not overlapping.

    Attributes:
        order: the order below, which is not a SkippingOrder.
        ranges: [start, stop] pairs of its positions, sorted; adjacent ones are merged.

    Raises:
        ValueError: an empty, overlapping or outlying range.
    """

    order: Order
    ranges: list[list[int]]

    def __init__(self, order: Order, ranges: Sequence[tuple[int, int]]) -> None:
        pairs = sorted(map(_checked_range, ranges))
        bounds = [bound for pair in pairs for bound in pair]
        if any(start >= stop for start, stop in pairs) or np.any(
            np.diff([0, *bounds, len(order)]) < 0
        ):
            raise ValueError(
                "skip ranges must not be empty, overlap or leave the "
                f"{len(order)} positions of the order; got {pairs}"
            )
        if isinstance(order, SkippingOrder):
            # each range grows by the positions within it that are skipped already
            spans = [
                [order._original_of(start), order._original_of(stop - 1) + 1]
                for start, stop in pairs
            ]
            pairs = [*order.ranges, *spans]
            order = order.order
        self.order = order
        self.ranges = merge_ranges(pairs)
        # e.g. 100 positions without 2 .. 3: the intervals 0 .. 1 and 4 .. 99 are kept
        table = np.array(self.ranges, dtype=int).reshape(-1, 2)
        self._kept_firsts = np.array([0, *table[:, 1]])  # 0 4
        self._kept_stops = np.array([*table[:, 0], len(order)])  # 2 100
        # 0 2: position there - position here
        self._shifts = np.append(0, np.cumsum(table[:, 1] - table[:, 0]))
        num_samples = len(order) - int(self._shifts[-1])
        super().__init__(order.dataset_lengths, None, num_samples, order.random_seed)
        self.name = order.name
        self.dataset_weights = order.dataset_weights
        self.weighted = order.weighted
        self.keeps_shares = order.keeps_shares
        self.endless = order.endless

    def original(self, positions: Int64Array) -> Int64Array:
        """Positions in the order below."""
        firsts_here = self._kept_firsts - self._shifts
        interval = np.searchsorted(firsts_here, positions, side="right") - 1
        return positions + self._shifts[interval]

    def _original_of(self, position: int) -> int:
        """The position below of one position, or of the end."""
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
        """The identity of the order below, and the ranges of it that are left out, if any."""
        identity = self.order.identity
        return identity | {"skipped": self.ranges} if self.ranges else identity

    def epoch_of(self, position: int) -> int:
        """See `Order.epoch_of`."""
        return self.order.epoch_of(self._original_of(position))

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        self._check_begun(positions.min(initial=self.num_samples))
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
        """See `Order._counts`: the counts below, less those of the ranges."""
        self._check_begun(until)
        first = self.order.first_position
        end = self._original_of(until)
        counts = self.order.counts(end)
        for start, stop in self.ranges:
            if first < stop and start < end:
                counts += self.order.counts(max(start, first))
                counts -= self.order.counts(stop)
        return counts


def _checked_range(bounds: Any) -> list[int]:
    """[start, stop] as ints."""
    if np.shape(bounds) != (2,):
        raise ValueError(
            f"a range to skip is a pair (start, stop), got {bounds!r:.200}"
        )
    return [whole_number(bound, "a bound", bits=62) for bound in bounds]


def merge_ranges(ranges: list[list[int]]) -> list[list[int]]:
    """The same positions as sorted ranges that do not touch."""
    merged: list[list[int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(stop, merged[-1][1])
        else:
            merged.append([start, stop])
    return merged
