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

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from nanoset_ref.io.kernels import njit


class ShareTree(NamedTuple):
    """Nodes are numbered, the sources first; parents come after their children, the root is the last.

    Attributes:
        sources: how many.
        root: its number.
        parts: int64 [nodes], parts of the whole, in sum at most 2**48.
        children: int64 [nodes, 2], left and right; those of a source mean nothing.
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
    sources = len(parts)
    heap = [(part, source) for source, part in enumerate(parts) if part > 0]
    heapq.heapify(heap)
    nodes = sources + len(heap) - 1
    wholes = np.append(parts, np.zeros(len(heap) - 1, dtype=np.int64))
    children, parents = np.zeros((nodes, 2), dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for node in range(sources, nodes):
        (part, left), (other, right) = heapq.heappop(heap), heapq.heappop(heap)
        wholes[node], children[node] = part + other, (left, right)
        parents[left] = parents[right] = node
        heapq.heappush(heap, (part + other, node))
    lefts = wholes[children[:, 0]]
    return ShareTree(
        sources, heap[0][1], wholes, children, parents, lefts, lefts / np.maximum(wholes, 1)
    )


@njit(cache=True)
def to_left(tree, node, items):
    """How many of the first `items` of a node go left: round(items * l / d).

    A product guesses it, to one at most. The exact fraction may need 96 bits; the remainder that the guess leaves needs
    64.
    """
    whole = tree.parts[node]
    guess = np.int64(float(items) * tree.ratios[node])
    rest = (
        uint64(items) * uint64(tree.lefts[node])
        + uint64(whole >> 1)
        - uint64(guess) * uint64(whole)
    )
    return guess + np.int64(np.int64(rest) >= whole) - np.int64(np.int64(rest) < 0)


@njit(cache=True)
def share_of(tree, node, items):
    """How many of the first `items` of the root a node gets."""
    if node == tree.root:
        return items
    parent = tree.parents[node]
    items = share_of(tree, parent, items)
    left = to_left(tree, parent, items)
    return left if node == tree.children[parent, 0] else items - left
