"""``order="stateless"``: computes the pair at every position from keys; builds and stores nothing.

An epoch without weights reads every sample once. With weights, no sample of a source repeats before
all of them have been read, and each source stays within 1.7 samples of its share after every 64
positions. Every pass over a source has its own shuffle, and a longer run begins like a shorter one.

The order takes some 150 bytes per source. A lookup takes 35 ns with one source, 100 ns with a few
and 200 ns with hundreds, regardless of the run's length. A run can start at any position at no
cost. The inverse computes one window of 64 positions for each time that a sample is read.

Without weights, the bound of 1.7 samples holds up to the last position, 2**48. Weights are rounded
to whole parts of 2**-46, and the rounded shares are kept to 1.68 samples. A share w of S sources is
rounded by at most (1 + S * w) / 2**46. After k positions, a multiple of 64, a source is therefore
off by at most 1.68 + k * (1 + S * w) / 2**46 samples: by 1.7 up to k = 1.4e12 / (1 + S * w). That
is 7e11 positions for equal weights, and 7e9 for a tenth of the weight among 2,000 sources.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.item_loops import each
from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.orders.base import Matches, Order, Pairs, Weights
from nanoset_ref.orders.interleaving import WINDOW_SIZE, source_at
from nanoset_ref.orders.permutation import derive, permute_each, unpermute
from nanoset_ref.orders.share_tree import build_tree, share_of

MAX_SAMPLES = 2**48
WEIGHT_PARTS = 2**46  # weights are rounded to this many parts of the whole
WINDOWS_AT_ONCE = 1 << 14  # windows of WINDOW_SIZE items looked up at once
ITEMS_AT_ONCE = 512  # items at once, so that their arrays stay in the processor's cache


class Ledger(NamedTuple):
    """The progress of a run, to continue it with other weights or more sources.

    Attributes:
        position: the first position of the new plan.
        reads: samples read from each source before it, with repetitions; 0 for sources added since.
        lengths: samples in each source then, which must not have changed; None: not checked.
    """

    position: int
    reads: Sequence[int]
    lengths: Sequence[int] | None = None


class StatelessOrder(Order):
    """Computes the pair at position k:

    1. item k - start.position reads a source that n earlier items read (`interleaving.source_at`)
    2. read = start.reads[source] + n; pass = read // length, place = read mod length
    3. sample = permutation of (seed, source, pass) at place

    Example, lengths [2, 4], no weights: the sources of an epoch may be 1 1 0 1 0 1; source 1 is
    read at places 0 1 2 3, which its first pass permutes to, say, samples 2 0 3 1 and its second
    pass to others.

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`.
        start: a ledger (or its JSON) of an order with the same seed, to continue from. Sources keep
            their numbers: new ones are added at the end, and a dropped one stays with weight 0.
            Positions before start.position belong to the earlier order and raise IndexError here.
        max_repetitions: how often a sample may be read up to num_samples, earlier plans included:
            one number or one per source (1.5: half of the samples twice). None: no limit.

    Raises:
        ValueError: see `Order`; more than 2**48 positions; a source without samples but with a
            weight; a ledger with another number of sources, or of sources of other lengths; a
            source that would be read more often than max_repetitions.
    """

    name = "stateless"
    algorithm = 3
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
        if isinstance(start, Mapping) and set(start) - {"lengths"} == {
            "position",
            "reads",
        }:
            start = Ledger(**start)
        if not isinstance(start, Ledger | None):
            raise ValueError(
                "start must be a Ledger or its JSON, {'position': ..., 'reads': [...]}, "
                f"got {start!r:.200}"
            )
        self.start = start or Ledger(0, [0] * len(dataset_lengths))
        super().__init__(dataset_lengths, dataset_weights, num_samples, random_seed)
        if max_repetitions is not None:
            self._check_repetitions(max_repetitions)

    def _check_repetitions(self, allowed: float | Sequence[float]) -> None:
        """Raise ValueError if a source is read more often than allowed by the end of the run."""
        limits = np.asarray(allowed)
        one_each = limits.size in (1, len(self.dataset_lengths))
        if not one_each or limits.dtype.kind not in "iuf":
            raise ValueError(
                f"max_repetitions is one number, or one for each of {len(self.dataset_lengths)} "
                f"sources, got {allowed!r:.200}"
            )
        counts = self.counts()  # by the end of the run
        times = counts / np.maximum(self.dataset_lengths, 1)
        is_too_often = ~(times <= limits) & (counts > self._reads)
        too_often = np.flatnonzero(is_too_often)
        if too_often.size:
            source = too_often[0]
            raise ValueError(
                f"source {source} would be read {times[source]:.2f} times, "
                f"max_repetitions allows {allowed}: lower its weight or shorten the run"
            )

    def build(self) -> None:
        """Check the ledger and the weights, derive the keys, build the tree of shares."""
        lengths = self.dataset_lengths
        self._check_ledger()
        if max(self.num_samples, self.samples_per_epoch) > MAX_SAMPLES:
            raise ValueError(
                "an order has at most 2**48 positions and samples; "
                f"got {self.num_samples}, {self.samples_per_epoch}"
            )
        is_empty = (lengths == 0) & (self.dataset_weights > 0)
        empty = np.flatnonzero(is_empty)
        if empty.size:
            raise ValueError(
                f"source {empty[0]} has no samples but a positive weight; leave it out"
            )
        start = self.start
        self._reads = np.array(start.reads, dtype=np.int64)
        if start.position or self._reads.any():
            ledger = {"position": int(start.position), "reads": self._reads.tolist()}
            self.options = {"start": ledger}
        key = derive(self.random_seed, 0)
        if start.position:
            key = derive(np.uint64(key), start.position)
        self._window_key = np.uint64(key)
        parent_key = np.uint64(derive(self.random_seed, 1))
        with np.errstate(over="ignore"):  # words wrap around
            self._source_keys = derive.python(parent_key, np.arange(len(lengths)))
        self._build_tree()

    def _check_ledger(self) -> None:
        """Raise ValueError if the ledger is not one of these sources."""
        start = self.start
        lengths = self.dataset_lengths
        recorded = start.lengths or ()
        if (
            np.shape(start.reads) != lengths.shape
            or np.ndim(recorded) != 1
            or len(recorded) > len(lengths)
        ):
            raise ValueError(
                f"a ledger has a count for each of the order's {len(lengths)} sources, and no more "
                "lengths: keep dropped sources with weight 0, and give added ones a count of 0 "
                f"(Ledger.reads); got {start}"
            )
        for count in (start.position, *start.reads, *recorded):
            whole_number(count, "a count of a ledger", 0, bits=62)
        if start.position > self.num_samples:
            raise ValueError(
                f"the ledger is at position {start.position:,}, but the run has "
                f"{self.num_samples:,} samples"
            )
        # sources that were added since follow those of the ledger
        for source, length in enumerate(recorded):
            if length != lengths[source] and self.dataset_weights[source] > 0:
                raise ValueError(
                    f"source {source} had {length:,} samples when the ledger was made, and has "
                    f"{lengths[source]:,} now, so its next pass would repeat samples: give it as "
                    "it was, or drop it (weight 0) and add the new one"
                )

    def _build_tree(self) -> None:
        """Build the tree of shares, and set the number of items after which windows begin again."""
        # without weights a source has as many parts as samples, and so an epoch is exact
        parts = self.dataset_lengths
        self._period = self.samples_per_epoch
        if self.weighted:  # one endless period
            exact = self.dataset_weights * WEIGHT_PARTS
            rounded = np.rint(exact).astype(np.int64)
            parts = np.maximum(rounded, self.dataset_weights > 0)
            self._period = MAX_SAMPLES
        self._tree = build_tree(parts)

    def ledger(self, k: int) -> Ledger:
        """The progress of the run before position k.

        Raises:
            IndexError: k is not in first_position .. num_samples.
        """
        if not self.first_position <= k <= self.num_samples:
            raise IndexError(
                f"position {k} is not one of {self.first_position} .. {self.num_samples}"
            )
        reads = self.counts(k).tolist()
        return Ledger(int(k), tuple(reads), tuple(self.dataset_lengths.tolist()))

    @property
    def first_position(self) -> int:  # type: ignore[override]
        """See `Order.first_position`."""
        return self.start.position

    @property
    def identity(self) -> Json:
        """See `Order.identity`. It contains the rounded weights, and the number of items after
        which windows begin again, or None for a single source, where it has no effect.
        """
        parts = self._tree.parts[: self._tree.sources]
        has_one_source = np.count_nonzero(parts) == 1
        identity = super().identity
        del identity["dataset_weights"]
        reduced = parts // np.gcd.reduce(parts)
        identity["parts"] = reduced.tolist()
        identity["windows_begin_anew_after"] = None if has_one_source else self._period
        return identity

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        self._check_begun(positions.min(initial=self.num_samples))
        return _lookup(
            self._tree,
            self._period,
            self._window_key,
            positions - self.start.position,
            self._reads,
            self.dataset_lengths,
            self._source_keys,
        )

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """See `Order.reverse_lookup_each`: a window of each pass is looked up for each sample."""
        readable = np.flatnonzero(self._tree.parts[sources])
        start = self.start.position
        candidates, items = _find_items(
            self._tree,
            sources[readable],
            samples[readable],
            self.dataset_lengths,
            self._source_keys,
            self._reads,
            until - start,
        )
        reads = [(candidates[:0], items[:0])]
        for first in range(0, len(items), WINDOWS_AT_ONCE):
            part = slice(first, first + WINDOWS_AT_ONCE)
            window_starts = start + self._window_start(items[part])
            positions = np.add.outer(window_starts, np.arange(WINDOW_SIZE)).ravel()
            indices = np.repeat(readable[candidates[part]], WINDOW_SIZE)
            is_below = positions < until
            positions = positions[is_below]
            indices = indices[is_below]
            sources_read, samples_read = self.lookup(positions)
            is_read = sources_read == sources[indices]
            is_read &= samples_read == samples[indices]
            reads.append((indices[is_read], positions[is_read]))
        table = np.concatenate(reads, axis=1)
        indices, positions = np.unique(table, axis=1)
        return indices, positions

    def _counts(self, until: int) -> Int64Array:
        """See `Order._counts`. The reads of the ledger are included."""
        self._check_begun(until)
        stop = until - self.start.position
        window = self._window_start(stop)
        items = np.arange(window, stop)
        sources, _ = source_at(self._tree, self._period, self._window_key, items)
        in_window = np.bincount(sources, minlength=len(self._reads))
        counts = self._reads + in_window
        parts = self._tree.parts[: len(counts)]
        for source in np.flatnonzero(parts):
            counts[source] += share_of(self._tree, source, window)
        return counts

    def coverage(self, until: int) -> list[tuple[int, int]]:
        """See `Order.coverage`. Nothing is counted: no sample repeats before all have been read."""
        counts = self.counts(until)
        distinct = np.minimum(counts, self.dataset_lengths)
        lengths = np.maximum(self.dataset_lengths, 1)
        most_reads = -(-counts // lengths)
        return list(zip(distinct.tolist(), most_reads.tolist(), strict=True))

    def _window_start(self, item: Any) -> Any:
        """The first item of the window of an item; the last window of a period may be short."""
        return item - item % self._period % WINDOW_SIZE


@njit(
    error_model="numpy",
    work=lambda tree, period, key, items, reads, lengths, keys: 2000 + 8 * len(items),
)
def _lookup(tree, period, key, items, reads, lengths, keys):
    """Sources and samples of items: steps 1 to 3 of `StatelessOrder`.

    Args:
        tree, period, key, items: as of `source_at`, for any number of items.
        reads: int64 [sources], samples read before item 0.
        lengths: int64 [sources], in samples.
        keys: uint64 [sources], from which the keys of their passes are derived.

    Returns:
        int64 [n] each.
    """
    sources = np.empty_like(items)
    samples = np.empty_like(items)
    for first in range(0, len(items), ITEMS_AT_ONCE):
        part = slice(first, first + ITEMS_AT_ONCE)
        # 1.
        part_sources, numbers = source_at(tree, period, key, items[part])
        # 2.
        numbers += reads[part_sources]
        sizes = lengths[part_sources]
        passes = numbers // sizes
        places = numbers - passes * sizes
        # 3.
        pass_keys = np.empty(len(places), dtype=np.uint64)
        for p in each(len(places)):
            pass_keys[p] = derive(keys[part_sources[p]], passes[p])
        sources[part] = part_sources
        samples[part] = permute_each(places, sizes, pass_keys)
    return sources, samples


def _work_of_find_items(tree, sources, samples, lengths, keys, reads, until):
    """Units of work (see `Kernel`): 4,000 for each pass over a sample."""
    shares = tree.parts[sources] / tree.parts[tree.root]
    passes = 1 + shares * until / lengths[sources]
    return int(4000 * passes.sum())


@njit(work=_work_of_find_items)
def _find_items(tree, sources, samples, lengths, keys, reads, until):
    """Items whose windows may read samples: for each sample one item of each pass.

    Args:
        tree: the `ShareTree` of the sources.
        sources, samples: int64 [m]; each source has some parts of the whole.
        lengths: int64 [sources], in samples.
        keys: uint64 [sources].
        reads: int64 [sources], samples read before item 0.
        until: int64. The last item found of a sample may lie beyond it.

    Returns:
        Numbers of the samples and the items, int64 [n] each.
    """
    numbers = [np.int64(0) for _ in range(0)]
    items = [np.int64(0) for _ in range(0)]
    for n in range(len(sources)):
        source = sources[n]
        length = lengths[source]
        item = np.int64(0)
        pass_number = reads[source] // length
        while item < until:
            key = derive(keys[source], pass_number)
            place = unpermute(samples[n], length, key)
            read = pass_number * length + place - reads[source]
            # a search for the item at which the source's share exceeds the reads before
            high = until + WINDOW_SIZE
            while item < high:
                middle = (item + high) // 2
                if share_of(tree, source, middle + 1) > read:
                    high = middle
                else:
                    item = middle + 1
            numbers.append(np.int64(n))
            items.append(item)
            pass_number += 1
    return np.array(numbers, dtype=np.int64), np.array(items, dtype=np.int64)
