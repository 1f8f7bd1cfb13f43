# ruff: noqa: F821 (a part goes in the place of the lines above `check` in its exercise)

# %% Exercise 1
counts = [2, 1, 1, 1]

# %% Exercise 2
weights = LENGTHS  # or anything in proportion to them


# %% Exercise 3
def never_read(lengths, weights):
    epoch = sum(lengths)
    return [max(0, length - epoch * weight / sum(weights)) for length, weight in zip(lengths, weights)]
