"""A blend: which dataset, and which of its samples, stands at each position.

Both orders are greedy: position t goes to the dataset that lags most behind its share, weight * max(t, 1) - samples
taken; the first one wins a tie. The cost is one comparison per dataset and position, 10 bytes per position are kept.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_dataset.py and helpers.cpp (core_v0.16.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from nanoset_ref.documents import Starts
from nanoset_ref.megatron.dataset import MegatronNanoset, Positions
from nanoset_ref.megatron.index_cache import Arrays, cached
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.megatron.nanoset_config import NanosetConfig, normalise
from nanoset_ref.rows import Origin, Rows, SourceUse, Span, checked_number

# dataset index int16 [size]; the number of the sample in that dataset, int64 [size]; samples taken of each, int64
BlendIndex = tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.int64]]


def blend_by_weight(weights: ArrayLike, size: int) -> BlendIndex:
    """`size` positions in proportion to `weights` [number of datasets], which are used as given: normalise them first.

    Samples of a dataset come in order and are not wrapped: the caller checks their counts against its length.
    """
    shares = np.asarray(weights, dtype=np.float64)
    return _greedy(shares, np.full(len(shares), size), size)


def blend_everything(sizes: ArrayLike) -> BlendIndex:
    """Every sample of every dataset exactly once, `sizes` [number of datasets] samples each, in proportion; arrays as
    in `blend_by_weight`.
    """
    counts = np.asarray(sizes, dtype=np.int64)
    return _greedy(counts / counts.sum(), counts, int(counts.sum()))


@njit(cache=True, nogil=True)
def _greedy(weights, limits, size):
    taken = np.zeros(len(weights), dtype=np.int64)
    dataset_index = np.empty(size, dtype=np.int16)
    dataset_sample_index = np.empty(size, dtype=np.int64)
    for t in range(size):
        largest = -np.inf
        winner = 0
        for dataset in range(len(weights)):
            error = weights[dataset] * max(float(t), 1.0) - taken[dataset]
            if error > largest and taken[dataset] < limits[dataset]:
                largest = error
                winner = dataset
        dataset_index[t] = winner
        dataset_sample_index[t] = taken[winner]
        taken[winner] += 1
    return dataset_index, dataset_sample_index, taken


class BlendedNanoset(Rows):
    """A blend of MegatronNanosets of one split, equal to Megatron-Core's BlendedDataset.

    Args:
        datasets: the parts.
        weights: their shares, positive; with `size` None numbers of samples, all of which are read once.
        size: samples in the blend, or None.
        config: as of the parts.

    Attributes:
        dataset_index: int16 [len]. dataset_sample_index: int64 [len]. counts: int64 [datasets], samples taken of each.
            weights: normalised if there is a size.

    Raises:
        ValueError: a part without samples, or the blend asks more of a part than it has.
    """

    def __init__(
        self, datasets: Sequence[MegatronNanoset], weights: Sequence[float], size: int | None, config: NanosetConfig
    ) -> None:
        self.datasets, self.size, self.config, self.split = tuple(datasets), size, config, datasets[0].split
        self.sequence_length, self.row_length = config.sequence_length, config.row_length
        self._given_weights = tuple(weights)
        self.row_dtype = np.result_type(*(dataset.row_dtype for dataset in datasets))
        for dataset, weight in zip(datasets, weights, strict=True):
            if not weight > 0:
                raise ValueError(
                    f"the {self.split} split of {dataset.corpus.path_prefix} has {len(dataset)} samples and the weight "
                    f"{weight}: give the split a larger part, or leave the corpus out of it with data_path_per_split"
                )
        self.weights = self._given_weights if size is None else normalise(weights)
        description = {"index": "blend", "weights": self.weights, "size": size}
        arrays = cached(config.path_to_cache, description, self._build_index)
        self.dataset_index, self.dataset_sample_index, self.counts = arrays.values()
        for dataset, count in zip(datasets, self.counts.tolist(), strict=True):
            if count > len(dataset):
                raise ValueError(
                    f"the {self.split} blend takes {count} samples of {dataset.corpus.path_prefix}, which has "
                    f"{len(dataset)}: raise mid_level_dataset_surplus (now {config.mid_level_dataset_surplus}) two- or "
                    "tenfold, or ask for fewer samples"
                )

    def _build_index(self) -> Arrays:
        blend = blend_everything(self.weights) if self.size is None else blend_by_weight(self.weights, self.size)
        return dict(zip(("dataset_index", "dataset_sample_index", "counts"), blend, strict=True))

    def __len__(self) -> int:
        return len(self.dataset_index)

    @property
    def files(self) -> list[MMapIndexedDataset]:
        return [dataset.corpus for dataset in self.datasets]

    def _by_dataset(self, positions: Positions) -> Iterator[tuple[MegatronNanoset, Positions, NDArray[np.int64]]]:
        """Each dataset that is read, the samples, and which of `positions` they are."""
        numbers, samples = self.dataset_index[positions], self.dataset_sample_index[positions]
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            chosen = np.flatnonzero(numbers == number)
            yield self.datasets[number], samples[chosen], chosen

    def _fill(self, positions: Positions, out: NDArray[Any]) -> None:
        for dataset, samples, rows in self._by_dataset(positions):
            dataset.fill(samples, out, rows)

    def _starts(self, positions: Positions) -> Starts:
        starts = np.empty((len(positions), self.row_length), dtype=np.bool_)
        for dataset, samples, rows in self._by_dataset(positions):
            starts[rows] = dataset.starts(samples)
        return starts

    def _place(self, position: int) -> tuple[int, int]:
        return int(self.dataset_index[position]), int(self.dataset_sample_index[position])

    def origin(self, position: int) -> Origin:
        source, sample = self._place(position)
        return self.datasets[source].origin(sample)._replace(source=source)

    def spans(self, position: int) -> list[Span]:
        source, sample = self._place(position)
        return self.datasets[source].spans(sample)

    def positions_of(
        self, source: int, document: int, tokens: tuple[int, int] | None = None, until: int | None = None
    ) -> Positions:
        dataset = self.datasets[checked_number(source, len(self.datasets), "file")]
        places = np.flatnonzero(self.dataset_index[:until] == source)  # the i-th of them reads sample i
        return places[dataset.positions_of(0, document, tokens, len(places))]

    def usage(self, start: int, stop: int) -> list[SourceUse]:
        read = [np.bincount(self.dataset_index[:position], minlength=len(self.datasets)) for position in (start, stop)]
        parts = zip(self.datasets, *read, normalise(self.weights), strict=True)
        return [use for dataset, a, b, weight in parts for use in dataset.usage(int(a), int(b), weight)]

    @property
    def plan(self) -> dict[str, Any]:
        plans = [dataset.plan for dataset in self.datasets]
        return {"datasets": plans, "weights": list(self.weights), "size": self.size}

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.4f}" for share in normalise(self.weights))
        return f"BlendedNanoset({self.split}: {len(self):,} samples of {len(self.datasets)} datasets, shares {shares})"

    def __reduce__(self) -> tuple[Any, ...]:
        """As of a MegatronNanoset."""
        return BlendedNanoset, (self.datasets, self._given_weights, self.size, self.config)
