"""A shuffle of range(n) that is computed, not stored: ``permute(x, n, key)`` and its inverse.

A generalized Feistel cipher (J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA
2002). It lays range(n) out on a board and slides the columns and the rows alternately, each by a
hash of its number. It needs no memory. The board has fewer than 2 * sqrt(n) surplus cells, so a
number rarely goes through the rounds again, except below n = 50: boards smaller than 7 x 8 shuffle
badly.

Why ten rounds: numbers in one row slide together. They keep their distance in a pair of rounds if
the columns between them happen to slide alike, with chance 1 / rows, and in ten rounds with chance
1 / rows**5. Six rounds kept 10 % too many neighbors at n = 64; after ten, 400,000 permutations of a
size cannot be distinguished from NumPy's (`python -m benchmarks.permutation`). They take 30 ns,
1.24 times as long as six with a slower hash did.

In all kernels, n is at most 2**48, keys are any uint64, and cells of the board are uint64.
"""

import numpy as np
from numpy import uint64

from nanoset_ref.io.item_loops import each
from nanoset_ref.io.njit import njit

PAIRS = 5  # of rounds: the columns slide, then the rows
MIN_ROWS = 7
MIN_BITS = 3  # there are 2**bits columns
ONE = np.uint64(1)
HALF = np.uint64(32)  # of the bits of a word
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)  # the multipliers of SplitMix64
SECOND = np.uint64(0x94D049BB133111EB)


@njit(work=lambda key, number: 4)
def derive(key, number):
    """Key `number` (uint64) of the family of keys that `key` (any uint64) starts.

    It is SplitMix64's stream, entered at any point (number: any integer from 0 to 2**64 - 1).

    G. Steele, D. Lea and C. Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
    """
    z = uint64(key) + (uint64(number) + ONE) * GOLDEN
    z = (z ^ (z >> uint64(30))) * FIRST
    z = (z ^ (z >> uint64(27))) * SECOND
    return z ^ (z >> uint64(31))


@njit
def sides(n):
    """The board for range(n), n in 1 .. 2**48: the number of rows, and the bits of a column number.

    Both are uint64. There are 2**bits columns, so that half of the rounds need no division and both
    parities of permutations occur. For n > 56 there are between half and twice as many rows as
    columns.

        n      1 .. 56    57    400    10**12
        rows         7     8     25    953675
        bits         3     3      4        20
    """
    # the power of two at or below n - 1, plus 1023; n - 1 is exact in float64
    exponent = np.float64(n - 1).view(np.int64) >> 52
    half = (exponent - 1022) // 2
    bits = uint64(np.maximum(half, MIN_BITS))
    columns = ONE << bits
    rows = (uint64(n) + columns - ONE) >> bits
    return np.maximum(rows, uint64(MIN_ROWS)), bits


@njit(error_model="numpy", work=lambda x, n, key: 300)
def permute(x, n, key):
    """The place (int64) of x, both in 0 .. n - 1, in the permutation with this key.

    1. x -> row x // columns, column x mod columns
    2. ten rounds: the row moves by a hash of the column, then the column by a hash of the row
    3. place = row * columns + column; repeat from 1 with the place while it is not below n
    """
    rows, bits = sides(n)
    key = uint64(key)
    place = uint64(x)
    while True:
        row, column = cell_of(place, bits)
        for pair in range(PAIRS):
            row = slide_down(row, column, rows, key, pair)
            column = slide_right(row, column, bits, key, pair)
        place = row << bits | column
        if place < uint64(n):
            return np.int64(place)


@njit(error_model="numpy", work=lambda place, n, key: 300)
def unpermute(place, n, key):
    """The x (int64) with ``permute(x, n, key) == place``: the same rounds in reverse."""
    rows, bits = sides(n)
    key = uint64(key)
    x = uint64(place)
    while True:
        row, column = cell_of(x, bits)
        for pair in range(PAIRS - 1, -1, -1):
            steps = steps_right(row, bits, key, pair)
            column = wrap(column - steps, bits)
            row -= steps_down(column, rows, key, pair)
            row = min(row, row + rows)  # a row below zero wraps around to a huge number
        x = row << bits | column
        if x < uint64(n):
            return np.int64(x)


@njit(error_model="numpy")
def permute_each(xs, ns, keys):
    """`permute` for many, in a third of the time: the compiler does a round for several at once.

    Args:
        xs: int64 [n], each in 0 .. its `ns` - 1.
        ns: int64 [n], each in 1 .. 2**48.
        keys: uint64 [n].

    Returns:
        int64 [n], the places.
    """
    heights = np.empty(len(xs), dtype=np.uint64)
    bits = np.empty_like(heights)
    rows = np.empty_like(heights)
    columns = np.empty_like(heights)
    places = np.empty_like(xs)
    for p in each(len(xs)):  # 1.
        heights[p], bits[p] = sides(ns[p])
        rows[p], columns[p] = cell_of(uint64(xs[p]), bits[p])
    for pair in range(PAIRS):  # 2.
        for p in each(len(xs)):
            rows[p] = slide_down(rows[p], columns[p], heights[p], keys[p], pair)
            columns[p] = slide_right(rows[p], columns[p], bits[p], keys[p], pair)
    for p in each(len(xs)):  # 3.
        places[p] = rows[p] << bits[p] | columns[p]
    for p in range(len(xs)):
        if places[p] >= ns[p]:
            places[p] = permute(places[p], ns[p], keys[p])
    return places


@njit
def cell_of(x, bits):
    """The row and the column (uint64 each) of number x (uint64) on a board of 2**bits columns."""
    return x >> bits, wrap(x, bits)


@njit
def wrap(column, bits):
    """A column number (uint64) modulo the 2**bits columns."""
    return column & ((ONE << bits) - ONE)


@njit
def slide_down(row, column, rows, key, pair):
    """The row (uint64) of a cell after round 2 * pair, pair in 0 .. 4: its column slides down."""
    row += steps_down(column, rows, key, pair)
    return np.minimum(row, row - rows)  # a row below zero wraps around to a huge number


@njit
def slide_right(row, column, bits, key, pair):
    """The column (uint64) of a cell after round 2 * pair + 1: its row slides to the right."""
    steps = steps_right(row, bits, key, pair)
    return wrap(column + steps, bits)


@njit
def steps_down(column, rows, key, pair):
    """The number of rows (uint64, below `rows`) that a column slides: 32 bits of a hash, scaled."""
    z = hash_line(column, key, uint64(2 * pair))
    return (z >> HALF) * rows >> HALF


@njit
def steps_right(row, bits, key, pair):
    """The number of columns (uint64, below 2**bits) that a row slides: the upper bits of a hash."""
    z = hash_line(row, key, uint64(2 * pair + 1))
    return z >> (uint64(64) - bits)


@njit
def hash_line(line, key, number):
    """A hash (uint64) of a row or column number in round `number`; its upper 32 bits are good."""
    z = line * FIRST + (key + number * GOLDEN)
    return (z ^ (z >> HALF)) * SECOND
