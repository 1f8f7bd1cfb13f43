# %% Exercise 1
def most_chunks(n, held_out, limit):
    rows = n - held_out
    return next(chunks for chunks in range(rows, 0, -1) if rows % chunks <= limit)


# %% Exercise 2
def lost_by_workers(lengths, row_length, workers):
    return sum(lengths[worker::workers].sum() % row_length for worker in range(workers))


# %% Exercise 3
def interleave(sizes):
    places = [
        ((row + 0.5) / size, subset) for subset, size in enumerate(sizes) for row in range(size)
    ]
    return [subset for _, subset in sorted(places)]
