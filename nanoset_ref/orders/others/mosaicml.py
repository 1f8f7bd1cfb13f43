"""``order="py1e"``: the default shuffle of mosaicml-streaming, shards spread over a range of neighbors.

Source: mosaicml-streaming 0.13.0 (July 2025; commit 89e7bb90), `get_shuffle_py1e` and `get_partitions_orig`.
"""

from typing import Any

import numpy as np

from nanoset_ref.orders.base import Int64Array, whole_number
from nanoset_ref.orders.others.epochs import EpochOrder


class Py1eOrder(EpochOrder):
    """Canonical nodes share the samples; each spreads its shards' samples over about `block_size` of its own.

    1. ``default_rng(seed)`` shuffles the shards, the same way in all epochs; node c of C has the samples
       from c * n // C on, so a shard may be cut in two
    2. ``default_rng(seed + epoch)`` shuffles the pieces of each node; then, node after node, the samples of
       each piece, draws for each piece a width of 0.75 to 1.25 block_size and for each sample a shift within it,
       and sorts the samples by their shifted places
    3. position k of an epoch reads sample k // C of node k % C; a node that is one short gives its
       last one again

    An epoch has ceil(n / C) * C positions. The real loader fills up the last batch with samples that it has read, or
    leaves it out; that depends on ranks and workers, and is not done here. Where C is a multiple of the physical
    nodes, ranks stride, with a node's ranks far apart: rank r of node p of P reads positions p + P r, ...

    Example, shards of 4 and 3 samples, 2 canonical nodes, seed 7; the first epoch::

        0 6 2 5 1 4 1 3

    Args:
        dataset_lengths: samples of each shard.
        dataset_weights, num_samples, random_seed: see `Order`; the weights are None.
        canonical_nodes: C.
        block_size: `shuffle_block_size`; StreamingDataset takes max(4_000_000 // C, 2**18) where it is not given.

    Raises:
        ValueError: see `Order`; fewer samples than canonical nodes.
    """

    name = "py1e"

    def __init__(
        self,
        *order_arguments: Any,
        canonical_nodes: int = 1,
        block_size: int = 1 << 18,
        **named: Any,
    ) -> None:
        self._nodes = whole_number(canonical_nodes, "canonical_nodes", 1)
        self._block = whole_number(block_size, "block_size", 2)
        self.options = {"canonical_nodes": self._nodes, "block_size": self._block}
        super().__init__(*order_arguments, **named)

    def build(self) -> None:
        n = self.samples_per_epoch
        if n < self._nodes:
            raise ValueError(
                f"{n} samples are fewer than canonical_nodes={self._nodes}: take fewer nodes"
            )
        self.epoch_length = -(-n // self._nodes) * self._nodes
        self._bounds = np.arange(self._nodes + 1) * n // self._nodes
        # 1.
        shards = list(range(len(self.dataset_lengths)))
        np.random.default_rng(self.random_seed).shuffle(shards)
        self._pieces: list[list[tuple[int, int]]] = [[] for _ in range(self._nodes)]
        node = 0
        place = 0
        for shard in shards:
            begin = int(self.firsts[shard])
            end = begin + int(self.dataset_lengths[shard])
            while place + end - begin > self._bounds[node + 1]:
                cut = begin + int(self._bounds[node + 1]) - place
                if cut > begin:
                    self._pieces[node].append((begin, cut))
                place += cut - begin
                begin = cut
                node += 1
            self._pieces[node].append((begin, end))
            place += end - begin
        self._kept = -1, np.empty(0, dtype=np.int64)

    def _epoch(self, epoch: int) -> Int64Array:
        """Step 2 of one epoch: the samples, node after node, int64 [n]; the last one asked for is kept."""
        kept_epoch, instances = self._kept
        if kept_epoch != epoch:
            generator = np.random.default_rng(self.random_seed + epoch)
            pieces = [list(node) for node in self._pieces]
            for node in pieces:
                generator.shuffle(node)
            instances = np.concatenate([self._spread(node, generator) for node in pieces])
            self._kept = epoch, instances
        return instances

    def _spread(self, pieces: list[tuple[int, int]], generator: np.random.Generator) -> Int64Array:
        """The samples of one node."""
        spans = [np.arange(*piece) for piece in pieces]
        for span in spans:
            generator.shuffle(span)
        samples = np.concatenate(spans)
        places = np.arange(len(samples), dtype=np.float64)
        begin = 0
        for span in spans:
            end = begin + len(span)
            width = generator.integers(int(0.75 * self._block), int(1.25 * self._block))
            reach = max((width - len(span)) / 2, 0)
            low = max(-reach, -begin)
            high = min(reach, len(samples) - end)
            places[begin:end] += generator.uniform(low, high, len(span))
            begin = end
        return samples[np.argsort(places)]

    def _instances(self, epoch: int, places: Int64Array) -> Int64Array:
        # 3.
        rows, nodes = np.divmod(places, self._nodes)
        is_short = rows >= np.diff(self._bounds)[nodes]
        return self._epoch(epoch)[self._bounds[nodes] + rows - is_short]

    def _places(self, epoch: int, dataset: int, sample: int) -> Int64Array:
        instance = self.firsts[dataset] + sample
        return np.flatnonzero(self._instances(epoch, np.arange(self.epoch_length)) == instance)
