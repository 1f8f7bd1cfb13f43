"""``np.random.RandomState(seed).shuffle``, the same numbers in a third of the time.

What it does. Follows the legacy stream exactly: words of MT19937 (Matsumoto and Nishimura, 1998), and for i = n-1 .. 1
a swap with a place j drawn by masking and rejection from [0, i].

What it costs. NumPy draws, rejects and swaps one element at a time, so every misprediction waits for every cache miss.
Here up to 624 draws are made without a branch, then their swaps run back to back and the misses overlap.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

WORDS = 1 << 15  # drawn from NumPy at once
DRAWS = 624  # made before their swaps


class ShuffleStream:
    """The shuffles of one ``np.random.RandomState(seed)``, one after another.

    Args:
        seed: in [0, 2**32).
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.RandomState(seed)
        self._words = np.empty(0, dtype=np.uint32)  # drawn, and not used yet

    def shuffle(self, values: npt.NDArray[Any]) -> None:
        """Shuffle a 1-d array in place."""
        left = len(values) - 1
        while left > 0:
            if len(self._words) < 2:
                drawn = self._generator.randint(0, 2**32, WORDS, dtype=np.uint32)
                self._words = np.concatenate([self._words, drawn])
            left, used = swap_down(values, left, self._words)
            self._words = self._words[used:]


def shuffle(values: npt.NDArray[Any], seed: int) -> None:
    """Shuffle a 1-d array in place, as ``np.random.RandomState(seed).shuffle(values)`` does."""
    ShuffleStream(seed).shuffle(values)


@njit(cache=True, nogil=True)
def swap_down(values, i, words):
    """Swap values[i], values[i - 1], ... with drawn places while two words are left; returns the next i, words used."""
    places = np.empty(DRAWS, dtype=np.int64)
    used = 0
    while i > 0 and used + 2 <= len(words):
        count, taken = draw_places(i, words[used : used + DRAWS], places)
        for c in range(count):
            j = places[c]
            values[i - c], values[j] = values[j], values[i - c]
        i -= count
        used += taken
    return i, used


@njit(cache=True)
def draw_places(i, words, places):
    """Draw places in [0, i], [0, i-1], ... from the words, 2 .. 624 of them; returns the places drawn, the words used.

    A word (two, high one first, from i = 2**32 on) is masked to the bits of i, and rejected if it is still above i.
    """
    mask = 1
    while mask < i:
        mask = 2 * mask + 1
    if i >= 2**32:
        places[0] = (np.int64(words[0]) << 32 | np.int64(words[1])) & mask
        return np.int64(places[0] <= i), 2
    # The mask holds while i > mask // 2, and i falls by at most one per word: so many words need no further look.
    taken = min(len(words), i - mask // 2)
    count = np.int64(0)
    for w in range(taken):
        place = np.int64(words[w]) & mask
        places[count] = place
        count += np.int64(place <= i - count)
    return count, taken
