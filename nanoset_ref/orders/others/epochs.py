"""`EpochOrder`: an order with a new shuffle in every epoch."""

from abc import abstractmethod

import numpy as np

from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.orders.base import NO_POSITIONS, Matches, Order, Pairs


class EpochOrder(Order):
    """Position k reads entry k mod `epoch_length` of epoch k // `epoch_length`.

    Attributes:
        epoch_length: positions in an epoch.
    """

    keeps_shares = False
    epoch_length: int
    _last_shuffled: tuple[int, Array] = -1, np.empty(0)

    def shuffled(self, epoch: int) -> Array:
        """The result of `_shuffle` for an epoch; the last one is cached."""
        cached_epoch, numbers = self._last_shuffled
        if cached_epoch != epoch:
            numbers = self._shuffle(epoch)
            # at once: threads may ask for different epochs
            self._last_shuffled = epoch, numbers
        return numbers

    def _shuffle(self, epoch: int) -> Array:
        """The numbers of an epoch in the order of training, for an order that stores them."""
        raise NotImplementedError

    @abstractmethod
    def _instances(self, epoch: int, positions_in_epoch: Int64Array) -> Int64Array:
        """The instances [n] at positions [n] of an epoch."""

    def _find_in_epoch(
        self,
        epoch: int,
        sources: Int64Array,
        samples: Int64Array,
    ) -> Matches:
        """The indices of the pairs that an epoch reads, and their positions in it."""
        raise NotImplementedError

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        epochs, positions_in_epoch = np.divmod(positions, self.epoch_length)
        instances = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            is_here = epochs == epoch
            instances[is_here] = self._instances(epoch, positions_in_epoch[is_here])
        return self.pairs(instances)

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """See `Order.reverse_lookup_each`: each epoch is asked once."""
        reads = [(NO_POSITIONS, NO_POSITIONS)]
        firsts = range(0, until, self.epoch_length)
        for epoch, first in enumerate(firsts):
            indices, positions_in_epoch = self._find_in_epoch(epoch, sources, samples)
            reads.append((indices, first + positions_in_epoch))
        indices, positions = np.concatenate(reads, axis=1)
        is_read = positions < until
        return indices[is_read], positions[is_read]

    def epoch_of(self, position: int) -> int:
        """See `Order.epoch_of`."""
        return position // self.epoch_length
