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

A lookup costs some 60 ns per level in bulk, its inverse and a count a microsecond; 28 sources fit into a level, and
memory is a few numbers per source. The price of exact shares: two neighbours are of one source less often than by
chance, by 1 in 63. The rejected alternatives: permuting whole blocks loses the order of a source's items within them,
and with it the right to say "so many of this source are read"; a greedy choice such as Nanotron's has to be stored.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from nanoset_ref.orders.network import below, fetch, fetch_many, fill_switches, ones, select, send, send_many
from nanoset_ref.orders.shares import HAND, Shares, before_hand, deal_in, edge_of, given, had, hand_key, owner

_CHUNK = 256  # items that go through their networks together
_DEPTH = 64


def locate(shares: Shares, t: int) -> tuple[int, int]:
    """The source of item t, and the item's number in it."""
    sources, numbers = locate_many(shares, np.array([t], dtype=np.int64))
    return int(sources[0]), int(numbers[0])


@njit(cache=True, nogil=True, error_model="numpy")
def locate_many(shares, items):
    """`locate` for many: items int64 [n] -> sources and numbers, int64 [n]."""
    found, numbers = np.full(len(items), shares.sources[0]), items.copy()
    if len(shares.sources) == 1:
        return found, numbers
    blocks, rest, levels, slots, sizes, children, before, firsts, stops = np.empty((9, _CHUNK), dtype=np.int64)
    keys, places, masks = np.empty((3, _CHUNK), dtype=np.uint64)
    switches, alone = np.empty((6, _CHUNK), dtype=np.uint64), np.empty(6, dtype=np.uint64)
    for start in range(0, len(items), _CHUNK):
        count = min(_CHUNK, len(items) - start)
        for p in range(count):
            slots[p], levels[p] = start + p, 0
            blocks[p] = np.int64(uint64(items[start + p]) // uint64(shares.block))
            rest[p] = items[start + p] - blocks[p] * shares.block  # the item's number in its block and level
        while count > 0:
            # 1. the network of each item's hand, and the item's place in it
            for p in range(count):
                keys[p] = hand_key(shares, levels[p], blocks[p], rest[p] // HAND)
                places[p] = uint64(rest[p] % HAND)
            send_many(keys[:count], switches, places)
            # 2. the child that the place belongs to, and its other places
            for p in range(count):
                dealer = deal_in(shares, levels[p], blocks[p])
                sizes[p] = min(HAND, dealer.items - rest[p] // HAND * HAND)
                if sizes[p] < HAND:
                    fill_switches(keys[p], alone)
                    places[p] = send(alone, rest[p] % HAND, sizes[p])
                children[p], before[p], firsts[p], stops[p] = owner(
                    shares, dealer, rest[p] // HAND, sizes[p], np.int64(places[p])
                )
                masks[p] = below(stops[p]) ^ below(firsts[p])
            # 3. the items that come to these places: those before the item give its number in the child
            fetch_many(switches, masks[:count])
            grouped = 0
            for p in range(count):
                if sizes[p] < HAND:
                    fill_switches(keys[p], alone)
                    masks[p] = fetch(alone, firsts[p], stops[p], sizes[p])
                number = before[p] + ones(masks[p] & below(rest[p] % HAND))
                level = shares.levels[children[p]]
                if level < 0:
                    rank = shares.bounds[children[p]]
                    found[slots[p]], numbers[slots[p]] = shares.sources[rank], number + had(shares, rank, blocks[p])
                else:
                    rest[grouped], levels[grouped], blocks[grouped], slots[grouped] = number, level, blocks[p], slots[p]
                    grouped += 1
            count = grouped
    return found, numbers


@njit(cache=True, error_model="numpy")
def position(shares, source, number):
    """The item t with ``locate(shares, t) == (source, number)``, for a source with a share above 0."""
    rank = shares.ranks[source]
    # 1. the block: the exact share tells all but the rounding
    share = shares.edges[rank + 1] - shares.edges[rank]
    block = np.int64(float(number) / float(share) * float(shares.edges[-1])) // shares.block
    while had(shares, rank, block) > number:
        block -= 1
    while had(shares, rank, block + 1) <= number:
        block += 1
    t = number - had(shares, rank, block)
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
        found[shares.sources[rank]] = had(shares, rank, block) + number
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
    fill_switches(hand_key(shares, dealer.level, dealer.block, hand), switches)
    first = given(shares, dealer, child, hand + 1) - given(shares, dealer, child, hand)
    stop = given(shares, dealer, child + 1, hand + 1) - given(shares, dealer, child + 1, hand)
    return fetch(switches, first, stop, min(HAND, dealer.items - hand * HAND))
