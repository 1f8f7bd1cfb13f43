"""The order of MaxText: what its hosts read, and the weights that it can mix."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from order_contract import SEEDS, check_contract, instances

from nanoset_ref.orders import build_order
from nanoset_ref.orders.others import GrainOrder


def test_hosts_read_what_those_of_maxtext_read(golden):
    for case in json.loads((golden / "maxtext/hosts.json").read_text()):
        hosts = case["hosts"]
        count = hosts * len(case["read"][0])
        order = f"maxtext:hosts={hosts}"
        order = build_order(order, case["sizes"], case["weights"], count, case["seed"])
        for host, read in enumerate(case["read"]):
            assert instances(order, np.arange(host, count, hosts)) == read
        for position in range(0, count, 13):
            assert position in order.positions(*order[position])


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.lists(st.floats(0.05, 1), min_size=4, max_size=4),
    SEEDS,
    st.integers(1, 4),
    st.integers(0, 120),
)
def test_maxtext_finds_what_it_reads(sizes, weights, seed, hosts, count):
    order = build_order(
        f"maxtext:hosts={hosts}", sizes, weights[: len(sizes)], count, seed
    )
    check_contract(order)


def test_maxtext_searches_no_further_than_it_is_asked_to(monkeypatch):
    """The mixture repeats after 2,000 records, of which 20 positions ask for the first few."""
    ends = []
    reverse_lookup_each = GrainOrder.reverse_lookup_each

    def noting(order, datasets, samples, until):
        ends.append(until)
        return reverse_lookup_each(order, datasets, samples, until)

    monkeypatch.setattr(GrainOrder, "reverse_lookup_each", noting)
    order = build_order("maxtext", [3, 5], [0.05, 0.95], 20)
    for source, read in enumerate(order.counts(20).tolist()):
        assert order.positions(source, 0).tolist() == [
            k for k in range(20) if order[k] == (source, 0)
        ]
        assert ends.pop() == read


@pytest.mark.parametrize("weight", [1e-12, 5e-324])
def test_maxtext_names_a_weight_whose_period_does_not_fit_into_memory(weight):
    with pytest.raises(MemoryError, match=f"raise the weight {weight}, or leave"):
        build_order("maxtext", [3, 4], [1, weight], 7)


def test_maxtext_refuses_what_grain_cannot_mix():
    with pytest.raises(ValueError, match="weights above 0; got"):
        build_order("maxtext", [3, 4], [0, 1], 7)
    with pytest.raises(ValueError, match="no permutation"):
        build_order("maxtext", [65537], None, 7)


def test_the_weights_of_maxtext_are_the_shares_that_it_reads():
    """It truncates them to whole numbers: 0.29 and 0.71 become 100 and 244 of 344."""
    order = build_order("maxtext", [1000, 1000], [0.29, 0.71], 688)
    assert order.counts(688).tolist() == [200, 488]
    assert order.dataset_weights.tolist() == pytest.approx([100 / 344, 244 / 344])
