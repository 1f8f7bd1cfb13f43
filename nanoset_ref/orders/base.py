"""What every order is: a pure function from a position to (dataset, sample), and back.

An order is a sequence of ``num_samples`` pairs that behaves as a Python sequence does, but nothing obliges it to store
them. Subclasses answer `lookup` for valid positions and `_positions` for a valid sample; checking, negative indices,
slices, counting and the fingerprint live here, so that no order can be lenient where another is strict.

Samples are also numbered through all datasets, one dataset after the other. Such a number is an instance:

    lengths 2, 0, 3      sample    (0,0) (0,1) (2,0) (2,1) (2,2)         (dataset, sample)
                         instance    0     1     2     3     4
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.kernels import njit
from nanoset_ref.io.options import whole_number as whole_number

Int64Array = NDArray[np.int64]
Pairs = tuple[Int64Array, Int64Array]  # datasets and samples, [n] each
Weights = Sequence[float] | NDArray[np.float64]
BLOCK = 1 << 20  # positions looked up at once


class Order(ABC):
    """Position k -> (dataset, sample), for k in [0, num_samples).

    Args:
        dataset_lengths: samples in each dataset (not tokens).
        dataset_weights: one finite, non-negative number per dataset, normalised here; None reads each dataset in
            proportion to its length.
        num_samples: how many positions the run reads (global, in samples); need not be a multiple of an epoch.
        random_seed: 0 .. 2**32 - 1.

    Attributes:
        dataset_lengths: int64, one per dataset, in samples.
        dataset_weights: float64, one per dataset, summing to one.
        samples_per_epoch: sum of the lengths.
        firsts: int64, the instance that each dataset begins with.
        algorithm: version of the algorithm, from 1: raised, and named in CHANGELOG, whenever the same
            arguments give other pairs. Plans of another version do not agree.
        endless: whether `lookup` answers for every position, beyond num_samples too, as a longer order would.
        options: keyword arguments of `build_order`, as JSON, that this order was made with besides the usual ones.
        keeps_shares: whether every stretch of it reads the datasets in proportion to their weights, but for chance. An
            order that does not takes no weights.
        repeats: whether all epochs are the same.
        first_position: the first one that it answers for: 0 but for an order that goes on from a ledger.

    Raises:
        ValueError: no datasets, only empty ones, a negative length, weights that are not one finite non-negative
            number per dataset or are all zero, weights of an order that takes none, num_samples below zero, a seed out
            of range.
    """

    name: str
    algorithm: int = 1
    first_position: int = 0
    endless = False
    options: dict[str, object] = {}  # noqa: RUF012 (nobody writes into it)
    keeps_shares = True
    repeats = False

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
    ) -> None:
        lengths = [operator.index(length) for length in dataset_lengths]
        self.num_samples = whole_number(num_samples, "num_samples")
        self.random_seed = whole_number(random_seed, "random_seed")
        self.samples_per_epoch = sum(lengths)
        if min(lengths, default=0) < 0 or self.samples_per_epoch == 0:
            raise ValueError(
                f"an order needs samples in at least one dataset, and no negative length; got {lengths}"
            )
        if not 0 <= self.num_samples < 2**63:
            raise ValueError(
                f"num_samples must not be negative, and below 2**63; got {num_samples}"
            )
        if not 0 <= self.random_seed < 2**32:
            raise ValueError(f"random_seed must lie in 0 .. 2**32 - 1, got {random_seed}")
        self.weighted = dataset_weights is not None
        self._given_weights = (
            None if dataset_weights is None else np.array(dataset_weights, dtype=float).tolist()
        )
        if self.weighted and not self.keeps_shares:
            raise ValueError(f"the order {self.name!r} reads what it says; leave the weights out")
        self.dataset_lengths: Int64Array = np.array(lengths, dtype=np.int64)
        self.firsts: Int64Array = np.cumsum(self.dataset_lengths) - self.dataset_lengths
        self.dataset_weights = normalize_weights(
            lengths if dataset_weights is None else dataset_weights, len(lengths)
        )
        self._build()

    def _build(self) -> None:  # noqa: B027 (most orders store nothing)
        """Make what the order stores, if it stores anything."""

    @abstractmethod
    def lookup(self, positions: Int64Array) -> Pairs:
        """The datasets and samples at positions [n] of which all are known to be in [0, num_samples)."""

    @abstractmethod
    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        """Sorted positions below `until` at which a valid (dataset, sample) is read."""

    def _counts(self, until: int) -> Int64Array:
        """How often each dataset is read in positions [0, until)."""
        return np.array([readings.sum() for readings in self.readings(0, until)], dtype=np.int64)

    @property
    def identity(self) -> dict[str, Any]:
        """All that the pairs are a function of, as JSON, and nothing else: equal for two orders that
        agree wherever both are defined. The number of samples is no part of it.
        """
        return {
            "kind": self.name,
            "algorithm": self.algorithm,
            "dataset_lengths": self.dataset_lengths.tolist(),
            "dataset_weights": self.dataset_weights.tolist() if self.weighted else None,
            "random_seed": self.random_seed,
        }

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The arguments of `build_order` that make this order again, as JSON; None: it takes an object."""
        return {
            "name": self.name,
            "dataset_weights": self._given_weights,
            "random_seed": self.random_seed,
            "options": self.options,
        }

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of the identity and of the pairs at the witnesses: equal for two
        orders that agree wherever both are defined (runs of different length do).
        """
        from nanoset_ref.orders.plans import fingerprint_of  # only runs that are compared need it

        datasets, samples = self.lookup(np.array(self.witnesses, dtype=np.int64))
        return fingerprint_of([self.identity, datasets.tolist(), samples.tolist()])

    @property
    def witnesses(self) -> list[int]:
        """Positions that every order of the same identity can look up, whatever its number of
        samples; an order that is not endless has none.
        """
        from nanoset_ref.orders.plans import OCTAVES, probe_positions  # as above

        if not self.endless:
            return []
        return probe_positions(self.first_position, self.first_position + 2**OCTAVES)

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, k: Any) -> Any:
        """An int gives (dataset, sample) as ints; an array of ints or a slice gives two int64 arrays of its shape."""
        if isinstance(k, slice):
            return self.lookup(np.arange(*k.indices(self.num_samples)))
        positions = counted_from_0(k, self.num_samples)
        datasets, samples = self.lookup(positions.ravel())
        if positions.ndim == 0:
            return int(datasets[0]), int(samples[0])
        return datasets.reshape(positions.shape), samples.reshape(positions.shape)

    def positions(self, dataset: int, sample: int, until: int | None = None) -> Int64Array:
        """Every k below `until` (and below `len`) with ``order[k] == (dataset, sample)``, ascending, int64.

        Raises:
            IndexError: there is no such dataset, or it has no such sample (neither counts from the end).
        """
        dataset, sample = operator.index(dataset), operator.index(sample)
        if not (
            0 <= dataset < len(self.dataset_lengths) and 0 <= sample < self.dataset_lengths[dataset]
        ):
            raise IndexError(f"there is no sample {sample} of dataset {dataset} in {self}")
        return self._positions(dataset, sample, self._end(until))

    def counts(self, until: int | None = None) -> Int64Array:
        """Samples read from each dataset in the first `until` positions (default and at most: all), int64, one per
        dataset.
        """
        return self._counts(self._end(until))

    def _end(self, until: int | None) -> int:
        return (
            self.num_samples
            if until is None
            else max(min(operator.index(until), self.num_samples), 0)
        )

    def epoch_of(self, position: int) -> int:
        """The epoch that a position lies in, from 0."""
        return position // self.samples_per_epoch

    def coverage(self, until: int) -> list[tuple[int, int]]:
        """For each dataset the different samples read before position `until`, and reads of the one read most.

        Reading begins at `first_position`; what an earlier plan read is not counted here.
        """
        begin = min(self.first_position, until)
        found = self.readings(begin, until)
        return [(int(np.count_nonzero(reads)), int(reads.max(initial=0))) for reads in found]

    def readings(self, start: int, stop: int) -> list[NDArray[np.uint32]]:
        """For each dataset [length]: how often each of its samples is read in positions [start, stop)."""
        readings = np.zeros(self.samples_per_epoch, dtype=np.uint32)
        begin, period = (0, self.samples_per_epoch) if self.repeats else (start, stop)
        for first in range(begin, min(stop, period), BLOCK):
            positions = np.arange(first, min(first + BLOCK, stop, period))
            datasets, samples = self.lookup(positions)
            times = (stop - 1 - positions) // period - (start - 1 - positions) // period
            np.add.at(readings, self.firsts[datasets] + samples, times.astype(np.uint32))
        return np.split(readings, self.firsts[1:])

    def pairs(self, instances: NDArray[Any]) -> Pairs:
        """Datasets and samples, int64 [n] each, of instances: integers [n]."""
        return _pairs(self.firsts, instances)

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """A picture: the share of each dataset along the positions, and how often each is read.

        Args:
            names: of the datasets; default: their numbers.

        Returns:
            A matplotlib Figure, 750 pixels wide.

        Raises:
            ImportError: matplotlib is missing (the extra `lab`).
        """
        from nanoset_ref.orders.pictures import draw_sources

        labels = names or [f"dataset {number}" for number in range(len(self.dataset_lengths))]
        promised = self.dataset_weights if self.keeps_shares else None
        title = f"order {self.name!r}, seed {self.random_seed}"
        positions = range(self.first_position, self.num_samples)
        return draw_sources(
            lambda at: self.lookup(at)[0], positions, labels, self.dataset_lengths, promised, title
        )

    def _repr_html_(self) -> str:
        from nanoset_ref.orders.pictures import html_table

        facts = {
            "order": self.name,
            "samples": self.num_samples,
            "samples in an epoch": self.samples_per_epoch,
            "epochs": self.num_samples / self.samples_per_epoch,
            "seed": self.random_seed,
        }
        lengths, shares = self.dataset_lengths.tolist(), self.dataset_weights.tolist()
        rows = list(zip(range(len(lengths)), lengths, shares, strict=True))
        return html_table(type(self).__name__, facts, ("dataset", "samples", "share"), rows)

    def __repr__(self) -> str:
        weights = f", weights {self.dataset_weights.round(4).tolist()}" if self.weighted else ""
        return (
            f"{type(self).__name__}({self.num_samples:,} samples, "
            f"{self.num_samples / self.samples_per_epoch:.2f} epochs of {self.samples_per_epoch:,} "
            f"from {len(self.dataset_lengths)} dataset(s){weights}, seed {self.random_seed})"
        )


class NumberedOrder(Order):
    """Position k reads the instance ``numbers[k mod len(numbers)]``, integers [n] that `_build` makes."""

    numbers: NDArray[Any]

    def lookup(self, positions: Int64Array) -> Pairs:
        return _pairs(self.firsts, self.numbers[positions % len(self.numbers)])

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        """One vectorised pass over the numbers (about 0.3 ns for each), whatever the length of the run."""
        within = np.flatnonzero(self.numbers[:until] == int(self.firsts[dataset]) + sample)
        every = np.add.outer(np.arange(0, until, len(self.numbers)), within).ravel()
        return every[every < until]


@njit(cache=True, nogil=True, work=lambda firsts, instances: 30 * len(instances))
def _pairs(firsts, instances):
    datasets, samples = (
        np.empty(len(instances), dtype=np.int64),
        np.empty(len(instances), dtype=np.int64),
    )
    for n in range(len(instances)):
        instance = np.int64(instances[n])
        low, high = 0, len(firsts)
        while (
            high - low > 1
        ):  # the dataset is the last one that begins at or before it; searchsorted is slower
            middle = (low + high) // 2
            if firsts[middle] <= instance:
                low = middle
            else:
                high = middle
        datasets[n], samples[n] = low, instance - firsts[low]
    return datasets, samples


def counted_from_0(positions: Any, length: int) -> Int64Array:
    """Integers of [-length, length) as int64 of the same shape, negative ones counted from the end; else IndexError."""
    given = np.asarray(positions)
    given = given.astype(
        np.int64, casting="same_kind" if given.size else "unsafe", copy=False
    )  # [] is of floats
    outside = given[(given < -length) | (given >= length)]
    if outside.size:
        raise IndexError(f"position {outside[0]} is outside a sequence of {length} samples")
    return given + length * (given < 0)


def normalize_weights(weights: Weights, num_datasets: int) -> NDArray[np.float64]:
    """Weights divided by their sum in float64, exactly as Nanotron does (the last bit decides ties)."""
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (num_datasets,):
        raise ValueError(
            f"give one weight per dataset: {num_datasets} datasets, weights of shape {values.shape}"
        )
    for dataset in np.flatnonzero(~(np.isfinite(values) & (values >= 0))):
        raise ValueError(
            f"weights must be finite and not negative; dataset {dataset} has {values[dataset]}"
        )
    total = values.sum()
    if not 0 < total < np.inf:
        raise ValueError(
            f"the weights must have a positive, finite sum; {values.tolist()} sum to {total}"
        )
    return values / total
