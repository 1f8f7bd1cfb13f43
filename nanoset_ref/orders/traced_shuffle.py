"""A few places or values of NumPy's ``Generator(PCG64(seed)).shuffle(arange(n))``, and no others.

Shuffling half a billion numbers takes a minute, as each swap waits for memory, and 2 GB. Tracing
a few thousand of them through the swaps takes a second or two on two cores:

    step i = n-1 .. 1    swap the numbers at i and at a partner, drawn from 0 .. i
    a value's place      begin at place v; follow the steps from the first to the last
    the value at place p begin at p; follow the steps from the last one, step 1, to the first

A draw is half a word of PCG64, masked to the bits of i, and rejected if above i. This is the method
of NumPy 1.17 to 2.4.

1. Threads draw blocks, in either direction: PCG64 jumps to any place of its stream.
2. Rejections have to be counted to know the step of a draw. The draws of a span are counted at
   once, unless one of them lies between the span's first and last step: all others are accepted or
   rejected whatever their step.
3. Spans are skipped if none of their places can hold a traced number. A Bloom-like
   filter decides: it has a bit for each place (shared with some others), set once a traced number
   has been there.
"""

import itertools
import os
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.njit import njit
from nanoset_ref.io.threads import map_ahead
from nanoset_ref.io.types import Int64Array

DRAWS_PER_BLOCK = 1 << 18
DRAWS_PER_SPAN = 128  # divides DRAWS_PER_BLOCK
BLOCKS_AHEAD = 3
SLOTS = 1 << 14  # of the table in which `_move` looks numbers up
FILTER_WORDS = 1 << 18  # of 32 bits

Draws = NDArray[np.uint32]


def traced_places(
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
    for draws in trace.blocks(itertools.count()):
        steps = _count(draws, step)
        trace.move(draws, steps, backwards=False)
        step = steps[-1]
        # places above the step are final
        if step == 0 or trace.places.min(initial=n) > step:
            break
    return trace.places


def traced_values(
    seed: int,
    n: int,
    places: Int64Array,
) -> Int64Array:
    """The value at each place after the shuffle: int64 [m].

    Args:
        seed, n: see `traced_places`.
        places: int64 [m], distinct, below n.
    """
    trace = _Trace(seed, places)
    # later steps leave all these places as they are
    last = max(places.min(initial=n), 1)
    step = n - 1
    steps_of_blocks = []
    for draws in trace.blocks(itertools.count()):
        if step < last:
            break
        steps = _count(draws, step)
        steps_of_blocks.append(steps)
        step = steps[-1]
    numbers = range(len(steps_of_blocks) - 1, -1, -1)
    for block, draws in zip(numbers, trace.blocks(numbers), strict=True):
        trace.move(draws, steps_of_blocks[block], backwards=True)
    return trace.places


class _Trace:
    """Numbers that are traced through a shuffle: `places`, int64 [m], distinct."""

    def __init__(self, seed: int, places: Int64Array) -> None:
        self.places = places.copy()
        self._seed = seed
        self._heads = np.full(SLOTS, -1, dtype=np.int32)
        self._nexts = np.empty(len(places), dtype=np.int32)
        self._filter_bits = np.zeros(FILTER_WORDS, dtype=np.uint32)
        for item, place in enumerate(places.tolist()):
            _put(self.places, self._heads, self._nexts, self._filter_bits, item, place)

    def blocks(self, numbers: Iterable[int]) -> Iterator[Draws]:
        """The draws of each block, while threads draw the next ones."""
        threads = min(os.cpu_count() or 1, BLOCKS_AHEAD)
        return map_ahead(self._draw, numbers, threads, BLOCKS_AHEAD)

    def _draw(self, block: int) -> Draws:
        """The draws of a block, from any place of the stream."""
        stream = np.random.PCG64(self._seed).advance(block * DRAWS_PER_BLOCK // 2)
        words = stream.random_raw(DRAWS_PER_BLOCK // 2).astype("<u8", copy=False)
        return words.view("<u4")

    def move(self, draws: Draws, steps: Int64Array, *, backwards: bool) -> None:
        """Move the numbers through a block, whose steps `_count` has returned."""
        _move(
            draws,
            steps,
            self.places,
            self._heads,
            self._nexts,
            self._filter_bits,
            backwards,
        )


@njit
def _count(draws, step):
    """The step that each span of a block begins with, and the step after the block: int64 [n + 1].

    Args:
        draws: uint32 [n * DRAWS_PER_SPAN].
        step: int64, that the block begins with; 0 if the shuffle is over.
    """
    steps = np.empty(len(draws) // DRAWS_PER_SPAN + 1, dtype=np.int64)
    partners = np.empty(DRAWS_PER_SPAN + 1, dtype=np.uint32)
    mask = _mask(step)
    for span in range(len(steps) - 1):
        steps[span] = step
        while mask >> 1 >= max(step, 1):
            mask >>= 1
        last = step - DRAWS_PER_SPAN
        # 32 bits each: the loop becomes vector instructions
        bits = np.uint32(mask)
        first = np.uint32(step)
        final = np.uint32(last)
        accepted = 0
        certain = 0
        for k in range(span * DRAWS_PER_SPAN, (span + 1) * DRAWS_PER_SPAN):
            draw = draws[k] & bits
            accepted += draw <= first
            certain += draw <= final
        # the mask may change in the span, or a draw lies between its steps
        if last <= mask >> 1 or accepted > certain:
            accepted = _accept(draws, span * DRAWS_PER_SPAN, step, partners)
        step -= accepted
    steps[-1] = step
    return steps


@njit
def _mask(step):
    """A mask (int64) of the bits of a step (int64)."""
    mask = 1
    while mask < step:
        mask += mask + 1
    return mask


@njit
def _accept(draws, first, step, partners):
    """The partners of step, step - 1, ... from the span that begins at draw `first`.

    Args:
        draws: uint32 [n * DRAWS_PER_SPAN].
        partners: uint32 [DRAWS_PER_SPAN + 1], overwritten.

    Returns:
        The number of partners.
    """
    count = 0
    mask = _mask(step)
    for k in range(first, first + DRAWS_PER_SPAN):
        if count == step:
            break
        if step - count <= mask >> 1:
            mask >>= 1
        draw = np.int64(draws[k]) & mask
        partners[count] = draw  # the next one overwrites it if it is rejected
        count += draw <= step - count
    return count


@njit
def _move(draws, steps, places, heads, nexts, filter_bits, backwards):
    """Move traced numbers, int64 [m] in place, through the steps of a block.

    Args:
        draws, steps: see `_count`, which returns the steps.
        heads, nexts: a table of the numbers by place: int32 [SLOTS] and [m], -1 for none; updated.
        filter_bits: uint32 [FILTER_WORDS], a bit for each place where a number has been; updated.
        backwards: from the last step to the first.
    """
    partners = np.empty(DRAWS_PER_SPAN + 1, dtype=np.uint32)
    spans = len(steps) - 1
    for number in range(spans):
        span = spans - 1 - number if backwards else number
        step = steps[span]
        if not _may_move(
            draws, span * DRAWS_PER_SPAN, step, steps[span + 1], filter_bits
        ):
            continue
        count = _accept(draws, span * DRAWS_PER_SPAN, step, partners)
        for k in range(count):
            swap = count - 1 - k if backwards else k
            here = step - swap
            there = np.int64(partners[swap])
            if _bit(filter_bits, here) | _bit(filter_bits, there):
                first = _take_out(places, heads, nexts, here)
                second = _take_out(places, heads, nexts, there)
                _put(places, heads, nexts, filter_bits, first, there)
                _put(places, heads, nexts, filter_bits, second, here)


@njit
def _may_move(draws, first, step, after, filter_bits):
    """Whether a span may move a traced number: its steps are `step` to above `after`.

    Args:
        draws, filter_bits: see `_move`.
        first: int64, the span's first draw.
        step, after: int64.
    """
    mask = _mask(step)
    found = np.int64(step - DRAWS_PER_SPAN <= mask >> 1)
    for k in range(first, first + DRAWS_PER_SPAN):
        found |= _bit(filter_bits, np.int64(draws[k]) & mask)
    for word in range((after + 1) >> 5, (step >> 5) + 1):
        found |= np.int64(filter_bits[word & (FILTER_WORDS - 1)] > 0)
    return found > 0


@njit
def _bit(filter_bits, place):
    """The bit of a place (int64) in the filter, uint32 [FILTER_WORDS]: int64, 0 or 1."""
    return np.int64(filter_bits[place >> 5 & (FILTER_WORDS - 1)]) >> (place & 31) & 1


@njit
def _take_out(places, heads, nexts, place):
    """Remove the number at a place (int64) from the table (see `_move`).

    Returns:
        Its index in `places`; -1 if there is none.
    """
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
def _put(places, heads, nexts, filter_bits, item, place):
    """Move a number to a place (int64), also in the table and the filter (see `_move`).

    Args:
        item: int64, its index in `places`; -1: there is none.
    """
    if item >= 0:
        places[item] = place
        nexts[item] = heads[place & (SLOTS - 1)]
        heads[place & (SLOTS - 1)] = item
        filter_bits[place >> 5 & (FILTER_WORDS - 1)] |= np.uint32(1 << (place & 31))
