"""``order="nanotron"``: the order of Nanotron's Nanosets (2024) bit for bit, one epoch stored once.

One epoch of ``sum(dataset_lengths)`` samples is blended greedily, shuffled by
``RandomState(seed)``, and read again and again: every epoch is the same sequence.

Nanotron keeps 16 bytes for each of the ``num_samples`` positions, and 40 at the peak. Here the
dataset index and the sample index are one number (the sample's instance), in uint32 while an epoch
has at most 2**32 samples: 4 bytes per sample of one epoch, and one shuffle instead of two. Position
k reads place k mod epoch.

The order has three defects, which are kept for parity and explained in notebook 02:

    - every epoch has the same shuffle
    - with weights, a dataset that is read less than once per epoch shows the same first samples in
      every epoch, and never the others
    - a dataset of weight zero that is listed first is read once per epoch

``order="stateless"`` has none of them.
"""

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.memory import physical_memory
from nanoset_ref.io.njit import njit
from nanoset_ref.orders.base import Json, NumberedOrder
from nanoset_ref.orders.mt19937 import shuffle


class NanotronOrder(NumberedOrder):
    """The documented dataset index and dataset sample index of Nanotron's Nanoset.

    1. weights (None: the lengths) are divided by their sum in float64
    2. for t = 0 .. epoch - 1, the dataset that is furthest behind,
       `argmax(weight * max(t, 1.0) - taken)`, gives its next sample, `taken mod length`
    3. the epoch is shuffled by `np.random.RandomState(random_seed).shuffle`
    4. position k reads place `k mod epoch`

    Example (Nanotron's): lengths [8, 2, 5, 5], weights 0.1, 0.5, 0.3, 0.1, an epoch of 20::

        dataset  1 2 0 1 3 1 2 1 2 1 0 1 2 1 3 1 2 1 2 1     before the shuffle
        sample   0 0 0 1 0 0 1 1 2 0 1 1 3 0 1 1 4 0 0 1

    Dataset 0 gives 2 of its 8 samples, the same ones in every epoch. To get this example, pass the
    weights as [10, 50, 30, 10]: in float64, 0.1 + 0.5 + 0.3 + 0.1 is 0.9999999999999999, and
    dividing by that changes a tie at t = 10.

    Args: see `Order`.

    Raises:
        ValueError: a dataset without samples would have to be read.
        MemoryError: one epoch does not fit into this machine's memory.
    """

    name = "nanotron"
    endless = True
    repeats = True

    @property
    def identity(self) -> Json:
        """See `Order.identity`. Without weights, the lengths are the weights."""
        return super().identity | {"dataset_weights": self.dataset_weights.tolist()}

    def build(self) -> None:
        """Blend and shuffle one epoch."""
        count = self.samples_per_epoch
        itemsize = 4 if count <= 2**32 else 8
        size = count * itemsize
        memory = physical_memory()
        if size > memory:
            raise MemoryError(
                f"order='nanotron' stores one epoch: {count:,} samples need {size:,} bytes "
                f"(this machine has {memory:,}); order='stateless' stores nothing"
            )
        # a single dataset needs no blend: its numbers are 0, 1, 2, ...
        self.numbers = np.arange(count, dtype=f"u{itemsize}")
        if len(self.dataset_lengths) > 1:
            groups = groups_of(self.dataset_weights)
            blend(
                self.dataset_lengths,
                self.dataset_weights,
                self.firsts,
                *groups,
                self.numbers,
            )
        shuffle(self.random_seed, self.numbers)


@njit
def furthest_behind(weights, taken, limits, t):
    """The dataset with the largest `weight * max(t, 1.0) - taken` among those below their limits.

    The first of equals wins. weights, taken: float64 [datasets]; limits: int64 or float64
    [datasets]; t: int64.
    """
    due = max(float(t), 1.0)
    largest = -np.inf
    furthest = 0
    for dataset in range(len(weights)):
        lag = weights[dataset] * due - taken[dataset]
        if lag > largest and taken[dataset] < limits[dataset]:
            largest = lag
            furthest = dataset
    return furthest


def groups_of(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Datasets of equal weight: their numbers, group by group, and where each group ends."""
    _, groups = np.unique(weights, return_inverse=True)
    return np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))


def _work(lengths, weights, firsts, members, ends, instances):
    """Units of work (see `Kernel`): 4 for each position, and 2 for each group compared there."""
    return len(instances) * (4 + 2 * len(ends))


@njit(work=_work)
def blend(lengths, weights, firsts, members, ends, instances):
    """Fill `instances`, unsigned integers [sum of lengths], with one blended epoch.

    Datasets of equal weight are a group. They are read in turn, in the order of their numbers: one
    that was just read is furthest behind again when all others of its group were read as often. So
    only the next dataset of each group is compared: 100,000 files of one length are one group.

    Example: weights 0.2, 0.4, 0.2, 0.2; members 0 2 3 | 1; ends 3, 4.

    lengths, firsts: int64 [datasets]; weights: float64 [datasets], of sum 1; members: int64
    [datasets], group by group; ends: int64 [groups], of the groups in `members`.
    """
    starts = np.append(0, ends[:-1])
    places = starts.copy()  # of each group's next dataset in `members`
    following = members[starts]  # and its number
    shares = weights[following]
    taken = np.zeros(len(ends))  # samples of the next dataset, exact below 2**53
    for t in range(len(instances)):
        due = max(float(t), 1.0)
        largest = -np.inf
        group = 0
        for other in range(len(ends)):
            lag = shares[other] * due - taken[other]
            if lag > largest or (
                lag == largest and following[other] < following[group]
            ):
                largest = lag
                group = other
        dataset = following[group]
        if lengths[dataset] == 0:
            raise ValueError(
                "the blend has to read a dataset that has no samples; leave it out"
            )
        instances[t] = firsts[dataset] + np.int64(taken[group]) % lengths[dataset]
        places[group] += 1
        if places[group] == ends[group]:
            places[group] = starts[group]
            taken[group] += 1
        following[group] = members[places[group]]
