"""What each pipeline rank gets of a batch."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_files import GOLDEN, golden_nanoset

from nanoset_ref import DataCollatorWithLabels, plain
from nanoset_ref.load.collator import DataCollatorForCLM, RowBlock, TensorPointer
from nanoset_ref.load.device import to_device
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.rows import SampleBlock

ROWS = np.arange(10, dtype=np.int32).reshape(2, 5)


def described(batch):
    """Its fields in their order: pointers unchanged, of tensors their dtype and values."""
    return [
        (key, it if isinstance(it, TensorPointer) else (it.dtype, it.tolist()))
        for key, it in batch.items()
    ]


@given(st.integers(1, 4), st.integers(1, 9), *[st.integers(0, 2)] * 3)
def test_every_pipeline_rank_gets_what_plain_gives_it(
    batch_size, length, input_pp_rank, output_pp_rank, current
):
    rows = np.arange(batch_size * (length + 1), dtype=np.int32).reshape(
        batch_size, length + 1
    )
    has_data = current in (input_pp_rank, output_pp_rank)
    examples = [{"input_ids": row} if has_data else {} for row in rows]
    batch = DataCollatorForCLM(length, input_pp_rank, output_pp_rank, current)(examples)
    expected = plain.collate(rows, current, input_pp_rank, output_pp_rank)
    for name, value in expected.items():
        expected[name] = (
            TensorPointer(value[1])
            if isinstance(value, tuple)
            else torch.from_numpy(value)
        )
    assert described(batch) == described(expected)


def recorded(value):
    """A field as golden/nanoset_batches.json has it."""
    if isinstance(value, TensorPointer):
        return {"type": "TensorPointer", "group_rank": value.group_rank}
    sha256 = hashlib.sha256(value.numpy().tobytes()).hexdigest()
    return {
        "type": "tensor",
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "sha256": sha256,
    }


@pytest.mark.parametrize("name", GOLDEN)
def test_pipeline_ranks_get_what_nanotron_gives_them(golden, tmp_path, name):
    config, nanoset = golden_nanoset(golden, tmp_path, name)
    for case in config["pipeline"]:
        pp_ranks = {
            key: case[key]
            for key in ("input_pp_rank", "output_pp_rank", "current_pp_rank")
        }
        has_data = pp_ranks.pop("current_pp_rank") in pp_ranks.values()
        size = case["micro_batch_size"]
        collator = DataCollatorForCLM(
            nanoset.sequence_length, **pp_ranks, current_pp_rank=case["current_pp_rank"]
        )
        batch = collator(nanoset.__getitems__(range(size)) if has_data else [{}] * size)
        assert {key: recorded(value) for key, value in batch.items()} == case[
            "first_batch"
        ]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (
            [{"input_ids": np.zeros(4)}],
            r"samples must have 5 tokens, got \[4\]; dataset and collator need the same",
        ),
        ([{"input_ids": np.zeros(5)}, {"input_ids": np.zeros(6)}], r"got \[5, 6\]"),
        (SampleBlock(np.zeros((2, 7), dtype=np.int32)), r"got \[7\]"),
        ([{"tokens": np.zeros(5)}], r"one key 'input_ids', got the keys \['tokens'\]"),
        (
            [{"input_ids": np.zeros(5), "mask": 1}],
            r"got the keys \['input_ids', 'mask'\]",
        ),
        ([{}], r"got the keys \[\]"),
        ([], "at least one sample"),
        (SampleBlock(np.zeros((0, 5), dtype=np.int32)), "at least one sample"),
        ([{"input_ids": np.zeros(5)}], "token ids must be integers, got float64"),
        (SampleBlock(np.zeros((2, 5))), "token ids must be integers, got float64"),
    ],
)
def test_wrong_samples_are_refused(examples, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForCLM(4, 0, 0, 0)(examples)


@pytest.mark.parametrize("needs_starts", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "uint32", "uint64"])
def test_samples_of_any_integers_become_int32_or_int64(dtype, needs_starts):
    """A model looks ids up, and torch has few operations on its unsigned types."""
    documents = DocumentOptions(eos_token_id=2, eod_mask_loss=True)
    collator = DataCollatorForCLM(4, 0, 0, 0, documents if needs_starts else None)
    wide, narrow = (
        collator([{"input_ids": np.array([1, 2, 3, 2, 250]).astype(kind)}])
        for kind in ("int64", dtype)
    )
    expected = torch.int64 if dtype == "uint64" else torch.int32
    assert narrow["input_ids"].dtype == narrow["label_ids"].dtype == expected
    assert all(torch.equal(narrow[name], wide[name]) for name in wide)


@pytest.mark.parametrize("length", [0, -5])
def test_a_sequence_has_at_least_a_token(length):
    with pytest.raises(
        ValueError, match=f"sequence_length must be at least 1, got {length}"
    ):
        DataCollatorForCLM(length, 0, 0, 0)


@pytest.mark.parametrize("name", ["input_pp_rank", "output_pp_rank", "current_pp_rank"])
@pytest.mark.parametrize("rank", ["0", None, -1, 1.0])
def test_a_rank_that_is_no_number_is_refused(name, rank):
    """The text "0" of an environment variable is no rank: it would get placeholders."""
    ranks = {"input_pp_rank": 0, "output_pp_rank": 0, "current_pp_rank": 0}
    with pytest.raises(ValueError, match=f"{name} must be .*at least 0, got {rank!r}"):
        DataCollatorForCLM(4, **ranks | {name: rank})


def test_a_rank_without_data_refuses_data():
    with pytest.raises(
        ValueError,
        match=r"pipeline rank 1 takes no data \(inputs go to 0, labels to 2\).*\['input_ids'\]",
    ):
        DataCollatorForCLM(4, 0, 2, 1)([{"input_ids": ROWS[0]}])


def test_a_block_is_cut_into_the_batches_of_its_rows():
    rows = torch.arange(35, dtype=torch.int32).reshape(7, 5)
    for current in (0, 1):
        collator = DataCollatorForCLM(4, 0, 1, current)
        batches = list(collator.split(RowBlock(rows, 3)))
        expected = [collator(SampleBlock(rows[i : i + 3].numpy())) for i in (0, 3, 6)]
        assert list(map(described, batches)) == list(map(described, expected))


def test_a_mask_made_in_inference_mode_serves_training_too():
    with torch.inference_mode():
        DataCollatorForCLM(6, 0, 0, 0)(SampleBlock(np.zeros((3, 7), dtype=np.int32)))
    mask = DataCollatorForCLM(6, 0, 0, 0)(
        SampleBlock(np.zeros((3, 7), dtype=np.int32))
    )["label_mask"]
    (torch.ones(3, 6, requires_grad=True) * mask).sum().backward()
    mask.zero_()


@pytest.mark.parametrize("current", [0, 1, 2])
@pytest.mark.parametrize(("input_pp_rank", "output_pp_rank"), [(0, 0), (0, 1)])
@pytest.mark.parametrize("cut", [True, False])
def test_a_device_gets_ids_as_contiguous_blocks(
    monkeypatch, input_pp_rank, output_pp_rank, current, cut
):
    """The device is a fake: what is moved is written down, and then another tensor."""
    moved = []

    def to(tensor, device, non_blocking):
        moved.append((tuple(tensor.shape), tensor.is_contiguous(), non_blocking))
        return tensor.clone()

    collator = DataCollatorForCLM(4, input_pp_rank, output_pp_rank, current)
    has_data = current in (input_pp_rank, output_pp_rank)
    if cut and has_data:
        batch = list(
            collator.split(
                RowBlock(torch.arange(30, dtype=torch.int32).reshape(6, 5), 2)
            )
        )[-1]
    else:
        batch = collator(SampleBlock(ROWS.copy()) if has_data else [{}, {}])
    expected = described(batch)
    monkeypatch.setattr(torch.Tensor, "to", to)
    assert described(to_device(batch, "cpu")) == expected
    shapes = {
        "input_ids": (2, 5),
        "input_mask": (2, 4),
        "label_ids": (2, 5),
        "label_mask": (2, 4),
    }
    here = [name for name, value in batch.items() if isinstance(value, torch.Tensor)]
    assert moved == [(shapes[name], True, True) for name in here]


def test_tensors_outside_a_block_are_moved_as_they_are():
    """Own tensors, own masks, and a batch that somebody has changed."""
    batch = DataCollatorForCLM(4, 0, 0, 0)(SampleBlock(ROWS.copy()))
    batch["input_ids"] = batch["input_ids"].clone()
    batch["label_mask"] = batch["label_ids"] != 7
    batch["input_mask"][0, 0] = False
    batch["step"] = torch.tensor(3)
    batch["narrow"] = torch.arange(24).reshape(3, 8)[:, :5]
    batch["last"] = torch.arange(9).as_strided((2, 4), (5, 1))
    moved = to_device(batch, torch.device("cpu"), non_blocking=False)
    assert described(moved) == described(batch)


@pytest.mark.parametrize("length", [0, -3, True, "8"])
def test_a_collator_with_labels_has_a_length(length):
    with pytest.raises(ValueError, match="sequence_length must be"):
        DataCollatorWithLabels(length)
