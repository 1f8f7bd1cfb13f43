"""Which rows are in a batch, in whatever form it comes."""

from typing import Any

import numpy as np
import pytest
import torch

from nanoset_ref.laws import (
    check,
)
from nanoset_ref.laws.batch_rows import mask_fault, overwrite, rows_in
from nanoset_ref.laws.corpora import tokens_of_rows

ROWS = tokens_of_rows(np.array([3, 4]))
WITH_LABEL = np.array([[*range(32, 41)], [*range(40, 49)]])


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (ROWS, (3, 4)),
        (WITH_LABEL, (3, 4)),
        (torch.from_numpy(ROWS), (3, 4)),
        ({"label_ids": ROWS + 1, "input_ids": ROWS}, (3, 4)),
        ((ROWS, ROWS + 1), (3, 4)),
        ([{"tokens": row} for row in ROWS], (3, 4)),
        ({"text": ["32 33 34 35 36 37 38 39"]}, (3,)),
        (np.concatenate([ROWS[0], ROWS[1], [0] * 8]), (3, 4)),
        (ROWS + 1, ("tokens 33..40", "tokens 41..48")),
        (np.array([8, 9, 10, 11, 12, 13, 14, 99]), ("tokens 8..99",)),
    ],
)
def test_a_batch_tells_its_rows(batch: Any, rows: tuple[Any, ...]) -> None:
    assert rows_in(batch, "npy") == rows


@pytest.mark.parametrize(
    "batch",
    [
        [2, 7],
        np.array([2, 7]),
        torch.tensor([2, 7]),
        {"row": [2, 7]},
        [{"row": 2}, {"row": 7}],
    ],
)
def test_row_numbers_are_taken_as_they_are(batch: Any) -> None:
    assert rows_in(batch, "rows") == (2, 7)


@pytest.mark.parametrize(
    "batch",
    [
        [np.arange(3), np.arange(3) % 2],  # rows and their labels
        {"label": np.arange(3), "x": np.arange(3)},
        [np.array([[4]]), np.array([[7]])],  # two micro-batches
    ],
    ids=["pair", "dict", "micro-batches"],
)
def test_a_batch_that_can_be_read_in_two_ways_asks_for_rows_of(batch: Any) -> None:
    with pytest.raises(TypeError, match=r"unclear which|second array is not"):
        rows_in(batch, "rows")


def test_masked_labels_are_labels() -> None:
    inputs = np.arange(8, 16)[None]
    labels = np.array([[9, 10, -100, 12, 13, 14, 15, -100]])
    assert rows_in((inputs, labels), "npy") == (0,)


def test_a_mask_is_compared_with_the_tokens() -> None:
    tokens = np.array([[8, 9, 0, 0]])
    assert mask_fault({"tokens": tokens, "mask": tokens > 0}, "mask") == ""
    assert (
        mask_fault({"tokens": tokens, "mask": tokens >= 0}, "mask")
        == "mask is True at token 0"
    )


def test_writing_into_a_batch_reaches_every_array() -> None:
    batch = {"a": torch.zeros(2), "b": [np.zeros(2)]}
    overwrite(batch)
    assert batch["a"].tolist() == [1, 1]
    assert batch["b"][0].tolist() == [1, 1]


@pytest.mark.parametrize("form", [np.array, torch.tensor, list])
def test_rows_of_may_give_numbers_of_numpy_and_torch(form: Any) -> None:
    def make(data: int, *, rank: int, world_size: int, **_: Any) -> Any:
        for row in range(rank, data // world_size * world_size, world_size):
            yield form([row])

    options = {"claims": "once ranks owned data", "tail": "drop", "max_batch_size": 1}
    report = check(make, rows_of=iter, **options, examples=15, budget=600)
    assert report.broken == [] == report.unjudged


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("hello", "found no row numbers in the batch 'hello'"),
        (None, "it has values of object, not integers"),
        (np.zeros(3), "it has values of float64, not integers"),
    ],
    ids=str,
)
def test_a_batch_without_row_numbers_is_a_finding_that_names_the_way_out(
    batch: Any, message: str
) -> None:
    report = check(
        lambda data, **place: [batch], claims="once repeat", examples=3, budget=600
    )
    assert report.broken == ["once", "repeat"]
    assert message in report.line("once") and "give rows_of=" in report.line("once")
