"""What every order promises, whosever it is: `check_contract` holds an order to that."""

import json
import pickle

import numpy as np
from hypothesis import strategies as st

from nanoset_ref.orders import build_order, recipe_of

SIZES = st.lists(st.integers(0, 15), min_size=1, max_size=4).filter(any)
SEEDS = st.integers(0, 2**32 - 1)


def instances(order, positions):
    """The instances at some positions, as the loader of another package numbers its rows."""
    datasets, samples = order.lookup(np.asarray(positions, dtype=np.int64))
    return (order.source_offsets[datasets] + samples).tolist()


def check_contract(order):
    """What every order promises: the way back is a search, counts are counts, and the recipe makes it again."""
    pairs = [order[k] for k in range(len(order))]
    assert list(zip(*(part.tolist() for part in order[:]), strict=True)) == pairs
    half = len(order) // 2
    for dataset, length in enumerate(order.dataset_lengths.tolist()):
        assert order.counts(half)[dataset] == sum(d == dataset for d, _ in pairs[:half])
        for sample in range(length):
            places = [k for k, pair in enumerate(pairs) if pair == (dataset, sample)]
            assert order.positions(dataset, sample).tolist() == places
            before = [k for k in places if k < half]
            assert order.positions(dataset, sample, half).tolist() == before
    again = pickle.loads(pickle.dumps(order))
    assert again.fingerprint == order.fingerprint
    if recipe_of(order) is not None:
        recipe = json.loads(json.dumps(recipe_of(order)))
        options = recipe.pop("options")
        again = build_order(
            recipe["name"],
            order.dataset_lengths,
            recipe["dataset_weights"],
            len(order),
            recipe["random_seed"],
            **options,
        )
    assert [again[k] for k in range(len(order))] == pairs
    assert again.identity == order.identity
