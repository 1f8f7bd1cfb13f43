"""Where an order reads each of many samples, and how often: in one pass."""

from typing import Any

import numpy as np

from nanoset_ref.io.types import Int64Array, IntegerArray
from nanoset_ref.orders.base import NO_POSITIONS, Matches, Order

POSITIONS_AT_ONCE = 1 << 20


def find_each(
    order: Any,
    sources: Int64Array,
    samples: Int64Array,
    until: int,
) -> Matches:
    """Every position below `until` that reads one of the samples, sorted.

    An order with a computed inverse takes constant time per read. Any other order is scanned once.

    Args:
        order: an `Order`, or anything else with its methods `reverse_lookup_each` and
            `reverse_lookup`.
        sources, samples: int64 [n] each, pairs that exist and that differ from each other.

    Returns:
        Indices of the pairs and positions, int64 each; ascending by the first, then by the second.
    """
    if len(samples) == 1:
        positions = order.reverse_lookup(int(sources[0]), int(samples[0]), until)
        return np.zeros_like(positions), positions
    indices, positions = order.reverse_lookup_each(sources, samples, until)
    ascending = np.lexsort((positions, indices))
    return indices[ascending], positions[ascending]


def find_by_scan(
    order: Order,
    sources: Int64Array,
    samples: Int64Array,
    until: int,
) -> Matches:
    """`Order.reverse_lookup_each` by looking up one epoch, or the whole order if epochs differ."""
    wanted = order.source_offsets[sources] + samples
    by_instance = np.argsort(wanted)
    is_wanted = np.zeros(order.samples_per_epoch, dtype=np.bool_)
    is_wanted[wanted] = True
    first_position = order.first_position
    period = until
    if order.same_epochs:
        first_position = 0
        period = min(until, order.samples_per_epoch)
    positions_found = [NO_POSITIONS]
    instances_found = [NO_POSITIONS]
    for start in range(first_position, period, POSITIONS_AT_ONCE):
        stop = min(start + POSITIONS_AT_ONCE, period)
        positions = np.arange(start, stop)
        sources_read, samples_read = order.lookup(positions)
        instances = order.source_offsets[sources_read] + samples_read
        hits = np.flatnonzero(is_wanted[instances])
        positions_found.append(positions[hits])
        instances_found.append(instances[hits])
    in_sorted = np.searchsorted(
        wanted, np.concatenate(instances_found), sorter=by_instance
    )
    indices = by_instance[in_sorted]
    return repeat_in_epochs(indices, np.concatenate(positions_found), period, until)


def repeat_in_epochs(
    indices: Int64Array,
    positions_in_epoch: Int64Array,
    period: int,
    until: int,
) -> Matches:
    """Repeat the matches of the first epoch, of `period` positions, in every epoch below `until`.

    Example, period 5, until 12::

        indices 0 1, positions_in_epoch 3 0    ->    indices 0 1 0 1 1, positions 3 0 8 5 10

    Args:
        indices: int64 [n], of the wanted pairs.
        positions_in_epoch: int64 [n], where the first epoch reads them.
    """
    epoch_starts = np.arange(0, until, max(period, 1))
    positions = np.add.outer(epoch_starts, positions_in_epoch).ravel()
    indices = np.tile(indices, len(epoch_starts))
    is_read = positions < until
    return indices[is_read], positions[is_read]


def reads_of_samples(
    order: Order,
    start: int,
    stop: int,
) -> list[IntegerArray]:
    """See `Order.reads_of_samples`."""
    scanned = range(start, stop)
    period = stop  # no position comes twice
    dtype: type[np.integer] = np.uint32
    if order.same_epochs:
        # look up one epoch, and count how often each of its positions comes
        scanned = range(min(stop, order.samples_per_epoch))
        period = order.samples_per_epoch
        if stop >> 32:
            dtype = np.int64
    counts = np.zeros(order.samples_per_epoch, dtype)
    for first in range(scanned.start, scanned.stop, POSITIONS_AT_ONCE):
        positions = np.arange(first, min(first + POSITIONS_AT_ONCE, scanned.stop))
        sources, samples = order.lookup(positions)
        # position p comes at p, p + period, ...; the last epoch before a bound, -1 if none
        last_before_stop = (stop - 1 - positions) // period
        last_before_start = (start - 1 - positions) // period
        times = (last_before_stop - last_before_start).astype(dtype)
        instances = order.source_offsets[sources] + samples
        np.add.at(counts, instances, times)
    return np.split(counts, order.source_offsets[1:])
