"""A shuffle of range(n) that is computed, not stored: ``permute(x, n, key)`` and its inverse, for n up to 2**48.

What it does. A generalised Feistel cipher on pairs (J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains,
CT-RSA 2002): x is a row and a column of a near-square of a x b >= n cells; in turns the row is moved by a keyed hash of
the column and the column by a keyed hash of the row, modulo a and b; a result >= n is sent through again (cycle
walking). The hash is SplitMix64's finaliser (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators,
OOPSLA 2014).

What it costs. Six rounds, no memory: some 25 ns for one x, half of that in bulk (`permute_many`), where the compiler
makes vector instructions of the rounds. As a * b - n < 2 * sqrt(n), walking is rare, except below 64 cells: in six
rounds a smaller square shuffles badly, so a small n walks 64 / n times.

The alternative it rejects. Halving the bits of x needs a domain of 2**even, up to four times n, and as many walks; and
swap-or-not, which fits every n, needs about six rounds per bit.
"""

import math

import numpy as np
from numba import njit, uint64

ROUNDS = 6
MIN_SIDE = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True)
def mix(z):
    """SplitMix64's finaliser: 64 bits to 64 bits, one to one, every input bit felt by every output bit."""
    z = uint64(z)
    z = (z ^ (z >> uint64(30))) * _MIX_1
    z = (z ^ (z >> uint64(27))) * _MIX_2
    return z ^ (z >> uint64(31))


@njit(cache=True)
def derive(key, number):
    """The key of the `number`-th permutation of a family: SplitMix64's stream, entered anywhere."""
    return mix(uint64(key) + (uint64(number) + uint64(1)) * _GOLDEN)


@njit(cache=True)
def sides(n):
    """Rows a and columns b of the near-square for range(n); were a and b odd, only even permutations would occur."""
    a = np.int64(max(math.ceil(math.sqrt(n)), MIN_SIDE))
    a += a % 2
    return uint64(a), uint64(max((n + a - 1) // a, MIN_SIDE))


@njit(cache=True)
def moved(half, other, side, key, number, inverse):
    """A half after a round: moved by a hash of the other, 38 bits scaled to the side (below 2**26), modulo the side."""
    step = ((mix(other + key + uint64(number + 1) * _GOLDEN) >> uint64(26)) * side) >> uint64(38)
    result = half + (side - step if inverse else step)
    return min(result, result - side)  # unsigned: where result < side, the difference is huge


@njit(cache=True)
def permute(x, n, key):
    """The place of x, both in range(n), in the permutation of range(n) that `key` (uint64) names.

    1. x -> row x // b, column x mod b
    2. six rounds: the row moves by a hash of the column, the column by a hash of the row, in turns
    3. row * b + column, and again from 2 while that is not below n
    """
    return _walk(x, n, key, False)


@njit(cache=True)
def unpermute(place, n, key):
    """The x with ``permute(x, n, key) == place``: the same rounds backwards."""
    return _walk(place, n, key, True)


@njit(cache=True, error_model="numpy")
def _walk(x, n, key, inverse):
    a, b = sides(n)
    row, column, key = uint64(x) // b, uint64(x) % b, uint64(key)
    while True:
        for step in range(ROUNDS):
            number = ROUNDS - 1 - step if inverse else step
            if number % 2 == 0:
                row = moved(row, column, a, key, number, inverse)
            else:
                column = moved(column, row, b, key, number, inverse)
        place = row * b + column
        if place < uint64(n):
            return np.int64(place)


@njit(cache=True, error_model="numpy")
def permute_many(x, n, a, b, keys):
    """`permute` in place for many: x[p] in range(n[p]) with sides a[p], b[p] and keys[p]; all uint64."""
    rows, columns = np.empty_like(x), np.empty_like(x)
    for p in range(len(x)):
        rows[p] = x[p] // b[p]
        columns[p] = x[p] - rows[p] * b[p]
    for number in range(0, ROUNDS, 2):
        for p in range(len(x)):
            rows[p] = moved(rows[p], columns[p], a[p], keys[p], number, False)
        for p in range(len(x)):
            columns[p] = moved(columns[p], rows[p], b[p], keys[p], number + 1, False)
    for p in range(len(x)):
        x[p] = rows[p] * b[p] + columns[p]
        if x[p] >= n[p]:
            x[p] = uint64(_walk(x[p], n[p], keys[p], False))
