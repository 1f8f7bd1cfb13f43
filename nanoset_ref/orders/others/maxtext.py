"""``order="maxtext"``: the records of array_record files that MaxText's hosts blend with grain.

Source: AI-Hypercomputer/maxtext e591f30cb (August 2026), `get_datasets` in
`grain_data_processing.py`, and google/grain 0.2.18 (June 2026), `IterDataset.mix`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.memory import memory_limit
from nanoset_ref.io.types import Int64Array
from nanoset_ref.orders.base import (
    NO_POSITIONS,
    Matches,
    Order,
    Pairs,
    normalize_weights,
)
from nanoset_ref.orders.others.grain import GrainOrder


class MaxTextOrder(Order):
    """`GrainOrder` shuffles each source, hosts take its places in turn, and each host blends.

    1. weights (None: equal) are divided by their sum, then by the smallest one, times 100, and
       truncated to integers p
    2. of a host's first k elements, source 0 leaves k * (left - p[0]) // left to the later
       sources, where left is the sum of p; source 1 does the same with these and the rest of p
    3. a host's element j of a source is place host + j * hosts of the source's shuffle, over epochs

    Ranks are hosts, and they stride: position k is element k // hosts of host k % hosts.

    Example, sources of 3 and 2 records, weights 0.75 and 0.25, so p = 300 and 100; seed 7, 2
    hosts; (source, record)::

        host 0    (0, 2) (0, 1) (0, 2) (1, 1) (0, 1)
        host 1    (0, 0) (0, 1) (0, 0) (1, 0) (0, 0)

    Args:
        dataset_lengths: records of each source: all files of a pattern.
        dataset_weights, num_samples, random_seed: see `Order`.
        hosts: the number of hosts that load data.
        accept_repeat: see `GrainOrder`.

    Raises:
        ValueError: see `Order` and `GrainOrder`; a weight of 0, or a source without records.
        MemoryError: one weight is so small that a period does not fit into memory.
    """

    name = "maxtext"
    endless = True

    def __init__(
        self,
        *order_arguments: Any,
        hosts: int = 1,
        accept_repeat: bool = False,
        **named: Any,
    ) -> None:
        self._hosts = whole_number(hosts, "hosts", 1)
        self.options = {
            "hosts": self._hosts,
            "accept_repeat": bool(accept_repeat),
        }
        super().__init__(*order_arguments, **named)

    def build(self) -> None:
        """Steps 1 and 2: the shuffle of each source, and one period of the blend."""
        lengths = self.dataset_lengths.tolist()
        weights = self._given_weights or [1.0] * len(lengths)
        if min(weights) <= 0 or min(lengths) < 1:
            raise ValueError(
                f"grain mixes sources with records and weights above 0; got {weights}"
            )
        self.dataset_weights = normalize_weights(weights, len(lengths))
        accept = self.options["accept_repeat"]
        self._sources = [
            GrainOrder([length], None, 0, self.random_seed, accept_repeat=accept)
            for length in lengths
        ]
        # 1.
        total = sum(weights)
        shares = [weight / total for weight in weights]
        scale = 100 / min(shares)
        _require_memory(scale, weights)
        parts = [int(share * scale) for share in shares]
        self._parts = np.array(parts, dtype=np.int64)
        # the shares that are read
        self.dataset_weights = self._parts / self._parts.sum()
        # 2. for one period, after which the counts of all sources have grown by p
        left = sum(parts)
        self._period = left
        passed_on = np.arange(left + 1)
        counts = []
        for part in parts:
            here = passed_on
            passed_on = here * (left - part) // left
            counts.append(here - passed_on)
            left -= part
        self._counts_before = np.array(counts)
        reads = np.diff(self._counts_before)
        self._source_at = reads.argmax(axis=0)

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        elements, hosts = np.divmod(positions, self._hosts)
        periods, indices_in_period = np.divmod(elements, self._period)
        sources = self._source_at[indices_in_period]
        read_before = self._counts_before[sources, indices_in_period]
        numbers = periods * self._parts[sources] + read_before
        # 3.
        numbers = hosts + numbers * self._hosts
        samples = np.empty_like(positions)
        for source in np.unique(sources).tolist():
            is_here = sources == source
            shuffled = self._sources[source]
            _, samples[is_here] = shuffled.lookup(numbers[is_here])
        return sources, samples

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """See `Order.reverse_lookup_each`."""
        reads = [(NO_POSITIONS, NO_POSITIONS)]
        elements = -(-until // self._hosts)
        periods, rest = divmod(elements, self._period)
        for source in np.unique(sources).tolist():
            asked = np.flatnonzero(sources == source)
            part = self._parts[source]
            # places of the source's shuffle that a host reads below `until`
            num_places = periods * part + self._counts_before[source, rest]
            indices, numbers = self._sources[source].reverse_lookup_each(
                np.zeros_like(asked), samples[asked], int(num_places) * self._hosts
            )
            turns, hosts = np.divmod(numbers, self._hosts)
            whole, turns = np.divmod(turns, part)
            indices_in_period = np.flatnonzero(self._source_at == source)
            elements = whole * self._period + indices_in_period[turns]
            reads.append((asked[indices], elements * self._hosts + hosts))
        indices, positions = np.concatenate(reads, axis=1)
        is_read = positions < until
        return indices[is_read], positions[is_read]


def _require_memory(elements: float, weights: Sequence[float]) -> None:
    """Raise MemoryError if a period of so many elements does not fit into memory."""
    size = 24 * len(weights) * elements  # its counts, and two arrays made from them
    memory = memory_limit()
    if size > memory:
        raise MemoryError(
            "order='maxtext' stores a period, in which the smallest weight is read 100 times: "
            f"{elements:.3g} elements need {size:.3g} bytes (this process may use {memory:,}); "
            f"raise the weight {min(weights)}, or leave its source out"
        )
