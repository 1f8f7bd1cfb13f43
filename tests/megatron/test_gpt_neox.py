"""GPT-NeoX's datasets: Megatron's, whose last epoch is never shuffled apart."""

import dataclasses
import hashlib
import io
import itertools
import json

import numpy as np
import pytest

from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.megatron.dataset import MegatronNanoset
from nanoset_ref.megatron.nanoset_config import blend_sizes
from nanoset_ref.orders.mt19937 import shuffle
from nanoset_ref.tokens import open_tokens


@pytest.fixture(params=range(6))
def case(request, golden):
    """(a dataset as GPT-NeoX builds it, the same with Megatron's rule, the arrays of GPT-NeoX)."""
    folder = golden / "gpt_neox"
    asked = json.loads((folder / "mappings.json").read_text())[request.param]
    corpus = open_tokens(folder / "corpus.bin")
    built = []
    for apart in (False, True):
        config = NanosetConfig(
            random_seed=asked["seed"],
            sequence_length=asked["sequence_length"],
            data_path=str(folder / "corpus"),
            split="1,0,0",
            separate_final_epoch=apart,
        )
        part = asked["first"], asked["stop"], asked["num_samples"]
        built.append(MegatronNanoset(corpus, *part, "train", config))
    arrays = np.load(folder / "mappings.npz")
    names = "document_index", "sample_index", "shuffle_index", "rows"
    return *built, {name: arrays[f"{request.param}/{name}"] for name in names}


def test_mappings_and_rows_are_those_of_gpt_neox(case):
    dataset, _, theirs = case
    for name in ("document_index", "sample_index", "shuffle_index"):
        assert np.array_equal(getattr(dataset, name), theirs[name]), name
    # its loader leaves out the last sample
    assert len(dataset) == len(theirs["rows"]) + 1
    assert np.array_equal(dataset.read(np.arange(len(dataset) - 1)), theirs["rows"])


def test_both_rules_agree_unless_megatron_keeps_the_last_epoch_apart(case):
    dataset, megatron, _ = case
    same = np.array_equal(dataset.shuffle_index, megatron.shuffle_index)
    assert same == (not megatron.epochs.separate_final_epoch)
    assert (dataset.fingerprint == megatron.fingerprint) == same


@pytest.mark.parametrize("number", range(6))
def test_blends_are_those_of_gpt_neox(golden, number):
    folder = golden / "gpt_neox"
    asked = json.loads((folder / "blends.json").read_text())[number]
    arrays = np.load(folder / "blends.npz")
    prefixes = [str(folder / name) for name in ("corpus", "second", "third")]
    pairs = zip(asked["weights"], prefixes, strict=False)
    config = NanosetConfig(
        random_seed=asked["seed"],
        sequence_length=asked["sequence_length"],
        data_path=[*itertools.chain(*pairs)],
        split="1,0,0",
        split_num_samples=(asked["num_samples"], 0, 0),
        separate_final_epoch=False,
    )
    blend = NanosetBuilder(config).build(["train"])[0]
    assert np.array_equal(blend.dataset_index, arrays[f"{number}/dataset_index"])
    assert np.array_equal(blend.read(np.arange(len(blend))), arrays[f"{number}/rows"])
    for source, use in enumerate(blend.usage(0, len(blend))):
        assert use.distinct == len(
            {*blend.dataset_sample_index[blend.dataset_index == source]}
        )


@pytest.mark.slow
def test_the_repaired_order_of_polypythias_seed_2_follows_from_two_numbers():
    """The published shuffle_idx.npy was zero in [12354528, 162164736); the repaired file has this checksum.

    https://huggingface.co/datasets/EleutherAI/pile-preshuffled-seeds, discussion 2. Takes half a minute and 1.1 GB.
    """
    documents = np.zeros(
        210_604_984, dtype=np.uint8
    )  # how they are shuffled depends on their number
    samples = np.arange(162_165_686, dtype=np.uint32)
    shuffle(2, documents, samples)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, np.lib.format.header_data_from_array_1_0(samples)
    )
    digest = hashlib.sha256(header.getvalue())
    digest.update(samples.data)
    assert digest.hexdigest().startswith("1e0844e29f86cb11")


def test_gpt_neox_rounds_once_where_megatron_core_rounds_twice() -> None:
    config = NanosetConfig(
        random_seed=1,
        sequence_length=8,
        data_path={"a": 1.0, "b": 2.0},
        split="1",
        split_num_samples=(10, 0, 0),
    )
    _, sizes = blend_sizes([1.0, 2.0], 10, config)
    assert sizes == [5, 8]
    neox = dataclasses.replace(config, separate_final_epoch=False)
    assert blend_sizes([1.0, 2.0], 10, neox)[1] == [4, 7]
