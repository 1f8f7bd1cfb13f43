"""Blocks of many batches against one batch after another by torch's DataLoader: the same tensors and states."""

import functools

import numpy as np
import pytest
import torch

from nanoset_ref.load import blocks
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import (
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.tokens import TokenFileWriter

LENGTHS = [
    3,
    1,
    5,
    2,
    60,
    9,
    4,
] * 6  # of documents: 125 samples of 4 tokens, and a last token
MASKS = DocumentOptions(
    reset_position_ids=True,
    reset_attention_mask=True,
    eod_mask_loss=True,
    create_cu_seqlens=True,
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The same documents as a Nanoset, of an odd 121 positions, and as a MegatronNanoset."""
    folder = tmp_path_factory.mktemp("tokens")
    with TokenFileWriter(folder / "a.npy", dtype="uint16") as writer:
        writer.write(np.arange(sum(LENGTHS)), LENGTHS)
    with MMapIndexedDatasetBuilder(folder / "a.bin", np.uint16) as builder:
        builder.write(np.arange(sum(LENGTHS)), LENGTHS)
    options = {
        "data_path": str(folder / "a"),
        "split": "1,0,0",
        "split_num_samples": (None, 0, 0),
    }
    config = NanosetConfig(
        random_seed=3, sequence_length=4, path_to_cache=str(folder / "cache"), **options
    )
    return {
        "nanoset": Nanoset(folder / "a.npy", None, 4, 121),
        "megatron": NanosetBuilder(config).build()[0],
    }


def delivered(loader, stop):
    """The batches until `stop`, and then those of the rest of that epoch and of the next, each with its state."""
    found = []
    for _ in range(3):
        for batch in loader:
            found.append(
                (
                    {name: torch.as_tensor(value) for name, value in batch.items()},
                    loader.state_dict(),
                )
            )
            if len(found) == stop:
                break
    return found


@pytest.mark.parametrize(
    ("tail", "documents"), [("drop", None), ("pad", MASKS), ("loop", MASKS)]
)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("read_ahead", [0, 2])
@pytest.mark.parametrize("dataset", ["nanoset", "megatron"])
def test_blocks_hold_the_batches_that_torch_collates_one_by_one(
    rows, monkeypatch, dataset, tail, read_ahead, workers, documents
):
    """From the middle of an epoch, left once on the way, to the end of the next one; three batches to a block."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 3 * 4 * 5 * 4)
    options = {
        "micro_batch_size": 4,
        "dp_rank": 1,
        "dp_size": 3,
        "tail": tail,
        "documents": documents,
    }
    options |= {"consumed_train_samples": 41}
    ahead = {"num_loading_workers": workers, "read_ahead": read_ahead}
    one_by_one = build_nanoset_dataloader(rows[dataset], **options)
    one_by_one.collate_fn = functools.partial(one_by_one.collate_fn)  # any function
    expected = delivered(one_by_one, 4)
    found = delivered(build_nanoset_dataloader(rows[dataset], **options, **ahead), 4)
    assert len(found) == len(expected) > 12
    for (batch, state), (expected_batch, expected_state) in zip(
        found, expected, strict=True
    ):
        assert state == expected_state
        assert batch.keys() == expected_batch.keys()
        for name, value in batch.items():
            assert value.dtype == expected_batch[name].dtype and value.equal(
                expected_batch[name]
            ), name
