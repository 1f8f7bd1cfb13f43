"""A few places or values of NumPy's ``Generator(PCG64(seed)).shuffle(arange(n))``, and no others.

Shuffling half a billion numbers takes a minute, as each swap waits for memory, and 2 GB. Drawing
the swaps takes a second, and following a few thousand numbers through them another two:

    step i = n-1 .. 1    the numbers at i and at a partner, drawn from 0 .. i, change places
    a value's place      begin at place v; follow the steps from the first to the last
    the value at place p begin at p; follow the steps from the last one, step 1, to the first

Each block of BLOCK words of PCG64 begins anywhere in the stream at once, so blocks are read from
the last to the first, too. A partner is 32 bits, masked to the bits of i, and rejected if above i;
so which step a block begins with has to be counted once. This is the method of NumPy 1.17 to 2.4.
"""

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.arrays import Int64Array
from nanoset_ref.io.njit import njit

BLOCK = 1 << 17  # words of 64 bits, two draws each
SLOTS = 1 << 17  # of the table in which `_follow` looks numbers up


def places_of(
    seed: int,
    n: int,
    values: Int64Array,
) -> Int64Array:
    """The place of each value after the shuffle: int64 [m].

    Args:
        seed: of PCG64.
        n: numbers shuffled, at most 2**32 - 1.
        values: int64 [m], distinct, below n.
    """
    trace = _Trace(seed, values)
    step = n - 1
    block = 0
    # places above the step are final
    while step > 0 and trace.places.min(initial=n) <= step:
        partners = trace.partners(block, step)
        trace.follow(step, partners, backwards=False)
        step -= len(partners)
        block += 1
    return trace.places


def values_at(
    seed: int,
    n: int,
    places: Int64Array,
) -> Int64Array:
    """The value at each place after the shuffle: int64 [m].

    Args:
        seed, n: see `places_of`.
        places: int64 [m], distinct, below n.
    """
    trace = _Trace(seed, places)
    # later steps leave all these places as they are
    last = max(places.min(initial=n), 1)
    steps = [n - 1]  # the one that each block begins with
    while steps[-1] >= last:
        block = len(steps) - 1
        partners = trace.partners(block, steps[block])
        steps.append(steps[block] - len(partners))
    for block in reversed(range(len(steps) - 1)):
        partners = trace.partners(block, steps[block])
        trace.follow(steps[block], partners, backwards=True)
    return trace.places


class _Trace:
    """Numbers that are followed through a shuffle: `places`, int64 [m], distinct."""

    def __init__(self, seed: int, places: Int64Array) -> None:
        self.places = places.copy()
        self._bit_generator = np.random.PCG64(seed)
        self._first_state = self._bit_generator.state
        self._buffer = np.empty(2 * BLOCK + 1, dtype=np.uint32)
        self._heads = np.full(SLOTS, -1, dtype=np.int32)
        self._nexts = np.empty(len(places), dtype=np.int32)
        for item, place in enumerate(places.tolist()):
            _put(self.places, self._heads, self._nexts, item, place)

    def partners(self, block: int, step: int) -> NDArray[np.uint32]:
        """The partners of step, step - 1, ... from a block; valid until the next call."""
        self._bit_generator.state = self._first_state
        self._bit_generator.advance(block * BLOCK)
        words = self._bit_generator.random_raw(BLOCK).astype("<u8", copy=False)
        draws = words.view("<u4")
        count = _draw_partners(draws, step, self._buffer)
        return self._buffer[:count]

    def follow(
        self,
        step: int,
        partners: NDArray[np.uint32],
        backwards: bool,
    ) -> None:
        _follow(self.places, self._heads, self._nexts, step, partners, backwards)


@njit
def _draw_partners(draws, step, partners):
    """The partners of step, step - 1, ... from words that may be rejected.

    Args:
        draws: uint32 [n].
        step: int64, below 2**32 - 1.
        partners: uint32 [n + 1], overwritten.

    Returns:
        The number of partners.
    """
    count = np.int64(0)
    used = np.int64(0)
    left = np.uint32(step)
    while used < len(draws) and left > 0:
        mask = np.uint32(1)
        while mask < left:
            mask += mask + np.uint32(1)
        # the mask holds while the step is above mask // 2, and a word takes at most one step
        stop = used + np.int64(left) - np.int64(mask >> np.uint32(1))
        stop = min(np.int64(len(draws)), stop)
        for k in range(used, stop):
            partner = draws[k] & mask
            partners[count] = partner  # the next one overwrites it if it is rejected
            accepted = np.uint32(partner <= left)
            left -= accepted
            count += np.int64(accepted)
        used = stop
    return count


@njit
def _follow(places, heads, nexts, step, partners, backwards):
    """Move tracked numbers, int64 [m] in place, through the steps of a block.

    Args:
        heads, nexts: a table of the numbers by place: int32 [SLOTS] and [m], -1 for none; updated.
        step: of the block's first partner.
        partners: uint32 [n].
        backwards: from the last step to the first.
    """
    count = len(partners)
    for k in range(count):
        number = count - 1 - k if backwards else k
        here = step - number
        there = np.int64(partners[number])
        if heads[here & (SLOTS - 1)] >= 0 or heads[there & (SLOTS - 1)] >= 0:
            first = _take_out(places, heads, nexts, here)
            second = _take_out(places, heads, nexts, there)
            _put(places, heads, nexts, first, there)
            _put(places, heads, nexts, second, here)


@njit
def _take_out(places, heads, nexts, place):
    """Remove the number at a place from the table; -1 if there is none."""
    slot = place & (SLOTS - 1)
    item = heads[slot]
    before = -1
    while item >= 0 and places[item] != place:
        before = item
        item = nexts[item]
    if item >= 0 and before >= 0:
        nexts[before] = nexts[item]
    elif item >= 0:
        heads[slot] = nexts[item]
    return item


@njit
def _put(places, heads, nexts, item, place):
    """Move a number to a place, also in the table; -1 stands for no number."""
    if item >= 0:
        places[item] = place
        nexts[item] = heads[place & (SLOTS - 1)]
        heads[place & (SLOTS - 1)] = item
