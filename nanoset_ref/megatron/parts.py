"""The two kernels that read a batch: find the parts of each sample, and copy them into rows.

A part is a run of tokens of one sequence, int64 [4]: (place in the batch, sequence, start, stop). The first kernel
walks the three mappings, the second the .bin file; every bound is checked on the way, which costs nothing beside the
memory traffic and turns a damaged index into an error instead of a crash. The rejected alternative, upstream's `get`
and `concatenate` per part, spends most of a sample in Python.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def locate(document_index, sample_index, shuffle_index, lengths, positions, extra):
    """The parts of each sample; one row of -1 if they leave the corpus."""
    count = 0
    for n in range(len(positions)):
        if positions[n] < 0 or positions[n] >= len(shuffle_index):  # a damaged blend
            return np.full((1, 4), -1, dtype=np.int64)
        j = np.int64(shuffle_index[positions[n]])
        if j < 0 or j + 1 >= len(sample_index):
            return np.full((1, 4), -1, dtype=np.int64)
        first, last = sample_index[j, 0], sample_index[j + 1, 0]
        if first < 0 or last < first or last >= len(document_index):
            return np.full((1, 4), -1, dtype=np.int64)
        count += last - first + 1
    parts = np.empty((count, 4), dtype=np.int64)
    part = 0
    for n in range(len(positions)):
        j = shuffle_index[positions[n]]
        first, last = sample_index[j, 0], sample_index[j + 1, 0]
        for i in range(first, last + 1):
            sequence = document_index[i]
            if sequence < 0 or sequence >= len(lengths):
                return np.full((1, 4), -1, dtype=np.int64)
            start = sample_index[j, 1] if i == first else 0
            stop = sample_index[j + 1, 1] + extra if i == last else lengths[sequence]
            if start < 0 or stop < start or stop > lengths[sequence]:
                return np.full((1, 4), -1, dtype=np.int64)
            parts[part, 0], parts[part, 1], parts[part, 2], parts[part, 3] = n, sequence, start, stop
            part += 1
    return parts


@njit(cache=True, nogil=True)
def copy(tokens, pointers, itemsize, parts, rows, pad_id, out):
    """Write the parts one after another into out[rows] and fill up with pad_id; False if one leaves the file or row."""
    part = 0
    for n in range(len(rows)):
        row = out[rows[n]]
        column = 0
        while part < len(parts) and parts[part, 0] == n:
            begin = pointers[parts[part, 1]] // itemsize + parts[part, 2]
            size = parts[part, 3] - parts[part, 2]
            if begin < 0 or begin + size > len(tokens) or column + size > len(row):
                return False
            source, target = tokens[begin : begin + size], row[column : column + size]
            for i in range(len(source)):  # over two slices the compiler vectorises
                target[i] = source[i]
            column += size
            part += 1
        row[column:] = pad_id
    return True
