"""`interleave.locate` for many items at once: the same deal, a chunk at a time and step by step.

What it does. All items of a chunk go through their networks together, their places are looked up together, and the
items that came to a group of small sources go another round, one level down. In short loops over arrays of their own
the compiler makes vector instructions of most steps, and the processor overlaps the others.

What it costs. Some 20 ns per item and level, a few more where sources are many; 100 KiB while it works.

The alternative it rejects. One item after the other takes four times as long; and sharing the network of a hand among
its items helps only positions that are close together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from nanoset_ref.orders.network import STRIDES, below, fetch_many, ones, send_many
from nanoset_ref.orders.shares import HAND, had, hand_key, scaled, share_of

_CHUNK = 512  # items that are worked on together


class _Round(NamedTuple):
    """A round of a chunk's items, an entry each, in the order in which they are found; int64 where nothing is said.

    Attributes:
        slots: the item's index in the answer.
        levels, blocks: the level that deals, and the block.
        numbers: the item's number among those of its level in its block.
        low, totals, inverses: items below the level's, items of the level, and 1 / totals (float64), in the block. At
            level 0, where shares hold from the first item of all, they are of all shares.
        first, sizes: the first item of its hand, counted likewise, and the items of the hand.
        keys, places: uint64, the key of the hand's network; the item's number in the hand, then its place.
        children, before, left: a child near the place, the items of those before it before the hand, and the place in
            the hand where it begins; at last the child with the place, its own items before the hand, its first place.
        next_children, next_before, right: the same of the neighbour on the other side of the place; `right` at last the
            place after the child's last one.
        masks: uint64, the child's places as bits, then the items that come to them.
        switches: uint64 [6, items], see `send_many`.
    """

    slots: NDArray[np.int64]
    levels: NDArray[np.int64]
    blocks: NDArray[np.int64]
    numbers: NDArray[np.int64]
    low: NDArray[np.int64]
    totals: NDArray[np.int64]
    inverses: NDArray[np.float64]
    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    keys: NDArray[np.uint64]
    places: NDArray[np.uint64]
    children: NDArray[np.int64]
    before: NDArray[np.int64]
    left: NDArray[np.int64]
    next_children: NDArray[np.int64]
    next_before: NDArray[np.int64]
    right: NDArray[np.int64]
    masks: NDArray[np.uint64]
    switches: NDArray[np.uint64]


@njit(cache=True)
def _whole(size):
    return np.empty(size, dtype=np.int64)


@njit(cache=True)
def _bits(size):
    return np.empty(size, dtype=np.uint64)


@njit(cache=True, nogil=True, error_model="numpy")
def locate_many(shares, items):
    """The source of each item, and its number in it: items int64 [n] -> sources and numbers, int64 [n]."""
    sources, numbers = np.full(len(items), shares.sources[0]), items.copy()
    if len(shares.sources) == 1:
        return sources, numbers
    n = min(_CHUNK, len(items))
    # not rows of one array: in memory that may overlap, the compiler makes no vector instructions
    r = _Round(
        _whole(n), _whole(n), _whole(n), _whole(n),
        _whole(n), _whole(n), np.empty(n), _whole(n), _whole(n),
        _bits(n), _bits(n),
        _whole(n), _whole(n), _whole(n), _whole(n), _whole(n), _whole(n),
        _bits(n), np.empty((STRIDES, n), dtype=np.uint64),
    )
    for start in range(0, len(items), _CHUNK):
        count = min(_CHUNK, len(items) - start)
        for p in range(count):
            r.slots[p], r.levels[p] = start + p, 0
            r.blocks[p] = scaled(1, items[start + p], shares.block, 1.0 / shares.block)
            r.numbers[p] = items[start + p] - r.blocks[p] * shares.block
        deep = False
        while count > 0:
            _find_hands(shares, r, count, deep)
            send_many(r.keys[:count], r.switches, r.places, r.sizes)
            _find_children(shares, r, count, deep)
            fetch_many(r.switches, r.masks[:count], r.sizes)
            count = _answer(shares, r, count, deep, sources, numbers)
            deep = True
    return sources, numbers


@njit(cache=True, error_model="numpy")
def _find_hands(shares, r, count, deep):
    """Each item's hand: its key, its items, and which of them the item is (`places`)."""
    levels, blocks, numbers, keys, places = r.levels, r.blocks, r.numbers, r.keys, r.places
    low, totals, inverses, first, sizes = r.low, r.totals, r.inverses, r.first, r.sizes
    for p in range(count):
        first[p] = numbers[p] // HAND * HAND
        keys[p] = hand_key(shares.keys[levels[p]], blocks[p], numbers[p] // HAND)
        places[p] = uint64(numbers[p] % HAND)
    if deep:
        starts, bounds = shares.starts, shares.bounds
        for p in range(count):
            low[p] = share_of(shares, bounds[starts[levels[p]]], blocks[p])
            totals[p] = share_of(shares, bounds[starts[levels[p] + 1] - 1], blocks[p]) - low[p]
            inverses[p] = 1.0 / totals[p]
            sizes[p] = min(HAND, totals[p] - first[p])
    else:
        for p in range(count):
            totals[p], inverses[p] = shares.edges[-1], shares.inverse
            sizes[p] = min(HAND, shares.block - first[p])
            first[p] += blocks[p] * shares.block


@njit(cache=True, error_model="numpy")
def _find_children(shares, r, count, deep):
    """The child that each place belongs to, and its places in the hand.

    1. the border that cuts the place off on one side, and so the child on its other side
    2. the child's other border
    3. its neighbour, where rounding has moved both borders past the place
    """
    levels, sizes, places, children, before, left = r.levels, r.sizes, r.places, r.children, r.before, r.left
    next_children, next_before, right = r.next_children, r.next_before, r.right
    for p in range(count):
        children[p] = shares.likely[levels[p], np.int64((float(places[p]) + 0.5) * HAND / float(sizes[p]))]
    _borders(shares, r, 0, count, deep, children, before, left)
    for p in range(count):
        next_children[p] = children[p] + (-1 if places[p] < uint64(left[p]) else 1)
    _borders(shares, r, 0, count, deep, next_children, next_before, right)
    for p in range(count):
        children[p], before[p] = min(children[p], next_children[p]), abs(next_before[p] - before[p])
    missed = 0
    for p in range(count):
        left[p], right[p] = min(left[p], right[p]), max(left[p], right[p])
        missed += (places[p] < uint64(left[p])) | (places[p] >= uint64(right[p]))
    if missed > 0:
        for p in range(count):
            while (places[p] < uint64(left[p])) | (places[p] >= uint64(right[p])):
                children[p] += -1 if places[p] < uint64(left[p]) else 1
                next_children[p] = children[p] + 1
                _borders(shares, r, p, p + 1, deep, children, before, left)
                _borders(shares, r, p, p + 1, deep, next_children, next_before, right)
                before[p] = next_before[p] - before[p]
    for p in range(count):
        r.masks[p] = below(right[p]) ^ below(left[p])


@njit(cache=True, error_model="numpy")
def _borders(shares, r, start, stop, deep, children, before, at):
    """Of the children before the given ones: the items before the hand, and those of the hand."""
    blocks, low, totals, inverses, first, sizes = r.blocks, r.low, r.totals, r.inverses, r.first, r.sizes
    edges, bounds = shares.edges, shares.bounds
    for p in range(start, stop):
        at[p] = share_of(shares, bounds[children[p]], blocks[p]) - low[p] if deep else edges[bounds[children[p]]]
    for p in range(start, stop):
        before[p] = scaled(at[p], first[p], totals[p], inverses[p])
    for p in range(start, stop):
        at[p] = scaled(at[p], first[p] + sizes[p], totals[p], inverses[p]) - before[p]


@njit(cache=True, error_model="numpy")
def _answer(shares, r, count, deep, sources, numbers):
    """Write down who went to a source; those who went to a group stay for a round at its level. How many these are."""
    slots, levels, blocks, within = r.slots, r.levels, r.blocks, r.numbers
    children, before, masks = r.children, r.before, r.masks
    stay = 0
    for p in range(count):
        rank, level = shares.bounds[children[p]], shares.levels[children[p]]
        previous = had(shares, rank, shares.bounds[children[p] + 1], blocks[p])
        number = before[p] + ones(masks[p] & below(within[p] % HAND)) - (0 if deep else previous)
        sources[slots[p]], numbers[slots[p]] = shares.sources[rank], number + previous
        slots[stay], levels[stay], blocks[stay], within[stay] = slots[p], level, blocks[p], number
        stay += level >= 0
    return stay
