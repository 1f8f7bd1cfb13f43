"""``order="stateless"``: the pair at every position worked out from keys; nothing is built or stored.

An epoch without weights reads every sample once. With weights no sample of a source repeats before all of them have
been read, and every source has its share to 1.7 samples after every 64 positions (see below). Every pass over a source
is shuffled anew, and a longer run begins as a shorter one does. All of that costs some 150 bytes per source, and 35 ns
a position for one source, 100 for a few, 200 for hundreds, the same for 10**12 samples as for ten. Starting anywhere is
free; the way back from a sample works out one window of 64 positions for each of its readings.

How far 1.7 holds: without weights to the end, 2**48. Weights are rounded to whole parts of 2**-46,
one at least, and the rounded shares are kept to 1.68 samples to the end. A share w of S sources is
rounded by at most (1 + S * w) / 2**46. After k positions, a multiple of 64, a source is therefore
off by at most 1.68 + k * (1 + S * w) / 2**46 samples: by 1.7 up to k = 1.4e12 / (1 + S * w). That
is 7e11 positions for equal weights, and 7e9 for a tenth of the weight among 2,000 sources.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref.io.kernels import njit
from nanoset_ref.orders.base import Int64Array, Order, Pairs, Weights
from nanoset_ref.orders.permutation import derive, permute_each, sides, unpermute
from nanoset_ref.orders.shares import build_tree, share_of
from nanoset_ref.orders.windows import SIZE, locate

MAX_SAMPLES = 2**48
CHUNK = (
    512  # items that are looked up at once: what is known of them stays in the processor's cache
)
WEIGHT_PARTS = 2**46  # weights are rounded to this many parts of the whole


class Ledger(NamedTuple):
    """How far a run has read, for going on with other weights or more sources.

    Attributes:
        position: the first position of the new plan.
        reads: samples that each source has given before it, repetitions counted; sources added since have 0.
    """

    position: int
    reads: Sequence[int]


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
        max_repetitions: how often a sample may be read in all, earlier plans included, up to num_samples: one number or
            one per source (1.5: half of the samples twice). None: no limit.

    Raises:
        ValueError: see `Order`; more than 2**48 positions; a source without samples but with a weight; a ledger of
            another number of sources; a source that would be read more often than it may.
    """

    name = "stateless"
    algorithm = 2
    endless = True

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
        *,
        start: Ledger | Mapping[str, Any] | None = None,
        max_repetitions: float | Sequence[float] | None = None,
    ) -> None:
        self.start = (
            Ledger(**start)
            if isinstance(start, Mapping)
            else start or Ledger(0, [0] * len(dataset_lengths))
        )
        super().__init__(dataset_lengths, dataset_weights, num_samples, random_seed)
        if max_repetitions is not None:
            counts = self.counts()  # by the end of the run
            times = counts / np.maximum(self.dataset_lengths, 1)
            for source in np.flatnonzero(~(times <= max_repetitions) & (counts > self._reads)):
                found = f"dataset {source} would be read {times[source]:.2f} times"
                way = "lower its weight or shorten the run"
                raise ValueError(f"{found}, max_repetitions allows {max_repetitions}: {way}")

    def _build(self) -> None:
        start, lengths = self.start, self.dataset_lengths
        if len(start.reads) != len(lengths) or min(start.position, *start.reads) < 0:
            raise ValueError(
                f"a ledger counts from 0, each of the order's {len(lengths)} sources: keep dropped sources with "
                f"weight 0, and give added ones a 0 in the ledger (Ledger.reads); got {start}"
            )
        if max(self.num_samples, self.samples_per_epoch) > MAX_SAMPLES:
            raise ValueError(
                f"an order has at most 2**48 positions and samples; got {self.num_samples}, {self.samples_per_epoch}"
            )
        for source in np.flatnonzero((lengths == 0) & (self.dataset_weights > 0)):
            raise ValueError(f"dataset {source} has no samples but a positive weight; leave it out")
        self._key = np.uint64(derive(self.random_seed, 0))
        if start.position or any(start.reads):
            self.options = {
                "start": {
                    "position": int(start.position),
                    "reads": [int(read) for read in start.reads],
                }
            }
        if start.position:
            self._key = np.uint64(derive(self._key, start.position))
        family = np.uint64(derive(self.random_seed, 1))
        self._keys = np.array(
            [derive(family, source) for source in range(len(lengths))], dtype=np.uint64
        )
        self._shapes = np.array([sides(length) for length in lengths], dtype=np.uint64).T.copy()
        self._reads = np.array(start.reads, dtype=np.int64)
        # without weights a source has as many parts of the whole as samples, and so an epoch is exact
        parts, self._epoch = lengths, self.samples_per_epoch
        if self.weighted:  # there is one endless epoch
            rounded = np.rint(self.dataset_weights * WEIGHT_PARTS).astype(np.int64)
            parts, self._epoch = np.maximum(rounded, self.dataset_weights > 0), MAX_SAMPLES
        self._tree = build_tree(parts.tolist())

    def ledger(self, k: int) -> Ledger:
        """How far the run has read before position k."""
        return Ledger(k, tuple(self.counts(k).tolist()))

    @property
    def first_position(self) -> int:  # type: ignore[override]
        return self.start.position

    @property
    def identity(self) -> dict[str, Any]:
        """As `Order.identity`: of the weights, the parts of the whole that they are rounded to, and
        the items after which windows begin anew, which mean nothing where only one source is read.
        """
        parts = self._tree.parts[: self._tree.sources]
        alone = np.count_nonzero(parts) == 1
        shares = {
            "parts": (parts // np.gcd.reduce(parts)).tolist(),
            "windows_begin_anew_after": None if alone else self._epoch,
        }
        given = super().identity | shares | self.options
        del given["dataset_weights"]
        return given

    def lookup(self, positions: Int64Array) -> Pairs:
        self._check_start(positions.min(initial=self.num_samples))
        items, sources = (
            positions - self.start.position,
            (self._reads, self.dataset_lengths, self._shapes, self._keys),
        )
        return _lookup(self._tree, self._epoch, self._key, items, *sources)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        if self._tree.parts[dataset] == 0:
            return np.empty(0, dtype=np.int64)
        first, length = self.start.position, self.dataset_lengths[dataset]
        items = _find(
            self._tree,
            dataset,
            sample,
            length,
            self._keys[dataset],
            self._reads[dataset],
            until - first,
        )
        windows = items - items % self._epoch % SIZE
        near = first + np.unique(windows[:, None] + np.arange(SIZE))
        near = near[near < until]
        datasets, samples = self.lookup(near)
        return near[(datasets == dataset) & (samples == sample)]

    def _counts(self, until: int) -> Int64Array:
        """With what the ledger counts."""
        self._check_start(until)
        stop = until - self.start.position
        window = stop - stop % self._epoch % SIZE
        turns, _ = locate(self._tree, self._epoch, self._key, np.arange(window, stop))
        counts = self._reads + np.bincount(turns, minlength=len(self._reads))
        for source in np.flatnonzero(self._tree.parts[: len(counts)]):
            counts[source] += share_of(self._tree, source, window)
        return counts

    def coverage(self, until: int) -> list[tuple[int, int]]:
        """As `Order.coverage`, without counting: a source is read through before a sample of it repeats."""
        reads = zip(self.counts(until).tolist(), self.dataset_lengths.tolist(), strict=True)
        return [(min(read, length), -(-read // max(length, 1))) for read, length in reads]

    def _check_start(self, position: int) -> None:
        if position < self.start.position:
            raise IndexError(
                f"position {position} was read by the plan before; this one begins at {self.start.position}"
            )


@njit(cache=True, nogil=True, error_model="numpy")
def _lookup(tree, epoch, key, items, reads, lengths, shapes, keys):
    """Sources and samples of items, int64 [n] each: steps 1 to 3 of `StatelessOrder`."""
    sources, samples = np.empty_like(items), np.empty_like(items)
    for first in range(0, len(items), CHUNK):
        few = slice(first, first + CHUNK)
        # 1.
        found, numbers = locate(tree, epoch, key, items[few])
        # 2.
        readings, sizes = reads[found] + numbers, lengths[found]
        passes = readings // sizes
        # 3.
        drawn = np.empty(len(found), dtype=np.uint64)
        for p in range(len(found)):
            drawn[p] = derive(keys[found[p]], passes[p])
        sources[few] = found
        samples[few] = permute_each(readings - passes * sizes, sizes, shapes[:, found], drawn)
    return sources, samples


@njit(cache=True)
def _find(tree, source, sample, length, key, reads, until):
    """Items in whose windows a source may read a sample, int64 [n]: one per pass, until one is `until` or above."""
    found = [np.int64(0) for _ in range(0)]
    item, number = np.int64(0), reads // length
    while item < until:
        turn = number * length + unpermute(sample, length, derive(key, number)) - reads
        high = until + SIZE
        while item < high:  # the item that is the source's turn by its share
            middle = (item + high) // 2
            if share_of(tree, source, middle + 1) > turn:
                high = middle
            else:
                item = middle + 1
        found.append(item)
        number += 1
    return np.array(found, dtype=np.int64)
