"""Weights under which no source is read more often than it may be, worked out before a run and not discovered in its
middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Excess = Literal["raise", "renormalise"]


def limit_repetitions(
    weights: NDArray[np.float64],
    lengths: NDArray[np.int64],
    reads: NDArray[np.int64],
    counts: Callable[[NDArray[np.float64]], NDArray[np.int64]],
    max_repetitions: float | Sequence[float],
    excess: Excess,
) -> None:
    """Hold weights against a limit, and lower those above it if that is asked for.

    1. count what each source would give by the end of the run
    2. those above their limit get just what they may give, and what they lose goes to the others in proportion; where
       rounding still gives one too many, the next time it gets as many less
    3. again from 1, until none is above its limit

    Args:
        weights: float64 [sources], of sum 1.
        lengths: int64 [sources], samples in each.
        reads: int64 [sources], samples that each has given before this plan; they count.
        counts: takes weights, and tells what each source will have given by the end of the run.
        max_repetitions: how often a sample may be read in all, one number or one per source (1.5: half of the samples
            twice).
        excess: "raise" or "renormalise".

    Raises:
        ValueError: a negative limit; with "raise" a source above its limit; all sources together have too few samples.
    """
    limits = np.broadcast_to(np.asarray(max_repetitions, dtype=np.float64), lengths.shape)
    if excess not in get_args(Excess):
        raise ValueError(f"excess must be one of {get_args(Excess)}; got {excess!r}")
    if not (limits >= 0).all():
        raise ValueError(f"max_repetitions must not be negative; got {max_repetitions}")
    room = np.maximum(np.floor(limits * np.maximum(lengths, 1)) - reads, 0)  # samples that each may still give
    aim, capped = room, np.zeros(len(lengths), dtype=np.bool_)
    given = counts(weights) - reads
    while (over := np.maximum(given - room, 0)).any():
        source, left = int(over.argmax()), given.sum()
        if excess == "raise":
            times = (given + reads)[source] / lengths[source]
            raise ValueError(
                f"dataset {source} would be read {times:.2f} times, max_repetitions allows {limits[source]:g}: "
                'lower its weight, shorten the run, or take excess="renormalise"'
            )
        aim = np.maximum(aim - over * capped, 0)
        capped |= over > 0
        free = np.where(capped, 0, weights)
        if not free.any():
            raise ValueError(
                f"all sources together may give {room[weights > 0].sum():.0f} more samples under max_repetitions, "
                f"the run asks for {left}: shorten it, or allow more repetitions"
            )
        limited = np.where(capped, aim / left, free / free.sum() * max(1 - aim[capped].sum() / left, 0))
        given = counts(limited / limited.sum()) - reads
