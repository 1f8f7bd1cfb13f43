# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
my_share = 8 * 8192 / (1e6 * np.median(nanotron)) / 0.2


# %% Exercise 2
def gather(positions):
    out = np.empty((len(positions), S + 1), dtype=np.int32)
    datasets, samples = nanoset.order[positions]
    for row, dataset, sample in zip(out, datasets, samples):
        row[:] = nanoset.files[dataset].tokens[sample * S : sample * S + S + 1]
    return out


# %% Exercise 3
def requests(gpus, parameters, seconds, row=2048):
    consumed = gpus * 989e12 * 0.4 / (6 * parameters)
    return int(np.ceil(consumed * seconds / row))
