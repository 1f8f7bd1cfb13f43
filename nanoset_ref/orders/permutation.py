"""A shuffle of range(n), computed and not stored: ``permute(x, n, key)``, its inverse; n <= 2**48.

A generalised Feistel cipher (J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA
2002). It lays range(n) out on a board and slides its columns and rows in turns, each by a hash of
its number. It needs no memory. The board has fewer than 2 * sqrt(n) cells too many, so a number
rarely goes through the rounds again, except below n = 50: smaller boards than 7 x 8 shuffle badly.

Why twelve rounds: numbers in one row slide together. They keep their distance in a pair of rounds
if the columns between happen to slide alike, with chance 1 / rows, and in twelve rounds with chance
1 / rows**6. Six rounds kept 10 % too many neighbors at n = 64; after twelve, 400,000 permutations
of a size cannot be told from NumPy's (`python -m benchmarks.permutation`).
"""

import numpy as np
from numba import uint64

from nanoset_ref.io.kernels import njit

PAIRS = 6  # of rounds: the columns slide, then the rows
MIN_ROWS = 7
MIN_BITS = 3  # there are 2**bits columns
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)  # the multipliers of SplitMix64
SECOND = np.uint64(0x94D049BB133111EB)


@njit(cache=True)
def derive(key, number):
    """The key (uint64) of a family's member `number`: SplitMix64's stream, entered anywhere.

    G. Steele, D. Lea and C. Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
    """
    z = uint64(key) + (uint64(number) + uint64(1)) * GOLDEN
    z = (z ^ (z >> uint64(30))) * FIRST
    z = (z ^ (z >> uint64(27))) * SECOND
    return z ^ (z >> uint64(31))


@njit(cache=True)
def sides(n):
    """The board for range(n): how many rows, and the number of bits of a column (uint64 each).

    There are 2**bits columns, so that half of the rounds need no division and both parities of
    permutations occur. For n > 56 there are between half and twice as many rows as columns.
    """
    exponent = np.float64(n - 1).view(np.int64) >> 52  # of two, 1023 too large; n - 1 is exact
    bits = uint64(max((exponent - 1022) // 2, MIN_BITS))
    columns = uint64(1) << bits
    return max((uint64(n) + columns - uint64(1)) >> bits, uint64(MIN_ROWS)), bits


@njit(cache=True, error_model="numpy")
def permute(x, n, key):
    """The place of x, both in range(n), in the permutation that `key` (uint64) names."""
    return walk(x, n, sides(n), key)


@njit(cache=True, error_model="numpy")
def unpermute(place, n, key):
    """The x with ``permute(x, n, key) == place``: the rounds of `walk` backwards."""
    rows, bits = sides(n)
    key = uint64(key)
    x = uint64(place)
    while True:
        row, column = cell_of(x, bits)
        for pair in range(PAIRS - 1, -1, -1):
            row, column = slide_back(row, column, rows, bits, key, pair)
        x = row << bits | column
        if x < uint64(n):
            return np.int64(x)


@njit(cache=True, error_model="numpy")
def walk(x, n, shape, key):
    """`permute`; shape is ``sides(n)``.

    1. x -> row x // columns, column x mod columns
    2. twelve rounds: the row moves by a hash of the column, then the column by one of the row
    3. row * columns + column, and again from 1 while that is not below n
    """
    rows, bits = shape
    key = uint64(key)
    place = uint64(x)
    while True:
        row, column = cell_of(place, bits)
        for pair in range(PAIRS):
            row, column = slide(row, column, rows, bits, key, pair)
        place = row << bits | column
        if place < uint64(n):
            return np.int64(place)


@njit(cache=True, nogil=True, error_model="numpy")
def permute_each(xs, ns, shapes, keys):
    """`permute` for many, in a third of its time: the compiler does a round for several at once.

    Args:
        xs, ns: int64 [n]. shapes: uint64 [2, n], their `sides`. keys: uint64 [n].

    Returns:
        int64 [n].
    """
    rows = np.empty(len(xs), dtype=np.uint64)
    columns = np.empty(len(xs), dtype=np.uint64)
    places = np.empty_like(xs)
    for p in range(len(xs)):  # 1.
        rows[p], columns[p] = cell_of(uint64(xs[p]), shapes[1, p])
    for pair in range(PAIRS):  # 2.
        for p in range(len(xs)):
            height = shapes[0, p]
            bits = shapes[1, p]
            rows[p], columns[p] = slide(rows[p], columns[p], height, bits, keys[p], pair)
    for p in range(len(xs)):  # 3.
        places[p] = rows[p] << shapes[1, p] | columns[p]
        if places[p] >= ns[p]:
            places[p] = walk(places[p], ns[p], (shapes[0, p], shapes[1, p]), keys[p])
    return places


@njit(cache=True)
def cell_of(x, bits):
    """The row and the column (uint64 each) of a number on a board of 2**bits columns."""
    return x >> bits, x & ((uint64(1) << bits) - uint64(1))


@njit(cache=True)
def slide(row, column, rows, bits, key, pair):
    """A cell after two rounds: its column slides down, then its row to the right (uint64 each)."""
    down = row_step(column, rows, key, pair)
    above = row - rows  # below zero, which is huge: the smaller one is on the board
    row = min(row + down, above + down)
    column = (column + column_step(row, bits, key, pair)) & ((uint64(1) << bits) - uint64(1))
    return row, column


@njit(cache=True)
def slide_back(row, column, rows, bits, key, pair):
    """The cell from which `slide` comes to this one."""
    column = (column - column_step(row, bits, key, pair)) & ((uint64(1) << bits) - uint64(1))
    down = row_step(column, rows, key, pair)
    under = row + rows
    row = min(row - down, under - down)
    return row, column


@njit(cache=True)
def row_step(column, rows, key, pair):
    """By how many rows a column slides in an even round: 32 bits of a hash, scaled."""
    return ((mix(column, key, uint64(2 * pair)) >> uint64(32)) * rows) >> uint64(32)


@njit(cache=True)
def column_step(row, bits, key, pair):
    """By how many columns a row slides in an odd round: the upper bits of a hash."""
    return mix(row, key, uint64(2 * pair + 1)) >> (uint64(64) - bits)


@njit(cache=True)
def mix(line, key, number):
    """A hash (uint64) of a row's or column's number in a round, whose upper half is good."""
    z = line * FIRST + (key + number * GOLDEN)
    return (z ^ (z >> uint64(32))) * SECOND
