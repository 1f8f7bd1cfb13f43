# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
answer = 126, 1, 0, 1  # 1006 = 125 * 8 + 1 * 4 + 1 * 2 + 0


# %% Exercise 2
def first_byte(j):
    return 2 * 128 * j


# %% Exercise 3
import numpy as np


def steps_of(source, document):
    first, stop = run.files[source].require_document_offsets()[document : document + 2]
    datasets, samples = run.order[:4000]
    touched = (
        (datasets == source) & ((first - 1) // 128 <= samples) & (samples <= (stop - 1) // 128)
    )
    return sorted({k // 8 + 1 for k in np.flatnonzero(touched).tolist()})
