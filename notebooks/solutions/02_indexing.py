# ruff: noqa: F821 (a part goes in the place of the lines above `check` in its exercise)

# %% Exercise 1
counts = [2, 1, 1, 1]

# %% Exercise 2
weights = LENGTHS  # or anything in proportion to them


# %% Exercise 3
def positions(lengths, weights):
    return max(length * sum(weights) / weight for length, weight in zip(lengths, weights))
