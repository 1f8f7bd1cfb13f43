"""The base class of orders: a pure function from a position to (source, sample), and its inverse.

A source is one token file of the blend. Nanotron calls it a dataset, and so do `dataset_lengths`,
`dataset_weights` and other public names.

An order behaves as a Python sequence of `num_samples` pairs, but need not store them. A subclass
implements `lookup`. It may also implement the inverse; otherwise the order is scanned:

    lookup            positions -> sources and samples
    reverse_lookup    source and sample -> positions; or `reverse_lookup_each`, for many pairs

`positions`, `counts` and `order[...]` check the arguments first.
Checks, negative indices, slices, counts and the fingerprint are written once, here.

Samples also have numbers that run through all sources, one source after another. Such a number
is called an instance:

    lengths 2, 0, 3      sample    (0,0) (0,1) (2,0) (2,1) (2,2)         (source, sample)
                         instance    0     1     2     3     4
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.checks import check_index, normalize_indices, whole_number
from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Array, Float64Array, IntegerArray, Json
from nanoset_ref.io.types import Int64Array as Int64Array

Pairs = tuple[Int64Array, Int64Array]  # sources and samples, [n] each
# indices of the wanted pairs, and the positions that read them, [n] each
Matches = tuple[Int64Array, Int64Array]
Weights = Sequence[float] | Float64Array
NO_POSITIONS = np.empty(0, dtype=np.int64)


class Order(ABC):
    """Position k -> (source, sample), for k in [0, num_samples).

    Args:
        dataset_lengths: samples in each source (not tokens).
        dataset_weights: one finite, non-negative number per source, normalized here; None reads
            each source in proportion to its length.
        num_samples: positions of the run, over all ranks; need not be a multiple of an epoch.
        random_seed: 0 .. 2**32 - 1.

    Attributes:
        dataset_lengths: int64, one per source, in samples.
        dataset_weights: float64, one per source, summing to one.
        weighted: whether weights were given.
        samples_per_epoch: sum of the lengths.
        source_offsets: int64, the first instance of each source.

    A subclass sets `name`, implements `lookup`, implements `build` if it stores anything, and
    overrides the class attributes that apply:

        algorithm: the algorithm's version, from 1. It increases, and CHANGELOG names it, whenever
            the same arguments give different pairs; plans of different versions do not agree.
        endless: whether `lookup` also answers beyond num_samples, as a longer order would.
        options: further keyword arguments of `build_order` that made this order, as JSON; part of
            its identity.
        seeded: whether the pairs depend on the seed.
        keeps_shares: whether every range of positions reads the sources in proportion to their
            weights, up to chance. If this is False, the order accepts no weights per source.
        same_epochs: whether every epoch is the same.
        first_position: the first valid position; above 0 only if the order continues another one.

    Raises:
        ValueError: no sources, only empty ones, a negative length, weights that are not one finite
            non-negative number per source or are all zero, weights of an order that takes none,
            num_samples below zero, a seed out of range.
    """

    name: str
    algorithm: int = 1
    first_position: int = 0
    endless = False
    options: Json = {}  # noqa: RUF012 (never written to)
    seeded = True
    keeps_shares = True
    same_epochs = False

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
    ) -> None:
        lengths = [operator.index(length) for length in dataset_lengths]
        self.num_samples = whole_number(num_samples, "num_samples", 0, bits=63)
        self.random_seed = whole_number(random_seed, "random_seed", 0, bits=32)
        self.samples_per_epoch = sum(lengths)
        if min(lengths, default=0) < 0 or self.samples_per_epoch == 0:
            raise ValueError(
                "an order needs samples in at least one source, and no negative length; "
                f"got {lengths}"
            )
        self.weighted = dataset_weights is not None
        weights: Weights = lengths
        if dataset_weights is not None:
            if not self.keeps_shares:
                raise ValueError(
                    f"the order {self.name!r} takes no weights; leave the weights out"
                )
            weights = dataset_weights
        self.dataset_lengths: Int64Array = np.array(lengths, dtype=np.int64)
        self.source_offsets = np.cumsum(self.dataset_lengths) - self.dataset_lengths
        self.dataset_weights = normalize_weights(weights, len(lengths))
        given = np.array(weights, dtype=float).tolist()
        self._given_weights = given if self.weighted else None
        self.build()

    def build(self) -> None:  # noqa: B027 (most orders store nothing)
        """Compute the arrays to store. Called once, when all other attributes are set."""

    @abstractmethod
    def lookup(self, positions: Int64Array) -> Pairs:
        """The sources and samples at positions: [n], all in [0, num_samples)."""

    def reverse_lookup(
        self,
        source: int,
        sample: int,
        until: int,
    ) -> Int64Array:
        """The positions below `until` that read a sample: int64 [n], ascending.

        The sample exists, and `until` is in 0 .. num_samples; `positions` checks both.
        """
        sources = np.array([source])
        samples = np.array([sample])
        _, positions = self.reverse_lookup_each(sources, samples, until)
        return np.sort(positions)

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """Every position below `until` that reads one of these samples, in any order.

        A subclass that computes its inverse implements this; here the order is scanned.
        `orders.inverse.find_each` sorts the matches.

        Args:
            sources, samples: int64 [n] each, pairs that exist and that differ from each other.
        """
        # only the inverse and counts need it
        from nanoset_ref.orders.inverse import find_by_scan

        return find_by_scan(self, sources, samples, until)

    def _counts(self, until: int) -> Int64Array:
        """How often positions [0, until) read each source."""
        reads = self.reads_of_samples(0, until)
        counts = [sample_reads.sum() for sample_reads in reads]
        return np.array(counts, dtype=np.int64)

    @property
    def identity(self) -> Json:
        """Everything that determines the pairs, as JSON, and nothing else.

        Two orders of the same identity agree wherever both are defined, so the number of samples is
        not part of it.
        """
        weights = None
        if self.weighted:
            weights = self.dataset_weights.tolist()
        identity = {
            "kind": self.name,
            "algorithm": self.algorithm,
            "dataset_lengths": self.dataset_lengths.tolist(),
            "dataset_weights": weights,
        }
        if self.seeded:
            identity["random_seed"] = self.random_seed
        return identity | self.options

    @property
    def arguments(self) -> Json:
        """The arguments that made this order, without lengths, as JSON."""
        return {
            "name": self.name,
            "dataset_weights": self._given_weights,
            "random_seed": self.random_seed,
            "options": self.options,
        }

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: a hash of the identity and of the pairs at some positions.

        Runs that differ only in their length have the same fingerprint.
        """
        from nanoset_ref.orders.plans import fingerprint_of  # only plans need it

        positions = np.array(self.fingerprint_positions, dtype=np.int64)
        sources, samples = self.lookup(positions)
        pairs = [sources.tolist(), samples.tolist()]
        return fingerprint_of([self.identity, *pairs])

    @property
    def fingerprint_positions(self) -> list[int]:
        """Positions that every order of the same identity can look up, whatever its number of
        samples. Empty for an order that is not endless.
        """
        # only plans need it
        from nanoset_ref.orders.plans import PROBE_BITS, probe_positions

        if not self.endless:
            return []
        first = self.first_position
        return probe_positions(first, first + 2**PROBE_BITS)

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, k: Any) -> Any:
        """The pair at position k, two ints.

        For an array of ints or a slice, two int64 arrays of its shape.
        """
        if isinstance(k, slice):
            indices = k.indices(self.num_samples)
            return self.lookup(np.arange(*indices))
        positions = normalize_indices(k, self.num_samples)
        sources, samples = self.lookup(positions.ravel())
        if positions.ndim == 0:
            return int(sources[0]), int(samples[0])
        return sources.reshape(positions.shape), samples.reshape(positions.shape)

    def positions(
        self,
        source: int,
        sample: int,
        until: int | None = None,
    ) -> Int64Array:
        """Every k below `until` (None: all) with `order[k] == (source, sample)`, ascending.

        Raises:
            IndexError: no such source, or no such sample of it (neither counts from the end).
        """
        source = check_index(source, len(self.dataset_lengths), "source")
        what = f"source {source}, sample"
        sample = check_index(sample, self.dataset_lengths[source], what)
        return self.reverse_lookup(source, sample, self._end(until))

    def counts(self, until: int | None = None) -> Int64Array:
        """Samples that positions below `until` (None: all) read from each source, int64.

        StatelessOrder also counts its ledger's reads.
        """
        return self._counts(self._end(until))

    def _end(self, until: int | None) -> int:
        """`until`, brought into [0, num_samples]; None means all positions."""
        if until is None:
            return self.num_samples
        end = operator.index(until)
        return max(min(end, self.num_samples), 0)

    def _check_begun(self, position: int) -> None:
        """Raise IndexError if a position lies before the `first_position`."""
        first = self.first_position
        if position < first:
            raise IndexError(
                f"position {position} belongs to the previous plan; this one starts at {first}: "
                f'its loader needs consumed_train_samples={first} or more and tail="drop", for one '
                "iteration"
            )

    def epoch_of(self, position: int) -> int:
        """The epoch of a position, from 0."""
        return position // self.samples_per_epoch

    def coverage(self, until: int) -> list[tuple[int, int]]:
        """For each source, (samples read at least once, reads of the most-read sample).

        Counted from `first_position` to `until`. A StatelessOrder also counts the reads of its
        ledger. A SkippingOrder of one does not, since the skipped ranges decide which samples
        those were.
        """
        start = min(self.first_position, until)
        coverage = []
        for reads in self.reads_of_samples(start, until):
            distinct = int(np.count_nonzero(reads))
            most_reads = int(reads.max(initial=0))
            coverage.append((distinct, most_reads))
        return coverage

    def reads_of_samples(self, start: int, stop: int) -> list[IntegerArray]:
        """How often positions [start, stop) read each sample: per source, integers [length]."""
        # only the inverse and counts need it
        from nanoset_ref.orders.inverse import reads_of_samples

        return reads_of_samples(self, start, stop)

    def pairs(self, instances: Array) -> Pairs:
        """Sources and samples, int64 [n] each, of instances: integers [n]."""
        return pairs_of(self.source_offsets, instances)

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """A picture: the share of each source along the positions, and how often each is read.

        Args:
            names: of the sources; default: their numbers.

        Returns:
            A matplotlib Figure, 750 pixels wide.

        Raises:
            ImportError: matplotlib is missing (the extra `lab`).
        """
        from nanoset_ref.orders.plots import draw_order  # only notebooks need it

        return draw_order(self, names)

    def _repr_html_(self) -> str:
        from nanoset_ref.orders.plots import order_table  # only notebooks need it

        return order_table(self)

    def __repr__(self) -> str:
        epochs = self.num_samples / self.samples_per_epoch
        weights = ""
        if self.weighted:
            weights = f", weights {self.dataset_weights.round(4).tolist()}"
        return (
            f"{type(self).__name__}({self.num_samples:,} samples, "
            f"{epochs:.2f} epochs of {self.samples_per_epoch:,} "
            f"from {len(self.dataset_lengths)} source(s){weights}, seed {self.random_seed})"
        )


class ListedOrder(Order):
    """An order that is stored: position k reads `instances[k mod len(instances)]`.

    A subclass sets `instances`, integers [n]; usually in `build`.
    """

    instances: Array

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        indices = positions % len(self.instances)
        return pairs_of(self.source_offsets, self.instances[indices])

    def reverse_lookup(
        self,
        source: int,
        sample: int,
        until: int,
    ) -> Int64Array:
        """One vectorized pass over the instances, about 0.3 ns for each."""
        # only the inverse and counts need it
        from nanoset_ref.orders.inverse import repeat_in_epochs

        instance = int(self.source_offsets[source]) + sample
        positions_in_epoch = np.flatnonzero(self.instances[:until] == instance)
        epoch = len(self.instances)
        # only the positions are used
        _, positions = repeat_in_epochs(
            positions_in_epoch, positions_in_epoch, epoch, until
        )
        return positions


@njit(work=lambda source_offsets, instances: 30 * len(instances))
def pairs_of(source_offsets, instances):
    """Sources and samples of instances: int64 [n] each.

    Args:
        source_offsets: int64 [sources], ascending, the first instance of each source.
        instances: integers [n] below the sum of all lengths.
    """
    sources = np.empty(len(instances), dtype=np.int64)
    samples = np.empty(len(instances), dtype=np.int64)
    for n in range(len(instances)):
        instance = np.int64(instances[n])
        # the last source that begins at or before the instance; np.searchsorted is slower
        low = 0
        high = len(source_offsets)
        while high - low > 1:
            middle = (low + high) // 2
            if source_offsets[middle] <= instance:
                low = middle
            else:
                high = middle
        sources[n] = low
        samples[n] = instance - source_offsets[low]
    return sources, samples


def normalize_weights(weights: Weights, num_sources: int) -> Float64Array:
    """Divide weights by their sum in float64, exactly as Nanotron does (the last bit decides ties).

    Raises:
        ValueError: not one number per source, a negative or infinite one, or a sum of zero.
    """
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"weights must be numbers; got {weights!r:.200}") from None
    if values.shape != (num_sources,):
        raise ValueError(
            f"give one weight per source: a list of {num_sources}; got {weights!r:.200}"
        )
    is_valid = np.isfinite(values) & (values >= 0)
    invalid = np.flatnonzero(~is_valid)
    if invalid.size:
        source = invalid[0]
        raise ValueError(
            f"weights must be finite and not negative; source {source} has {values[source]}"
        )
    total = values.sum()
    if not 0 < total < np.inf:
        raise ValueError(
            f"the weights must have a positive, finite sum; {values.tolist()} sum to {total}"
        )
    return values / total
