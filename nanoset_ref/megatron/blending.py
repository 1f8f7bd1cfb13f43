"""Which dataset, and which of its samples, stands at each position of a blend.

Both orders are greedy: position t goes to the dataset that lags most behind its share, weight * max(t, 1) - samples
taken; the first one wins a tie. The cost is one comparison per dataset and position, 10 bytes per position are kept.
The rejected alternative, to draw datasets at random, drifts from the shares by sqrt(t).

Source: NVIDIA Megatron-LM, megatron/core/datasets/helpers.cpp (core_v0.16.1).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

# dataset index int16 [size]; the number of the sample in that dataset, int64 [size]; samples taken of each, int64
BlendIndex = tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.int64]]


def blend_by_weight(weights: ArrayLike, size: int) -> BlendIndex:
    """`size` positions in proportion to `weights` [number of datasets], which are used as given: normalise them first.

    Samples of a dataset come in order and are not wrapped: the caller holds their counts against the dataset's length.
    """
    shares = np.asarray(weights, dtype=np.float64)
    return _greedy(shares, np.full(len(shares), size, dtype=np.int64), size)


def blend_everything(sizes: ArrayLike) -> BlendIndex:
    """Every sample of every dataset exactly once, `sizes` [number of datasets] samples each, in proportion; arrays as
    in `blend_by_weight`.
    """
    counts = np.asarray(sizes, dtype=np.int64)
    return _greedy(counts / np.float64(counts.sum()), counts, int(counts.sum()))


@njit(cache=True, nogil=True)
def _greedy(weights, limits, size):
    taken = np.zeros(len(weights), dtype=np.int64)
    dataset_index = np.empty(size, dtype=np.int16)
    dataset_sample_index = np.empty(size, dtype=np.int64)
    for t in range(size):
        largest = -np.inf
        winner = 0
        for dataset in range(len(weights)):
            if taken[dataset] < limits[dataset]:
                error = weights[dataset] * max(float(t), 1.0) - taken[dataset]
                if error > largest:
                    largest = error
                    winner = dataset
        dataset_index[t] = winner
        dataset_sample_index[t] = taken[winner]
        taken[winner] += 1
    return dataset_index, dataset_sample_index, taken
