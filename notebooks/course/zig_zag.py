"""Context parallelism: each document of a row cut in zig-zag (notebook 04)."""

from itertools import pairwise

import numpy as np


def zig_zag(cu_seqlens, rank, cp):
    """The columns of a context rank, and where the documents begin and end among them."""
    columns = []
    for begin, end in pairwise(cu_seqlens.tolist()):
        parts = np.split(np.arange(begin, end), 2 * cp)  # an error if 2 cp does not divide it
        columns += [parts[rank], parts[-1 - rank]]
    return np.concatenate(columns), cu_seqlens // cp
