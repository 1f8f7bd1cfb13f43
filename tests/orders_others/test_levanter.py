"""The order of Levanter: the places of the real package, and the way back from a sample."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from order_contract import SEEDS, SIZES, check_contract, instances

from nanoset_ref.orders import build_order


def test_places_are_those_of_levanter(golden):
    for case in json.loads((golden / "levanter/shuffles.json").read_text()):
        size = case["samples"]
        order = build_order("levanter", [size], None, 2 * size, case["drawn"])
        assert instances(order, case["places"]) == case["read"]
        for place, instance in zip(case["places"][::7], case["read"][::7], strict=True):
            assert order.positions(0, instance).tolist() == [place, place + size]


@given(SIZES, SEEDS, st.integers(0, 50))
def test_levanter_reads_every_sample_once_in_an_epoch_and_finds_it(sizes, seed, more):
    order = build_order("levanter", sizes, None, 2 * sum(sizes) + more, seed)
    first, second = (
        instances(order, np.arange(sum(sizes)) + e * sum(sizes)) for e in range(2)
    )
    assert sorted(first) == list(range(sum(sizes))) and first == second
    check_contract(order)
