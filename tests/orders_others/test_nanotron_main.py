"""The order of Nanotron's main branch: stages and ledger of the real package, folders and their files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_contract import check_contract, instances

from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.megatron.index.three_indexes import blend_samples
from nanoset_ref.orders import SkippingOrder, build_order, recipe_of
from nanoset_ref.orders.others import nanotron_stages


def split_in_files(size):
    """A folder's rows in files of 7, of none, and the rest."""
    return [7, 0, size - 7] if size > 7 else [size]


def config_of_nanotron(case):
    """The YAML that a recorded run would have had, parsed."""
    stages = []
    for number, stage in enumerate(case["stages"]):
        dataset = {"dataset_folder": [path for path, _ in stage["folders"]]}
        if stage["weights"]:
            dataset["dataset_weights"] = stage["weights"]
        data = {"dataset": dataset, "seed": 6}
        stages.append(
            {"name": str(number), "start_training_step": stage["first"], "data": data}
        )
    return {
        "tokens": {
            "micro_batch_size": case["micro_batch_size"],
            "batch_accumulation_per_replica": case["accumulation"],
            "train_steps": case["steps"],
            "sequence_length": case["sequence_length"],
        },
        "parallelism": {"dp": case["ranks"]},
        "data_stages": stages,
    }


@pytest.mark.parametrize("number", range(4))
def test_stages_and_ledger_are_those_of_nanotron(golden, number):
    case = json.loads((golden / "nanotron_main/stages.json").read_text())[number]
    folders = {
        path: size for stage in case["stages"] for path, size in stage["folders"]
    }
    rows = {path: split_in_files(size) for path, size in folders.items()}
    orders = nanotron_stages(config_of_nanotron(case), rows)
    batch = case["micro_batch_size"] * case["ranks"] * case["accumulation"]
    for order, stage in zip(orders, case["stages"], strict=True):
        paths = [path for path, _ in stage["folders"]]
        places = [
            (folder, row)
            for folder, path in enumerate(paths)
            for row in range(folders[path])
        ]
        read = [[places[instance] for instance in instances(order, range(len(order)))]]
        for rank, theirs in enumerate(stage["read"]):
            rows_of_rank = case["micro_batch_size"], rank, case["ranks"]
            sampler = ResumableBatchSampler(
                len(order), *rows_of_rank, layout="contiguous"
            )
            assert [list(read[0][k]) for batch in sampler for k in batch] == theirs
        last = stage["first"] + len(order) // batch - 1
        counted = order.rows_counted_by_nanotron(stage["first"], last, batch)
        tokens = [count * case["sequence_length"] for count in counted]
        assert dict(zip(paths, tokens, strict=True)) == stage["counted_tokens"]


@given(
    st.lists(st.integers(5, 12), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.integers(0, 5),
)
def test_nanotron_main_by_hand(sizes, weights, length):
    weights = [weight + 1 for weight in weights[: len(sizes)]]
    files = [part for size in sizes for part in split_in_files(size)]
    options = {
        "folders": [len(split_in_files(size)) for size in sizes],
        "offsets": [0] * len(sizes),
    }
    order = build_order("nanotron_main", files, weights, length, **options)
    shares = np.array(weights) / np.sum(weights)
    taken = [0] * len(sizes)
    expected = []
    for t in range(length):
        folder = int(np.argmax(shares * max(t, 1) - taken))
        expected.append(sum(sizes[:folder]) + taken[folder])
        taken[folder] += 1
    assert instances(order, range(length)) == expected
    check_contract(order)


def test_a_folder_that_runs_out_is_refused():
    with pytest.raises(
        ValueError, match="folder 1 has 3 rows; this stage would read 2 from 2 on"
    ):
        build_order("nanotron_main", [9, 3], None, 4, offsets=[0, 2])
    with pytest.raises(ValueError, match="folders count 2 files"):
        build_order("nanotron_main", [9, 3], None, 4, folders=[1, 2])
    config = {
        "tokens": {
            "micro_batch_size": 1,
            "batch_accumulation_per_replica": 1,
            "train_steps": 2,
        },
        "parallelism": {"dp": 1},
        "data_stages": [
            {
                "name": "stable",
                "start_training_step": 1,
                "data": {"dataset": {"dataset_folder": "a", "dataset_max_tokens": [5]}},
            }
        ],
    }
    with pytest.raises(ValueError, match="'stable' sets dataset_max_tokens"):
        nanotron_stages(config, {"a": [5]})


@pytest.mark.parametrize("weights", [[9, 1], None])
def test_files_of_nanotron_main_have_the_weight_of_their_folder(weights):
    """As those of a FolderOrder; without weights all folders weigh the same."""
    order = build_order("nanotron_main", [30, 10, 20], weights, 40, folders=[2, 1])
    first, second = np.array(weights or [1, 1]) / sum(weights or [1, 1])
    expected = [0.75 * first, 0.25 * first, second]
    assert order.dataset_weights.tolist() == pytest.approx(expected)
    assert order.weighted
    skipping = SkippingOrder(order, [(3, 5)])
    assert skipping.dataset_weights.tolist() == pytest.approx(expected)
    recipe = recipe_of(order)
    again = build_order(
        recipe["name"],
        [30, 10, 20],
        recipe["dataset_weights"],
        9,
        **recipe["options"],
    )
    assert again.identity == order.identity


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"offsets": [0, -1]}, "an offset must be at least 0, got -1"),
        ({"offsets": [0, 1.9]}, "an offset must be an integer of at least 0, got 1.9"),
        ({"folders": [3, -1]}, "a number of files must be at least 0, got -1"),
        ({"folders": [1, True]}, "a number of files must be an integer of at least"),
        ({"folders": 3}, r"folders count 2 files.*folders=\[3\], offsets=\[0\]"),
    ],
)
def test_an_offset_or_a_number_of_files_is_a_whole_number(option, problem):
    with pytest.raises(ValueError, match=problem):
        build_order("nanotron_main", [3, 4], None, 4, **option)


def test_one_folder_may_be_given_by_its_number_of_files():
    order = build_order("nanotron_main:folders=2,offsets=1", [3, 4], None, 4)
    assert instances(order, range(4)) == [1, 2, 3, 4]


def test_stages_that_a_run_does_not_reach_are_no_stages():
    config = {
        "tokens": {
            "micro_batch_size": 2,
            "batch_accumulation_per_replica": 1,
            "train_steps": 10,
        },
        "parallelism": {"dp": 2},
        "data_stages": [
            {
                "name": name,
                "start_training_step": start,
                "data": {"dataset": {"dataset_folder": name}},
            }
            for name, start in (("b", 50), ("a", 1))
        ],
    }
    (order,) = nanotron_stages(config, {"a": [200]})
    assert len(order) == 40, "10 steps of 4 rows"


def test_long_stages_are_blended_block_by_block():
    weights = [0.15, 0.6, 0.25]
    count = 40_000  # more than two blocks
    order = build_order("nanotron_main", [count] * 3, weights, count, offsets=[3, 0, 7])
    shares = np.array(weights) / np.sum(weights)
    folders, rows = blend_samples(shares, np.full(3, count), count)
    found = order[:]
    assert np.array_equal(found[0], folders)
    assert np.array_equal(found[1], rows + np.array([3, 0, 7])[folders])
    for position in (0, 16_383, 16_384, 32_768, 39_999):
        assert order.positions(*order[position]).tolist() == [position]
    assert (
        order.positions(0, 2).tolist() == order.positions(1, count - 1).tolist() == []
    )
