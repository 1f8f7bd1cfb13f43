"""The order of grain: the places of the real package, and the way back from a sample."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_contract import SEEDS, SIZES, check_contract, instances

from nanoset_ref.orders import build_order


def test_places_are_those_of_grain(golden):
    for case in json.loads((golden / "grain/shuffles.json").read_text()):
        count = max(case["places"]) + 1
        order = build_order(
            "grain:accept_repeat=1", [case["samples"]], None, count, case["seed"]
        )
        assert instances(order, case["places"]) == case["read"]
        for place, instance in zip(case["places"][::7], case["read"][::7], strict=True):
            assert place in order.positions(0, instance)


@given(SIZES, SEEDS, st.integers(0, 50))
def test_grain_reads_every_sample_once_in_an_epoch_and_finds_it(sizes, seed, more):
    order = build_order("grain", sizes, None, 2 * sum(sizes) + more, seed)
    for epoch in range(2):
        read = instances(order, np.arange(sum(sizes)) + epoch * sum(sizes))
        assert sorted(read) == list(range(sum(sizes)))
    again = build_order("grain", sizes, None, sum(sizes), (seed + 1) % 2**32)
    assert instances(again, np.arange(sum(sizes))) == read
    check_contract(order)


@given(st.integers(2, 2**45), SEEDS, st.data())
def test_grain_finds_samples_of_long_files(n, seed, data):
    order = build_order("grain:accept_repeat=1", [n], None, 3 * n, seed)
    position = data.draw(st.integers(0, 3 * n - 1))
    assert position in order.positions(*order[position])


@pytest.mark.parametrize("k", [8, 9])
def test_grain_reads_a_sample_twice_and_one_never_where_the_cipher_is_too_small(k):
    n = 4**k + 1
    with pytest.raises(
        ValueError, match="reads one of them twice in an epoch and the last never"
    ):
        build_order("grain", [n], None, n)
    build_order("grain", [n + 1], None, n)
    order = build_order("grain:accept_repeat=1", [n], None, n, 5)
    reads = np.bincount(order[:][1], minlength=n)
    assert np.flatnonzero(reads != 1).tolist() == sorted({order[0][1], n - 1})
    assert order.positions(0, n - 1).tolist() == []
    assert order.positions(*order[0]).tolist() == [0, n - 1]
