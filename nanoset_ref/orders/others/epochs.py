"""`EpochOrder`: an order that shuffles all samples anew in every epoch."""

from abc import abstractmethod
from typing import Any

import numpy as np

from nanoset_ref.orders.base import Int64Array, Order, Pairs


class EpochOrder(Order):
    """Position k reads place k mod `epoch_length` of epoch k // `epoch_length`.

    Attributes:
        epoch_length: positions in an epoch.
        options: what the order depends on besides the usual arguments, as JSON.
    """

    keeps_shares = False
    epoch_length: int

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | self.options

    @abstractmethod
    def _instances(self, epoch: int, places: Int64Array) -> Int64Array:
        """The instances [n] at places [n] of an epoch."""

    @abstractmethod
    def _places(
        self,
        epoch: int,
        dataset: int,
        sample: int,
    ) -> Int64Array:
        """The places of an epoch, ascending, that read a sample."""

    def lookup(self, positions: Int64Array) -> Pairs:
        epochs, places = np.divmod(positions, self.epoch_length)
        instances = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            chosen = epochs == epoch
            instances[chosen] = self._instances(epoch, places[chosen])
        return self.pairs(instances)

    def reverse_lookup(
        self,
        dataset: int,
        sample: int,
        until: int,
    ) -> Int64Array:
        found = [np.empty(0, dtype=np.int64)]
        for first in range(0, until, self.epoch_length):
            places = self._places(first // self.epoch_length, dataset, sample)
            found.append(first + places)
        positions = np.concatenate(found)
        return positions[positions < until]

    def epoch_of(self, position: int) -> int:
        return position // self.epoch_length
