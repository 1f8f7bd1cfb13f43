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
from numba import uint64

from nanoset_ref.io.kernels import njit
from nanoset_ref.orders.permutation import derive
from nanoset_ref.orders.shares import to_left

SIZE = 64
STAGES = 12
_LOWER = np.array(
    [2**64 // (2**2**stage + 1) for stage in range(6)] * 2, dtype=np.uint64
)  # bits of all lower places


@njit(cache=True, nogil=True, error_model="numpy")
def locate(tree, epoch, key, items):
    """The source of each item, and how many items the source had before it: int64 [n] -> int64 [n], int64 [n].

    1. the window of the item, its coins, and the place that the item is sent to
    2. down the tree, to the source whose quota has the place: `size` places from `low` on
    3. the source's items in the window that come before

    Steps 1 and 3 go stage by stage through all items, which the compiler does several at a time: item by item took
    half as long again.

    Args:
        tree: the sources' shares.
        epoch: items after which windows begin anew; the last window before may be short.
        key: uint64. A window's coins are derived from it and the number of the window's first item.
        items: counted from 0; some hundreds at a time, as each takes about 160 bytes meanwhile.
    """
    sources, numbers = np.full_like(items, tree.root), items.copy()
    if tree.root < tree.sources:
        return sources, numbers  # there is but one
    # 1. the windows
    within = items % epoch
    turns = within % SIZE
    firsts, sizes = items - turns, np.minimum(SIZE, epoch - within + turns)
    windows, coins = (
        np.empty(len(items), dtype=np.uint64),
        np.empty((STAGES, len(items)), dtype=np.uint64),
    )
    for p in range(len(items)):
        windows[p] = derive(key, firsts[p])
    for stage in range(STAGES):  # a word of random bits for each stage
        for p in range(len(items)):
            coins[stage, p] = derive(windows[p], stage)
    for p in range(len(items)):
        if sizes[p] < SIZE:  # turns that would come to a place beyond the end do not exist
            turns[p] = select(fetch(coins[:, p : p + 1], np.array([below(sizes[p])]))[0], turns[p])
    places = turns.astype(np.uint64)
    for stage in range(STAGES):
        coin, stride = coins[stage], uint64(stage % 6)
        for p in range(len(items)):
            lower = places[p] & ~(uint64(1) << stride)
            places[p] ^= (coin[p] >> lower & uint64(1)) << stride
    # 2. the sources
    for p in range(len(items)):
        node, low, before, size = tree.root, 0, firsts[p], sizes[p]
        while node >= tree.sources:
            left = to_left(tree, node, before)
            quota = to_left(tree, node, before + size) - left
            right = np.int64(places[p]) >= low + quota
            node = tree.children[node, np.int64(right)]
            low += quota if right else 0
            before = before - left if right else left
            size = size - quota if right else quota
        sources[p], numbers[p] = node, before
        places[p] = below(low + size) ^ below(low)  # of the source
    # 3. their numbers
    mine = fetch(coins, places)
    for p in range(len(items)):
        numbers[p] += ones(mine[p] & below(turns[p]))
    return sources, numbers


@njit(cache=True)
def fetch(coins, places):
    """The positions that networks send to sets of places, both as bits: uint64 [n]; coins: uint64 [STAGES, n]."""
    for stage in range(STAGES - 1, -1, -1):
        coin, stride = coins[stage], uint64(1 << stage % 6)
        for p in range(len(places)):
            changed = (places[p] ^ (places[p] >> stride)) & coin[p] & _LOWER[stage]
            places[p] ^= changed | (changed << stride)
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
