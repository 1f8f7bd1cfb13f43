"""``order="stateless"``: the pair at every position computed from keyed permutations; nothing is built or stored.

What it does. Positions are dealt out to the sources in exact shares (`interleave`); the n-th item that a source gets is
its n-th reading, and pass n // length over the source is a permutation of its own (`permutation`). So an epoch without
weights reads every sample once; with weights no sample of a source repeats before all of them have been read, whatever
the epochs do; every pass is shuffled anew; and the order of a longer run begins as that of a shorter one.

What it costs. A KiB per source, some 40-100 ns a position, the same for 10**12 samples as for ten. Starting anywhere is
free, and so is the way back from a sample to its positions.

The alternative it rejects. One permutation of a whole epoch over all sources would be as quick, but a run that changes
its weights could not tell from a
few numbers what it has read: here that is one count per source (`Ledger`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from nanoset_ref.orders.base import Int64Array, Order
from nanoset_ref.orders.interleave import Shares, build_shares, counts, locate, position
from nanoset_ref.orders.limits import Excess, limit_repetitions
from nanoset_ref.orders.permutation import derive, permute, unpermute

MAX_SAMPLES = 2**48
WEIGHT_UNITS = 2**46  # weights are rounded to this many parts of the whole


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
        max_repetitions, excess: limit on repetitions, see `limit_repetitions`; None: no limit.

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
        if max_repetitions is not None:
            left = self.num_samples - self.start.position
            self.dataset_weights = limit_repetitions(
                self.dataset_lengths, self.dataset_weights, self.start.reads, left, max_repetitions, excess
            )
            self.weighted = True
        units = _units(self.dataset_weights.tolist()) if self.weighted else self.dataset_lengths.tolist()
        self._shares: Shares = build_shares(units, derive(np.uint64(self.random_seed), 0))
        family = derive(np.uint64(self.random_seed), 1)
        self._keys = np.array([derive(np.uint64(family), i) for i in range(count)], dtype=np.uint64)
        self._reads = np.array(self.start.reads, dtype=np.int64)

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
        return _look_up(self._shares, self.dataset_lengths, self._keys, self._reads, self.start.position, positions)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        if self._shares.edges[dataset] == self._shares.edges[dataset + 1]:
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


def _units(weights: Sequence[float]) -> list[int]:
    """Weights as whole numbers of about 1 / WEIGHT_UNITS, exact in their sum's proportion; a positive one never becomes
    0.
    """
    exact = [Fraction(weight) for weight in weights]
    return [max(round(weight / sum(exact) * WEIGHT_UNITS), int(weight > 0)) for weight in exact]


@njit(cache=True, nogil=True)
def _look_up(shares, lengths, keys, reads, first, positions):
    datasets = np.empty(len(positions), dtype=np.int64)
    samples = np.empty(len(positions), dtype=np.int64)
    for p in range(len(positions)):
        source, number = locate(shares, positions[p] - first)
        reading = reads[source] + number
        length = lengths[source]
        turn = reading // length
        datasets[p] = source
        samples[p] = permute(reading - turn * length, length, derive(keys[source], turn))
    return datasets, samples


@njit(cache=True)
def _find(shares, lengths, keys, reads, first, source, sample, until):
    """One position per pass over the source, from the pass that the ledger stands in."""
    found = [np.int64(0) for _ in range(0)]
    length = lengths[source]
    turn = reads[source] // length
    while True:
        reading = turn * length + unpermute(sample, length, derive(keys[source], turn))
        turn += 1
        if reading < reads[source]:
            continue
        k = first + position(shares, source, reading - reads[source])
        if k >= until:
            break
        found.append(k)
    return np.array(found, dtype=np.int64)
