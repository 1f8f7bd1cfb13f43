# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
steps = 6144 // 16 // 16

part = 6144 // 16
batches = numbers_of(NanotronOrder([part], None, 6144, 0), [part]).reshape(-1, 16)
# %% Exercise 2
seeds = 8


# %% Exercise 3
def exchange(count, size, random):
    buffer, order = list(range(size)), []
    for sample in range(size, count):
        place = random.randint(size)
        order.append(buffer[place])
        buffer[place] = sample
    return order + random.permutation(buffer).tolist()


def behaves(order):
    order = np.array(order)
    early = (order - np.arange(len(order))).max()
    late = (np.arange(len(order)) - order).max()
    return sorted(order) == list(range(len(order))) and early <= 50 < late
