"""``order="maxtext"``: the records that MaxText's hosts read from array_record files, blended by grain.

Source: AI-Hypercomputer/maxtext e591f30cb (August 2026), `get_datasets` in `grain_data_processing.py`, and google/grain
0.2.18 (June 2026), `IterDataset.mix`.
"""

from typing import Any

import numpy as np

from nanoset_ref.orders.base import Int64Array, Order, Pairs, whole_number
from nanoset_ref.orders.finding import find_each
from nanoset_ref.orders.others.grain import GrainOrder


class MaxTextOrder(Order):
    """Each source is shuffled by `GrainOrder` and dealt to hosts; each host blends what it got.

    1. weights (None: equal) are divided by their sum, then by the least, times 100, and cut to whole numbers p
    2. element k of a host is the next one of the first source i, in turn, whose count grows with k: of the
       first k elements that are left, k * (left - p[i]) // left go to the sources behind i
    3. its element j of a source is place host + j * hosts of the source's shuffle, epoch after epoch

    Ranks are hosts, and positions those of ranks that stride: position k is element k // hosts of host k % hosts.

    Example, sources of 3 and 2 records, weights 0.75 and 0.25, seed 7, 2 hosts; (source, record)::

        host 0    (0, 2) (0, 1) (0, 2) (1, 1) (0, 1)
        host 1    (0, 0) (0, 1) (0, 0) (1, 0) (0, 0)

    Args:
        dataset_lengths: records of each source: all files of a pattern.
        dataset_weights, num_samples, random_seed: see `Order`.
        hosts: that load data.
        accept_repeat: see `GrainOrder`.

    Raises:
        ValueError: see `Order` and `GrainOrder`; a weight of 0, or a source without records.
    """

    name = "maxtext"
    endless = True
    keeps_shares = True

    def __init__(
        self, *order_arguments: Any, hosts: int = 1, accept_repeat: bool = False, **named: Any
    ) -> None:
        self._hosts = whole_number(hosts, "hosts", 1)
        self._accept_repeat = bool(accept_repeat)
        self.options = {"hosts": self._hosts, "accept_repeat": self._accept_repeat}
        super().__init__(*order_arguments, **named)

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | self.options

    def build(self) -> None:
        lengths = self.dataset_lengths.tolist()
        weights = self._given_weights or [1.0] * len(lengths)
        if min(weights) <= 0 or min(lengths) < 1:
            raise ValueError(
                f"grain mixes sources with records and a weight above 0; got {weights}"
            )
        accept = self._accept_repeat
        self._sources = [
            GrainOrder([n], None, 0, self.random_seed, accept_repeat=accept) for n in lengths
        ]
        # 1.
        total = sum(weights)
        shares = [weight / total for weight in weights]
        scale = 100 / min(shares)
        self._parts = np.array([int(share * scale) for share in shares], dtype=np.int64)
        # 2. for one period, after which all counts have grown by p
        self._period = int(self._parts.sum())
        left = self._period
        before = np.arange(self._period)
        after = before + 1
        self._source_at = np.full(self._period, -1)
        self._number_at = np.zeros(self._period, dtype=np.int64)
        for source, part in enumerate(self._parts.tolist()):
            passed_before = before * (left - part) // left
            passed_after = after * (left - part) // left
            grows = (self._source_at < 0) & (after - passed_after != before - passed_before)
            self._source_at[grows] = source
            self._number_at[grows] = (after - passed_after)[grows] - 1
            before = passed_before
            after = passed_after
            left -= part
        self._places_of = [
            np.flatnonzero(self._source_at == source) for source in range(len(lengths))
        ]

    def lookup(self, positions: Int64Array) -> Pairs:
        elements, hosts = np.divmod(positions, self._hosts)
        periods, places = np.divmod(elements, self._period)
        sources = self._source_at[places]
        numbers = periods * self._parts[sources] + self._number_at[places]
        # 3.
        numbers = hosts + numbers * self._hosts
        samples = np.empty_like(positions)
        for source in np.unique(sources).tolist():
            chosen = sources == source
            samples[chosen] = self._sources[source].lookup(numbers[chosen])[1]
        return sources, samples

    def reverse_lookup(self, dataset: int, sample: int, until: int) -> Int64Array:
        return np.sort(self.find_each(np.array([dataset]), np.array([sample]), until)[1])

    def find_each(self, datasets: Int64Array, samples: Int64Array, until: int) -> Pairs:
        found = [(np.empty(0, dtype=np.int64),) * 2]
        periods = until // (self._hosts * self._period) + 1
        for source in np.unique(datasets).tolist():
            chosen = np.flatnonzero(datasets == source)
            part = int(self._parts[source])
            most = periods * part * self._hosts
            zeros = np.zeros(len(chosen), dtype=np.int64)
            owners, numbers = find_each(self._sources[source], zeros, samples[chosen], most)
            numbers, hosts = np.divmod(numbers, self._hosts)
            whole, rest = np.divmod(numbers, part)
            elements = whole * self._period + self._places_of[source][rest]
            found.append((chosen[owners], elements * self._hosts + hosts))
        owners, positions = np.concatenate(found, axis=1)
        is_read = positions < until
        return owners[is_read], positions[is_read]
