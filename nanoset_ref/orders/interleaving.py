"""The source of each position: windows of 64, shuffled so that any one can be computed alone.

A window of 64 positions is divided among the sources (`share_tree`); their quotas lie side by side
on its 64 places. Then a network of coin flips sends each position to a place: twelve stages, with
the strides 1, 2, 4, 8, 16, 32 and the same again; in each of them the places p and p + stride swap
or stay (two butterflies one after the other; V. E. Benes, Mathematical Theory of Connecting
Networks and Telephone Traffic, 1965).

    a window (8 of its 64), quotas 5 and 3              places 0 1 2 3 4 | 5 6 7
    the network sends positions 0 1 2 3 4 5 6 7 to places      6 0 3 7 1   2 5 4
    so the first source has positions 1 2 4 5 7; position 5 is its number 3 in this window

The network also maps a set of places back to positions, all in the bits of one word: that counts
the earlier positions of a source without visiting them.

Each position is equally likely to land on any place. For two positions, every pair of places is
equally likely to within 1.6 %. Because quotas are exact, neighbors read the same source 1/64 less
often than by chance.
"""

import numpy as np
from numpy import uint64

from nanoset_ref.io.item_loops import any_of, count_bits, each
from nanoset_ref.io.njit import njit
from nanoset_ref.orders.permutation import ONE, derive
from nanoset_ref.orders.share_tree import items_going_left

WINDOW_SIZE = 64
STAGES = 12
STRIDE_BITS = 6  # strides are 2**0 .. 2**5, twice
# for each stride a word with the bits of all lower places of a pair
_WORDS = [2**64 // (2**2**bit + 1) for bit in range(STRIDE_BITS)]
_LOWER = np.array(_WORDS * 2, dtype=np.uint64)  # for each stage


@njit(error_model="numpy", work=lambda tree, period, key, items: 1500 + 4 * len(items))
def source_at(tree, period, key, items):
    """The source of each item, and how many items the source had before it.

    1. the window of the item, its coins, and the place that the item is sent to
    2. the source whose quota contains the place
    3. the source's items in the window that come before

    Steps 1 and 3 do one stage for all items, so that the compiler can vectorize it; item by item
    would take half as long again.

    Args:
        tree: the `ShareTree` of the sources.
        period: int64, items after which windows begin again; the last window before may be short.
        key: uint64. A window's coins are derived from it and from the window's first item.
        items: int64 [n], from 0 to 2**48; some hundreds at a time, as each takes about 160 bytes
            of working memory.

    Returns:
        Sources and numbers, int64 [n] each.
    """
    sources = np.full_like(items, tree.root)
    numbers = items.copy()
    if tree.root < tree.sources:  # the only source
        return sources, numbers
    # 1.
    within = items % period
    offsets = within % WINDOW_SIZE
    window_starts = items - offsets
    sizes = np.minimum(WINDOW_SIZE, period - within + offsets)
    coins = flip_coins(key, window_starts)
    for p in range(len(items)):
        # in a short window, skip offsets whose place lies beyond its end
        if sizes[p] < WINDOW_SIZE:
            existing = np.array([below(sizes[p])])
            inside = offsets_of(coins[:, p : p + 1], existing)
            offsets[p] = nth_set_bit(inside[0], offsets[p])
    places = places_of(coins, offsets)
    # 2.
    for p in each(len(items)):
        source, before, start, stop = find_source(
            tree, places[p], window_starts[p], sizes[p]
        )
        sources[p] = source
        numbers[p] = before
        places[p] = below(stop) ^ below(start)  # all places of the source
    # 3.
    same_source = offsets_of(coins, places)
    for p in each(len(items)):
        numbers[p] += count_bits(same_source[p] & below(offsets[p]))
    return sources, numbers


@njit
def flip_coins(key, window_starts):
    """A word of random bits for each stage of each window: uint64 [STAGES, n].

    key: uint64; window_starts: int64 [n], the first item of each window.
    """
    windows = np.empty(len(window_starts), dtype=np.uint64)
    coins = np.empty((STAGES, len(window_starts)), dtype=np.uint64)
    for p in each(len(window_starts)):
        windows[p] = derive(key, window_starts[p])
    for stage in range(STAGES):
        for p in each(len(window_starts)):
            coins[stage, p] = derive(windows[p], stage)
    return coins


@njit
def places_of(coins, offsets):
    """The places that networks send offsets to: uint64 [n], in 0 .. 63.

    coins: uint64 [STAGES, n]; offsets: int64 [n], in 0 .. 63.
    """
    places = offsets.astype(np.uint64)
    for stage in range(STAGES):
        coin = coins[stage]
        bit = uint64(stage % STRIDE_BITS)
        for p in each(len(places)):
            lower = places[p] & ~(ONE << bit)
            places[p] ^= (coin[p] >> lower & ONE) << bit
    return places


@njit
def offsets_of(coins, places):
    """The offsets that networks send to sets of places; both sets are the bits of a word.

    coins: uint64 [STAGES, n]; places: uint64 [n], overwritten with the offsets and returned.
    """
    for stage in range(STAGES - 1, -1, -1):
        coin = coins[stage]
        stride = ONE << uint64(stage % STRIDE_BITS)
        for p in each(len(places)):
            differs = places[p] ^ (places[p] >> stride)
            changed = differs & coin[p] & _LOWER[stage]
            places[p] ^= changed | (changed << stride)
    return places


@njit
def find_source(tree, place, before, quota):
    """Go down the `ShareTree` to the source of a place (uint64) in a window.

    The window has `quota` items, and `before` items come before it (int64 both). On the way down,
    both count the items of a node.

    Returns:
        The source, its items before the window, and its quota: places start:stop. All int64.
    """
    start = 0 * quota
    node = start + tree.root
    while any_of(node >= tree.sources):
        left_before = items_going_left(tree, node, before)
        left_quota = items_going_left(tree, node, before + quota) - left_before
        # one value at a time: no branch to mispredict
        is_right = np.int64(np.int64(place) >= start + left_quota)
        node = tree.children[node, is_right]
        start = start + is_right * left_quota
        before = left_before + is_right * (before - 2 * left_before)
        quota = left_quota + is_right * (quota - 2 * left_quota)
    return node, before, start, start + quota


@njit
def below(place):
    """A word (uint64) with the bits of all places before one in 0 .. 64."""
    half = uint64(place) >> ONE
    # a shift by all 64 bits is undefined
    return (ONE << half << (uint64(place) - half)) - ONE


@njit
def nth_set_bit(mask, number):
    """The place of the bit of a word (uint64) that has `number` set bits below it."""
    for _ in range(number):
        mask &= mask - ONE
    lowest = mask & (~mask + ONE)
    return count_bits(lowest - ONE)
