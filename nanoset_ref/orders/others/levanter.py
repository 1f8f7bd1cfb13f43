"""``order="levanter"``: the Feistel shuffle of Levanter (and Marin), the same in every epoch.

The order is computed and not stored. Source: stanford-crfm/levanter 9263f81e (September 2025),
`FeistelPermutation` in `src/levanter/data/_prp.py`. A config asks for it (``shuffle: true``,
``permutation_type: feistel``): the default permutation was linear, and since April 2026
(marin#5246) Marin shuffles by blocks.
"""

import numpy as np

from nanoset_ref.io.types import Int64Array
from nanoset_ref.orders.base import Matches, Order, Pairs
from nanoset_ref.orders.inverse import repeat_in_epochs

ROUNDS = 5
FACTOR = np.uint64(2654435761)


class LevanterOrder(Order):
    """Position k reads the instance that a Feistel network of k mod n names.

    1. n - 1 fits into 2 w bits (or one less); ``Generator(PCG64(random_seed))`` draws five keys of
       w bits
    2. x has two halves of w bits; each of five rounds, one for each key, does
       ``left, right = right, left ^ (right * 2654435761 + key)``
    3. step 2 repeats with the result, until it is below n

    Example, one file of 5 samples, seed 7::

        position    0 1 2 3 4    5 6 7 8 9    ...
        sample      2 1 0 4 3    2 1 0 4 3    ...     every epoch is the same

    Args:
        dataset_lengths, dataset_weights, num_samples: see `Order`; the weights are None.
        random_seed: the number that Levanter draws from its key,
            ``jax.random.randint(key, (), 0, 2**30)``. It depends on the version of JAX.

    Raises:
        ValueError: see `Order`.
    """

    name = "levanter"
    endless = True
    keeps_shares = False
    same_epochs = True

    def build(self) -> None:
        """Step 1: the width of a half, and the keys."""
        # 1.
        bits = (self.samples_per_epoch - 1).bit_length()
        width = bits - bits // 2
        self._width = np.uint64(width)
        self._mask = np.uint64(2**width - 1)
        stream = np.random.PCG64(self.random_seed)
        generator = np.random.Generator(stream)
        self._keys = generator.integers(0, 2**width, ROUNDS, dtype=np.uint64)

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        numbers = positions % self.samples_per_epoch
        instances = self._walk(numbers, back=False)
        return self.pairs(instances)

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """See `Order.reverse_lookup_each`."""
        instances = self.source_offsets[sources] + samples
        positions_in_epoch = self._walk(instances, back=True)
        indices = np.arange(len(positions_in_epoch))
        return repeat_in_epochs(
            indices, positions_in_epoch, self.samples_per_epoch, until
        )

    def _walk(self, numbers: Int64Array, *, back: bool) -> Int64Array:
        """Steps 2 and 3 for numbers below n, or their inverse: int64 [m] -> int64 [m]."""
        if self.samples_per_epoch == 1:
            return numbers
        walked = numbers.astype(np.uint64)
        unfinished = np.arange(len(walked))
        while len(unfinished):
            left = walked[unfinished] >> self._width
            right = walked[unfinished] & self._mask
            keys = self._keys
            if back:  # the same rounds with both halves exchanged
                left, right = right, left
                keys = keys[::-1]
            for key in keys:
                mixed = (right * FACTOR + key) & self._mask
                mixed ^= left
                left = right
                right = mixed
            if back:
                left, right = right, left
            walked[unfinished] = left << self._width | right
            unfinished = unfinished[walked[unfinished] >= self.samples_per_epoch]
        return walked.astype(np.int64)
