# ruff: noqa: F821 (what the cells above define)
# %% Exercise 1
edges = [0, 6, 14, 19, 25, 33, 38]

# %% Exercise 2
mask_bytes_and_cu_seqlens_bytes = 8192**2, 21 * 4


# %% Exercise 3
def starts(offsets, begin, width):
    here = np.isin(np.arange(begin, begin + width), offsets)
    here[0] = True
    return here
