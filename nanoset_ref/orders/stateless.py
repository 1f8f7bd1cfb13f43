"""``order="stateless"``: the pair at every position computed from keyed permutations; nothing is built or stored.

What it does. Positions are dealt out to the sources in exact shares (`interleave`); the n-th item that a source gets is
its n-th reading, and pass n // length over the source is a permutation of its own (`permutation`). So an epoch without
weights reads every sample once; with weights no sample of a source repeats before all of them have been read, whatever
the epochs do; every pass is shuffled anew; and the order of a longer run begins as that of a shorter one.

What it costs. Half a KiB per source; in bulk some 20 ns a position for one source, 40 for a few, 100 for hundreds, the
same for 10**12 samples as for ten. Starting anywhere is free, and so is the way back from a sample to its positions.

The alternative it rejects. One permutation of a whole epoch over all sources would be quicker, but a run that changes
its weights could not tell from a few numbers what it has read: here that is one count per source (`Ledger`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, uint64

from nanoset_ref.orders.base import Int64Array, Order
from nanoset_ref.orders.bulk import locate_many
from nanoset_ref.orders.interleave import counts, position
from nanoset_ref.orders.limits import Excess, limit_repetitions
from nanoset_ref.orders.permutation import derive, permute_many, sides, unpermute
from nanoset_ref.orders.shares import Shares, build_shares, had

MAX_SAMPLES = 2**48
WEIGHT_UNITS = 2**46  # weights are rounded to this many parts of the whole
LEAST_BLOCK = 4096  # positions after which weights are exact for every source, where none is so rare that it takes more
_CHUNK = 256  # positions worked on together


@dataclasses.dataclass(frozen=True)
class Ledger:
    """How far a run has read, for going on with other weights or more sources.

    Args:
        position: the first position of the new plan.
        reads: samples that each source has given before it, repetitions counted; sources added since have 0.
    """

    position: int
    reads: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", tuple(self.reads))
        if self.position < 0 or min(self.reads, default=0) < 0:
            raise ValueError(f"a ledger counts from 0; got position {self.position} and reads {self.reads}")


class StatelessOrder(Order):
    """Position k is worked out:

    1. t = k - start.position is dealt to a source; n of the items before it went there too (`interleave.locate`)
    2. reading = start.reads[source] + n; pass = reading // length, place = reading mod length
    3. sample = permutation of (seed, source, pass) at place

    Example, lengths [2, 4], no weights: the sources of an epoch may be 1 1 0 1 0 1; source 1 gives places 0 1 2 3,
    which its first pass permutes to, say, samples 2 0 3 1 and its second pass to others.

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`.
        start: a ledger (or its JSON) to go on from, of an order with the same seed. Sources keep their numbers: new
            ones are added at the end, and one that is dropped stays with weight 0. Positions before start.position
            belong to the earlier order and raise IndexError here.
        max_repetitions, excess: limit on repetitions up to num_samples, see `limit_repetitions`; None: no limit.

    Raises:
        ValueError: see `Order`; more than 2**48 positions; a source without samples but with a weight; a ledger of
            another number of sources; what `limit_repetitions` raises.
    """

    name = "stateless"

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Sequence[float] | npt.NDArray[np.float64] | None,
        num_samples: int,
        random_seed: int = 1234,
        *,
        start: Ledger | Mapping[str, Any] | None = None,
        max_repetitions: float | Sequence[float] | None = None,
        excess: Excess = "raise",
    ) -> None:
        super().__init__(dataset_lengths, dataset_weights, num_samples, random_seed)
        count = len(self.dataset_lengths)
        if isinstance(start, Mapping):
            start = Ledger(**start)
        self.start = Ledger(0, (0,) * count) if start is None else start
        if len(self.start.reads) != count:
            raise ValueError(
                f"the ledger is of {len(self.start.reads)} sources, the order of {count}: keep dropped sources with "
                "weight 0, and give added ones a 0 in the ledger (Ledger.reads)"
            )
        if max(self.num_samples, self.samples_per_epoch) > MAX_SAMPLES:
            raise ValueError(
                f"an order has at most 2**48 positions and samples; got {num_samples}, {self.samples_per_epoch}"
            )
        starved = np.flatnonzero((self.dataset_lengths == 0) & (self.dataset_weights > 0))
        if starved.size:
            raise ValueError(f"dataset {starved[0]} has no samples but a positive weight; leave it out")
        self._keys = np.array([_key(self.random_seed, 1, source) for source in range(count)], dtype=np.uint64)
        self._domains = np.array([(n, *sides(n)) for n in self.dataset_lengths.tolist()], dtype=np.uint64)
        self._reads = np.array(self.start.reads, dtype=np.int64)
        self._shares = self._deal()
        if max_repetitions is not None:
            self._limit(max_repetitions, excess)

    def _deal(self) -> Shares:
        key = _key(self.random_seed, 0, self.start.position)
        if not self.weighted:
            return build_shares(self.dataset_lengths.tolist(), key)
        return build_shares(_units(self.dataset_weights.tolist()), key, LEAST_BLOCK)

    def _limit(self, max_repetitions: float | Sequence[float], excess: Excess) -> None:
        """Weights that keep to the limits, then fewer still if the run ends where rounding gives a source more."""
        aim = np.asarray(max_repetitions, dtype=np.float64)
        limits = np.broadcast_to(aim, self.dataset_lengths.shape)
        weights, left = self.dataset_weights, self.num_samples - self.start.position
        most = np.multiply(limits, self.dataset_lengths, out=np.zeros(len(limits)), where=self.dataset_lengths > 0)
        most = np.maximum(most, self._reads)  # what was read before stays read
        while True:
            limited = limit_repetitions(self.dataset_lengths, weights, self.start.reads, left, aim, excess)
            if not np.array_equal(limited, self.dataset_weights):
                self.dataset_weights, self.weighted = limited, True
                self._shares = self._deal()
            over = np.maximum(self.counts() - most, 0)
            if not over.any():
                return
            if excess == "raise":
                source = int(over.argmax())
                raise ValueError(
                    f"dataset {source} would give {self.counts()[source]:,} samples by position {self.num_samples:,}, "
                    f"max_repetitions allows {limits[source] * self.dataset_lengths[source]:,.0f}: lower its weight a "
                    'little, or take excess="renormalise"'
                )
            aim = np.maximum(aim - over / np.maximum(self.dataset_lengths, 1), 0)

    @property
    def block(self) -> int:
        """Positions, from `start` on, after each of which every source has had its exact share, to one sample."""
        return int(self._shares.block)

    def ledger(self, k: int) -> Ledger:
        """How far the run has read before position k."""
        return Ledger(k, tuple(self.counts(k).tolist()))

    @property
    def options(self) -> dict[str, object]:
        if self.start.position == 0:
            return {}
        return {"start": {"position": self.start.position, "reads": list(self.start.reads)}}

    def _identity(self) -> dict[str, object]:
        return super()._identity() | self.options

    def _lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        if positions.size and int(positions.min()) < self.start.position:
            raise IndexError(
                f"position {positions.min()} was read by the plan before; this one begins at {self.start.position}"
            )
        datasets, numbers = locate_many(self._shares, positions - self.start.position)
        return datasets, _read(self.dataset_lengths, self._domains, self._keys, self._reads, datasets, numbers)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        if self._shares.ranks[dataset] < 0:
            return np.empty(0, dtype=np.int64)
        first = self.start.position
        return _find(self._shares, self.dataset_lengths, self._keys, self._reads, first, dataset, sample, until)

    def _counts(self, until: int) -> Int64Array:
        """With what the ledger counts."""
        if until < self.start.position:
            raise IndexError(
                f"what was read before position {until} is not known; this plan begins at {self.start.position}"
            )
        return self._reads + counts(self._shares, until - self.start.position)

    def coverage(self, dataset: int, until: int) -> tuple[int, int]:
        """As `Order.coverage`, without counting: a source is read through before a sample of it repeats."""
        read, length = int(self.counts(until)[dataset]), int(self.dataset_lengths[dataset])
        return min(read, length), -(-read // max(length, 1))


def _key(seed: int, *numbers: int) -> np.uint64:
    """A key of its own for every list of numbers."""
    key = np.uint64(seed)
    for number in numbers:
        key = np.uint64(derive(key, number))
    return key


def _units(weights: Sequence[float]) -> list[int]:
    """Weights as whole numbers of about 1 / WEIGHT_UNITS, exact in their sum's proportion; a positive one never becomes
    0.
    """
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    return [max(round(weight / total * WEIGHT_UNITS), int(weight > 0)) for weight in exact]


@njit(cache=True, nogil=True, error_model="numpy")
def _read(lengths, domains, keys, reads, datasets, numbers):
    """The samples (int64 [n]) that numbered items of datasets read: steps 2 and 3."""
    samples = np.empty_like(numbers)
    # arrays of their own, see `bulk`
    n, a = np.empty(_CHUNK, dtype=np.uint64), np.empty(_CHUNK, dtype=np.uint64)
    b, pass_keys = np.empty(_CHUNK, dtype=np.uint64), np.empty(_CHUNK, dtype=np.uint64)
    for start in range(0, len(numbers), _CHUNK):
        count = min(_CHUNK, len(numbers) - start)
        places = np.empty(count, dtype=np.uint64)
        for p in range(count):
            source = datasets[start + p]
            reading = uint64(reads[source] + numbers[start + p])
            turn = reading // uint64(lengths[source])
            places[p] = reading - turn * uint64(lengths[source])
            n[p], a[p], b[p] = domains[source, 0], domains[source, 1], domains[source, 2]
            pass_keys[p] = derive(keys[source], turn)
        permute_many(places, n, a, b, pass_keys)
        for p in range(count):
            samples[start + p] = np.int64(places[p])
    return samples


@njit(cache=True)
def _find(shares, lengths, keys, reads, first, source, sample, until):
    """One position per pass over the source, from the pass that the ledger stands in."""
    found = [np.int64(0) for _ in range(0)]
    length = lengths[source]
    turn = reads[source] // length
    rank, blocks = shares.ranks[source], -(-max(until - first, 0) // shares.block)
    stop = reads[source] + had(shares, rank, rank + 1, blocks)  # readings up to the end of the block of `until`
    while True:
        reading = turn * length + unpermute(sample, length, derive(keys[source], turn))
        turn += 1
        if reading < reads[source]:
            continue
        if reading >= stop:
            break
        k = first + position(shares, source, reading - reads[source])
        if k >= until:
            break
        found.append(k)
    return np.array(found, dtype=np.int64)
