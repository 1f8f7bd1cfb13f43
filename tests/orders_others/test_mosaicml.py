"""The order of mosaicml-streaming: what the ranks of the real package read, and the way back from a sample."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_contract import SEEDS, SIZES, check_contract, instances

from nanoset_ref.orders import build_order


def test_ranks_read_what_those_of_mosaicml_read(golden):
    for case in json.loads((golden / "mosaicml/ranks.json").read_text()):
        options = {name: case[name] for name in ("canonical_nodes", "block_size")}
        order = build_order("py1e", case["sizes"], None, 10**6, case["seed"], **options)
        for epoch, nodes in enumerate(case["read"]):
            ranks = len(nodes[0])
            for node, read_in_node in enumerate(nodes):
                for rank, read in enumerate(read_in_node):
                    stride = len(nodes) * ranks
                    places = np.arange(
                        node + len(nodes) * rank, order.epoch_length, stride
                    )
                    found = instances(order, places + epoch * order.epoch_length)
                    assert found == read[: len(found)]
                    assert len(read) - len(found) <= 1, "which fills up the ranks"


@given(SIZES, SEEDS, st.integers(1, 5), st.integers(2, 20), st.integers(0, 40))
def test_py1e_reads_every_sample_in_an_epoch_and_finds_it(
    sizes, seed, nodes, block, count
):
    options = {"canonical_nodes": nodes, "block_size": block}
    if sum(sizes) < nodes:
        with pytest.raises(ValueError, match=f"fewer than canonical_nodes={nodes}"):
            build_order("py1e", sizes, None, count, seed, **options)
        return
    order = build_order("py1e", sizes, None, count, seed, **options)
    read = instances(order, np.arange(order.epoch_length))
    assert {*read} == {*range(sum(sizes))} and len(read) - sum(sizes) < nodes
    check_contract(order)
