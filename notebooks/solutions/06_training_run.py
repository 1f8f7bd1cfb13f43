# %% Exercise 1
my_samples = 15 * 8 * 2 * 3

# %% Exercise 2
numbers = 8  # 1, 2, 4, ... 128


# %% Exercise 3
def lost(killed_after, interval):
    return killed_after % interval


# %% Exercise 4
import math


def best_interval(cost, between_failures):
    return math.sqrt(2 * cost * between_failures)
