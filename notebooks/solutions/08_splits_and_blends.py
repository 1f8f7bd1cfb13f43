# ruff: noqa: F821 (what the cells above define)
# %% Exercise 1
split = "11,1,0"

# %% Exercise 2
use = train.usage(0, len(train))[0]
samples = int(2 * use.num_samples / 1.005 / 0.5)


# %% Exercise 3
starts = [0, 6, 10]
order = [
    starts[source] + document for source, document in plain.blend_everything([6, 4, 2]).tolist()
]
