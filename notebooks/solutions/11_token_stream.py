# %% Exercise 1
answer = 87 // 9

# %% Exercise 2
answer = 2 * 2 * 2

# %% Exercise 3
from itertools import islice


def exchange(rows, M, rng):
    buffer = list(islice(rows, M))
    for row in rows:
        place = rng.integers(M)
        yield buffer[place]
        buffer[place] = row
    yield from buffer
