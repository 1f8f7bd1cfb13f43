"""A shuffle of range(n) that is computed, not stored: ``permute(x, n, key)`` and its inverse, for n up to 2**48.

What it does. A generalised Feistel cipher on pairs (J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains,
CT-RSA 2002): x is a row and a column of the smallest near-square a x b >= n; in turns the row is moved by a keyed hash
of the column and the column by a keyed hash of the row, modulo a and b; a result >= n is sent through again (cycle
walking). The hash is SplitMix64's finaliser (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators,
OOPSLA 2014).

What it costs. Six rounds, some 20 ns, no memory, for every n alike: as a * b - n < a, walking is as rare as 1 /
    sqrt(n).

The alternative it rejects. Halving the bits of x needs a domain of 2**even, up to four times n, and as many walks; and
swap-or-not, which fits every n, needs about six rounds per bit.
"""

import math

import numpy as np
from numba import njit, uint64

ROUNDS = 6
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
    """Rows a and columns b of the near-square that holds range(n): a = ceil(sqrt(n)), b = ceil(n / a)."""
    a = np.int64(math.ceil(math.sqrt(n)))
    return uint64(a), uint64((n + a - 1) // a)


@njit(cache=True)
def move(other, key, side):
    """A keyed hash of the other half, as a number below `side` (38 random bits scaled, side < 2**26)."""
    return ((mix(other + key) >> uint64(26)) * side) >> uint64(38)


@njit(cache=True)
def permute(x, n, key):
    """The place of x, both in range(n), in the permutation of range(n) that `key` (uint64) names.

    1. x -> row x // b, column x mod b
    2. six rounds: row += hash(column) mod a, column += hash(row) mod b, in turns
    3. row * b + column, and again from 1 while that is not below n
    """
    a, b = sides(n)
    row, column = uint64(x) // b, uint64(x) % b
    while True:
        round_key = uint64(key)
        for _ in range(ROUNDS // 2):
            round_key += _GOLDEN
            row += move(column, round_key, a)
            if row >= a:
                row -= a
            round_key += _GOLDEN
            column += move(row, round_key, b)
            if column >= b:
                column -= b
        place = row * b + column
        if place < uint64(n):
            return np.int64(place)


@njit(cache=True)
def unpermute(place, n, key):
    """The x with ``permute(x, n, key) == place``: the same rounds backwards."""
    a, b = sides(n)
    row, column = uint64(place) // b, uint64(place) % b
    while True:
        round_key = uint64(key) + uint64(ROUNDS) * _GOLDEN
        for _ in range(ROUNDS // 2):
            column += b - move(row, round_key, b)
            if column >= b:
                column -= b
            round_key -= _GOLDEN
            row += a - move(column, round_key, a)
            if row >= a:
                row -= a
            round_key -= _GOLDEN
        x = row * b + column
        if x < uint64(n):
            return np.int64(x)
