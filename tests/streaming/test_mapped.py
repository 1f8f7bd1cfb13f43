"""MapDataset and StackDataset: golden behaviour with a list's errors; CompressedDataset is in test_compressed."""

import json

import pytest
from stream_helpers import Indexed, Scaled
from torch.utils.data import DataLoader

from nanoset_ref.streaming import MapDataset, StackDataset


def test_golden_map_and_stack(golden):
    for case in json.loads((golden / "iterable" / "iterable.json").read_text())[
        "stack_map"
    ]:
        first = MapDataset(None, Scaled(case["lengths"][0], plus=1))
        second = MapDataset(
            None,
            Scaled(case["lengths"][1], factor=100, plus=1),
            trainer=None,
            do_preprocessing=False,
        )
        if case["warning"]:
            with pytest.warns(
                UserWarning,
                match=r"the lengths \[3, 7\]; the stack has the shortest, 3",
            ):
                stack = StackDataset(first, second)
        else:
            stack = StackDataset(first, second)
        assert (list(first), list(second), len(stack)) == (
            case["map1"],
            case["map2"],
            case["len"],
        )
        for answers, dataset in (
            (case["getitem"], stack),
            (case["map1_getitem"], first),
        ):
            for index, answer in answers.items():
                if "error" in answer:  # upstream: AssertionError or ValueError
                    with pytest.raises(IndexError, match="out of range"):
                        dataset[int(index)]
                else:
                    expected = answer["value"]
                    assert dataset[int(index)] == (
                        tuple(expected) if isinstance(expected, list) else expected
                    )
        assert [list(pair) for pair in stack] == case["for_loop"][
            "items"
        ]  # and the loop ends without an error


def test_slices_are_lists_and_stacks_can_be_stacked_and_sent_to_workers():
    dataset = MapDataset(None, Scaled(6))
    stack = StackDataset(
        dataset, StackDataset(dataset, MapDataset(None, Scaled(6, plus=1)))
    )
    assert (dataset[1:-1], dataset[::-2]) == ([1, 2, 3, 4], [5, 3, 1])
    batches = list(DataLoader(stack, batch_size=4, num_workers=2, collate_fn=list))
    assert (
        batches
        == [stack[:4], stack[4:]]
        == [[(k, (k, k + 1)) for k in part] for part in ([0, 1, 2, 3], [4, 5])]
    )


def test_a_stack_cut_to_the_shortest_asks_a_dataset_that_has_whole_batches():
    class Batched(Indexed):
        def __getitems__(self, places):
            return [("batch", self[place]) for place in places]

    with pytest.warns(UserWarning, match=r"lengths \[5, 3\]"):
        stack = StackDataset(Batched(5), MapDataset(None, Scaled(3)))
    batches = list(DataLoader(stack, batch_size=2, collate_fn=list))
    assert batches == [[(("batch", k), k) for k in part] for part in ([0, 1], [2])]
    assert (stack[-1], stack[1:]) == ((2, 2), [(1, 1), (2, 2)])


def test_an_empty_stack_is_refused():
    with pytest.raises(ValueError, match="^StackDataset needs at least one dataset$"):
        StackDataset()


def test_not_in_memory_asks_an_adapter_that_can_index():
    assert list(MapDataset(None, Indexed(4), keep_in_memory=False)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="__getitem__ that fit __iter__; Scaled"):
        MapDataset(None, Scaled(4), keep_in_memory=False)
