"""A keyed permutation of 64 items that moves whole sets of them: who goes to places 0 .. 19, in one word of bits.

What it does. A random switching network: in each of 12 stages, with the strides 1, 2, 4, 8, 16, 32 and the same again,
item i and item i + stride change places or do not, as a random bit says (two butterfly networks one after the other;
V. E. Benes, Mathematical Theory of Connecting Networks and Telephone Traffic, 1965). `send` takes an item through it,
`fetch` takes a set of places back, each place being a bit.

What it costs. Twelve steps of a few instructions on 64 bits, 5-10 ns where many words go through together, as the loops
over them become vector instructions.

The alternative it rejects. A table of random patterns of bits is as quick, but a table that fits a cache repeats itself
so often that correlations show between neighbours; and drawing a pattern bit by bit takes 64 random numbers.
"""

import numpy as np
from numba import njit, uint64

from nanoset_ref.orders.permutation import derive

SIZE = 64
STRIDES = 6
# The lower places of all pairs (i, i + 1), (i, i + 2), (i, i + 4), ..., as bits.
_PAIRS = np.array([(2**64 - 1) // (2**2**i + 1) for i in range(STRIDES)], dtype=np.uint64)


@njit(cache=True)
def fill_switches(key, switches):
    """A word of random bits per stride: 32 for its first time, 32 for its second. switches: uint64 [6]."""
    for stride in range(STRIDES):
        switches[stride] = derive(key, stride)


@njit(cache=True)
def exchanged(switches, stage):
    """A bit for each pair (i, i + stride) that changes places in a stage, at i."""
    stride = stage % STRIDES
    return (switches[stride] >> (uint64(stage // STRIDES) << uint64(stride))) & _PAIRS[stride]


@njit(cache=True)
def send(switches, item, size):
    """The place of an item among the first `size` places; an item sent further is sent again (cycle walking)."""
    place = uint64(item)
    while True:
        for stage in range(2 * STRIDES):
            stride = uint64(stage % STRIDES)
            pair = place & ~(uint64(1) << stride)
            place ^= ((exchanged(switches, stage) >> pair) & uint64(1)) << stride
        if place < uint64(size):
            return np.int64(place)


@njit(cache=True)
def fetch(switches, mask, size):
    """The items that `send` sends to a set of the first `size` places; both as bits."""
    mask, items = uint64(mask), uint64(0)
    while mask:
        for stage in range(2 * STRIDES - 1, -1, -1):
            distance = uint64(1) << uint64(stage % STRIDES)
            moved = (mask ^ (mask >> distance)) & exchanged(switches, stage)
            mask ^= moved | (moved << distance)
        items |= mask & below(size)
        mask &= ~below(size)
    return items


@njit(cache=True)
def send_many(keys, switches, places, sizes):
    """`send` for many: each place, an item before, through the network of its key.

    keys, places: uint64 [n]. sizes: int64 [n]. switches: uint64 [6, n or more], filled here, read by `fetch_many`.
    """
    for stride in range(STRIDES):
        for p in range(len(keys)):
            switches[stride, p] = derive(keys[p], stride)
    for stage in range(2 * STRIDES):
        stride = uint64(stage % STRIDES)
        again = uint64(stage // STRIDES) << stride
        pairs = _PAIRS[stride]
        for p in range(len(keys)):
            swaps = (switches[stride, p] >> again) & pairs
            places[p] ^= ((swaps >> (places[p] & ~(uint64(1) << stride))) & uint64(1)) << stride
    for p in range(len(keys)):
        if places[p] >= uint64(sizes[p]):
            places[p] = send(switches[:, p], places[p], sizes[p])


@njit(cache=True)
def fetch_many(switches, masks, sizes):
    """`fetch` for many: each mask of places (uint64 [n]) becomes one of items."""
    for stage in range(2 * STRIDES - 1, -1, -1):
        stride = uint64(stage % STRIDES)
        again, distance = uint64(stage // STRIDES) << stride, uint64(1) << stride
        pairs = _PAIRS[stride]
        for p in range(len(masks)):
            swaps = (switches[stride, p] >> again) & pairs
            moved = (masks[p] ^ (masks[p] >> distance)) & swaps
            masks[p] ^= moved | (moved << distance)
    for p in range(len(masks)):
        beyond = masks[p] & ~below(sizes[p])
        if beyond:
            masks[p] ^= beyond | fetch(switches[:, p], beyond, sizes[p])


@njit(cache=True)
def below(place):
    """Bits at all places before one in 0 .. 64."""
    return ~uint64(0) if place == SIZE else (uint64(1) << uint64(place)) - uint64(1)


@njit(cache=True)
def ones(mask):
    """Number of bits set (the compiler makes one instruction of it)."""
    mask -= (mask >> uint64(1)) & uint64(0x5555555555555555)
    mask = (mask & uint64(0x3333333333333333)) + ((mask >> uint64(2)) & uint64(0x3333333333333333))
    mask = (mask + (mask >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((mask * uint64(0x0101010101010101)) >> uint64(56))


@njit(cache=True)
def select(mask, rank):
    """The place of the bit that has `rank` set bits below it."""
    for _ in range(rank):
        mask &= mask - uint64(1)
    return ones((mask & (~mask + uint64(1))) - uint64(1))
