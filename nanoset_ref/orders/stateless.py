"""``order="stateless"``: the pair at every position worked out from keys; nothing is built or stored.

An epoch without weights reads every sample once. With weights no sample of a source repeats before all of them have
been read, and every source has its share to 1.7 samples after every 64 positions. Every pass over a source is shuffled
anew, and a longer run begins as a shorter one does. All of that costs some 150 bytes per source, and 40 ns a position
for one source, 100 for a few, 200 for hundreds, the same for 10**12 samples as for ten. Starting anywhere is free; the
way back from a sample descends the tree once for each of its positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.orders.base import Int64Array, Order, Weights, normalize_weights
from nanoset_ref.orders.limits import Excess, limit_repetitions
from nanoset_ref.orders.permutation import derive, sides, unpermute, walk
from nanoset_ref.orders.shares import build_tree, share_out
from nanoset_ref.orders.windows import Windows, item_at, locate, window_of

MAX_SAMPLES = 2**48
WEIGHT_PARTS = 2**46  # weights are rounded to this many parts of the whole


class Ledger(NamedTuple):
    """How far a run has read, for going on with other weights or more sources.

    Attributes:
        position: the first position of the new plan.
        reads: samples that each source has given before it, repetitions counted; sources added since have 0.
    """

    position: int
    reads: tuple[int, ...]


class Passes(NamedTuple):
    """The sources, each read in one shuffled pass after another.

    Attributes:
        lengths: int64 [sources], samples in each.
        shapes: uint64 [sources, 2], their `sides`.
        keys: uint64 [sources], of which the keys of passes are derived.
        reads: int64 [sources], how often each was read before.
    """

    lengths: Int64Array
    shapes: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    reads: Int64Array


@njit(cache=True, nogil=True, error_model="numpy")
def read(passes, sources, numbers):
    """The samples (int64 [n]) at turns of sources, each counted from 0: steps 2 and 3 of `StatelessOrder`."""
    samples = np.empty_like(numbers)
    for p in range(len(numbers)):
        source = sources[p]
        length, reading = passes.lengths[source], passes.reads[source] + numbers[p]
        number = reading // length
        shape = passes.shapes[source, 0], passes.shapes[source, 1]
        samples[p] = walk(reading - number * length, length, shape, derive(passes.keys[source], number), False)
    return samples


@njit(cache=True)
def find(windows, passes, source, sample, until):
    """The items below `until` that are a sample's, int64 [n]: one per pass, from the one that the source is in."""
    found = [np.int64(0) for _ in range(0)]
    length, reads = passes.lengths[source], passes.reads[source]
    number = reads // length
    while True:
        turn = number * length + unpermute(sample, length, derive(passes.keys[source], number)) - reads
        if turn >= 0:
            item = item_at(windows, source, turn)
            if item >= until:
                return np.array(found, dtype=np.int64)
            found.append(item)
        number += 1


class StatelessOrder(Order):
    """Position k is worked out:

    1. item k - start.position is the turn of a source, after n other turns of it (`windows.locate`)
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
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
        *,
        start: Ledger | Mapping[str, Any] | None = None,
        max_repetitions: float | Sequence[float] | None = None,
        excess: Excess = "raise",
    ) -> None:
        super().__init__(dataset_lengths, dataset_weights, num_samples, random_seed)
        lengths = self.dataset_lengths
        if start is None:
            start = Ledger(0, (0,) * len(lengths))
        elif not isinstance(start, Ledger):
            start = Ledger(start["position"], tuple(start["reads"]))
        self.start = start
        if len(start.reads) != len(lengths) or min(start.position, *start.reads) < 0:
            raise ValueError(
                f"a ledger counts from 0, each of the order's {len(lengths)} sources: keep dropped sources with "
                f"weight 0, and give added ones a 0 in the ledger (Ledger.reads); got {start}"
            )
        if max(self.num_samples, self.samples_per_epoch) > MAX_SAMPLES:
            raise ValueError(
                f"an order has at most 2**48 positions and samples; got {num_samples}, {self.samples_per_epoch}"
            )
        starved = np.flatnonzero((lengths == 0) & (self.dataset_weights > 0))
        if starved.size:
            raise ValueError(f"dataset {starved[0]} has no samples but a positive weight; leave it out")
        family = np.uint64(derive(self.random_seed, 1))
        self._passes = Passes(
            lengths=lengths,
            shapes=np.array([sides(length) for length in lengths], dtype=np.uint64),
            keys=np.array([derive(family, source) for source in range(len(lengths))], dtype=np.uint64),
            reads=np.array(start.reads, dtype=np.int64),
        )
        self.share_out(dataset_weights)
        if max_repetitions is not None:
            limit_repetitions(self, max_repetitions, excess)

    def share_out(self, weights: Weights | None) -> None:
        """Share the positions out anew. Without weights a source has as many parts of the whole as samples, and so an
        epoch is exact; with weights there is one endless epoch.
        """
        parts, epoch = self.dataset_lengths, self.samples_per_epoch
        if weights is not None:
            self.weighted, self.dataset_weights = True, normalize_weights(weights, len(parts))
            rounded = np.rint(self.dataset_weights * WEIGHT_PARTS)
            parts, epoch = np.maximum(rounded, self.dataset_weights > 0).astype(np.int64), MAX_SAMPLES
        key = np.uint64(derive(self.random_seed, 0))
        if self.start.position:
            key = np.uint64(derive(key, self.start.position))
        self._windows = Windows(build_tree(parts.tolist()), epoch, key)

    def ledger(self, k: int) -> Ledger:
        """How far the run has read before position k."""
        return Ledger(k, tuple(self.counts(k).tolist()))

    @property
    def options(self) -> dict[str, object]:
        position, reads = self.start
        return {"start": {"position": position, "reads": list(reads)}} if position else {}

    def _identity(self) -> dict[str, object]:
        return super()._identity() | self.options

    def _lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        self._check_start(positions.min(initial=self.num_samples))
        sources, numbers = locate(self._windows, positions - self.start.position)
        return sources, read(self._passes, sources, numbers)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        first = self.start.position
        if self._windows.tree.parts[dataset] == 0:
            return np.empty(0, dtype=np.int64)
        return first + find(self._windows, self._passes, dataset, sample, until - first)

    def _counts(self, until: int) -> Int64Array:
        """With what the ledger counts."""
        self._check_start(until)
        stop = until - self.start.position
        first, _ = window_of(self._windows, stop)
        turns, _ = locate(self._windows, np.arange(first, stop))
        in_window = np.bincount(turns, minlength=len(self.dataset_lengths))
        return self._passes.reads + share_out(self._windows.tree, first) + in_window

    def coverage(self, dataset: int, until: int) -> tuple[int, int]:
        """As `Order.coverage`, without counting: a source is read through before a sample of it repeats."""
        read, length = int(self.counts(until)[dataset]), int(self.dataset_lengths[dataset])
        return min(read, length), -(-read // max(length, 1))

    def _check_start(self, position: int) -> None:
        if position < self.start.position:
            raise IndexError(
                f"position {position} was read by the plan before; this one begins at {self.start.position}"
            )
