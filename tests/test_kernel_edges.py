"""Kernels at the edges of their arguments: Python and compiled code return the same."""

import ast
import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import python_up_to
from package_modules import MODULES

from nanoset_ref import derive, permute, unpermute
from nanoset_ref.load import document_masks, joined_rows
from nanoset_ref.megatron import megatron_rows
from nanoset_ref.megatron.index import three_indexes
from nanoset_ref.orders import (
    base,
    greedy_blend,
    interleaving,
    share_tree,
    stateless,
)

WORDS = st.sampled_from(
    [0, 1, 63, 64, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
) | st.integers(0, 2**64 - 1)


BIG = 2**31 - 1


def up_to(most):
    """Numbers of 0 .. most, often one at an edge."""
    edges = [
        edge for edge in (0, 1, 63, 64, 2**16, 2**31 - 1, 2**31, 2**32) if edge <= most
    ]
    return st.sampled_from([*edges, max(0, most - 1), most]) | st.integers(0, most)


def arrays_of(draw, dtype, size, most=None, least=0):
    """An array of `size` numbers, often at the edges of the dtype or of least .. most."""
    most = np.iinfo(dtype).max if most is None else most
    values = draw(st.lists(up_to(most - least), min_size=size, max_size=size))
    return np.array([least + value for value in values], dtype=dtype)


def permutation(draw):
    n = draw(up_to(2**48 - 1)) + 1
    return draw(up_to(n - 1)), n, draw(WORDS)


def tree_of(draw):
    """A tree of at most six sources, whose parts have the sum 2**48 or less."""
    parts = draw(st.lists(up_to(2**45), min_size=1, max_size=6).filter(any))
    return share_tree.build_tree(parts), [
        source for source, part in enumerate(parts) if part
    ]


def located(draw):
    tree, _ = tree_of(draw)
    epoch = draw(up_to(2**48 - 1)) + 1
    return tree, epoch, np.uint64(draw(WORDS)), arrays_of(draw, np.int64, 5, 2**48)


def looked_up(draw):
    tree, epoch, key, items = located(draw)
    reads = arrays_of(draw, np.int64, tree.sources, 2**48)
    lengths = arrays_of(draw, np.int64, tree.sources, 2**46, least=1)
    keys = np.array([draw(WORDS) for _ in range(tree.sources)], dtype=np.uint64)
    return tree, epoch, key, items, reads, lengths, keys


def found(draw):
    tree, readers = tree_of(draw)
    lengths = arrays_of(draw, np.int64, tree.sources, 2**40, least=1)
    sources = np.array(
        draw(st.lists(st.sampled_from(readers), max_size=3)), dtype=np.int64
    )
    samples = np.array(
        [draw(up_to(int(lengths[source]) - 1)) for source in sources], np.int64
    )
    reads = arrays_of(draw, np.int64, tree.sources, 2**44)
    keys = np.array([draw(WORDS) for _ in range(tree.sources)], dtype=np.uint64)
    passes = draw(st.integers(0, 3))  # few: Python takes a while for each
    until = passes * int(lengths.min())
    return tree, sources, samples, lengths, keys, reads, until


def shared(draw):
    tree, readers = tree_of(draw)
    return tree, draw(st.sampled_from(readers)), draw(up_to(2**48))


def numbered(draw):
    lengths = arrays_of(draw, np.int64, draw(st.integers(1, 5)), 2**40, least=1)
    kind = draw(st.sampled_from([np.uint32, np.uint64, np.int64]))
    most = min(int(lengths.sum()) - 1, np.iinfo(kind).max)
    return np.cumsum(lengths) - lengths, arrays_of(draw, kind, 5, most)


def blended(draw):
    most = draw(st.sampled_from([3, 2**40]))  # few lengths: many of equal weight
    count = draw(st.integers(1, 5) | st.integers(40, 60))
    lengths = arrays_of(draw, np.int64, count, most, least=1)
    weights = base.normalize_weights(lengths.tolist(), len(lengths))
    kind = draw(st.sampled_from([np.uint32, np.uint64]))
    firsts = np.cumsum(lengths) - lengths
    groups = greedy_blend.groups_of(weights, lengths)
    return lengths, weights, firsts, *groups, np.zeros(50, dtype=kind)


def blended_with_limits(draw):
    limits = arrays_of(draw, np.int64, draw(st.integers(1, 5)), 2**62)
    weights = base.normalize_weights([1 + it for it in limits.tolist()], len(limits))
    return weights, limits, draw(st.integers(0, 50))


def long_sequences(draw):
    """Lengths of sequences of up to 2**31 - 1 tokens, and the stream's length."""
    lengths = arrays_of(draw, np.int32, draw(st.integers(1, 5)), BIG, least=1)
    return lengths, int(lengths.sum(dtype=np.int64))


def cut(draw):
    lengths, tokens = long_sequences(draw)
    rows = draw(st.integers(1, 30))
    extra = draw(st.integers(0, 1))
    length = max(1, (tokens - extra) // rows)
    kind = draw(st.sampled_from([np.int32, np.int64]))
    order = np.array(draw(st.permutations(range(len(lengths)))), dtype=np.int32)
    return lengths, order, length, extra, np.zeros((rows + 1, 2), dtype=kind)


def located_pieces(draw):
    lengths, order, _, extra, cuts = arguments = cut(draw)
    three_indexes._cut_stream.py_func(*arguments)
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * itemsize
    kind = draw(st.sampled_from([np.uint32, np.int64]))
    shuffled = np.array(draw(st.permutations(range(len(cuts) - 1))), dtype=kind)
    samples = arrays_of(draw, np.int64, 4, len(shuffled) - 1)
    return (
        (order, cuts, shuffled),
        (lengths, pointers, itemsize),
        np.arange(4),
        samples,
        extra,
    )


def pieces_to_copy(draw):
    kind = draw(st.sampled_from([np.uint16, np.int32, np.int64]))
    tokens = arrays_of(draw, kind, 12)
    wide = np.int64 if kind == np.int64 else draw(st.sampled_from([np.int32, np.int64]))
    begin = draw(st.integers(0, 12))
    end = draw(st.integers(begin, 12))
    return tokens, np.array([[1, begin, end, 3]]), np.full((2, 15), -1, dtype=wide)


EDGES = {  # of every kernel that Python runs at first: it, and how its arguments are drawn
    "derive": (derive, lambda draw: (draw(WORDS), np.uint64(draw(WORDS)))),
    "permute": (permute, permutation),
    "unpermute": (unpermute, permutation),
    "source_at": (interleaving.source_at, located),
    "_lookup": (stateless._lookup, looked_up),
    "_find_items": (stateless._find_items, found),
    "share_of": (share_tree.share_of, shared),
    "pairs_of": (base.pairs_of, numbered),
    "blend": (greedy_blend.blend, blended),
    "blend_samples": (three_indexes.blend_samples, blended_with_limits),
    "_cut_stream": (three_indexes._cut_stream, cut),
    "_locate": (megatron_rows._locate, located_pieces),
    "copy_pieces": (joined_rows.copy_pieces, pieces_to_copy),
    "position_ids": (
        document_masks.position_ids,
        lambda draw: (arrays_of(draw, np.uint8, 12, 1).reshape(3, 4) == 1,),
    ),
}


def test_every_kernel_that_python_runs_at_first_is_among_those_whose_edges_are_tried():
    begun_in_python = {
        node.name
        for module in MODULES
        for node in module.nodes
        if isinstance(node, ast.FunctionDef)
        and any("work=" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert begun_in_python == EDGES.keys()


@pytest.mark.parametrize("name", EDGES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_kernel_gives_the_same_at_the_edges_in_python_as_compiled(name, data):
    """NumPy's small numbers stay small, and wrap around; numba widens them to 64 bits."""
    kernel, drawn = EDGES[name]
    arguments = drawn(data.draw)
    answers = []
    for most in (0, 2**40):
        given_to_kernel = copy.deepcopy(arguments)  # some are written to
        with python_up_to(most), np.errstate(all="raise", over="ignore"):
            answer = kernel(*given_to_kernel)
        answers.append(values_of((answer, given_to_kernel)))
    assert answers[0] == answers[1]


def values_of(answer):
    """Python's numbers, in lists, of numbers and arrays in tuples."""
    if isinstance(answer, tuple):
        return [values_of(part) for part in answer]
    return np.asarray(answer).tolist()
