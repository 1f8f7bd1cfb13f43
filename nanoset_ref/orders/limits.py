"""Weights under which no source is read more often than it may be, worked out before a run and not discovered in its
middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from nanoset_ref.orders.stateless import StatelessOrder

Excess = Literal["raise", "renormalise"]


def limit_repetitions(order: StatelessOrder, max_repetitions: float | Sequence[float], excess: Excess) -> None:
    """Hold an order against a limit, and lower the weights of sources above it if that is asked for.

    1. count what each source will have given by the end of the run, earlier plans included
    2. those above their limit get just what they may still give, and what they lose goes to the others in proportion;
       where rounding still gives one too many, the next time it gets as many less
    3. again from 1, until none is above its limit

    Args:
        order: its weights are changed.
        max_repetitions: how often a sample may be read in all, one number or one per source (1.5: half of the samples
            twice).
        excess: "raise" or "renormalise".

    Raises:
        ValueError: a negative limit; with "raise" a source above its limit; all sources together have too few samples.
    """
    limits = np.broadcast_to(np.asarray(max_repetitions, dtype=np.float64), order.dataset_lengths.shape)
    if excess not in get_args(Excess):
        raise ValueError(f"excess must be one of {get_args(Excess)}; got {excess!r}")
    if not (limits >= 0).all():
        raise ValueError(f"max_repetitions must not be negative; got {max_repetitions}")
    weights, reads = order.dataset_weights, np.array(order.start.reads)
    room = np.maximum(np.floor(limits * np.maximum(order.dataset_lengths, 1)) - reads, 0)  # samples still allowed
    left = order.num_samples - order.start.position
    aim, capped = room, np.zeros(len(room), dtype=np.bool_)
    while (over := np.maximum(order.counts() - reads - room, 0)).any():
        if excess == "raise":
            source = int(over.argmax())
            times = order.counts()[source] / order.dataset_lengths[source]
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
        rest = max(left - aim[capped].sum(), 0)
        order.share_out(np.where(capped, aim, free / free.sum() * rest))
