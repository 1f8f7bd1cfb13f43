"""Deal items out to sources in exact shares, without a list: item t -> (source, how many of its items came before), and
back.

Items are dealt in hands of 64. A source has a whole number of places in each hand, so many that after the hand it has
had its exact share of all items so far, rounded up or down (`shares`). A keyed `network` sends the items to the places;
it also tells which items went to one source's places, and counting those before an item gives the item's number:
sources get their items in order. Sources too small for places of their own have some together, and the items that come
there are dealt again among them, one level down.

    a hand (8 of its 64), shares 5 : 3                 places 0 1 2 3 4 | 5 6 7
    the network sends items 0 1 2 3 4 5 6 7 to places         6 0 3 7 1   2 5 4
    so the first source gets items 1 2 4 5 7; item 5 is its number 3 of this hand

A lookup costs some 20 to 40 ns per level in bulk (`bulk`), its inverse and a count a microsecond; 28 sources fit into a
level, and memory is a few numbers per source and half a KiB per level. The price of exact shares: two neighbours are of
one source less often than by chance, by 1 in 63. The rejected alternatives: permuting whole blocks loses the order of a
source's items within them, and with it the right to say "so many of this source are read"; a greedy choice such as
Nanotron's has to be stored.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from nanoset_ref.orders.bulk import locate_many
from nanoset_ref.orders.network import below, fetch, fill_switches, ones, select
from nanoset_ref.orders.shares import HAND, Shares, before_hand, deal_in, edge_of, given, had, hand_key

_DEPTH = 64


def locate(shares: Shares, t: int) -> tuple[int, int]:
    """The source of item t, and the item's number in it."""
    sources, numbers = locate_many(shares, np.array([t], dtype=np.int64))
    return int(sources[0]), int(numbers[0])


@njit(cache=True, error_model="numpy")
def position(shares, source, number):
    """The item t with ``locate(shares, t) == (source, number)``, for a source with a share above 0."""
    rank = shares.ranks[source]
    # 1. the block: the exact share tells all but the rounding
    share = shares.edges[rank + 1] - shares.edges[rank]
    block = np.int64(float(number) / float(share) * float(shares.edges[-1])) // shares.block
    while had(shares, rank, rank + 1, block) > number:
        block -= 1
    while had(shares, rank, rank + 1, block + 1) <= number:
        block += 1
    t = number - had(shares, rank, rank + 1, block)
    # 2. down to the level of the source, and up again from number to number
    path = np.zeros(_DEPTH, dtype=np.int64)
    depth = 0
    while shares.levels[_child(shares, path[depth], rank)] >= 0:
        path[depth + 1] = shares.levels[_child(shares, path[depth], rank)]
        depth += 1
    switches = np.empty(6, dtype=np.uint64)
    for level in path[depth::-1]:
        dealer, child = deal_in(shares, level, block), _child(shares, level, rank)
        got = edge_of(shares, dealer, child + 1) - edge_of(shares, dealer, child)
        hand = np.int64(float(t) / float(got) * float(dealer.items)) // HAND
        while before_hand(shares, dealer, child, hand) > t:
            hand -= 1
        while before_hand(shares, dealer, child, hand + 1) <= t:
            hand += 1
        mask = _items(shares, dealer, child, hand, switches)
        t = hand * HAND + select(mask, t - before_hand(shares, dealer, child, hand))
    return block * shares.block + t


@njit(cache=True, error_model="numpy")
def counts(shares, t):
    """How many of the first t items each source has had: int64 [sources]."""
    found = np.zeros(len(shares.ranks), dtype=np.int64)
    switches = np.empty(6, dtype=np.uint64)
    block = t // shares.block
    for rank in range(len(shares.sources)):
        number, level = t - block * shares.block, 0
        while level >= 0:
            dealer, child = deal_in(shares, level, block), _child(shares, level, rank)
            hand, within = number // HAND, number % HAND
            number = before_hand(shares, dealer, child, hand)
            if within > 0:
                number += ones(_items(shares, dealer, child, hand, switches) & below(within))
            level = shares.levels[child]
        found[shares.sources[rank]] = had(shares, rank, rank + 1, block) + number
    return found


@njit(cache=True)
def _child(shares, level, rank):
    """The child of a level that holds a rank."""
    child = shares.starts[level]
    while shares.bounds[child + 1] <= rank:
        child += 1
    return child


@njit(cache=True)
def _items(shares, dealer, child, hand, switches):
    """The items of a hand that go to a child, as bits. switches: uint64 [6] to work in."""
    fill_switches(hand_key(shares.keys[dealer.level], dealer.block, hand), switches)
    first = given(shares, dealer, child, hand + 1) - given(shares, dealer, child, hand)
    stop = given(shares, dealer, child + 1, hand + 1) - given(shares, dealer, child + 1, hand)
    return fetch(switches, below(stop) ^ below(first), min(HAND, dealer.items - hand * HAND))
