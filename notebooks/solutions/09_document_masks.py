# %% Exercise 1
edges = [0, 6, 14, 19, 25, 33, 38]

two = MegatronCollator(config_for("any", len(row) - 1))([{"input_ids": row}] * 2)
# %% Exercise 2
mask_bytes_and_cu_seqlens_bytes = 8192**2, 21 * 4

# %% Exercise 3
def starts(lengths):
    begins = np.zeros(sum(lengths), dtype=bool)
    begins[np.cumsum([0, *lengths[:-1]])] = True
    return begins


