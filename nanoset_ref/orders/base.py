"""What every order is: a pure function from a position to (dataset, sample), and back.

An order is a sequence of ``num_samples`` pairs that behaves as a Python sequence does, but nothing obliges it to store
them. Subclasses answer `lookup` for valid positions and `_positions` for a valid sample; checking, negative indices,
slices and the fingerprint live here, so that no order can be lenient where another is strict.
"""

import hashlib
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
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
        options: keyword arguments of `build_order`, as JSON, that this order was made with besides the usual ones.
        keeps_shares: whether every stretch of it reads the datasets in proportion to their weights, but for chance.

    Raises:
        ValueError: no datasets, only empty ones, a negative length, weights that are not one finite non-negative
            number per dataset or are all zero, num_samples below zero, a seed out of range.
    """

    name: str
    options: dict[str, object] = {}  # noqa: RUF012 (nobody writes into it)
    keeps_shares = True

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
    ) -> None:
        lengths = [operator.index(length) for length in dataset_lengths]
        self.num_samples, self.random_seed = operator.index(num_samples), operator.index(random_seed)
        self.samples_per_epoch = sum(lengths)
        if min(lengths, default=0) < 0 or self.samples_per_epoch == 0:
            raise ValueError(f"an order needs samples in at least one dataset, and no negative length; got {lengths}")
        if self.num_samples < 0:
            raise ValueError(f"num_samples must not be negative; got {num_samples}")
        if not 0 <= self.random_seed < 2**32:
            raise ValueError(f"random_seed must lie in 0 .. 2**32 - 1; got {random_seed}")
        self.weighted = dataset_weights is not None
        self.dataset_lengths: Int64Array = np.array(lengths, dtype=np.int64)
        self.dataset_weights = normalize_weights(lengths if dataset_weights is None else dataset_weights, len(lengths))
        self._build()

    def _build(self) -> None:  # noqa: B027 (most orders store nothing)
        """Make what the order stores, if it stores anything."""

    @abstractmethod
    def lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Datasets and samples, int64 [n] each, at positions [n] of which all are known to be in [0, num_samples)."""

    @abstractmethod
    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        """Sorted positions below `until` at which a valid (dataset, sample) is read."""

    @abstractmethod
    def _counts(self, until: int) -> Int64Array:
        """How often each dataset is read in positions [0, until)."""

    def _identity(self) -> dict[str, object]:
        """All that the pairs depend on, `num_samples` left out: what the fingerprint is made of."""
        return {
            "order": self.name,
            "dataset_lengths": self.dataset_lengths.tolist(),
            "dataset_weights": [weight.hex() for weight in self.dataset_weights.tolist()] if self.weighted else None,
            "random_seed": self.random_seed,
        }

    @property
    def fingerprint(self) -> str:
        """32 hex digits, equal for two orders that agree wherever both are defined (runs of different length do)."""
        return fingerprint_of(self._identity())

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, k: Any) -> Any:
        """An int gives (dataset, sample) as ints; an array of ints or a slice gives two int64 arrays of its shape."""
        if isinstance(k, slice):
            return self.lookup(np.arange(*k.indices(self.num_samples)))
        positions = np.asarray(k)
        if positions.size and positions.dtype.kind not in "iu":
            raise TypeError(f"positions must be integers; got {positions.dtype}")
        flat = positions.astype(np.int64, copy=False).ravel()
        low, high = flat.min(initial=0), flat.max(initial=-1)
        if low < -self.num_samples or high >= self.num_samples:
            wrong = low if low < -self.num_samples else high
            raise IndexError(f"position {wrong} is outside an order of {self.num_samples} samples")
        datasets, samples = self.lookup(flat if low >= 0 else flat % self.num_samples)
        if positions.ndim == 0:
            return int(datasets[0]), int(samples[0])
        return datasets.reshape(positions.shape), samples.reshape(positions.shape)

    def positions(self, dataset: int, sample: int, until: int | None = None) -> Int64Array:
        """Every k below `until` (and below `len`) with ``order[k] == (dataset, sample)``, ascending, int64.

        Raises:
            IndexError: there is no such dataset, or it has no such sample (neither counts from the end).
        """
        dataset, sample = operator.index(dataset), operator.index(sample)
        if not (0 <= dataset < len(self.dataset_lengths) and 0 <= sample < self.dataset_lengths[dataset]):
            raise IndexError(f"there is no sample {sample} of dataset {dataset} in {self}")
        return self._positions(dataset, sample, self._end(until))

    def counts(self, until: int | None = None) -> Int64Array:
        """Samples read from each dataset in the first `until` positions (default and at most: all), int64, one per
        dataset.
        """
        return self._counts(self._end(until))

    def _end(self, until: int | None) -> int:
        return self.num_samples if until is None else max(min(operator.index(until), self.num_samples), 0)

    def coverage(self, dataset: int, until: int) -> tuple[int, int]:
        """(different samples of a dataset read in positions [0, until), readings of the one read most)."""
        readings = self._readings(dataset, until)
        return int(np.count_nonzero(readings)), int(readings.max(initial=0))

    def _readings(self, dataset: int, until: int) -> Int64Array:
        """int64 [length]: how often each sample of a dataset is read in positions [0, until)."""
        readings = np.zeros(int(self.dataset_lengths[dataset]), dtype=np.int64)
        for first in range(0, until, BLOCK):
            datasets, samples = self.lookup(np.arange(first, min(first + BLOCK, until)))
            readings += np.bincount(samples[datasets == dataset], minlength=len(readings))
        return readings

    def __repr__(self) -> str:
        weights = f", weights {self.dataset_weights.round(4).tolist()}" if self.weighted else ""
        return (
            f"{type(self).__name__}({self.num_samples:,} samples, "
            f"{self.num_samples / self.samples_per_epoch:.2f} epochs of {self.samples_per_epoch:,} "
            f"from {len(self.dataset_lengths)} dataset(s){weights}, seed {self.random_seed})"
        )


def fingerprint_of(facts: dict[str, Any]) -> str:
    """32 hex digits of what can be written as JSON."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def normalize_weights(weights: Weights, num_datasets: int) -> NDArray[np.float64]:
    """Weights divided by their sum in float64, exactly as Nanotron does (the last bit decides ties)."""
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (num_datasets,):
        raise ValueError(f"give one weight per dataset: {num_datasets} datasets, weights of shape {values.shape}")
    for dataset in np.flatnonzero(~(np.isfinite(values) & (values >= 0))):
        raise ValueError(f"weights must be finite and not negative; dataset {dataset} has {values[dataset]}")
    total = values.sum()
    if not 0 < total < np.inf:
        raise ValueError(f"the weights must have a positive, finite sum; {values.tolist()} sum to {total}")
    return values / total
