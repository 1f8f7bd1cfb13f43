# %% Exercise 1
# These end on nothing but Shakespeare, shuffled among hundreds of samples at least.
orders = [
    "one after another, each shuffled",
    "a buffer of 1,000",
    "a buffer of 1,000 that exchanges",
]

# %% Exercise 2
seeds = 11


# %% Exercise 3
import numpy as np


def sign_flips(differences):
    signs = (
        2 * np.indices((2,) * len(differences)).reshape(len(differences), -1) - 1
    )  # a way in each column
    sums = abs(np.array(differences) @ signs)
    return np.mean(sums >= abs(sum(differences)) - 1e-9)
