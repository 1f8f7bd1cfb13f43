# ruff: noqa: F821 (what the cells above define)
# %% Exercise 1
def cut_by_wrap(lengths, R):
    ends = np.cumsum(lengths)
    return np.sum((ends - lengths) // R != (ends - 1) // R)


# %% Exercise 2
def next_fit(lengths, R):
    rows, used = 0, R
    for size in lengths:
        if used + size > R:
            rows, used = rows + 1, 0
        used += size
    return rows


# %% Exercise 3
def smallest_room(tree, n):
    leaves, node = len(tree) // 2, len(tree) // 2 + n
    while node and not tree[node]:
        while node % 2:  # a right child, or the root
            node //= 2
        node += node > 0
    while 0 < node < leaves:
        node = 2 * node + (not tree[2 * node])
    return max(0, node - leaves)
