"""``order="grain"``: the global shuffle of grain's ``MapDataset.shuffle(seed).repeat()``, computed and not stored.

torchtitan (since August 2026) and MaxText read it. Source: google/grain 0.2.18 (June 2026),
`grain/_src/python/experimental/index_shuffle/index_shuffle.cc`; the cipher is a reduced SIMON.
"""

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from nanoset_ref.io.kernels import njit
from nanoset_ref.orders.base import Int64Array
from nanoset_ref.orders.others.epochs import EpochOrder

ROUNDS = 4


class GrainOrder(EpochOrder):
    """Place x of n in an epoch reads the instance that a cipher of x names.

    1. four keys are drawn from ``std::seed_seq{(seed + epoch) mod 2**32}``
    2. x has two halves of w bits, together an even number, at least 16 and enough for n - 2
    3. four rounds change one half by the other: ``left ^= F(right) ^ key``, then right by left, ...
    4. again from 2 with the result, until it is below n

    Example, one file of 5 samples, seed 7::

        first epoch   4 0 3 1 2
        second        1 3 0 2 4     which is the first one of seed 8

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`; the weights are None.
        accept_repeat: for n = 4**k + 1 with k >= 8 the halves have no room for n - 1. grain then reads
            one sample twice and the last one never, in every epoch. Such an n is refused, unless
            this is true.

    Raises:
        ValueError: see `Order`; such an n.
    """

    name = "grain"

    def __init__(self, *order_arguments: Any, accept_repeat: bool = False, **named: Any) -> None:
        self._accept_repeat = accept_repeat
        super().__init__(*order_arguments, **named)

    def _build(self) -> None:
        self.epoch_length = self.samples_per_epoch
        bits = max((self.epoch_length - 2).bit_length(), 16)
        self._width = (bits + 1) // 2
        self._repeats_one = self.epoch_length - 1 == 4**self._width
        if self._repeats_one:
            self.options = {"accept_repeat": True}
        if self._repeats_one and not self._accept_repeat:
            raise ValueError(
                f"grain's shuffle of {self.epoch_length:,} samples is no permutation: it reads one "
                f"of them twice in an epoch and the last never. Leave a sample out, or reproduce it "
                f"with accept_repeat=1"
            )

    def _instances(self, epoch: int, places: Int64Array) -> Int64Array:
        return _shuffle(places, self.epoch_length, self._keys(epoch), self._width)

    def _places(self, epoch: int, dataset: int, sample: int) -> Int64Array:
        instance = int(self.firsts[dataset]) + sample
        last = self.epoch_length - 1
        if self._repeats_one and instance == last:
            return np.empty(0, dtype=np.int64)
        place = _unshuffle(instance, self.epoch_length, self._keys(epoch), self._width)
        if self._repeats_one and place == 0:  # to the cipher the last place is the first one
            return np.array([0, last])
        return np.array([place])

    def _keys(self, epoch: int) -> NDArray[np.uint64]:
        # 1.
        return np.array(seed_sequence((self.random_seed + epoch) % 2**32), dtype=np.uint64)


def seed_sequence(seed: int) -> list[int]:
    """Four uint32 of C++'s ``std::seed_seq{seed}``, as its standard defines ``generate``."""
    words = [0x8B8B8B8B] * ROUNDS
    added = [1, seed + 1, 2, 3]  # the number of seeds, then the seed and the numbers of the words
    for k in range(ROUNDS):
        mixed = words[k] ^ words[(k + 1) % ROUNDS] ^ words[k - 1]
        mixed = 1664525 * (mixed ^ mixed >> 27) % 2**32
        words[(k + 1) % ROUNDS] += mixed
        words[(k + 2) % ROUNDS] += mixed + added[k]
        words[k] = mixed + added[k]
        words = [word % 2**32 for word in words]
    for k in range(ROUNDS):
        mixed = (words[k] + words[(k + 1) % ROUNDS] + words[k - 1]) % 2**32
        mixed = 1566083941 * (mixed ^ mixed >> 27) % 2**32
        words[(k + 1) % ROUNDS] ^= mixed
        words[(k + 2) % ROUNDS] ^= (mixed - k) % 2**32
        words[k] = (mixed - k) % 2**32
    return words


@njit(cache=True, nogil=True)
def _shuffle(places, n, keys, width):
    """Instances of places, int64 [m] each, below n; keys: uint64 [ROUNDS]; width: bits of a half."""
    instances = np.empty_like(places)
    for p in range(len(places)):
        x = uint64(places[p])
        while True:
            left, right = halves(x, width)
            for k in range(0, ROUNDS, 2):
                left ^= mix_half(right, keys[k], width)
                right ^= mix_half(left, keys[k + 1], width)
            x = left << uint64(width) | right
            if x < n:
                break
        instances[p] = x
    return instances


@njit(cache=True)
def _unshuffle(instance, n, keys, width):
    """The place that `_shuffle` takes to an instance: its rounds backwards."""
    x = uint64(instance)
    while True:
        left, right = halves(x, width)
        for k in range(ROUNDS - 1, 0, -2):
            right ^= mix_half(left, keys[k], width)
            left ^= mix_half(right, keys[k - 1], width)
        x = left << uint64(width) | right
        if x < n:
            return np.int64(x)


@njit(cache=True)
def halves(x, width):
    """The upper and the lower `width` bits (uint64 each) of a number's lower 2 * width."""
    mask = (uint64(1) << uint64(width)) - uint64(1)
    return x >> uint64(width) & mask, x & mask


@njit(cache=True)
def mix_half(half, key, width):
    """What a half (uint64, `width` bits) changes the other one by."""
    mask = (uint64(1) << uint64(width)) - uint64(1)
    rotated = (half << uint64(1) | half >> uint64(width - 1)) & mask
    by_2 = (half << uint64(2) | half >> uint64(width - 2)) & mask
    by_8 = (half << uint64(8) | half >> uint64(width - 8)) & mask
    return (rotated & by_8 ^ by_2 ^ key) & mask
