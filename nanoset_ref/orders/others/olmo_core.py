"""``order="olmo_core"``: rows of one length, shuffled by OLMo-core in chunks of neighbors.

Source: NumpyFSLDataset and NumpyFSLDataLoader of ai2-olmo-core 3.0.0 (June 2026; commit fa6c5014c,
`olmo_core/data/data_loader.py` and `numpy_dataset.py`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Int64Array
from nanoset_ref.orders.base import Matches
from nanoset_ref.orders.inverse import find_by_scan
from nanoset_ref.orders.others.epochs import EpochOrder
from nanoset_ref.orders.traced_shuffle import traced_places, traced_values

MAX_ROWS = 2**32 - 1
MIN_NUMBA_CHUNKS = 1 << 22  # NumPy shuffles fewer chunks before numba is imported
MAX_TRACED = 1 << 14  # chunks; an epoch is shuffled sooner than more are traced
MAX_TRACES = 8  # lookups; then the epoch is shuffled, and kept


class OLMoCoreOrder(EpochOrder):
    """Chunks of `chunk_size` rows are shuffled, and each is read from front to back.

    1. a file keeps ``length // chunk_size * chunk_size`` rows; its last ones are never read
    2. the rows kept, numbered file by file, are cut into chunks, also across files
    3. ``Generator(PCG64(seed + epoch)).shuffle`` orders the chunks; the first epoch is 1
    4. rows that would fill no batch at the end of an epoch are not read

    Few rows of a long epoch are traced through its shuffle; many are looked up in it.

    Example, lengths 5 and 4, chunk_size 2, seed 5, first epoch::

        chunks     0      1      2      3
        rows       0 1    2 3    5 6    7 8       instances; 4 is left over
        shuffled   chunks 0 3 1 2
        read       0 1 7 8 2 3 5 6

    Args:
        dataset_lengths: rows of S tokens in each file: ``tokens // S``.
        dataset_weights, num_samples, random_seed: see `Order`; the weights are None.
        chunk_size: ``max_target_sequence_length // sequence_length`` of the run's config, or 1.
        batch_size: rows in a global batch. Needed by runs of several epochs.

    Raises:
        ValueError: see `Order`; no whole batch in an epoch; more rows than a uint32 can number.
    """

    name = "olmo_core"

    def __init__(
        self,
        *order_arguments: Any,
        chunk_size: int = 1,
        batch_size: int = 1,
        **named: Any,
    ) -> None:
        self.chunk_size = whole_number(chunk_size, "chunk_size", 1)
        self.batch_size = whole_number(batch_size, "batch_size", 1)
        self.options = {
            "chunk_size": self.chunk_size,
            "batch_size": self.batch_size,
        }
        super().__init__(*order_arguments, **named)

    def build(self) -> None:
        """Steps 1 and 4: the rows that are kept, and the length of an epoch."""
        # 1.
        self._kept = self.dataset_lengths // self.chunk_size * self.chunk_size
        ends = np.cumsum(self._kept)
        rows = int(ends[-1])
        if rows >= MAX_ROWS:
            raise ValueError(
                f"OLMo-core numbers rows in uint32; these files have {rows:,}"
            )
        self._ends = ends
        self._num_chunks = rows // self.chunk_size
        self._traces = 0
        # 4.
        self.epoch_length = rows // self.batch_size * self.batch_size
        if not self.epoch_length:
            raise ValueError(
                f"an epoch must hold a batch of {self.batch_size} rows; in whole chunks of "
                f"{self.chunk_size} these files have {rows}: use smaller batches or chunks"
            )

    def _shuffle(self, epoch: int) -> NDArray[np.uint32]:
        """The chunks of an epoch in the order of training."""
        # 2.
        chunks = np.arange(self._num_chunks, dtype=np.uint32)
        # 3.
        stream = np.random.PCG64(self._seed(epoch))
        np.random.Generator(stream).shuffle(chunks)
        return chunks

    def _seed(self, epoch: int) -> int:
        """The seed of an epoch, whose number is from 0 here and from 1 in OLMo-core."""
        return self.random_seed + epoch + 1

    def _instances(self, epoch: int, positions_in_epoch: Int64Array) -> Int64Array:
        """See `EpochOrder._instances`."""
        numbers = positions_in_epoch // self.chunk_size
        is_cached = self._last_shuffled[0] == epoch
        is_long = self._num_chunks >= MIN_NUMBA_CHUNKS
        may_trace = len(numbers) <= MAX_TRACED and self._traces < MAX_TRACES
        if is_long and may_trace and not is_cached:
            self._traces += 1
            distinct, copies = np.unique(numbers, return_inverse=True)
            traced = traced_values(self._seed(epoch), self._num_chunks, distinct)
            chunks = traced[copies]
        else:
            shuffled = self.shuffled(epoch)
            chunks = shuffled[numbers].astype(np.int64)
        row_of_chunk = positions_in_epoch % self.chunk_size
        rows = chunks * self.chunk_size + row_of_chunk
        left_out = self.source_offsets + self._kept - self._ends  # before each file
        files = np.searchsorted(self._ends, rows, side="right")
        return rows + left_out[files]

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """See `Order.reverse_lookup_each`: many rows are found by a scan."""
        if self._num_chunks < MIN_NUMBA_CHUNKS or len(samples) > MAX_TRACED:
            return find_by_scan(self, sources, samples, until)
        return super().reverse_lookup_each(sources, samples, until)

    def _find_in_epoch(
        self,
        epoch: int,
        sources: Int64Array,
        samples: Int64Array,
    ) -> Matches:
        """See `EpochOrder._find_in_epoch`: the rows are traced."""
        indices = np.flatnonzero(samples < self._kept[sources])
        files = sources[indices]
        firsts = self._ends[files] - self._kept[files]
        rows = firsts + samples[indices]
        chunks = rows // self.chunk_size
        distinct, copies = np.unique(chunks, return_inverse=True)
        traced = traced_places(self._seed(epoch), self._num_chunks, distinct)
        row_of_chunk = rows % self.chunk_size
        positions_in_epoch = traced[copies] * self.chunk_size + row_of_chunk
        is_read = positions_in_epoch < self.epoch_length
        return indices[is_read], positions_in_epoch[is_read]
