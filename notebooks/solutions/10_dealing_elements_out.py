# %% Exercise 1
answer = [5, 11]

# %% Exercise 2
answer = 3 * 4 * 2 * 2


# %% Exercise 3
def continued(streams, size, done):
    parts = [(v + done) % len(streams) for v in range(len(streams))]
    return [streams[w][size * -((w - done) // len(streams)) :] for w in parts]
