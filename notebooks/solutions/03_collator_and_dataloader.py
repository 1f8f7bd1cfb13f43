# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
mask = two["input_ids"] != EOS

# %% Exercise 2
answer = divmod(10**9 - 1, 4096)


# %% Exercise 3
def moved(inputs, labels):
    length = inputs.shape[1]
    return next(m for m in range(length) if torch.equal(labels[:, : length - m], inputs[:, m:]))
