"""What each pipeline rank gets of a batch."""

import hashlib

import numpy as np
import pytest
import torch
from test_nanoset import GOLDEN, golden_nanoset
from torch.utils.data import default_collate

from nanoset_ref.collator import DataCollatorForCLM, TensorPointer
from nanoset_ref.nanoset import SampleBlock

ROWS = np.arange(10, dtype=np.int32).reshape(2, 5)


def sha(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def test_labels_are_the_inputs_shifted_by_one():
    batch = DataCollatorForCLM(4, 0, 0, 0)([{"input_ids": row} for row in ROWS])
    assert list(batch) == ["input_ids", "input_mask", "label_ids", "label_mask"]
    assert batch["input_ids"].tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert batch["label_ids"].tolist() == [[1, 2, 3, 4], [6, 7, 8, 9]]
    assert batch["input_mask"].tolist() == batch["label_mask"].tolist() == [[True] * 4] * 2
    assert (batch["input_ids"].dtype, batch["input_mask"].dtype) == (torch.int32, torch.bool)


def test_a_block_is_not_copied_at_all():
    rows = ROWS.copy()
    batch = DataCollatorForCLM(4, 0, 0, 0)(SampleBlock(rows))
    assert batch["input_ids"].data_ptr() == rows.ctypes.data
    assert batch["label_ids"].data_ptr() == rows.ctypes.data + 4


def test_a_block_and_a_list_of_samples_give_the_same():
    one = DataCollatorForCLM(4, 0, 0, 0)(SampleBlock(ROWS.copy()))
    other = DataCollatorForCLM(4, 0, 0, 0)(list(SampleBlock(ROWS)))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_torchs_own_collate_takes_a_block():
    assert default_collate(SampleBlock(ROWS))["input_ids"].tolist() == ROWS.tolist()


@pytest.mark.parametrize("name", GOLDEN)
def test_pipeline_ranks_get_what_nanotron_gives_them(golden, tmp_path, name):
    config, nanoset = golden_nanoset(golden, tmp_path, name)
    for case in config["pipeline"]:
        collator = DataCollatorForCLM(
            nanoset.sequence_length, case["input_pp_rank"], case["output_pp_rank"], case["current_pp_rank"]
        )
        has_data = case["current_pp_rank"] in (case["input_pp_rank"], case["output_pp_rank"])
        size = case["micro_batch_size"]
        batch = collator(nanoset.__getitems__(range(size)) if has_data else [{}] * size)
        assert set(batch) == set(case["first_batch"])
        for key, expected in case["first_batch"].items():
            if expected["type"] == "TensorPointer":
                assert batch[key] == TensorPointer(group_rank=expected["group_rank"])
            else:
                assert (str(batch[key].dtype), list(batch[key].shape), sha(batch[key])) == (
                    expected["dtype"],
                    expected["shape"],
                    expected["sha256"],
                )


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([{"input_ids": np.zeros(4)}], r"sequence_length \+ 1 = 5 tokens, got \[4\]"),
        ([{"input_ids": np.zeros(5)}, {"input_ids": np.zeros(6)}], r"got \[5, 6\]"),
        (SampleBlock(np.zeros((2, 7), dtype=np.int32)), r"got \[7\]"),
        ([{"tokens": np.zeros(5)}], r"one key 'input_ids', got the keys \['tokens'\]"),
        ([{"input_ids": np.zeros(5), "mask": 1}], r"got the keys \['input_ids', 'mask'\]"),
        ([{}], r"got the keys \[\]"),
        ([], "at least one sample"),
    ],
)
def test_wrong_samples_are_refused(examples, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForCLM(4, 0, 0, 0)(examples)


def test_a_rank_without_data_refuses_data():
    with pytest.raises(
        ValueError, match=r"pipeline rank 1 takes no data \(inputs go to 0, labels to 2\).*\['input_ids'\]"
    ):
        DataCollatorForCLM(4, 0, 2, 1)([{"input_ids": ROWS[0]}])
