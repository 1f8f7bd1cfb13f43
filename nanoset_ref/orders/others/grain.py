"""``order="grain"``: the shuffle of grain's ``MapDataset.shuffle(seed).repeat()``.

The order is computed and not stored. torchtitan (since August 2026) and MaxText read it. Source:
google/grain 0.2.18 (June 2026),
`grain/_src/python/experimental/index_shuffle/index_shuffle.cc`; the cipher is a reduced SIMON.
"""

from typing import Any

import numpy as np
from numpy import uint64
from numpy.typing import NDArray

from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Int64Array
from nanoset_ref.orders.base import Matches
from nanoset_ref.orders.others.epochs import EpochOrder

ROUNDS = 4


class GrainOrder(EpochOrder):
    """Place x of n in an epoch reads the instance that a cipher of x names.

    1. four keys are drawn from ``std::seed_seq{(seed + epoch) mod 2**32}``
    2. x has two halves of w bits each; 2 * w is at least 16, and enough for n - 2
    3. four rounds change one half by the other: ``left ^= F(right) ^ key``, then right by left, ...
    4. again from 2 with the result, until it is below n

    Example, one file of 5 samples, seed 7::

        first epoch   4 0 3 1 2
        second        1 3 0 2 4     which is the first one of seed 8

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`; weights are None.
        accept_repeat: for n = 4**k + 1 with k >= 8 the halves have no room for n - 1. grain then
            reads one sample twice and the last one never, in every epoch. Such an n is refused,
            unless this is true.

    Raises:
        ValueError: see `Order`; such an n.
    """

    name = "grain"

    def __init__(
        self,
        *order_arguments: Any,
        accept_repeat: bool = False,
        **named: Any,
    ) -> None:
        self._accept_repeat = accept_repeat
        super().__init__(*order_arguments, **named)

    def build(self) -> None:
        """Set the width of a half; ValueError for samples that the cipher cannot permute."""
        self.epoch_length = self.samples_per_epoch
        bits = max((self.epoch_length - 2).bit_length(), 16)
        self._width = (bits + 1) // 2
        self._repeats_one = self.epoch_length - 1 == 4**self._width
        if self._repeats_one:
            self.options = {"accept_repeat": True}
        if self._repeats_one and not self._accept_repeat:
            raise ValueError(
                f"grain's shuffle of {self.epoch_length:,} samples is no permutation: it reads "
                "one of them twice in an epoch and the last never. Leave a sample out, or "
                "reproduce it with accept_repeat=1"
            )

    def _instances(self, epoch: int, positions_in_epoch: Int64Array) -> Int64Array:
        """See `EpochOrder._instances`."""
        keys = self._keys(epoch)
        return cipher(positions_in_epoch, self.epoch_length, keys, self._width, False)

    def _find_in_epoch(
        self,
        epoch: int,
        sources: Int64Array,
        samples: Int64Array,
    ) -> Matches:
        """See `EpochOrder._find_in_epoch`."""
        instances = self.source_offsets[sources] + samples
        indices = np.arange(len(instances))
        if not self._repeats_one:
            return indices, self._inverse(epoch, instances)
        last = self.epoch_length - 1
        indices = indices[instances != last]  # which is never read
        positions_in_epoch = self._inverse(epoch, instances[indices])
        # the cipher cannot tell the first place and the last one apart
        twice = indices[positions_in_epoch == 0]
        last_places = np.full_like(twice, last)
        indices = np.append(indices, twice)
        positions_in_epoch = np.append(positions_in_epoch, last_places)
        return indices, positions_in_epoch

    def _inverse(self, epoch: int, instances: Int64Array) -> Int64Array:
        """The places of instances, int64 [n], in an epoch."""
        keys = self._keys(epoch)[::-1].copy()
        return cipher(instances, self.epoch_length, keys, self._width, True)

    def _keys(self, epoch: int) -> NDArray[np.uint64]:
        """Step 1: the keys of an epoch, uint64 [ROUNDS]."""
        # 1.
        seed = (self.random_seed + epoch) % 2**32
        return np.array(seed_sequence(seed), dtype=np.uint64)


def seed_sequence(seed: int) -> list[int]:
    """Four uint32 of C++'s ``std::seed_seq{seed}``, as its standard defines ``generate``."""
    words = [0x8B8B8B8B] * ROUNDS
    # the number of seeds, then the seed and the numbers of the words
    added = [1, seed + 1, 2, 3]
    for k in range(ROUNDS):
        after = (k + 1) % ROUNDS
        opposite = (k + 2) % ROUNDS
        mixed = words[k] ^ words[after] ^ words[k - 1]
        mixed = 1664525 * (mixed ^ mixed >> 27)
        words[after] += mixed
        words[opposite] += mixed + added[k]
        words[k] = mixed + added[k]
        words = [word % 2**32 for word in words]
    for k in range(ROUNDS):
        after = (k + 1) % ROUNDS
        opposite = (k + 2) % ROUNDS
        mixed = words[k] + words[after] + words[k - 1]
        mixed %= 2**32
        mixed = 1566083941 * (mixed ^ mixed >> 27) % 2**32
        words[after] ^= mixed
        mixed = (mixed - k) % 2**32
        words[opposite] ^= mixed
        words[k] = mixed
    return words


@njit
def cipher(numbers, n, keys, width, back):
    """Steps 2 to 4 for numbers below n, int64 [m] -> int64 [m].

    Args:
        keys: uint64 [ROUNDS].
        width: bits of a half.
        back: take instances to places; the keys then come from the last to the first.
    """
    permuted = np.empty_like(numbers)
    mask = (uint64(1) << uint64(width)) - uint64(1)
    for p in range(len(numbers)):
        x = uint64(numbers[p])
        while True:
            # 2.
            left = x >> uint64(width) & mask
            right = x & mask
            if back:
                left, right = right, left
            # 3.
            for k in range(0, ROUNDS, 2):
                left ^= (mix_half(right, width) ^ keys[k]) & mask
                right ^= (mix_half(left, width) ^ keys[k + 1]) & mask
            if back:
                left, right = right, left
            x = left << uint64(width) | right
            # 4.
            if x < n:
                break
        permuted[p] = x
    return permuted


@njit
def mix_half(half, width):
    """SIMON's function of a half (uint64); bits from `width` on are noise."""
    by_1 = rotate(half, 1, width)
    by_2 = rotate(half, 2, width)
    by_8 = rotate(half, 8, width)
    return by_1 & by_8 ^ by_2


@njit
def rotate(half, bits, width):
    """A half (uint64, `width` bits) rotated to the left; bits from `width` on are noise."""
    return half << uint64(bits) | half >> uint64(width - bits)
