"""`StageReader`: which rows of a stage hold some tokens, and at which positions they are read.

All queries are answered in one pass, so a million of them cost little more than one.
"""

import dataclasses

import numpy as np

from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.document_spans import concatenated_ranges, samples_holding
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders.base import Order
from nanoset_ref.orders.inverse import find_each


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageReader:
    """The order of a stage and the rows of its files.

    Args:
        name: the stage.
        order: the order that the stage reads.
        sources: int64 [files], the number in the run of each file of the order.
        strides: int64 [files], tokens from one sample to the next.
        row_length: tokens of a row.
        schedule: which rank reads which position, and in which step.
        knows_ranks: False if the ranks of the run are unknown; `schedule` then has a single one.
        stop: the position after the last one of the stage.
    """

    name: str
    order: Order
    sources: Int64Array
    strides: Int64Array
    row_length: int
    schedule: Schedule
    knows_ranks: bool
    stop: int

    def find(self, spans: Int64Array) -> Int64Array:
        """Find every read of the rows that hold tokens that queries name.

        1. List the samples that hold tokens of each span.
        2. Look up each of these samples once, and keep the positions of this stage.
        3. Give each span the positions of its samples.

        Args:
            spans: int64 [n, 4] of (number of the query, source, first token, stop); a query may
                have several.

        Returns:
            int64 [m, 4] of (number of the query, position, source, sample), sorted, each once.
        """
        # 1.
        queries, files, samples = self._samples_holding(spans)
        # 2.
        instances = self.order.source_offsets[files] + samples
        # samples that several spans share are looked up once
        _, one_of_each, number_of_sample = np.unique(
            instances, return_index=True, return_inverse=True
        )
        indices, positions = find_each(
            self.order, files[one_of_each], samples[one_of_each], self.stop
        )
        is_read = positions >= self.schedule.consumed_train_samples
        indices = indices[is_read]
        positions = positions[is_read]
        # 3.
        first_reads = np.searchsorted(indices, number_of_sample)
        stop_reads = np.searchsorted(indices, number_of_sample, side="right")
        counts = stop_reads - first_reads
        read_samples = np.repeat(np.arange(len(queries)), counts)
        reads = concatenated_ranges(first_reads, counts)
        columns = [
            queries[read_samples],
            positions[reads],
            self.sources[files[read_samples]],
            samples[read_samples],
        ]
        ascending = np.lexsort((columns[1], columns[0]))
        table = np.stack(columns, axis=1)[ascending]
        # a row may hold several spans of a query
        is_new = np.diff(table[:, :2], axis=0, prepend=-1).any(axis=1)
        return table[is_new]

    def _samples_holding(self, spans: Int64Array) -> Int64Array:
        """(number of the query, file of the order, sample) of step 1: int64 [3, m]."""
        numbers, sources, first_tokens, stops = spans.T
        is_filled = first_tokens < stops
        tables = []
        for file, source in enumerate(self.sources):
            indices = np.flatnonzero((sources == source) & is_filled)
            firsts, ends = samples_holding(
                first_tokens[indices],
                stops[indices],
                self.order.dataset_lengths[file],
                stride=self.strides[file],
                row_length=self.row_length,
            )
            samples = concatenated_ranges(firsts, ends - firsts)
            queries = np.repeat(numbers[indices], ends - firsts)
            files = np.full_like(samples, file)
            tables.append([queries, files, samples])
        return np.concatenate(tables, axis=1)
