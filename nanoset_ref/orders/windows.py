"""Whose turn: the positions of an epoch, 64 at a time, given to sources in a random order that can be worked out
anywhere.

A window of 64 positions is shared out to the sources (`shares`), whose quotas lie side by side on its 64 places. Then
each position is sent to a place by a network of coin flips: twelve stages, of the strides 1, 2, 4, 8, 16, 32 and the
same again, in each of which the places p and p + stride change or do not change (two butterflies one after the other;
V. E. Benes, Mathematical Theory of Connecting Networks and Telephone Traffic, 1965).

    a window (8 of its 64), quotas 5 and 3              places 0 1 2 3 4 | 5 6 7
    the network sends positions 0 1 2 3 4 5 6 7 to places      6 0 3 7 1   2 5 4
    so the first source has positions 1 2 4 5 7; position 5 is its number 3 of this window

The network also takes a set of places back to positions, all in one word of bits: that counts a source's turns before a
position without visiting them. Every place is equally likely for a position, and for two of them every pair of places
to 1.6 %; neighbours are of one source less often than by chance, by 1 in 64, as quotas are exact.
"""

import numpy as np
from numba import njit, uint64

from nanoset_ref.orders.permutation import derive
from nanoset_ref.orders.shares import to_left

SIZE = 64
STAGES = 12
_LOWER = np.array([2**64 // (2**2**stage + 1) for stage in range(6)] * 2, dtype=np.uint64)  # bits of all lower places


@njit(cache=True, nogil=True, error_model="numpy")
def locate(tree, epoch, key, items):
    """The source of each item, and how many items the source had before it: int64 [n] -> int64 [n], int64 [n].

    1. the window of the item, its coins, and the place that the item is sent to
    2. down the tree, to the source whose quota has the place: `size` places from `low` on
    3. the source's items in the window that come before

    Args:
        tree: the sources' shares.
        epoch: items after which windows begin anew; the last window before may be short.
        key: uint64. A window's coins are derived from it and the number of the window's first item.
        items: counted from 0.
    """
    sources, numbers = np.full_like(items, tree.root), items.copy()
    if tree.root < tree.sources:
        return sources, numbers  # there is but one
    coins = np.empty(STAGES, dtype=np.uint64)
    for p in range(len(items)):
        # 1. the window
        within = items[p] % epoch
        turn = within % SIZE
        first, size = items[p] - turn, min(SIZE, epoch - within + turn)
        window = derive(key, first)
        for stage in range(STAGES):  # a word of random bits for each stage, of which those at lower places are used
            coins[stage] = derive(window, stage) & _LOWER[stage]
        if size < SIZE:  # turns that would come to a place beyond the end do not exist
            turn = select(fetch(coins, below(size)), turn)
        place = turn
        for stage in range(STAGES):
            lower = place & ~(1 << stage % 6)
            place ^= np.int64(coins[stage] >> uint64(lower) & uint64(1)) << stage % 6
        # 2. the source
        node, low, before = tree.root, 0, first
        while node >= tree.sources:
            left = to_left(tree, node, before)
            quota = to_left(tree, node, before + size) - left
            right = place >= low + quota
            node = tree.children[node, np.int64(right)]
            low += quota if right else 0
            before = before - left if right else left
            size = size - quota if right else quota
        # 3. its number
        mine = fetch(coins, below(low + size) ^ below(low))
        sources[p], numbers[p] = node, before + ones(mine & below(turn))
    return sources, numbers


@njit(cache=True)
def fetch(coins, places):
    """The positions that the network sends to a set of places; both as bits."""
    for stage in range(STAGES - 1, -1, -1):
        stride = uint64(1 << stage % 6)
        changed = (places ^ (places >> stride)) & coins[stage]
        places ^= changed | (changed << stride)
    return places


@njit(cache=True)
def below(place):
    """Bits at all places before one in 0 .. 64."""
    return ~uint64(0) if place == SIZE else (uint64(1) << uint64(place)) - uint64(1)


@njit(cache=True)
def ones(mask):
    """Number of bits set (the compiler makes one instruction of it)."""
    count = 0
    while mask:
        mask &= mask - uint64(1)
        count += 1
    return count


@njit(cache=True)
def select(mask, number):
    """The place of the bit that has `number` set bits below it."""
    for _ in range(number):
        mask &= mask - uint64(1)
    return ones((mask & (~mask + uint64(1))) - uint64(1))
