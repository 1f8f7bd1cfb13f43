"""How many: the shares of sources in whole numbers, and who has had how many items when; `interleave` says which ones.

Sources are ranked by share. Those with at least a 28th of all have places of their own in a hand of 64 items; smaller
ones, neighbours by rank, are grouped until they have that much together, and a group is a level of its own, in which
the same is done again. All numbers come from one rule, which adds up and is nowhere off by a whole item:

    of the first `items`, the sources below a rank have floor(edge * items / total), edge being the sum of their shares

At level 0 it holds after every hand; for the sources in a group, after every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from nanoset_ref.orders.permutation import derive

HAND = 64  # items dealt at once: the bits of a word
MAX_BLOCK = 2**47
LEAST_PART = 28  # sources of less than a 28th of their level are grouped: rounding cannot take their last place away


class Shares(NamedTuple):
    """What the compiled functions need. A rank is a source's place by share, largest first; shares of 0 have none.

    Attributes:
        edges: int64 [ranks + 1], running sums of the shares.
        inverse: 1 / edges[-1].
        sources, ranks: int64 [ranks], the source of each rank, and int64 [sources], the rank of each or -1.
        block: items per block.
        starts, bounds, levels: int64. Level l deals to its children starts[l] .. starts[l + 1] - 2; child c has the
            ranks bounds[c] .. bounds[c + 1] - 1, and levels[c] is its own level, or -1 where it is one source.
        keys: uint64 [levels].
        likely: int64 [levels, 64], the last child that may begin at or before a place of a hand; rounding of the
            shares may begin it one place later.
    """

    edges: NDArray[np.int64]
    inverse: float
    sources: NDArray[np.int64]
    ranks: NDArray[np.int64]
    block: int
    starts: NDArray[np.int64]
    bounds: NDArray[np.int64]
    levels: NDArray[np.int64]
    keys: NDArray[np.uint64]
    likely: NDArray[np.int64]


def build_shares(shares: Sequence[int], key: int | np.uint64, block: int | None = None) -> Shares:
    """Prepare sources with integer shares (0 or more, in sum from 1 to 2**48); the key decides who gets which item.

    Args:
        block: items per block, doubled until the smallest source gets 64 of them (or it is 2**47 long); None:
            sum(shares), so that a block gives each source just its share.
    """
    sources = sorted((i for i, share in enumerate(shares) if share > 0), key=lambda i: -shares[i])
    edges = np.cumsum([0, *(shares[i] for i in sources)], dtype=np.int64)
    total = int(edges[-1])
    if block is None:
        block = total
    else:
        while block < MAX_BLOCK and block * shares[sources[-1]] < HAND * total:
            block *= 2
    ranks = np.full(len(shares), -1, dtype=np.int64)
    ranks[sources] = np.arange(len(sources))
    starts, bounds, levels = (np.array(values, dtype=np.int64) for values in _group(edges.tolist()))
    keys = np.array([derive(np.uint64(key), level) for level in range(len(starts) - 1)], dtype=np.uint64)
    ranked = np.array(sources, dtype=np.int64)
    likely = _likely(edges[bounds].tolist(), starts.tolist())
    return Shares(edges, 1.0 / total, ranked, ranks, block, starts, bounds, levels, keys, likely)


def _group(edges: list[int]) -> tuple[list[int], list[int], list[int]]:
    """starts, bounds and levels of `Shares`."""
    starts: list[int] = []
    bounds: list[int] = []
    levels: list[int] = []
    waiting = [(0, len(edges) - 1)]
    for low, high in waiting:
        starts.append(len(bounds))
        total = edges[high] - edges[low]
        cuts = [low]
        while cuts[-1] < high:
            cut = cuts[-1] + 1
            while cut < high and (edges[cut] - edges[cuts[-1]]) * LEAST_PART < total:
                cut += 1
            cuts.append(cut)
        for first, stop in zip(cuts, [*cuts[1:], high], strict=True):
            group = stop - first > 1
            if group:
                waiting.append((first, stop))
            bounds.append(first)
            levels.append(len(waiting) - 1 if group else -1)
    return [*starts, len(bounds)], bounds, levels


def _likely(borders: list[int], starts: list[int]) -> NDArray[np.int64]:
    """likely of `Shares`, from the running sum of shares at each border."""
    found = np.empty((len(starts) - 1, HAND), dtype=np.int64)
    for level, (start, stop) in enumerate(pairwise(starts)):
        low, total = borders[start], borders[stop - 1] - borders[start]
        places = [(border - low) * HAND // total for border in borders[start : stop - 1]]
        found[level] = start + np.searchsorted(places, np.arange(HAND), side="right") - 1
    return found


class Dealer(NamedTuple):
    """A level in a block. low: items of the block that go to the ranks below the level's; items: to its own."""

    level: int
    block: int
    low: int
    items: int


@njit(cache=True)
def deal_in(shares, level, block):
    if level == 0:
        return Dealer(level, block, 0, shares.block)
    low = share_of(shares, shares.bounds[shares.starts[level]], block)
    return Dealer(level, block, low, share_of(shares, shares.bounds[shares.starts[level + 1] - 1], block) - low)


@njit(cache=True)
def hand_key(key, block, hand):
    return derive(derive(key, block), hand)


@njit(cache=True)
def dealt(shares, rank, items):
    """Of the first items, those of the sources below a rank: floor(edge * items / total)."""
    return scaled(shares.edges[rank], items, shares.edges[-1], shares.inverse)


@njit(cache=True)
def had(shares, first, stop, block):
    """Items that the ranks from first to before stop have had before a block."""
    return dealt(shares, stop, block * shares.block) - dealt(shares, first, block * shares.block)


@njit(cache=True)
def share_of(shares, rank, block):
    """Items of a block that go to the sources below a rank."""
    return dealt(shares, rank, (block + 1) * shares.block) - dealt(shares, rank, block * shares.block)


@njit(cache=True)
def edge_of(shares, dealer, border):
    """Items that a dealer has for the children before a border."""
    return share_of(shares, shares.bounds[border], dealer.block) - dealer.low


@njit(cache=True)
def given(shares, dealer, border, hand):
    """Items of the hands before one that go to the children before a border."""
    items = hand * HAND
    if dealer.level == 0:
        start = dealer.block * shares.block
        rank = shares.bounds[border]
        return dealt(shares, rank, start + min(items, shares.block)) - dealt(shares, rank, start)
    edge = edge_of(shares, dealer, border)
    return edge if items >= dealer.items else scaled(edge, items, dealer.items, 1.0 / float(dealer.items))


@njit(cache=True)
def before_hand(shares, dealer, child, hand):
    """Items of a child in the block before a hand."""
    return given(shares, dealer, child + 1, hand) - given(shares, dealer, child, hand)


@njit(cache=True)
def scaled(share, items, total, inverse):
    """floor(share * items / total) for numbers up to 2**48: a float64 guess, put right by its integer remainder."""
    guess = np.int64(float(share) * float(items) * inverse)
    remainder = np.int64(uint64(share) * uint64(items) - uint64(guess) * uint64(total))
    return guess + np.int64(remainder >= total) - np.int64(remainder < 0)
