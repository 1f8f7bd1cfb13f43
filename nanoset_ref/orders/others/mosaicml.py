"""``order="py1e"``: mosaicml-streaming's default shuffle, which spreads shards among neighbors.

Source: mosaicml-streaming 0.13.0 (July 2025; commit 89e7bb90), `get_shuffle_py1e` and
`get_partitions_orig`.
"""

import itertools
from typing import Any

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Int64Array
from nanoset_ref.orders.base import Order
from nanoset_ref.orders.others.epochs import EpochOrder


class Py1eOrder(EpochOrder):
    """Canonical nodes share the samples; each spreads its shards over its own samples.

    1. ``default_rng(seed)`` shuffles the shards, the same way in all epochs; node c of C gets the
       samples from c * n // C on, which may cut a shard into pieces
    2. ``default_rng(seed + epoch)`` shuffles each node's pieces; then, node after node, it shuffles
       the samples of each piece, draws for each piece a width of 0.75 to 1.25 block_size, shifts
       the place of each sample within that width, and sorts the samples by their shifted places
    3. position k of an epoch reads sample k // C of node k % C; a node that is one sample short
       repeats its last one

    Example, shards of 4 and 3 samples, 2 canonical nodes, seed 7, first epoch::

        node 0      0 2 1 1         samples 0 1 2, one short
        node 1      6 5 4 3
        position    0 1 2 3 4 5 6 7
        sample      0 6 2 5 1 4 1 3

    An epoch has ceil(n / C) * C positions. The real loader fills the last batch with samples that
    it has read, or drops it; that depends on ranks and workers, and is not done here. Where the
    number of physical nodes P divides C, ranks stride: rank r of node p reads positions p + P r,
    p + P (r + R), ..., for R ranks on a node.

    Args:
        dataset_lengths: samples of each shard.
        dataset_weights, num_samples, random_seed: see `Order`; the weights are None.
        canonical_nodes: C.
        block_size: the run's `shuffle_block_size`, in samples; StreamingDataset's own default is
            max(4_000_000 // C, 2**18).

    Raises:
        ValueError: see `Order`; fewer samples than canonical nodes.
    """

    name = "py1e"
    reverse_lookup_each = Order.reverse_lookup_each  # scans the order

    def __init__(
        self,
        *order_arguments: Any,
        canonical_nodes: int = 1,
        block_size: int = 1 << 18,
        **named: Any,
    ) -> None:
        self._num_nodes = whole_number(canonical_nodes, "canonical_nodes", 1)
        self._block_size = whole_number(block_size, "block_size", 2)
        self.options = {
            "canonical_nodes": self._num_nodes,
            "block_size": self._block_size,
        }
        super().__init__(*order_arguments, **named)

    def build(self) -> None:
        """Step 1: each node's pieces of shards."""
        n = self.samples_per_epoch
        num_nodes = self._num_nodes
        if n < num_nodes:
            raise ValueError(
                f"{n} samples are fewer than canonical_nodes={num_nodes}: use fewer"
            )
        self.epoch_length = -(-n // num_nodes) * num_nodes
        self._bounds = np.arange(num_nodes + 1) * n // num_nodes
        # 1.
        shards = list(range(len(self.dataset_lengths)))
        np.random.default_rng(self.random_seed).shuffle(shards)
        self._pieces: list[list[range]] = [[] for _ in range(num_nodes)]
        shard_start = 0
        for shard in shards:
            shard_stop = shard_start + self.dataset_lengths[shard]
            is_inside = (self._bounds > shard_start) & (self._bounds < shard_stop)
            edges = [shard_start, *self._bounds[is_inside], shard_stop]
            shift = self.source_offsets[shard] - shard_start
            for start, stop in itertools.pairwise(edges):
                node = np.searchsorted(self._bounds[1:], stop)
                piece = range(start + shift, stop + shift)
                self._pieces[node].append(piece)
            shard_start = shard_stop

    def _shuffle(self, epoch: int) -> Int64Array:
        """Step 2: the samples of an epoch, node after node, int64 [n]."""
        generator = np.random.default_rng(self.random_seed + epoch)
        nodes = [list(pieces) for pieces in self._pieces]
        for pieces in nodes:
            generator.shuffle(pieces)
        samples = [self._spread(pieces, generator) for pieces in nodes]
        return np.concatenate(samples)

    def _spread(
        self, pieces: list[range], generator: np.random.Generator
    ) -> Int64Array:
        """The samples of one node."""
        spans = [np.array(piece, dtype=np.int64) for piece in pieces]
        for span in spans:
            generator.shuffle(span)
        samples = np.concatenate(spans)
        places = np.arange(len(samples), dtype=np.float64)
        smallest = int(0.75 * self._block_size)
        largest = int(1.25 * self._block_size)
        start = 0
        for span in spans:
            stop = start + len(span)
            width = generator.integers(smallest, largest)
            reach = max((width - len(span)) / 2, 0)
            low = max(-reach, -start)
            high = min(reach, len(samples) - stop)
            shifts = generator.uniform(low, high, len(span))
            places[start:stop] += shifts
            start = stop
        return samples[np.argsort(places)]

    def _instances(self, epoch: int, positions_in_epoch: Int64Array) -> Int64Array:
        """See `EpochOrder._instances`."""
        # 3.
        rows, nodes = np.divmod(positions_in_epoch, self._num_nodes)
        is_short = rows >= np.diff(self._bounds)[nodes]
        numbers = self._bounds[nodes] + rows - is_short
        return self.shuffled(epoch)[numbers]
