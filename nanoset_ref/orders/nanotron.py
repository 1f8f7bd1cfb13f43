"""``order="nanotron"``: the order of Nanotron's Nanosets (2024) bit for bit, one epoch stored once.

Nanotron keeps 16 bytes for each of the ``num_samples`` positions, and 40 at the peak. Here the
dataset index and the sample index are one number (the sample's instance), in uint32 while an epoch
has at most 2**32 samples: 4 bytes per sample of one epoch, and one shuffle instead of two. Position
k reads place k mod epoch.

The order has three defects, which are kept for parity and explained in notebook 02:

    - every epoch has the same shuffle
    - with weights, a source that is read less than once per epoch shows the same first samples in
      every epoch, and never the others
    - a source of weight zero that is listed first is read once per epoch

``order="stateless"`` has none of them.
"""

import numpy as np

from nanoset_ref.io.memory import memory_limit
from nanoset_ref.io.types import Json
from nanoset_ref.orders.base import ListedOrder
from nanoset_ref.orders.mt19937 import shuffle


class NanotronOrder(ListedOrder):
    """The documented dataset index and dataset sample index of Nanotron's Nanoset.

    1. weights (None: the lengths) are divided by their sum in float64
    2. for t = 0 .. epoch - 1, the source that is furthest behind,
       `argmax(weight * max(t, 1.0) - taken)`, gives its next sample, `taken mod length`
    3. the epoch is shuffled by `np.random.RandomState(random_seed).shuffle`
    4. position k reads place `k mod epoch`

    Example (Nanotron's): lengths [8, 2, 5, 5], weights 0.1, 0.5, 0.3, 0.1, an epoch of 20::

        source   1 2 0 1 3 1 2 1 2 1 0 1 2 1 3 1 2 1 2 1     before the shuffle
        sample   0 0 0 1 0 0 1 1 2 0 1 1 3 0 1 1 4 0 0 1

    Source 0 gives 2 of its 8 samples, the same ones in every epoch. To get this example, pass the
    weights as [10, 50, 30, 10]: in float64, 0.1 + 0.5 + 0.3 + 0.1 is 0.9999999999999999, and
    dividing by that changes a tie at t = 10.

    Args: see `Order`.

    Raises:
        ValueError: a source without samples would have to be read.
        MemoryError: one epoch does not fit into this machine's memory.
    """

    name = "nanotron"
    endless = True
    same_epochs = True

    @property
    def identity(self) -> Json:
        """See `Order.identity`. Without weights, the lengths are the weights."""
        return super().identity | {"dataset_weights": self.dataset_weights.tolist()}

    def build(self) -> None:
        """Blend and shuffle one epoch."""
        count = self.samples_per_epoch
        itemsize = instance_bytes(count)
        size = count * itemsize
        memory = memory_limit()
        if size > memory:
            raise MemoryError(
                f"order='nanotron' stores one epoch: {count:,} samples need {size:,} bytes "
                f"(this process may use {memory:,}); order='stateless' stores nothing"
            )
        # a single source needs no blend: its numbers are 0, 1, 2, ...
        self.instances = np.arange(count, dtype=f"u{itemsize}")
        if len(self.dataset_lengths) > 1:
            # the loader of a single file does without this module
            from nanoset_ref.orders.greedy_blend import blend_epoch

            blend_epoch(
                self.dataset_lengths,
                self.dataset_weights,
                self.source_offsets,
                self.instances,
            )
        shuffle(self.random_seed, self.instances)


def instance_bytes(samples_per_epoch: int) -> int:
    """The bytes that the order stores for each sample of an epoch."""
    return 4 if samples_per_epoch <= 2**32 else 8
