"""The greedy blend of several sources: the source furthest behind is next."""

import math

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Float64Array, Int64Array

FEW_GROUPS = 32  # up to this many groups are all compared at every position


@njit
def furthest_behind(weights, taken, limits, t):
    """The source with the largest `weight * max(t, 1.0) - taken` among those below their limits.

    Ties go to the first. weights, taken: float64 [sources]; limits: int64 or float64
    [sources]; t: int64.
    """
    total = max(float(t), 1.0)
    largest = -np.inf
    furthest = 0
    for source in range(len(weights)):
        lag = weights[source] * total - taken[source]
        if lag > largest and taken[source] < limits[source]:
            largest = lag
            furthest = source
    return furthest


def blend_epoch(
    lengths: Int64Array,
    weights: Float64Array,
    source_offsets: Int64Array,
    instances: NDArray[np.unsignedinteger],
) -> None:
    """Fill `instances` with one blended epoch (see `blend`).

    Raises:
        ValueError: a source without samples would have to be read.
    """
    groups = groups_of(weights, lengths)
    empty = blend(lengths, weights, source_offsets, *groups, instances)
    if empty >= 0:
        raise ValueError(
            f"source {empty} has no samples but a positive weight; leave it out"
        )


def groups_of(
    weights: Float64Array, lengths: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Sources of equal weight: their numbers, group by group, and where each group ends.

    Sources with neither weight nor samples are in none.
    """
    sources = np.flatnonzero(weights + lengths)
    _, groups = np.unique(weights[sources], return_inverse=True)
    members = sources[np.argsort(groups, kind="stable")]
    return members, np.cumsum(np.bincount(groups))


@njit
def find_candidates(shares, taken, total, steps, level, candidates):
    """Find the groups that may be furthest behind in one of the next `steps` positions.

    A group falls further behind at every position that does not read it. If more than `steps`
    groups are `level` samples behind now, at least one of them has not been read at each of the
    next `steps` positions; so the group read there, the furthest behind, is at least `level`
    behind.

    Args:
        shares, taken: float64 [groups].
        total: max(t, 1.0) at the first of the next positions.
        steps: the number of these positions, fewer than the groups.
        level: samples; lowered until enough groups are that far behind.
        candidates: int64 [groups], filled from the beginning, ascending.

    Returns:
        The number of groups in `candidates`, and the level for the next call.
    """
    behind = 0
    while True:
        for group in range(len(shares)):
            behind += shares[group] * total - taken[group] >= level
        if behind > steps:
            break
        behind = 0
        level -= steps / len(shares)
    count = 0
    least = level - (total + steps) * 2.0**-50  # products are rounded
    for group in range(len(shares)):
        if shares[group] * (total + steps) - taken[group] >= least:
            candidates[count] = group
            count += 1
    if behind > 3 * steps:
        level += steps / len(shares)
    return count, level


def _work_of_blend(lengths, weights, source_offsets, members, ends, instances):
    """Units of work (see `Kernel`): 4 for each position, and 2 for each group compared there."""
    groups = len(ends)
    return len(instances) * (4 + 2 * min(groups, 4 * math.isqrt(groups)))


@njit(work=_work_of_blend)
def blend(lengths, weights, source_offsets, members, ends, instances):
    """Fill `instances`, unsigned integers [sum of lengths], with one blended epoch.

    Sources of equal weight form a group and are read in turn, by their numbers: a source that was
    just read comes again after all others of its group. So only the next source of each group is
    compared: 100,000 files of one length are one group. If there are many groups, the candidates
    for the next positions are found once for several positions (`find_candidates`).

    Example: weights 0.2, 0.4, 0.2, 0.2; members 0 2 3 | 1; ends 3, 4.

    lengths, source_offsets: int64 [sources]; weights: float64 [sources], of sum 1; members: int64
    [sources], group by group; ends: int64 [groups], of the groups in `members`.

    Returns:
        -1, or the source without samples that is next, where the blend ends.
    """
    starts = np.append(0, ends[:-1])
    cursors = starts.copy()  # where each group's next source is in `members`
    next_sources = members[starts]
    shares = weights[next_sources]
    taken = np.zeros(len(ends))  # samples of the next source, exact below 2**53
    candidates = np.arange(len(ends))  # the groups that are compared
    count = len(ends)
    steps = int(np.sqrt(count / 2))
    level = 0.5
    for t in range(len(instances)):
        total = max(float(t), 1.0)
        if len(ends) > FEW_GROUPS and t % steps == 0:
            count, level = find_candidates(
                shares, taken, total, steps, level, candidates
            )
        largest = -np.inf
        group = 0
        for other in candidates[:count]:
            lag = shares[other] * total - taken[other]
            if lag > largest or (
                lag == largest and next_sources[other] < next_sources[group]
            ):
                largest = lag
                group = other
        source = next_sources[group]
        if lengths[source] == 0:
            return source
        instances[t] = source_offsets[source] + np.int64(taken[group]) % lengths[source]
        cursors[group] += 1
        if cursors[group] == ends[group]:
            cursors[group] = starts[group]
            taken[group] += 1
        next_sources[group] = members[cursors[group]]
    return -1
