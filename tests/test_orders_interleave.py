"""Dealing out in exact shares, against counting from the beginning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.orders.bulk import locate_many
from nanoset_ref.orders.interleave import counts, locate, position
from nanoset_ref.orders.shares import build_shares

shares_of_sources = st.lists(st.integers(0, 10**6), min_size=1, max_size=70).filter(any)
seeds = st.integers(0, 2**32 - 1)


@given(st.lists(st.integers(0, 25), min_size=1, max_size=40).filter(any), seeds)
def test_a_block_gives_each_source_its_share_in_order(shares, key):
    dealer = build_shares(shares, key)
    assert dealer.block == sum(shares)
    sources, numbers = locate_many(dealer, np.arange(2 * sum(shares)))
    had = [0] * len(shares)
    for t, (source, number) in enumerate(zip(sources.tolist(), numbers.tolist(), strict=True)):
        assert number == had[source]
        had[source] += 1
        if (t + 1) % sum(shares) == 0:
            assert had == [(t + 1) // sum(shares) * share for share in shares]
    for t in range(0, len(sources), 17):
        assert counts(dealer, t).tolist() == np.bincount(sources[:t], minlength=len(shares)).tolist()
        assert position(dealer, sources[t], numbers[t]) == t


@given(shares_of_sources, seeds, st.integers(0, 2**30))
def test_the_end_of_every_block_is_exact_to_one_item(shares, key, number):
    dealer = build_shares(shares, key, 64)
    items = number * dealer.block
    for share, had in zip(shares, counts(dealer, items).tolist(), strict=True):
        assert abs(had * sum(shares) - items * share) < sum(shares)


@given(shares_of_sources, seeds, st.integers(0, 2**47))
def test_dealing_out_is_inverted_at_any_size(shares, key, t):
    dealer = build_shares(shares, key, 64)
    source, number = locate(dealer, t)
    had = counts(dealer, t)
    assert position(dealer, source, number) == t
    assert had[source] == number
    assert had.sum() == t
    assert counts(dealer, t + 1)[source] == number + 1


@pytest.mark.parametrize("shares", [[1] * 300, [2**k for k in range(40)], [10**9, 1, 1, 1, 10**9], [7, 10**9]])
def test_many_and_rare_sources_come_in_order(shares):
    dealer = build_shares(shares, 3, 64)
    sources, numbers = locate_many(dealer, np.arange(20_000))
    for source in range(len(shares)):
        assert np.array_equal(numbers[sources == source], np.arange(np.count_nonzero(sources == source)))
    assert counts(dealer, 20_000).tolist() == np.bincount(sources, minlength=len(shares)).tolist()


@pytest.mark.parametrize(("shares", "block"), [([3, 1], 256), ([2**20, 1], 2**27), ([2**46 - 1, 1], 2**47)])
def test_a_block_is_long_enough_for_the_rarest_source(shares, block):
    dealer = build_shares(shares, 1, 64)
    assert dealer.block == block
    ends = np.array([0, block - 1, block, 2 * block - 1])
    for t, source, number in zip(ends, *locate_many(dealer, ends), strict=True):
        assert position(dealer, source, number) == t


def test_neighbours_are_as_independent_as_exact_shares_allow():
    """Of 64 places, a source has s: two neighbours are both of it with probability s (s - 1) / (64 * 63)."""
    sources, _ = locate_many(build_shares([1, 1, 2], 8, 64), np.arange(64 * 10_000))
    hands = (sources == 2).reshape(-1, 64)
    both = np.count_nonzero(hands[:, :-1] & hands[:, 1:]) / (63 * 10_000)
    assert abs(both - 32 * 31 / (64 * 63)) < 0.002
