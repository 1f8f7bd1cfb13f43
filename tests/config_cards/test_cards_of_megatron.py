"""Cards from configs of GPT-NeoX and scripts of Megatron: blends, options that change the order, batches that grow."""

import json

import numpy as np
import pytest
from loader_configs import MEGATRON, card

from nanoset_ref.cli import main
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.provenance import segments_of_card
from nanoset_ref.provenance.loader_config import read_command_line
from nanoset_ref.tokens import MMapIndexedDatasetBuilder, open_tokens


@pytest.fixture
def pair(tmp_path):
    prefix = tmp_path / "pile_text_document"
    random = np.random.RandomState(3)
    with MMapIndexedDatasetBuilder(f"{prefix}.bin", np.uint16) as builder:
        for length in random.randint(1, 90, 60):
            builder.add_item(random.randint(0, 900, length))
            builder.end_document()
        builder.finalize(f"{prefix}.idx")
    return prefix


def rows_of(found, paths):
    (segment,) = segments_of_card(found, [str(path) for path in paths], open_tokens)
    return segment.dataset.read(np.arange(40))


def test_gpt_neox_names_what_pythias_config_lacks(tmp_path, pair):
    text = f"""{{
      # batch size (trained on 4 gpus)
      "seq-length": 16,
      "train_micro_batch_size_per_gpu": 2,
      "gas": 1,
      "train-iters": 12,
      "train-data-paths": ["{pair}"],
    }}"""
    with pytest.raises(
        ValueError, match=r"dp_size \(data-parallel ranks\); dtype .* dp_size=... dtype"
    ):
        card(tmp_path, "gpt-neox", text)
    found = card(tmp_path, "gpt-neox", text, dp_size=4, dtype="uint16")
    stage = found.facts["stages"][0]
    assert (stage["batch_size"], stage["layout"], stage["dp_size"]) == (
        8,
        "contiguous",
        4,
    )
    assert "seed=1234, the default" in found.facts["inferred"]
    assert found.facts["orders"][0]["samples"] == 97, (
        "96 rows, and the surplus of 1.005"
    )
    config = NanosetConfig(
        random_seed=1234,
        sequence_length=16,
        data_path=[str(pair)],
        split="1,0,0",
        split_num_samples=(97, 0, 0),
        separate_final_epoch=False,
    )
    assert np.array_equal(
        rows_of(found, [pair]),
        NanosetBuilder(config).build(["train"])[0].read(np.arange(40)),
    )


def test_a_blend_of_gpt_neox_is_read_and_reproduced(golden, tmp_path):
    paths = [str(golden / "gpt_neox" / name) for name in ("corpus", "second", "third")]
    text = f"""{{
      "seq-length": 7, "train_micro_batch_size_per_gpu": 5, "gas": 2, "train-iters": 10,
      "train-data-paths": {json.dumps(paths)}, "train-data-weights": [0.5, 0.3, 0.2],
    }}"""
    found = card(tmp_path, "gpt-neox", text, dp_size=1, dtype="uint16")
    theirs = np.load(golden / "gpt_neox/blends.npz")["0/rows"]
    assert np.array_equal(rows_of(found, paths), theirs[:40])
    counted = text.replace("}", ' "weight_by_num_documents": true}')
    found = card(tmp_path, "gpt-neox", counted, dp_size=1, dtype="uint16")
    assert found.facts["orders"][0]["name"] == "unknown"


def test_megatrons_arguments_are_read_from_a_script(tmp_path, pair):
    script = f"""#!/bin/bash
    torchrun --nproc-per-node 8 pretrain_gpt.py --seq-length 16 --micro-batch-size 2 \\
        --global-batch-size 8 --train-iters=12 --seed 7 --split 90,10,0 $EXTRA \\
        --data-path 0.4 {pair} 0.6 {pair} --tokenizer-model $TOKENIZER  # and no more
    """
    found = card(tmp_path, "megatron", script, dtype="uint16")
    config = NanosetConfig(
        random_seed=7,
        sequence_length=16,
        data_path=[0.4, str(pair), 0.6, str(pair)],
        split="90,10,0",
        split_num_samples=(96, 0, 0),
    )
    expected = NanosetBuilder(config).build(["train"])[0].read(np.arange(40))
    assert np.array_equal(rows_of(found, [pair, pair]), expected)
    assert found.facts["stages"][0]["layout"] is None, (
        "nothing says how many ranks there were"
    )
    latin = tmp_path / "latin.sh"
    latin.write_bytes(script.replace("and no more", "für später").encode("latin-1"))
    assert read_command_line(latin)["seq_length"] == "16"
    hidden = script.replace("--global-batch-size 8", "--global-batch-size $BATCH")
    with pytest.raises(ValueError, match="batch_size .*dtype"):
        card(tmp_path, "megatron", hidden)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--seed $SEED", "the config lacks .*seed .of the order.*--given"),
        ("--seed 7 --split $SPLIT", "only the shell knows the value of .SPLIT"),
        ("--seed 7 --rampup-batch-size $A $B $C", "rampup_batch_size=.*by hand"),
        ("--step-batch-size-schedule 0:4 2B:8", "step_batch_size_schedule=.'0:4'"),
        ("--seed 7 --dataloader-type cyclic", "dataloader_type=cyclic changes which"),
        ("--seed 7 --fim-data", "fim_data=True changes which rows"),
        ("--phase-transition-iterations 500", "phase_transition_iterations=500"),
        ("--rampup-batch-size 4 4 90", "rampup_batch_size=.*by hand"),  # by steps
        ("--decrease-batch-size-if-needed", "decrease_batch_size_if_needed=True"),
        ("--sft", "sft=True"),
        ("--mock-data", "mock_data=True"),
        ("--train-data-path a", "train_data_path=a"),
        ("--data-args-path a", "data_args_path=a"),
        ("--per-split-data-args-path a", "per_split_data_args_path=a"),
        ("--per-dataset-sequences-path a", "per_dataset_sequences_path=a"),
        ("--iterations-to-skip 5 6", "iterations_to_skip=.'5', '6'"),
        ("--mid-level-dataset-surplus 0.1", "mid_level_dataset_surplus=0.1"),
        ("--seed 7 --data-path 0.5 $A 0.5 $B", "only the shell knows the value of .A"),
    ],
)
def test_options_that_change_the_order_are_asked_for_or_refused(
    tmp_path, options, message
):
    script = (
        "--seq-length 16 --micro-batch-size 2 --global-batch-size 8 --train-iters 12"
        f" --data-path corpus {options}\n"
    )
    with pytest.raises(ValueError, match=message):
        card(tmp_path, "megatron", script, dtype="uint16")


RAMPS = [
    ((4, 4, 50), 16, 200, {4: 5, 8: 2, 12: 2, 16: 8}),
    ((8, 8, 100), 32, 1003, {8: 5, 16: 2, 24: 2, 32: 27}),
    ((2, 3, 10), 11, 64, {2: 2, 5: 1, 8: 1, 11: 4}),
    ((4, 12, 1), 16, 40, {4: 1, 16: 2}),
    (
        (192, 192, 1_000_000),
        1536,
        24_414_063,
        {
            192: 745,
            384: 372,
            576: 248,
            768: 186,
            960: 149,
            1152: 124,
            1344: 107,
            1536: 15242,
        },
    ),
]


def ramped(tmp_path, ramp, batch, samples, options="--micro-batch-size 1"):
    start, increment, ramp_samples = ramp
    script = (
        f"--seq-length 8 --data-path corpus --global-batch-size {batch} {options} "
        f"--rampup-batch-size {start} {increment} {ramp_samples} --train-samples {samples}"
    )
    return card(tmp_path, "megatron", script, dtype="uint16", dp_size=1)


@pytest.mark.parametrize(("ramp", "batch", "samples", "steps_of_batch"), RAMPS)
def test_a_batch_that_grows_is_a_stage_for_each_batch(
    tmp_path, ramp, batch, samples, steps_of_batch
):
    """The steps of each batch, counted by Megatron-LM's own update_train_iters (859b66a003, April 2026)."""
    found = ramped(tmp_path, ramp, batch, samples)
    stages = found.facts["stages"]
    assert {stage["batch_size"]: stage["steps"] for stage in stages} == steps_of_batch
    assert len(stages) == len(steps_of_batch)
    position = 0
    step = 1
    for stage in stages:
        assert (stage["first_step"], stage["first_position"]) == (step, position)
        assert stage["order"] == 0
        step += stage["steps"]
        position += stage["steps"] * stage["batch_size"]
    assert found.facts["orders"][0]["samples"] == samples
    assert found.facts["loader"]["version"] == "core_v0.16.1"
    assert "rampup_batch_size as before April 2026" in str(found.facts["inferred"])


@pytest.mark.parametrize(
    ("ramp", "batch"),
    [((4, 5, 90), 16), ((16, 4, 90), 16), ((4, 4, 0), 16), ((4, 0, 90), 16)],
)
def test_a_ramp_that_megatron_refuses_is_refused(tmp_path, ramp, batch):
    with pytest.raises(ValueError, match="rampup_batch_size=.*by hand"):
        ramped(tmp_path, ramp, batch, 400)


@pytest.mark.parametrize("samples", [47, 59])
def test_a_ramp_that_reads_more_samples_than_there_are_is_refused(tmp_path, samples):
    """Its 5 batches of 4, 2 of 8 and 2 of 12 end at samples 20, 36 and 60."""
    assert ramped(tmp_path, (4, 4, 50), 16, 60).last_step == 9
    with pytest.raises(ValueError, match=f"over {samples} train_samples .*by hand"):
        ramped(tmp_path, (4, 4, 50), 16, samples)


def test_a_ramp_of_too_many_batches_does_not_fit_in_a_card(tmp_path, capsys):
    path = tmp_path / "run.sh"
    path.write_text(
        "--seq-length 8 --data-path corpus --global-batch-size 2048 --train-samples 220000000 "
        "--rampup-batch-size 16 16 9765625 --micro-batch-size 2"
    )
    words = "card", path, "--loader", "megatron", "--name", "bloom", "--date", "2022-03"
    assert main([*map(str, words), "--given", "dtype=uint16"]) == 1
    assert "but a card has at most 10,000" in capsys.readouterr().err


def test_the_samples_of_a_run_are_those_it_was_asked_for(tmp_path):
    script = (
        f"{MEGATRON.replace('--train-iters 10', '--train-samples 43')} --data-path a"
    )
    found = card(tmp_path, "megatron", script, dtype="uint16")
    assert found.facts["orders"][0]["samples"] == 43, "10 steps read 40 of them"
    assert found.last_step == 10


def test_a_given_seed_stands_for_one_that_only_the_shell_knows(tmp_path):
    script = (
        "--seq-length 16 --micro-batch-size 2 --global-batch-size 8 --train-iters 12"
        " --data-path corpus --seed $SEED\n"
    )
    found = card(tmp_path, "megatron", script, dtype="uint16", seed="7")
    assert found.facts["orders"][0]["seed"] == 7
    assert "seed=1234, the default" not in found.facts["inferred"]


@pytest.mark.parametrize(
    ("words", "prefixes", "weights"),
    [
        ("a", ["a"], None),
        ("a b", ["a", "b"], None),
        ("a b c", ["a", "b", "c"], None),
        ("1 a 3 b", ["a", "b"], [1.0, 3.0]),
    ],
)
def test_a_blend_is_read_as_the_dataset_reads_it(tmp_path, words, prefixes, weights):
    script = f"{MEGATRON} --data-path {words} --split 1,0,0"
    facts = card(tmp_path, "megatron", script, dtype="uint16").facts
    assert [source["name"] for source in facts["sources"]] == [
        f"{prefix}.bin" for prefix in prefixes
    ]
    assert facts["orders"][0]["weights"] == weights


@pytest.mark.parametrize("words", ["1 a 2", "a 2 b", "a 1 b 2", "1 a b c"])
def test_a_weight_without_a_prefix_is_refused(tmp_path, words):
    script = f"{MEGATRON} --data-path {words}"
    with pytest.raises(ValueError, match="no prefix follows the weight .* written ./"):
        card(tmp_path, "megatron", script, dtype="uint16")
