"""A shuffle of range(n) that is computed, not stored: ``permute(x, n, key)`` and its inverse, for n up to 2**48.

A generalised Feistel cipher (J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002), with
SplitMix64's finaliser as its hash (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
It needs no memory and some 30 ns. The near-square has at most 2 * sqrt(n) cells too many, so cells are rarely sent
through again, except for n below 64: a smaller square than 8 x 8 shuffles badly in six rounds.
"""

import math

import numpy as np
from numba import uint64

from nanoset_ref.kernels import njit

ROUNDS = 6
MIN_SIDE = 8
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True)
def derive(key, number):
    """The key (uint64) of the `number`-th member of a family: SplitMix64's stream, entered anywhere."""
    z = uint64(key) + (uint64(number) + uint64(1)) * GOLDEN
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(cache=True)
def sides(n):
    """Rows and columns (uint64) of the near-square for range(n); odd ones would only allow even permutations."""
    rows = max(math.ceil(math.sqrt(n)), MIN_SIDE)
    rows += rows % 2
    return uint64(rows), uint64(max((n + rows - 1) // rows, MIN_SIDE))


@njit(cache=True)
def permute(x, n, key):
    """The place of x, both in range(n), in the permutation that `key` (uint64) names."""
    return walk(x, n, sides(n), key, False)


@njit(cache=True)
def unpermute(place, n, key):
    """The x with ``permute(x, n, key) == place``."""
    return walk(place, n, sides(n), key, True)


@njit(cache=True, error_model="numpy")
def walk(x, n, shape, key, back):
    """`permute`, or `unpermute` if `back`; shape is ``sides(n)``.

    1. x -> row x // columns, column x mod columns
    2. six rounds: the row moves by a hash of the column, the column by a hash of the row, in turns; back: the rounds
       backwards
    3. row * columns + column, and again from 2 while that is not below n
    """
    rows, columns = shape
    x, key = uint64(x), uint64(key)
    row = x // columns
    column = x - row * columns
    while True:
        for step in range(ROUNDS):
            number = ROUNDS - 1 - step if back else step
            if number % 2 == 0:
                row = moved(row, rows, derive(key + column, number), back)
            else:
                column = moved(column, columns, derive(key + row, number), back)
        place = row * columns + column
        if place < uint64(n):
            return np.int64(place)


@njit(cache=True, nogil=True, error_model="numpy")
def permute_each(xs, ns, shapes, keys):
    """`permute` for many, in half its time, as the compiler goes through a round for several at once.

    It does not where one function has the rounds of this and of `walk`.

    Args:
        xs, ns: int64 [n]. shapes: uint64 [2, n], their sides. keys: uint64 [n].

    Returns:
        int64 [n].
    """
    cells, places = np.empty((2, len(xs)), dtype=np.uint64), np.empty_like(xs)
    for p in range(len(xs)):  # 1.
        cells[0, p] = uint64(xs[p]) // shapes[1, p]
        cells[1, p] = uint64(xs[p]) - cells[0, p] * shapes[1, p]
    for number in range(ROUNDS):  # 2.
        half, other = number % 2, 1 - number % 2
        for p in range(len(xs)):
            cells[half, p] = moved(cells[half, p], shapes[half, p], derive(keys[p] + cells[other, p], number), False)
    for p in range(len(xs)):  # 3.
        places[p] = cells[0, p] * shapes[1, p] + cells[1, p]
        if places[p] >= ns[p]:
            places[p] = walk(places[p], ns[p], (shapes[0, p], shapes[1, p]), keys[p], False)
    return places


@njit(cache=True)
def moved(half, side, hashed, back):
    """A half after a round: moved by 38 bits of a hash, scaled to the side (below 2**26), modulo the side."""
    step = ((hashed >> uint64(26)) * side) >> uint64(38)
    result = half + (side - step if back else step)
    return min(result, result - side)  # unsigned: where result < side, the difference is huge
