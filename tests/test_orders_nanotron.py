"""The Nanotron order against what the real Nanotron returned, and against plain.py."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.orders import NanotronOrder
from nanoset_ref.orders.greedy_blend import FEW_GROUPS, blend, groups_of

REFUSED = {
    "c030",
    "c031",
    "c034",
}  # negative, all-zero, and empty datasets upstream stumbles over


def test_equals_nanotron_in_every_golden_case(golden):
    arrays = np.load(golden / "nanoset_index.npz", allow_pickle=False)
    for case in json.loads((golden / "nanoset_index.json").read_text())["cases"]:
        arguments = (
            case["dataset_lengths"],
            case["weights"],
            case["train_split_num_samples"],
            case["seed"],
        )
        if case["id"] in REFUSED:
            with pytest.raises(
                ValueError,
                match=r"weights must|positive, finite|no samples|samples in at least one",
            ):
                NanotronOrder(*arguments)
            continue
        order = NanotronOrder(*arguments)
        datasets, samples = order[np.arange(len(order))]
        if case["id"] == "c033":  # upstream divides by 0: an empty dataset is the first
            assert set(datasets.tolist()) == {1}
            continue
        np.testing.assert_array_equal(
            datasets, arrays[f"{case['id']}_dataset_index"].astype(np.int64), case["id"]
        )
        np.testing.assert_array_equal(
            samples, arrays[f"{case['id']}_dataset_sample_index"], case["id"]
        )
        assert [weight.hex() for weight in order.dataset_weights.tolist()] == case[
            "normalized_weights_hex"
        ]


def test_reads_of_a_sample_are_counted_beyond_32_bits():
    order = NanotronOrder([4, 6], [0.9, 0.1], 10**13, 1)  # epochs of 10 samples
    assert order.counts(10**13).tolist() == [9 * 10**12, 10**12]
    reads = order.reads_of_samples(10**10, 10**13)
    assert reads[0].tolist()[1:] == [2 * (10**12 - 10**9)] * 3
    assert order.reads_of_samples(0, 2**32 - 1)[0].dtype == np.uint32


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 9)), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 300),
    st.integers(0, 2**32 - 1),
)
def test_equals_plain(datasets, weighted, num_samples, seed):
    lengths, weights = ([*column] for column in zip(*datasets, strict=True))
    weights = weights if weighted else None
    epoch = plain.nanotron_order(lengths, weights, seed)
    order = NanotronOrder(lengths, weights, num_samples, seed)
    assert [order[k] for k in range(num_samples)] == [
        plain.nanotron_at(k, epoch) for k in range(num_samples)
    ]


@given(
    st.lists(st.integers(0, 9) | st.floats(1e-300, 1e9), max_size=20),
    st.integers(FEW_GROUPS + 1, 8 * FEW_GROUPS),
    st.floats(0, 3),
    st.integers(0, 2**32 - 1),
    st.integers(1, 1000),
)
def test_many_files_are_blended_as_if_all_were_compared_at_each_position(
    drawn, count, spread, seed, size
):
    random = np.random.RandomState(seed)
    weights = plain.normalize([*drawn, *random.lognormal(0, spread, count)])
    numbers = np.zeros(size, dtype=np.uint64)
    length = size + 1
    lengths = np.full(len(weights), length)
    groups = groups_of(weights, lengths)
    assert blend(lengths, weights, np.cumsum(lengths) - length, *groups, numbers) == -1
    found = np.stack(np.divmod(numbers.astype(np.int64), length), axis=1)
    np.testing.assert_array_equal(found, plain.greedy_blend(weights, size))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=90).filter(any),
    st.integers(0, 2**32 - 1),
)
def test_files_without_samples_change_nothing_wherever_they_are_listed(lengths, seed):
    full = [source for source, length in enumerate(lengths) if length]
    order = NanotronOrder(lengths, None, 50, seed)
    alone = NanotronOrder([length for length in lengths if length], None, 50, seed)
    assert [order[k] for k in range(50)] == [
        (full[source], sample) for source, sample in (alone[k] for k in range(50))
    ]


def test_a_file_that_has_a_weight_but_no_sample_is_named():
    with pytest.raises(ValueError, match="source 1 has no samples but a positive"):
        NanotronOrder([5, 0, 5], [1, 1, 1], 10)
    assert NanotronOrder([0, 5], [0, 1], 10)[:][0].tolist() == [1] * 10


def test_the_example_in_its_docstring_is_what_it_gives():
    """Before the shuffle, which step 3 of plain.py's order does; `blend` numbers samples through all datasets."""
    rows = [
        line.split()
        for line in NanotronOrder.__doc__.splitlines()
        if line.split()[:1] in (["source"], ["sample"])
    ]
    lengths = np.array([8, 2, 5, 5])
    order = plain.greedy_blend(plain.normalize([10, 50, 30, 10]), 20)
    order[:, 1] %= lengths[order[:, 0]]
    assert [list(map(int, row[1:21])) for row in rows] == order.T.tolist()
