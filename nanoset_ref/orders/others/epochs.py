"""`EpochOrder`: an order that shuffles its samples anew in every epoch."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.orders.base import Int64Array, Order, Pairs


class EpochOrder(Order):
    """Position k reads place k mod `epoch_length` of epoch k // `epoch_length`.

    Attributes:
        epoch_length: positions in an epoch.
    """

    keeps_shares = False
    epoch_length: int
    _last_shuffled: tuple[int, NDArray[Any]] = -1, np.empty(0)

    def shuffled(self, epoch: int) -> NDArray[Any]:
        """What `_shuffle` returns for an epoch; that of the last epoch asked for is kept."""
        kept_epoch, numbers = self._last_shuffled
        if kept_epoch != epoch:
            numbers = self._shuffle(epoch)
            self._last_shuffled = epoch, numbers  # at once: threads may ask for different epochs
        return numbers

    def _shuffle(self, epoch: int) -> NDArray[Any]:
        """The numbers of an epoch in the order of training, for an order that stores them."""
        raise NotImplementedError

    @abstractmethod
    def _instances(self, epoch: int, places: Int64Array) -> Int64Array:
        """The instances [n] at places [n] of an epoch."""

    def _places(self, epoch: int, dataset: int, sample: int) -> Int64Array:
        """The places of an epoch, ascending, that read a sample; all are looked up."""
        read = self._instances(epoch, np.arange(self.epoch_length))
        return np.flatnonzero(read == self.firsts[dataset] + sample)

    def lookup(self, positions: Int64Array) -> Pairs:
        epochs, places = np.divmod(positions, self.epoch_length)
        instances = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            chosen = epochs == epoch
            instances[chosen] = self._instances(epoch, places[chosen])
        return self.pairs(instances)

    def reverse_lookup(self, dataset: int, sample: int, until: int) -> Int64Array:
        found = [np.empty(0, dtype=np.int64)]
        for first in range(0, until, self.epoch_length):
            places = self._places(first // self.epoch_length, dataset, sample)
            found.append(first + places)
        positions = np.concatenate(found)
        return positions[positions < until]

    def epoch_of(self, position: int) -> int:
        return position // self.epoch_length
