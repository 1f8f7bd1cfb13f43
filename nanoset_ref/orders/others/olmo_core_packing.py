"""The documents in each row that OLMo-core packs, such as those of OLMo 3's long-context stage.

Source: `NumpyPackedFSLDataset` and `InstancePacker` of ai2-olmo-core 3.0.0 (June 2026; commit
fa6c5014c, `olmo_core/data/numpy_dataset.py` and `utils.py`).
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque

import numpy as np

from nanoset_ref.io.types import Int64Array


def packed_instances(
    documents: Int64Array,
    sequence_length: int,
    *,
    fragment: bool = False,
    cached: bool = False,
) -> Int64Array:
    """The documents of the rows of one group of files: int64 [documents, 4], row after row.

    A line of the result is (row, start, stop, candidates). `candidates` documents have this length;
    if there are several, which one is here depends on NumPy's version and on the
    CPU: OLMo-core sorts by ``np.argsort(-lengths)``, which does not keep equal lengths in order.

    1. a document of more than S tokens loses the rest, or with `fragment` becomes several
    2. documents are sorted by length, longest first
    3. each goes to the row with the fewest free tokens that still has room; of several, to the
       one that has had that number longest; if there is none, it begins a row

    Example, documents 0:5, 5:7, 7:16, 16:19 and S = 8::

        row 0    7:15           row 1    0:5  16:19         row 2    5:7

    The rows of all groups are shuffled by ``order="olmo_core"``, one dataset for each group.

    Args:
        documents: int64 [documents, 2], start and stop of each, with its EOS, in the tokens of the
            group's files put one after another. OLMo-core drops tokens after a file's last EOS.
        sequence_length: S, in tokens.
        fragment: the run's long_doc_strategy is "fragment".
        cached: `documents` are OLMo-core's own, as its ``document-indices-*.npy`` holds them (raw
            uint64, without a header): cut, and in the order of step 2. Every line is then certain.

    Raises:
        ValueError: a document without tokens.
    """
    table = np.asarray(documents, dtype=np.int64).reshape(-1, 2)
    starts = table[:, 0]
    stops = table[:, 1]
    if (stops <= starts).any():
        raise ValueError(
            "every document must have tokens: give (start, stop) of each, start < stop"
        )
    if not cached:
        # 1.
        if fragment:
            pieces = -(-(stops - starts) // sequence_length)
            firsts = np.cumsum(pieces) - pieces
            numbers = np.arange(pieces.sum()) - np.repeat(firsts, pieces)
            starts = np.repeat(starts, pieces) + numbers * sequence_length
            stops = np.repeat(stops, pieces)
        stops = np.minimum(stops, starts + sequence_length)
        # 2.
        longest_first = np.argsort(starts - stops, kind="stable")
        starts = starts[longest_first]
        stops = stops[longest_first]
    # 3.
    rows = place_by_length((stops - starts).tolist(), sequence_length)
    candidates = np.ones_like(rows)
    if not cached:
        candidates = np.bincount(stops - starts)[stops - starts]
    lines = np.stack([rows, starts, stops, candidates], axis=1)
    by_row = np.argsort(rows, kind="stable")
    return lines[by_row]


def place_by_length(lengths: list[int], sequence_length: int) -> Int64Array:
    """Step 3 of `packed_instances`: the row of each document, int64 [documents]."""
    rows = []
    num_rows = 0
    # rows by their free tokens
    rows_by_free: dict[int, deque[int]] = defaultdict(deque)
    free_counts: list[int] = []  # numbers of free tokens that a row has, ascending
    for length in lengths:
        index = bisect_left(free_counts, length)
        if index < len(free_counts):
            free = free_counts[index]
            row = rows_by_free[free].popleft()
            if not rows_by_free[free]:
                del free_counts[index]
        else:
            free = sequence_length
            row = num_rows
            num_rows += 1
        rows.append(row)
        free -= length
        if free and not rows_by_free[free]:
            insort(free_counts, free)
        if free:
            rows_by_free[free].append(row)
    return np.array(rows, dtype=np.int64)
