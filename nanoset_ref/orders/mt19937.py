"""``np.random.RandomState(seed).shuffle`` in a third of the time, with the same results.

It follows the legacy stream exactly: MT19937 (Matsumoto and Nishimura, 1998), and for i = n-1 .. 1
a swap with a place j drawn by masking and rejection from [0, i].

NumPy draws, rejects and swaps one element at a time, so a branch misprediction waits for each
cache miss. Here up to 624 draws are made without a branch, then their swaps run back to back and
the misses overlap. Drawing the whole permutation first would double the memory.
"""

import sys

import numpy as np

from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Array

WORDS = 624  # in the state of MT19937, and draws between two twists
MAX_LENGTH = 2**32  # longer arrays need two words per draw
MIN_NUMBA_LENGTH = 2**20  # NumPy shuffles fewer elements before numba is imported


def shuffle(seed: int, *arrays: Array) -> None:
    """Shuffle 1-d arrays in place, one after another, as one ``RandomState(seed)`` does.

    The seed is 0 .. 2**32 - 1. NumPy itself shuffles them if one has more than 2**32 elements, or
    if all have fewer than MIN_NUMBA_LENGTH (MIN_NUMBA_LENGTH / 16 once numba is imported).
    """
    generator = np.random.RandomState(seed)
    longest = max(len(values) for values in arrays)
    shortest = MIN_NUMBA_LENGTH
    if "numba" in sys.modules:
        shortest //= 16
    if longest < shortest or longest > MAX_LENGTH:
        for values in arrays:
            generator.shuffle(values)
        return
    _, state, used, *_ = generator.get_state()
    for values in arrays:
        used = _shuffle(values, state, used)


@njit
def _shuffle(values, state, used):
    """Shuffle `values` (1-d, any dtype, at most 2**32 elements) in place.

    Args:
        state: uint32 [624], of MT19937; updated in place.
        used: the number of words of the state that are used up, 0 .. 624.

    Returns:
        The updated number.
    """
    places = np.empty(WORDS, dtype=np.int64)
    i = len(values) - 1
    while i > 0:
        if used == WORDS:
            twist(state)
            used = 0
        # 1. draw places in [0, i], [0, i-1], ...: mask a word to the bits of i, and reject it if it
        #    is still above. The mask stays while i > mask // 2, and i falls by at most one per word
        mask = 1
        while mask < i:
            mask = 2 * mask + 1
        stop = min(WORDS, used + i - mask // 2)
        count = 0
        for word in range(used, stop):
            places[count] = temper(state[word]) & mask
            count += int(places[count] <= i - count)
        used = stop
        # 2. swap
        for c in range(count):
            j = places[c]
            swapped = values[j]
            values[j] = values[i - c]
            values[i - c] = swapped
        i -= count
    return used


@njit
def twist(state):
    """The next 624 words of MT19937: uint32 [624], in place."""
    for k in range(WORDS):
        after = state[(k + 1) % WORDS]
        joined = (state[k] & 0x80000000) | (after & 0x7FFFFFFF)
        changed = (joined >> 1) ^ ((joined & 1) * 0x9908B0DF)
        state[k] = state[(k + 397) % WORDS] ^ changed


@njit
def temper(word):
    """The random number (int64, 32 bits) of a word (uint32) of the state."""
    number = np.int64(word)
    number ^= number >> 11
    number ^= (number << 7) & 0x9D2C5680
    number ^= (number << 15) & 0xEFC60000
    return number ^ (number >> 18)
