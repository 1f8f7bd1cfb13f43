"""The greedy blend of several sources: the one that is furthest behind gives its next sample."""

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.njit import njit


@njit
def furthest_behind(weights, taken, limits, t):
    """The source with the largest `weight * max(t, 1.0) - taken` among those below their limits.

    The first of equals wins. weights, taken: float64 [sources]; limits: int64 or float64
    [sources]; t: int64.
    """
    due = max(float(t), 1.0)
    largest = -np.inf
    furthest = 0
    for source in range(len(weights)):
        lag = weights[source] * due - taken[source]
        if lag > largest and taken[source] < limits[source]:
            largest = lag
            furthest = source
    return furthest


def groups_of(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources of equal weight: their numbers, group by group, and where each group ends."""
    _, groups = np.unique(weights, return_inverse=True)
    return np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))


def _work(lengths, weights, firsts, members, ends, instances):
    """Units of work (see `Kernel`): 4 for each position, and 2 for each group compared there."""
    return len(instances) * (4 + 2 * len(ends))


@njit(work=_work)
def blend(lengths, weights, firsts, members, ends, instances):
    """Fill `instances`, unsigned integers [sum of lengths], with one blended epoch.

    Sources of equal weight are a group. They are read in turn, in the order of their numbers: one
    that was just read is furthest behind again when all others of its group were read as often. So
    only the next source of each group is compared: 100,000 files of one length are one group.

    Example: weights 0.2, 0.4, 0.2, 0.2; members 0 2 3 | 1; ends 3, 4.

    lengths, firsts: int64 [sources]; weights: float64 [sources], of sum 1; members: int64
    [sources], group by group; ends: int64 [groups], of the groups in `members`.
    """
    starts = np.append(0, ends[:-1])
    cursors = starts.copy()  # where each group's next source stands in `members`
    next_sources = members[starts]
    shares = weights[next_sources]
    taken = np.zeros(len(ends))  # samples of the next source, exact below 2**53
    for t in range(len(instances)):
        due = max(float(t), 1.0)
        largest = -np.inf
        group = 0
        for other in range(len(ends)):
            lag = shares[other] * due - taken[other]
            if lag > largest or (
                lag == largest and next_sources[other] < next_sources[group]
            ):
                largest = lag
                group = other
        source = next_sources[group]
        if lengths[source] == 0:
            raise ValueError(
                "the blend has to read a source that has no samples; leave it out"
            )
        instances[t] = firsts[source] + np.int64(taken[group]) % lengths[source]
        cursors[group] += 1
        if cursors[group] == ends[group]:
            cursors[group] = starts[group]
            taken[group] += 1
        next_sources[group] = members[cursors[group]]
