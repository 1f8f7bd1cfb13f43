"""``order="nanotron"``: Nanotron's order bit for bit, one epoch stored once.

What it does. One epoch of ``sum(dataset_lengths)`` samples is blended greedily, shuffled by ``RandomState(seed)``, and
read again and again: every epoch is the same sequence.

What it costs. Upstream keeps 16 bytes for each of the ``num_samples`` positions and 40 at the peak. Here both indexes
are one number, the sample's place when all datasets are laid end to end, in uint32 while an epoch has at most 2**32
samples: 4 bytes per sample of ONE epoch, no temporaries, one shuffle instead of two; later epochs are a remainder.

Defects of the order itself, kept for parity and told in the second notebook: the same shuffle every epoch; with
weights, a dataset that is read less than once per epoch always shows the same first samples and never the others; a
dataset of weight zero listed first is read once per epoch. ``order="stateless"`` has none of them.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.orders.base import Int64Array, Order
from nanoset_ref.orders.random_state import ShuffleStream


class NanotronOrder(Order):
    """The documented dataset index and dataset sample index of Nanotron's Nanoset.

    1. weights (None: the lengths) are divided by their sum in float64
    2. for t = 0 .. epoch - 1 the dataset furthest behind, ``argmax(weight * max(t, 1.0) - taken)``, gives its next
       sample, ``taken mod length`` (`blend`)
    3. the epoch is shuffled by ``np.random.RandomState(random_seed).shuffle``
    4. position k reads place ``k mod epoch``

    Example (the documentation's): lengths [8, 2, 5, 5], weights 0.1, 0.5, 0.3, 0.1, an epoch of 20::

        dataset  1 2 0 1 3 1 2 1 2 1 0 1 2 1 3 1 2 1 2 1     before the shuffle
        sample   0 0 0 1 0 0 1 1 2 0 1 1 3 0 1 1 4 0 0 1     dataset 0 gives 2 of its 8 samples, in every epoch

    To get it, give the weights as [10, 50, 30, 10]: in float64 0.1 + 0.5 + 0.3 + 0.1 is 0.9999999999999999, and
    dividing by that changes a tie at t = 10.

    Args and Raises: see `Order`; also

    Raises:
        ValueError: a dataset without samples would have to be read.
        MemoryError: one epoch does not fit into this machine's memory.
    """

    name = "nanotron"

    def _build(self) -> None:
        dtype = np.dtype(np.uint32 if self.samples_per_epoch <= 2**32 else np.uint64)
        needed = self.samples_per_epoch * dtype.itemsize
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > available:
            raise MemoryError(
                f'order="nanotron" stores one epoch: {self.samples_per_epoch:,} samples need {needed:,} bytes (this '
                f'machine has {available:,}); order="stateless" stores nothing'
            )
        self._starts: Int64Array = np.append(0, np.cumsum(self.dataset_lengths))
        self._epoch: NDArray[Any] = np.empty(self.samples_per_epoch, dtype=dtype)
        stopped = blend(self.dataset_lengths, self.dataset_weights, self._starts[:-1], self._epoch)
        if stopped >= 0:
            raise ValueError(f"dataset {stopped} has no samples but the blend has to read it; leave it out")
        ShuffleStream(self.random_seed).shuffle(self._epoch)

    def lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return _look_up(self._epoch, self._starts, positions)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        """One vectorised pass over one epoch (about 0.3 ns per sample), whatever the length of the run."""
        within = np.flatnonzero(self._epoch == self._epoch.dtype.type(self._starts[dataset] + sample))
        epochs = np.arange(-(-until // self.samples_per_epoch), dtype=np.int64)
        every = (epochs[:, None] * self.samples_per_epoch + within).ravel()
        return every[every < until]

    def _counts(self, until: int) -> Int64Array:
        return self._repeated(lambda stop: np.histogram(self._epoch[:stop], self._starts)[0], until)

    def _readings(self, dataset: int, until: int) -> Int64Array:
        return self._repeated(partial(super()._readings, dataset), until)

    def _repeated(self, count: Callable[[int], Int64Array], until: int) -> Int64Array:
        """What `count` finds below `until`, of which it sees one epoch at most."""
        epochs, rest = divmod(until, self.samples_per_epoch)
        return count(rest) + epochs * count(self.samples_per_epoch if epochs else 0)


@njit(cache=True)
def blend(lengths, weights, starts, epoch):
    """Fill `epoch` with one blended epoch; returns -1, or the empty dataset that would have had to be read."""
    taken = np.zeros(len(lengths), dtype=np.float64)  # samples taken from each dataset, exact below 2**53
    following = np.zeros(len(lengths), dtype=np.int64)  # taken mod length, without a division
    for t in range(len(epoch)):
        due = max(float(t), 1.0)
        furthest = 0
        largest = weights[0] * due - taken[0]
        for dataset in range(1, len(lengths)):
            error = weights[dataset] * due - taken[dataset]
            if error > largest:  # the first of equals wins
                furthest, largest = dataset, error
        if lengths[furthest] == 0:
            return furthest
        epoch[t] = starts[furthest] + following[furthest]
        taken[furthest] += 1.0
        following[furthest] += 1
        if following[furthest] == lengths[furthest]:
            following[furthest] = 0
    return -1


@njit(cache=True, nogil=True)
def _look_up(epoch, starts, positions):
    datasets, samples = np.empty(len(positions), dtype=np.int64), np.empty(len(positions), dtype=np.int64)
    for p in range(len(positions)):
        place = np.int64(epoch[positions[p] % len(epoch)])
        low, high = 0, len(starts) - 1
        while high - low > 1:  # the dataset is the last one that starts at or before the place; searchsorted is slower
            middle = (low + high) // 2
            if starts[middle] <= place:
                low = middle
            else:
                high = middle
        datasets[p], samples[p] = low, place - starts[low]
    return datasets, samples
