# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
my_answer = 100 + 1000 + 10_000


# %% Exercise 2
def turns_left(first, last, l, d):
    return (last * l + d // 2) // d - (first * l + d // 2) // d


# %% Exercise 3
my_weight = 4 * 100 / 8000


# %% Exercise 4
def undo_two(place):
    row, column = divmod(place, COLUMNS)
    column = (column - plain.slide_by(row, 1, KEY, COLUMNS)) % COLUMNS
    row = (row - plain.slide_by(column, 0, KEY, ROWS)) % ROWS
    return row * COLUMNS + column
