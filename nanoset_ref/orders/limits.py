"""Weights under which no source is read more often than it may be, worked out before a run and not discovered in its
middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Excess = Literal["raise", "renormalise"]


def limit_repetitions(
    lengths: NDArray[np.int64],
    weights: NDArray[np.float64],
    reads: Sequence[int],
    num_samples: int,
    max_repetitions: float | Sequence[float] | NDArray[np.float64],
    excess: Excess = "raise",
) -> NDArray[np.float64]:
    """Hold weights against a limit, and lower those above it if that is asked for.

    1. a source may still give max_repetitions * length - reads of the samples that are left to read
    2. the sources whose share is more get just that, and what they lose goes to the others in proportion; again, until
        none is above its limit

    Args:
        lengths: int64 [sources], samples in each.
        weights: float64 [sources], of sum 1.
        reads: samples that each has given so far.
        num_samples: samples that are left to read.
        max_repetitions: how often a sample may be read in all, one number or one per source (1.5: half of the samples
            twice).
        excess: "raise" or "renormalise".

    Returns:
        float64 [sources], of sum 1.

    Raises:
        ValueError: a negative limit; with "raise" a source above its limit; all sources together have too few samples.
    """
    if excess not in get_args(Excess):
        raise ValueError(f"excess must be one of {get_args(Excess)}; got {excess!r}")
    limits = np.broadcast_to(np.asarray(max_repetitions, dtype=np.float64), lengths.shape)
    if not (limits >= 0).all():
        raise ValueError(f"max_repetitions must not be negative; got {max_repetitions}")
    if num_samples <= 0:
        return weights
    room = np.multiply(limits, lengths, out=np.zeros(len(lengths)), where=lengths > 0) - np.asarray(reads)
    caps = np.clip(room, 0, num_samples) / num_samples
    tolerance = 1 + 1e-12  # of the rounding in weights that just reach their limit
    over = np.flatnonzero(weights > caps * tolerance)
    if not over.size:
        return weights
    if excess == "raise":
        source = over[0]
        times = (weights[source] * num_samples + reads[source]) / max(int(lengths[source]), 1)
        raise ValueError(
            f"dataset {source} would be read {times:.2f} times, max_repetitions allows {limits[source]:g}: "
            'lower its weight, shorten the run, or take excess="renormalise"'
        )
    limited, capped = weights.copy(), np.zeros(len(caps), dtype=np.bool_)
    while over.size:
        capped[over] = True
        free = ~capped & (weights > 0)
        rest = 1 - caps[capped].sum()
        if not free.any() and rest > 1e-12:
            available = int((caps[weights > 0] * num_samples).sum() + 1e-6)
            raise ValueError(
                f"all sources together may give {available} more samples under max_repetitions, the run asks for "
                f"{num_samples}: shorten it, or allow more repetitions"
            )
        limited[capped] = caps[capped]
        limited[free] = weights[free] / weights[free].sum() * rest
        over = np.flatnonzero((limited > caps * tolerance) & ~capped)
    return limited / limited.sum()
