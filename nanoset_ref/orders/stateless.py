"""``order="stateless"``: the pair at every position computed from keyed permutations; nothing is built or stored."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, uint64

from nanoset_ref.orders.base import Int64Array, Order
from nanoset_ref.orders.permutation import derive, permute, unpermute

MIN_BLOCK = 4096
MAX_SAMPLES = 2**48


class Plan(NamedTuple):
    """What the compiled functions need: a few integers per dataset."""

    shares: Int64Array  # running sums of the datasets' shares, len D + 1; a dataset's share is a whole number of total
    total: int
    period: int  # positions after which the pattern of blocks starts again
    block: int
    lengths: Int64Array
    keys: npt.NDArray[np.uint64]  # one per dataset, and the blocks' last


class StatelessOrder(Order):
    name = "stateless"

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Sequence[float] | npt.NDArray[np.float64] | None,
        num_samples: int,
        random_seed: int = 1234,
    ) -> None:
        super().__init__(dataset_lengths, dataset_weights, num_samples, random_seed)
        if max(self.num_samples, self.samples_per_epoch) > MAX_SAMPLES:
            raise ValueError(f"an order has at most 2**48 positions and samples; got {num_samples}, {self.samples_per_epoch}")
        if self.weighted:
            starved = np.flatnonzero((self.dataset_lengths == 0) & (self.dataset_weights > 0))
            if starved.size:
                raise ValueError(f"dataset {starved[0]} has no samples but a positive weight; leave it out")
            exact = [Fraction(weight) for weight in self.dataset_weights.tolist()]
            total = 2**48
            shares = [0]
            for dataset in range(len(exact)):
                shares.append(int(sum(exact[: dataset + 1]) / sum(exact) * total))
        else:
            total = self.samples_per_epoch
            shares = [0, *np.cumsum(self.dataset_lengths).tolist()]
        least = min(b - a for a, b in zip(shares, shares[1:], strict=False) if b > a)
        block = MIN_BLOCK
        while least * block < 2 * total:
            block *= 2
        period = block if self.weighted else total
        keys = np.array([derive(self.random_seed, i) for i in range(len(shares))], dtype=np.uint64)
        self._plan = Plan(np.array(shares, dtype=np.int64), total, period, block, self.dataset_lengths, keys)

    def _lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return look_up(self._plan, positions)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        return find(self._plan, dataset, sample, until)

    def _counts(self, until: int) -> Int64Array:
        """Exact shares up to the last block boundary, and a look at the positions behind it."""
        if until == 0:
            return np.zeros(len(self.dataset_lengths), dtype=np.int64)
        first, _, _ = block_of(self._plan, until - 1)
        before = [reads_before(self._plan, dataset, first) for dataset in range(len(self.dataset_lengths))]
        datasets, _ = self._lookup(np.arange(first, until, dtype=np.int64))
        return np.array(before, dtype=np.int64) + np.bincount(datasets, minlength=len(before))


@njit(cache=True, error_model="numpy")
def scaled(share, t, total):  # type: ignore[no-untyped-def]
    """floor(share * t / total), exact while the result stays below 2**50: a float64 guess and its integer remainder."""
    guess = np.int64(float(share) * float(t) / float(total))
    remainder = np.int64(uint64(share) * uint64(t) - uint64(guess) * uint64(total))
    if remainder < 0:
        return guess - 1
    return guess + 1 if remainder >= total else guess


@njit(cache=True, error_model="numpy")
def block_of(plan, t):  # type: ignore[no-untyped-def]
    """First position, size and number of the block that holds position t."""
    blocks = max(plan.period // plan.block, 1)
    period = t // plan.period
    within = min((t - period * plan.period) // plan.block, blocks - 1)
    first = period * plan.period + within * plan.block
    size = plan.block if within < blocks - 1 else plan.period - within * plan.block
    return first, size, period * blocks + within


@njit(cache=True, error_model="numpy")
def look_up(plan, positions):  # type: ignore[no-untyped-def]
    datasets = np.empty(len(positions), dtype=np.int64)
    samples = np.empty(len(positions), dtype=np.int64)
    for p in range(len(positions)):
        first, size, number = block_of(plan, positions[p])
        place = permute(positions[p] - first, size, derive(plan.keys[-1], number))
        low, high = 0, len(plan.lengths)
        read, offset = 0, 0
        while high - low > 1:
            middle = (low + high) // 2
            before = scaled(plan.shares[middle], first, plan.total)
            edge = scaled(plan.shares[middle], first + size, plan.total) - before
            if edge <= place:
                low = middle
            else:
                high = middle
        before = scaled(plan.shares[low], first, plan.total)
        offset = scaled(plan.shares[low], first + size, plan.total) - before
        read = scaled(plan.shares[low + 1], first, plan.total) - before + place - offset
        length = plan.lengths[low]
        datasets[p] = low
        samples[p] = permute(read % length, length, derive(plan.keys[low], read // length))
    return datasets, samples


@njit(cache=True, error_model="numpy")
def reads_before(plan, dataset, t):  # type: ignore[no-untyped-def]
    """How many samples of a dataset stand before a block boundary t."""
    return scaled(plan.shares[dataset + 1], t, plan.total) - scaled(plan.shares[dataset], t, plan.total)


@njit(cache=True, error_model="numpy")
def find(plan, dataset, sample, until):  # type: ignore[no-untyped-def]
    found = []
    length = plan.lengths[dataset]
    share = plan.shares[dataset + 1] - plan.shares[dataset]
    passes = 0
    while share > 0:
        read = passes * length + unpermute(sample, length, derive(plan.keys[dataset], passes))
        first, size, number = block_of(plan, scaled(plan.total, read, share))
        while reads_before(plan, dataset, first) > read:
            first, size, number = block_of(plan, first - 1)
        while reads_before(plan, dataset, first + size) <= read:
            first, size, number = block_of(plan, first + size)
        if first >= until and passes * length > reads_before(plan, dataset, first):
            break
        if first >= until:
            break
        offset = scaled(plan.shares[dataset], first + size, plan.total) - scaled(plan.shares[dataset], first, plan.total)
        place = offset + read - reads_before(plan, dataset, first)
        position = first + unpermute(place, size, derive(plan.keys[-1], number))
        if position < until:
            found.append(position)
        passes += 1
    return np.sort(np.array(found, dtype=np.int64))
