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

from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from nanoset_ref.orders.permutation import derive
from nanoset_ref.orders.shares import FAR, ShareTree, item_of, quota, to_left

SIZE = 64
STAGES = 12
CHUNK = 256  # items worked on together
_LOWER = np.array([2**64 // (2**2**stage + 1) for stage in range(6)] * 2, dtype=np.uint64)  # bits of all lower places


class Windows(NamedTuple):
    """How an order shares its items out.

    Attributes:
        tree: the sources' shares.
        epoch: items after which windows begin anew; the last window before may be short.
        key: uint64. A window's coins are derived from it and the number of the window's first item.
    """

    tree: ShareTree
    epoch: int
    key: np.uint64


@njit(cache=True, error_model="numpy")
def window_of(windows, item):
    """First item and number of items of the window of an item."""
    within = item % windows.epoch
    return item - within % SIZE, min(SIZE, windows.epoch - within // SIZE * SIZE)


@njit(cache=True, nogil=True, error_model="numpy")
def locate(windows, items):
    """The source of each item, and how many items the source had before it: int64 [n] -> int64 [n], int64 [n].

    1. the window of the item, its coins, and the place that the item is sent to
    2. down the tree, to the source whose quota has the place: `size` places from `low` on
    3. the source's items in the window that come before
    """
    tree = windows.tree
    sources, numbers = np.full_like(items, tree.root), items.copy()
    if tree.root < tree.sources:
        return sources, numbers  # there is but one
    coins = np.empty(STAGES, dtype=np.uint64)
    for p in range(len(items)):
        # 1. the window
        first, size = window_of(windows, items[p])
        flip(derive(windows.key, first), coins)
        turn = items[p] - first
        if size < SIZE:  # turns that would come to a place beyond the end do not exist
            turn = select(fetch(coins, below(size)), turn)
        place = send(coins, turn)
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


@njit(cache=True, error_model="numpy")
def item_at(windows, source, number):
    """The item that is a source's number `number` (from 0): `locate` backwards. Where none can be, at least `FAR`."""
    item = item_of(windows.tree, source, number)
    if item >= FAR:
        return item
    first, size = window_of(windows, item)
    low, before, mine = quota(windows.tree, source, first, size)
    coins = np.empty(STAGES, dtype=np.uint64)
    flip(derive(windows.key, first), coins)
    position = select(fetch(coins, below(low + mine) ^ below(low)), number - before)
    return first + ones(fetch(coins, below(size)) & below(position))


@njit(cache=True)
def flip(key, coins):
    """Fill `coins`, uint64 [12]: a word of random bits for each stage, of which those at lower places are used."""
    for stage in range(STAGES):
        coins[stage] = derive(key, stage) & _LOWER[stage]


@njit(cache=True)
def send(coins, place):
    """Where the network sends the place of a position."""
    for stage in range(STAGES):
        stride = 1 << stage % 6
        place ^= np.int64(coins[stage] >> uint64(place & ~stride) & uint64(1)) << stage % 6
    return place


@njit(cache=True)
def fetch(coins, places):
    """The positions that `send` sends to a set of places; both as bits."""
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
