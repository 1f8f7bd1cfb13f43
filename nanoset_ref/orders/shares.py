"""How many: the first n items shared out to sources, exactly, by a binary tree.

The tree is Huffman's over the parts of the whole that each source gets. Where the left side of a node has l of d parts,
round(n * l / d) of its first n items go left. So whoever knows how many items the root had knows how many each source
had, and no source is ever off its share by two: rounding costs half an item a level, and a source's part of an error
further up falls with the Fibonacci numbers, (1 + 1 + 1/2 + 1/3 + 1/5 + ...) / 2 < 1.68 in all.

    parts 5 2 1 of sources 0 1 2                 8 items     64 items
                                 8 parts            8           64
                               /         \\        /   \\       /    \\
                           3 parts    source 0   3     5     24     40
                          /       \\             / \\         /  \\
                    source 2    source 1       1   2       8    16

A source of a p-th of the whole stands some log2(p) levels deep.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

FAR = 2**48 + 64  # beyond the window of the last item that can be


class ShareTree(NamedTuple):
    """Nodes are numbered, the sources first; parents come after their children, the root is the last.

    Attributes:
        sources: how many.
        root: its number.
        parts: int64 [nodes], parts of the whole, in sum at most 2**48.
        children: int64 [nodes, 2], left and right; a source has itself, so that going down further stays there.
        parents: int64 [nodes].
        lefts: int64 [nodes], the parts of the left child.
        ratios: float64 [nodes], lefts / parts.
    """

    sources: int
    root: int
    parts: NDArray[np.int64]
    children: NDArray[np.int64]
    parents: NDArray[np.int64]
    lefts: NDArray[np.int64]
    ratios: NDArray[np.float64]


def build_tree(parts: Sequence[int]) -> ShareTree:
    """The tree of sources with whole parts; sources of 0 parts are not in it. 5,000 sources take 20 ms."""
    heap = [(part, source) for source, part in enumerate(parts) if part > 0]
    heapq.heapify(heap)
    all_parts, children = list(parts), [(source, source) for source in range(len(parts))]
    parents = [0] * (len(parts) + len(heap))
    for node in range(len(parts), len(parts) + len(heap) - 1):
        (part, left), (other, right) = heapq.heappop(heap), heapq.heappop(heap)
        all_parts.append(part + other)
        children.append((left, right))
        parents[left] = parents[right] = node
        heapq.heappush(heap, (part + other, node))
    wholes, sides = np.array(all_parts), np.array(children)
    lefts = wholes[sides[:, 0]]
    ratios = lefts / np.maximum(wholes, 1)
    return ShareTree(len(parts), heap[0][1], wholes, sides, np.array(parents), lefts, ratios)


@njit(cache=True)
def to_left(tree, node, items):
    """How many of the first `items` of a node go left: round(items * l / d)."""
    whole = tree.parts[node]
    return corrected(np.int64(float(items) * tree.ratios[node]), items, tree.lefts[node], whole >> 1, whole)


@njit(cache=True)
def share_out(tree, items):
    """How many of the first `items` each source gets: int64 [sources]."""
    shares = np.zeros(len(tree.parts), dtype=np.int64)
    shares[tree.root] = items
    for node in range(tree.root, tree.sources - 1, -1):
        left, right = tree.children[node]
        shares[left] = to_left(tree, node, shares[node])
        shares[right] = shares[node] - shares[left]
    return shares[: tree.sources]


@njit(cache=True)
def quota(tree, node, first, size):
    """A node's part of `size` items from `first` on: its first place among them, its items before them and in them."""
    if node == tree.root:
        return 0, first, size
    parent = tree.parents[node]
    low, before, size = quota(tree, parent, first, size)
    left = to_left(tree, parent, before)
    to = to_left(tree, parent, before + size) - left
    if node == tree.children[parent, 0]:
        return low, left, to
    return low + to, before - left, size - to


@njit(cache=True)
def item_of(tree, source, number):
    """The item that is a source's number `number` (from 0), climbing to the root; at least `FAR` where none can be."""
    node, item = source, number
    while node != tree.root:
        parent = tree.parents[node]
        part, whole = tree.parts[node], tree.parts[parent]
        extra = whole - 1 - (whole >> 1) if node == tree.children[parent, 0] else whole >> 1
        guess = (float(item) * float(whole) + float(extra)) / float(part)
        if guess >= FAR:
            return FAR
        node, item = parent, corrected(np.int64(guess), item, whole, extra, part)
    return item


@njit(cache=True)
def corrected(guess, items, part, extra, whole):
    """floor((items * part + extra) / whole), of which `guess` is off by one at most. The product may need 96 bits; the
    remainder that the guess leaves needs 64.
    """
    rest = np.int64(uint64(items) * uint64(part) + uint64(extra) - uint64(guess) * uint64(whole))
    return guess + np.int64(rest >= whole) - np.int64(rest < 0)
