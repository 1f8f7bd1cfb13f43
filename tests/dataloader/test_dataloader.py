"""The DataLoader of a rank: Nanotron's batches, with any collator, made in any process."""

import hashlib
import pickle

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from token_files import GOLDEN, golden_nanoset, write_range
from torch.utils.data import default_collate

from nanoset_ref import DataCollatorWithLabels, TensorPointer
from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler


def default_collate_of_ids(samples):
    return {"ids": torch.from_numpy(np.stack([row["input_ids"] for row in samples]))}


def digest(batches):
    tensors = [batch[key] for batch in batches for key in ("input_ids", "label_ids")]
    return hashlib.sha256(
        b"".join(tensor.numpy().tobytes() for tensor in tensors)
    ).hexdigest()


@pytest.mark.parametrize("name", GOLDEN)
def test_every_batch_equals_nanotrons(golden, tmp_path, name):
    config, nanoset = golden_nanoset(golden, tmp_path, name)
    for case in config["loaders"]:
        place = {key: case[key] for key in ("micro_batch_size", "dp_rank", "dp_size")}
        consumed = case["consumed_train_samples"]
        consumed -= (
            consumed % case["dp_size"]
        )  # upstream rounds down; here the count is exact
        loader = build_nanoset_dataloader(
            nanoset, **place, consumed_train_samples=consumed
        )
        positions = [k for batch in loader.batch_sampler for k in batch]
        assert (
            positions
            == case["sample_indices"][: case["num_batches"] * case["micro_batch_size"]]
        )
        assert len(loader) == case["num_batches"]
        batches = list(loader)
        assert digest(batches) == case["all_batches_sha256"]
        assert [digest([batch]) for batch in batches[:4]] == case[
            "first_batches_sha256"
        ]


def test_another_collator_gets_its_batches_one_by_one(numbered):
    """One that cannot cut blocks: it is called where torch calls it, in the worker if there is one."""
    nanoset, positions_of = numbered
    for options in (
        {},
        {"num_workers": 1},
        {"read_ahead": 2},
        {"num_workers": 1, "read_ahead": 1},
    ):
        loader = NanosetDataLoader(
            nanoset,
            ResumableBatchSampler(121, 8),
            collate_fn=default_collate,
            **options,
        )
        for number, batch in enumerate(loader):
            assert positions_of(batch) == list(range(8 * number, 8 * number + 8))
            assert loader.consumed_train_samples == (
                8 * number + 8 if number < 14 else 121
            )
        assert number == 14


def test_a_block_is_pinned_before_it_is_cut_and_the_first_batch_waits_for_no_other(
    numbered, monkeypatch
):
    """Stand-ins for an accelerator. Blocks grow in each epoch."""
    nanoset, positions_of = numbered
    pinned = []

    def pin_memory(tensor):
        pinned.append(tensor.shape)
        return tensor.clone()

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, pin_memory=True)
    for _ in range(2):
        assert [k for batch in loader for k in positions_of(batch)] == list(range(120))
    ids_and_mask = [[(size, 3), (size, 2)] for size in (8, 16, 32, 64)]
    assert pinned == 2 * [shape for shapes in ids_and_mask for shape in 2 * shapes], (
        "inputs and labels of each block"
    )


def test_accelerate_does_not_share_out_again_what_a_rank_has(tmp_path, monkeypatch):
    """As rank 0 of 2: a loader without ranks is cut in half, ours keeps its batches."""
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 161), None, 4, 32)
    accelerator = Accelerator(cpu=True)
    for name, value in {"num_processes": 2, "process_index": 0}.items():
        monkeypatch.setattr(
            Accelerator, name, property(lambda self, value=value: value)
        )
    ours = build_nanoset_dataloader(nanoset, micro_batch_size=4, dp_rank=0, dp_size=2)
    expected = [batch["input_ids"].tolist() for batch in ours]
    again = accelerator.prepare(
        build_nanoset_dataloader(nanoset, micro_batch_size=4, dp_rank=0, dp_size=2)
    )
    assert [batch["input_ids"].tolist() for batch in again] == expected
    assert len(list(accelerator.prepare(torch.utils.data.DataLoader(range(8))))) == 4


def test_a_collator_of_the_package_or_any_function_makes_the_batches(numbered):
    nanoset, _ = numbered
    options = {"micro_batch_size": 4}
    rows = [nanoset.read(np.arange(k, k + 4)).tolist() for k in range(0, 120, 4)]
    labelled = list(
        build_nanoset_dataloader(
            nanoset, collate_fn=DataCollatorWithLabels(2), **options
        )
    )
    assert [batch["input_ids"].tolist() for batch in labelled] == rows
    assert all(torch.equal(batch["labels"], batch["input_ids"]) for batch in labelled)
    assert labelled[0]["labels"].dtype == torch.int64
    middle = build_nanoset_dataloader(
        nanoset, collate_fn=len, output_pp_rank=2, current_pp_rank=1, **options
    )
    assert next(iter(middle))["input_ids"] == TensorPointer(0)
    with pytest.raises(
        ValueError,
        match=r"samples must have 6 tokens, got \[3\]; dataset and collator need the same",
    ):
        next(
            iter(
                build_nanoset_dataloader(
                    nanoset, collate_fn=DataCollatorWithLabels(5), **options
                )
            )
        )
    with pytest.raises(
        ValueError, match="documents is an option of DataCollatorForCLM"
    ):
        build_nanoset_dataloader(
            nanoset, collate_fn=len, documents=DocumentOptions(), **options
        )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_ahead": 2},
        {"num_loading_workers": 1},
        {"num_loading_workers": 1, "collate_fn": default_collate_of_ids},
        {"documents": DocumentOptions(eos_token_id=3, reset_position_ids=True)},
    ],
    ids=[
        "in this process",
        "by a thread",
        "by a worker",
        "by torch's loader",
        "documents",
    ],
)
def test_batches_are_on_the_cpu_whatever_the_default_device(numbered, options):
    nanoset, _ = numbered
    expected = next(
        iter(build_nanoset_dataloader(nanoset, micro_batch_size=2, **options))
    )
    torch.set_default_device("meta")  # stands for cuda
    try:
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, **options)
        batch = next(iter(loader))
    finally:
        torch.set_default_device(None)
    for name, tensor in batch.items():
        assert tensor.device.type == "cpu"
        assert tensor.equal(expected[name]), name


def test_a_collate_function_is_given_a_list_of_samples(numbered):
    nanoset, _ = numbered

    def collate(samples):
        assert isinstance(samples, list)
        assert all(isinstance(sample, dict) for sample in samples[1:] + samples[:1])
        return [int(sample["input_ids"][0]) for sample in samples[:2] + samples[2:]]

    loader = build_nanoset_dataloader(nanoset, micro_batch_size=3, collate_fn=collate)
    assert next(iter(loader)) == [int(row[0]) for row in nanoset.read(np.arange(3))]
    assert (
        pickle.loads(pickle.dumps(nanoset.__getitems__([1, 2])))[1][
            "input_ids"
        ].tolist()
        == nanoset.read([2])[0].tolist()
    )


def test_a_list_of_samples_that_was_changed_is_collated_as_it_is_now(numbered):
    nanoset, _ = numbered
    collator = DataCollatorWithLabels(2)
    samples = nanoset.__getitems__(range(4))
    samples.reverse()
    samples[0] = nanoset[9]
    samples[1]["input_ids"] = nanoset[8]["input_ids"]
    assert collator(samples)["labels"].tolist() == nanoset.read([9, 8, 1, 0]).tolist()


def test_a_loader_says_where_it_stands(numbered):
    loader = build_nanoset_dataloader(
        numbered[0], micro_batch_size=4, dp_rank=1, dp_size=2
    )
    next(iter(loader))
    where = "rank 1 of 2, micro-batches of 4, 14 batches left, at sample 8, 0 workers"
    assert repr(loader) == f"NanosetDataLoader({numbered[0]!r}, {where})"


def replace_ids(samples):
    """Each array is freed before the new one is made, which may get its address."""
    for sample in samples:
        ids = sample.pop("input_ids").tolist()
        ids[0] = 499
        sample["input_ids"] = np.array(ids, dtype=np.int32)


def reverse_samples(samples):
    samples[:] = samples[::-1]


def drop_sample(samples):
    del samples[1]


@pytest.mark.parametrize("edit", [replace_ids, reverse_samples, drop_sample])
@pytest.mark.parametrize("num_loading_workers", [0, 1])
def test_a_collate_fn_may_edit_its_samples(numbered, edit, num_loading_workers):
    nanoset, _ = numbered
    collator = DataCollatorWithLabels(2)

    def collate(samples):
        edit(samples)
        return collator(samples)

    loader = build_nanoset_dataloader(
        nanoset,
        micro_batch_size=8,
        collate_fn=collate,
        num_loading_workers=num_loading_workers,
    )
    batch = next(iter(loader))
    samples = [{"input_ids": nanoset[k]["input_ids"].copy()} for k in range(8)]
    edit(samples)
    expected = np.stack([sample["input_ids"] for sample in samples])
    assert batch["labels"].tolist() == expected.tolist()
