"""Another order without some of its positions: for batches that a run should not see.

The ranges are absolute, in positions of the order they are taken from; everything else keeps its place in the sequence.
A lookup costs a binary search in the ranges.
"""

from collections.abc import Sequence

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
        firsts, stops = np.array(self.ranges, dtype=np.int64).reshape(-1, 2).T
        before = np.append(0, stops)
        if (firsts >= stops).any() or (firsts < before[:-1]).any() or before[-1] > len(order):
            raise ValueError(
                f"skip ranges must not be empty, overlap or leave the {len(order)} positions of the order; "
                f"got {self.ranges}"
            )
        self._skipped: Int64Array = np.append(0, np.cumsum(stops - firsts))
        self._firsts = firsts
        self._gaps = firsts - self._skipped[:-1]  # the position here at which each range is left out
        super().__init__(order.dataset_lengths, None, len(order) - int(self._skipped[-1]), order.random_seed)
        self.name, self.dataset_weights, self.weighted = order.name, order.dataset_weights, order.weighted

    def original(self, positions: Int64Array) -> Int64Array:
        """Positions in the order that ranges were taken from."""
        return positions + self._skipped[np.searchsorted(self._gaps, positions, side="right")]

    def _identity(self) -> dict[str, object]:
        return {"order": self.order.fingerprint, "skipped": self.ranges}

    def lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return self.order.lookup(self.original(positions))

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        found = self.order.positions(dataset, sample, int(self.original(np.array(until))))
        here = found - self._skipped[np.searchsorted(self._firsts, found, side="right")]
        return here[self.original(here) == found]

    def _counts(self, until: int) -> Int64Array:
        end = int(self.original(np.array(until)))
        passed = [edges for edges in self.ranges if edges[0] < end]
        skipped = sum(self.order.counts(stop) - self.order.counts(first) for first, stop in passed)
        return self.order.counts(end) - skipped
