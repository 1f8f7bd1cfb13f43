"""Deal positions out to sources in exact shares, without a list: t -> (source, how many of its items came before), and
back.

The sources are halved again and again. At each split the items are taken 64 at a time; of these exactly as many go left
as the shares say, and which ones is a keyed random pattern of bits. Counting the bits below an item's own gives its
number in the half it goes to, so a descent ends with a source and the item's number in it. Items reach a source in the
order of their positions.

    a split with shares 3 : 1, its first 8 items (of 64)     bits  1 1 0 1 1 1 1 0
    item 5 has bit 1, and 4 of the bits below it are 1         ->  number 4 of the left half
    item 7 has bit 0, and 1 of the bits below it is 0          ->  number 1 of the right half

A lookup, its inverse and a count each take O(log sources), some 20 ns per halving; the patterns take 1 KiB per source.
The rejected alternatives: a permutation of blocks with a quota per source needs blocks so large that the rarest source
is in each of them, and mixes the passes over a small source within one; a greedy choice such as Nanotron's has to be
stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from nanoset_ref.orders.permutation import derive

BLOCK = 64  # items of a split that are arranged at once: the bits of a mask
PATTERNS = 64  # masks per number of bits, each used in 64 rotations
DEPTH = 32  # halvings: up to 2**32 sources


class Shares(NamedTuple):
    """What the compiled functions need. A split of sources [low, high) stands at index (low + high) // 2.

    edges: int64 [sources + 1], running sums of the shares. keys: uint64 [sources]. masks: uint64 [sources, 2,
    PATTERNS], with the smaller and the larger number of bits that a block of the split can have.
    """

    edges: NDArray[np.int64]
    keys: NDArray[np.uint64]
    masks: NDArray[np.uint64]


def build_shares(shares: Sequence[int], key: int) -> Shares:
    """Prepare sources with integer shares (0 or more, in sum from 1 to 2**48); the key decides the patterns.

    After sum(shares) items, and every multiple, each source has had exactly its share of them.
    """
    edges = np.concatenate([[0], np.cumsum(np.array(shares, dtype=np.int64))])
    count = len(shares)
    keys = np.array([derive(np.uint64(key), source) for source in range(count)], dtype=np.uint64)
    masks = np.zeros((count, 2, PATTERNS), dtype=np.uint64)
    _fill_masks(edges, keys, masks)
    return Shares(edges, keys, masks)


@njit(cache=True)
def locate(shares, t):
    """The source of item t, and the item's number in it."""
    low, high = 0, len(shares.edges) - 1
    while high - low > 1:
        middle = (low + high) // 2
        left, total = shares.edges[middle] - shares.edges[low], shares.edges[high] - shares.edges[low]
        epoch = t // total
        block = (t - epoch * total) // BLOCK
        place = t - epoch * total - block * BLOCK
        mask, before = _block(shares, middle, left, total, epoch, block)
        below = _ones(mask & ((uint64(1) << uint64(place)) - uint64(1)))
        if (mask >> uint64(place)) & uint64(1):
            t, high = epoch * left + before + below, middle
        else:
            t, low = epoch * (total - left) + block * BLOCK - before + place - below, middle
    return low, t


@njit(cache=True)
def position(shares, source, number):
    """The t with ``locate(shares, t) == (source, number)``, for a source with a share above 0."""
    lows, highs = np.empty(DEPTH, dtype=np.int64), np.empty(DEPTH, dtype=np.int64)
    low, high, depth = 0, len(shares.edges) - 1, 0
    while high - low > 1:
        lows[depth], highs[depth] = low, high
        depth += 1
        middle = (low + high) // 2
        low, high = (low, middle) if source < middle else (middle, high)
    for level in range(depth - 1, -1, -1):
        low, high = lows[level], highs[level]
        middle = (low + high) // 2
        left, total = shares.edges[middle] - shares.edges[low], shares.edges[high] - shares.edges[low]
        goes_left = source < middle
        share = left if goes_left else total - left
        epoch = number // share
        number -= epoch * share
        block = min(np.int64(float(number) * float(total) / float(share)), total - 1) // BLOCK
        while _quota(left, total, block * BLOCK, goes_left) > number:
            block -= 1
        while _quota(left, total, min((block + 1) * BLOCK, total), goes_left) <= number:
            block += 1
        mask, _ = _block(shares, middle, left, total, epoch, block)
        rank = number - _quota(left, total, block * BLOCK, goes_left)
        number = epoch * total + block * BLOCK + _select(mask if goes_left else ~mask, rank)
    return number


@njit(cache=True)
def counts(shares, t):
    """How many of the first t items each source has had: int64 [sources]."""
    found = np.empty(len(shares.edges) - 1, dtype=np.int64)
    for source in range(len(found)):
        items = t
        low, high = 0, len(found)
        while high - low > 1:
            middle = (low + high) // 2
            left, total = shares.edges[middle] - shares.edges[low], shares.edges[high] - shares.edges[low]
            if total > 0:
                epoch = items // total
                block = (items - epoch * total) // BLOCK
                place = items - epoch * total - block * BLOCK
                mask, before = _block(shares, middle, left, total, epoch, block)
                lefts = epoch * left + before + _ones(mask & ((uint64(1) << uint64(place)) - uint64(1)))
            else:
                lefts = 0
            if source < middle:
                items, high = lefts, middle
            else:
                items, low = items - lefts, middle
        found[source] = items
    return found


@njit(cache=True)
def _block(shares, middle, left, total, epoch, block):
    """The bits of a block, 1 for left, and the left items before it in its epoch."""
    first = block * BLOCK
    size = min(BLOCK, total - first)
    before = _scaled(left, first, total)
    ones = _scaled(left, first + size, total) - before
    key = derive(derive(shares.keys[middle], epoch), block)
    if size < BLOCK:  # the end of an epoch
        return _arrange(ones, size, key), before
    mask = shares.masks[middle, ones - left * BLOCK // total, key & uint64(PATTERNS - 1)]
    turn = (key >> uint64(6)) & uint64(63)
    return (mask << turn) | (mask >> ((uint64(64) - turn) & uint64(63))), before


@njit(cache=True)
def _quota(left, total, items, goes_left):
    """How many of an epoch's first items go to one side, at a boundary of blocks."""
    lefts = _scaled(left, items, total)
    return lefts if goes_left else items - lefts


@njit(cache=True)
def _fill_masks(edges, keys, masks):
    lows, highs = [0], [len(edges) - 1]
    while lows:
        low, high = lows.pop(), highs.pop()
        middle = (low + high) // 2
        if middle == low:
            continue
        left, total = edges[middle] - edges[low], edges[high] - edges[low]
        fewer = left * BLOCK // max(total, 1)
        for more in range(2):
            for pattern in range(PATTERNS):
                masks[middle, more, pattern] = _arrange(
                    min(fewer + more, BLOCK), BLOCK, derive(~keys[middle], 2 * pattern + more)
                )
        lows += [low, middle]
        highs += [middle, high]


@njit(cache=True)
def _arrange(ones, size, key):
    """`size` bits with exactly `ones` of them set, chosen at random: selection sampling (Knuth, TAOCP 2, 3.4.2,
    algorithm S).
    """
    mask = uint64(0)
    for place in range(size):
        draw = derive(key, place) >> uint64(32)
        if (draw * uint64(size - place)) >> uint64(32) < uint64(ones):
            mask |= uint64(1) << uint64(place)
            ones -= 1
    return mask


@njit(cache=True)
def _ones(mask):
    """Number of bits set (the compiler makes one instruction of it)."""
    mask -= (mask >> uint64(1)) & uint64(0x5555555555555555)
    mask = (mask & uint64(0x3333333333333333)) + ((mask >> uint64(2)) & uint64(0x3333333333333333))
    mask = (mask + (mask >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((mask * uint64(0x0101010101010101)) >> uint64(56))


@njit(cache=True)
def _select(mask, rank):
    """The place of the bit that has `rank` set bits below it."""
    for _ in range(rank):
        mask &= mask - uint64(1)
    return _ones((mask & (~mask + uint64(1))) - uint64(1))


@njit(cache=True)
def _scaled(share, items, total):
    """floor(share * items / total) for numbers up to 2**48: a float64 guess, put right by its integer remainder."""
    guess = np.int64(float(share) * float(items) / float(total))
    remainder = np.int64(uint64(share) * uint64(items) - uint64(guess) * uint64(total))
    if remainder < 0:
        return guess - 1
    return guess + 1 if remainder >= total else guess
