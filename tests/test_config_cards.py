"""Cards from the configs of other systems: right where a config says enough, and a name for all that it does not."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_nanoset import write_range

from nanoset_ref import Card, Nanoset
from nanoset_ref.cli import main
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.orders.others import nanotron_stages
from nanoset_ref.provenance import card_of_config, segments_of_card
from nanoset_ref.provenance.loader_config import read_command_line
from nanoset_ref.tokens import (
    MMapIndexedDatasetBuilder,
    TokenFileWriter,
    open_tokens,
)

NANOTRON = """
data_stages:
- name: stable
  start_training_step: 1
  data:
    dataset:
      dataset_folder: [{folder}/a, {folder}/b/]
      dataset_weights: [0.3, 0.7]
      token_size_in_bytes: 2
    seed: 6
- name: decay
  start_training_step: 5
  data:
    dataset:
      dataset_folder: [{folder}/b/, {folder}/a]
      dataset_weights: [0.5, 0.5]
      token_size_in_bytes: 2
    seed: 6
parallelism: {{dp: 2, pp: 1, tp: 4}}
tokens:
  sequence_length: 8
  train_steps: 9
  micro_batch_size: 1
  batch_accumulation_per_replica: 2
"""


def card(tmp_path, loader, text, name="config", **given):
    path = tmp_path / name
    path.write_text(text)
    values = {key: str(value) for key, value in given.items()}
    return card_of_config(path, loader, "run", "2026-11", values)


def test_nanotron_main_reads_the_rows_of_its_stages(tmp_path):
    for name, rows in (("a/0", 7), ("a/1", 9), ("b/0", 30)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.arange(rows * 9 + 4, dtype=np.uint16).tofile(tmp_path / f"{name}.ds")
    found = card(tmp_path, "nanotron", NANOTRON.format(folder=tmp_path))
    folders = {f"{tmp_path}/a": [7, 9], f"{tmp_path}/b/": [30]}
    stages = []
    for start, names in ((1, [*folders]), (5, [*folders][::-1])):
        dataset = {
            "dataset_folder": names,
            "dataset_weights": [0.3, 0.7] if start == 1 else None,
        }
        stages.append(
            {"name": "x", "start_training_step": start, "data": {"dataset": dataset}}
        )
    tokens = {
        "micro_batch_size": 1,
        "batch_accumulation_per_replica": 2,
        "train_steps": 9,
    }
    config = {"tokens": tokens, "parallelism": {"dp": 2}, "data_stages": stages}
    first, second = nanotron_stages(config, folders)
    assert [stage["name"] for stage in found.facts["stages"]] == ["stable", "decay"]
    rows = found.where(3)
    names = [str(tmp_path / name) for name in ("a/0.ds", "a/1.ds", "b/0.ds")]
    assert [(row.path, row.sample) for row in rows] == [
        (names[file], sample) for file, sample in map(first.__getitem__, range(8, 12))
    ]
    rotated = [names[2], *names[:2]]
    assert [(row.path, row.sample) for row in found.where(5)] == [
        (rotated[file], sample) for file, sample in map(second.__getitem__, range(4))
    ]
    assert [(row.dp_rank, row.micro_batch) for row in rows] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
    ]
    assert found.facts["orders"][1]["probes"], "all sizes are known"


def test_a_stage_of_nanotron_main_that_the_run_does_not_reach_is_left_out(tmp_path):
    (tmp_path / "a").mkdir()
    np.arange(900, dtype=np.uint16).tofile(tmp_path / "a/0.ds")
    (tmp_path / "b").mkdir()
    np.arange(900, dtype=np.uint16).tofile(tmp_path / "b/0.ds")
    text = NANOTRON.replace("start_training_step: 5", "start_training_step: 50")
    assert text != NANOTRON
    found = card(tmp_path, "nanotron", text.format(folder=tmp_path))
    assert [(it["name"], it["steps"]) for it in found.stages] == [("stable", 9)]
    assert len(found.where(9)) == 4


def test_a_folder_that_is_not_here_makes_no_order_but_all_else(tmp_path):
    found = card(tmp_path, "nanotron", NANOTRON.format(folder="s3://bucket"))
    assert [it["name"] for it in found.sources] == ["s3://bucket/a", "s3://bucket/b/"]
    assert {it["name"] for it in found.facts["orders"]} == {"unknown"}
    assert [it["steps"] for it in found.facts["stages"]] == [4, 5]
    with pytest.raises(ValueError, match="nobody has published enough"):
        found.where(1)
    shuffled = NANOTRON.replace(
        "dataset_weights", "shuffle_files: true\n      dataset_weights"
    )
    with pytest.raises(ValueError, match="shuffle_files is not supported"):
        card(tmp_path, "nanotron", shuffled.format(folder="s3://bucket"))


def test_the_nanosets_of_2024(tmp_path):
    paths = [write_range(tmp_path / "a.npy", 100), write_range(tmp_path / "b.npy", 60)]
    text = f"""
data_stages:
- name: only
  start_training_step: 1
  data:
    dataset: {{dataset_path: {{{paths[0]}: 0.2, {paths[1]}: 0.8}}}}
    seed: 9
parallelism: {{dp: 2}}
tokens: {{sequence_length: 4, train_steps: 5, micro_batch_size: 3, batch_accumulation_per_replica: 1}}
"""
    with pytest.raises(
        ValueError, match=r"lacks dtype \(of the ids.*--given dtype=\.\.\."
    ):
        card(tmp_path, "nanotron-2024", text)
    found = card(tmp_path, "nanotron-2024", text, dtype="uint16")
    late = """- name: not reached
  start_training_step: 100
  data: {dataset: {dataset_path: late.npy}}
parallelism"""
    reached = card(
        tmp_path, "nanotron-2024", text.replace("parallelism", late), dtype="uint16"
    )
    assert reached.facts == found.facts
    rows = Nanoset(paths, [0.2, 0.8], 4, 30, 9)
    for step in range(1, 6):
        read = [(row.source, row.sample) for row in found.where(step)]
        assert read == [rows.order[k] for k in range(6 * step - 6, 6 * step)]


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


OLMO = {
    "dataset": {
        "_CLASS_": "olmo_core.data.numpy_dataset.NumpyFSLDatasetConfig",
        "sequence_length": 4,
        "max_target_sequence_length": 8,
        "tokenizer": {"vocab_size": 900, "identifier": "allenai/dolma2-tokenizer"},
    },
    "data_loader": {"global_batch_size": 16, "seed": 5},
    "trainer": {"max_duration": {"value": 90, "unit": "tokens"}},
}


def test_olmo_core_reads_chunks_of_the_files_it_names(tmp_path):
    paths = [
        str(write_range(tmp_path / f"{k}.npy", size)) for k, size in enumerate((70, 41))
    ]
    config = json.loads(json.dumps(OLMO))
    config["dataset"]["paths"] = paths
    found = card(tmp_path, "olmo-core", json.dumps(config))
    assert found.facts["dtype"] == "uint16" and found.last_step == 6, (
        "90 tokens of 16 a step"
    )
    order = "olmo_core:chunk_size=2,batch_size=4"
    rows = Nanoset(
        paths, None, 3, 24, 5, order=order, disjoint=True, token_dtype="uint16"
    )
    read = [(row.source, row.sample) for row in found.where(2)]
    assert read == [rows.order[k] for k in range(4, 8)]
    config["dataset"]["_CLASS_"] = "olmo_core.data.numpy_dataset.NumpyVSLDatasetConfig"
    with pytest.raises(ValueError, match="not NumpyVSLDatasetConfig"):
        card(tmp_path, "olmo-core", json.dumps(config))


def packed_run(golden, tmp_path, number):
    """The files of a recorded run that OLMo-core packed, its card, and its rows step by step."""
    folder = golden / "olmo_core_packed"
    case = json.loads((folder / "packed.json").read_text())[number]
    paths = [str(tmp_path / f"{file}.npy") for file in range(len(case["files"]))]
    with np.load(folder / "packed.npz") as members:
        rows = members[f"{number}/rows"]
        for file, path in enumerate(paths):
            members[f"{number}/file{file}"].tofile(path)
    read = [rows[place] for epoch in case["read"] for place in epoch]
    length = case["sequence_length"]
    config = {
        "dataset": {
            "_CLASS_": "olmo_core.data.numpy_dataset.NumpyPackedFSLDatasetConfig",
            "paths": paths,
            "sequence_length": length,
            "long_doc_strategy": case["strategy"],
            "source_group_size": case["group_size"],
            "source_permutation_seed": case["permutation_seed"],
            "tokenizer": {"vocab_size": 65000, "eos_token_id": 0, "pad_token_id": 0},
        },
        "data_loader": {
            "global_batch_size": case["batch"] * length,
            "seed": case["seed"],
        },
        "trainer": {
            "max_duration": {"value": len(read) // case["batch"], "unit": "steps"}
        },
    }
    found = card(tmp_path, "olmo-core", json.dumps(config), name="config.json")
    return found, paths, np.array(read).reshape(-1, case["batch"], length)


def test_rows_that_olmo_core_packs_are_read_from_its_files(golden, tmp_path, capsys):
    found, paths, read = packed_run(golden, tmp_path, 3)  # the case without ties
    for rows, theirs in zip(found.replay(1, paths), read, strict=True):
        assert np.array_equal(rows, theirs)
    with pytest.raises(
        ValueError, match=r"packed from whole documents: give the files \(--data\)"
    ):
        found.where(1)
    path = tmp_path / "card.json"
    path.write_text(json.dumps(found.facts))
    run = ["--run", str(path), "--data", *paths]
    main(["where", "3", "--json", *run])
    for row, theirs in zip(json.loads(capsys.readouterr().out), read[2], strict=True):
        pieces = []
        for part in row["parts"]:
            with open(paths[part["source"]], "rb") as file:
                pieces.append(file.read()[part["first_byte"] : part["end_byte"]])
            assert part["candidates"] == 1
            main(
                [
                    "when",
                    *run,
                    "--source",
                    str(part["source"]),
                    "--document",
                    str(part["document"]),
                ]
            )
            assert (
                f"step 3, rank 0 micro-batch 0 row {row['slot']['row']}"
                in capsys.readouterr().out
            )
        ids = np.frombuffer(b"".join(pieces), np.uint16)
        assert np.array_equal(np.trim_zeros(ids, "b"), np.trim_zeros(theirs, "b"))
    main(["audit", *run])


def test_an_empty_document_is_refused_by_its_file_and_number(golden, tmp_path):
    found, paths, _ = packed_run(golden, tmp_path, 3)
    ids = np.fromfile(paths[1], np.uint16) + 1
    Path(paths[1]).unlink()
    with TokenFileWriter(paths[1], dtype="uint16", eos_token_id=0) as writer:
        writer.write(ids, [3, 0, len(ids) - 3])
    message = f"{paths[1]}: document 1 has no tokens.*write the file without it"
    with pytest.raises(ValueError, match=message):
        found.replay(1, paths)


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_rows_whose_documents_are_uncertain_say_so(golden, tmp_path, capsys, number):
    found, paths, read = packed_run(golden, tmp_path, number)
    path = tmp_path / "card.json"
    path.write_text(json.dumps(found.facts))
    certain = 0
    for step, (rows, theirs) in enumerate(
        zip(found.replay(1, paths), read, strict=True), 1
    ):
        main(["where", "--json", str(step), "--run", str(path), "--data", *paths])
        found_rows = json.loads(capsys.readouterr().out)
        for row, ids, expected in zip(found_rows, rows, theirs, strict=True):
            if all(part["candidates"] == 1 for part in row["parts"]):
                assert np.array_equal(ids, expected)
                certain += 1
    assert certain
    main(["where", "1", "--run", str(path), "--data", *paths])
    assert (
        "documents of this length: which one depends on NumPy's version"
        in capsys.readouterr().out
    )


def test_the_mix_of_olmo_core_is_named_by_its_list(tmp_path):
    config = json.loads(json.dumps(OLMO))
    config["dataset"] |= {
        "mix": "OLMoE-mix-0824",
        "mix_base_dir": "https://olmo-data.org/",
    }
    config["trainer"]["max_duration"] = {"value": 1, "unit": "epochs"}
    with pytest.raises(
        ValueError, match="steps .*; files .*--given steps=... files=..."
    ):
        card(tmp_path, "olmo-core", json.dumps(config))
    found = card(tmp_path, "olmo-core", json.dumps(config), steps=10, files=1122)
    shipped = Card.load("olmo-2-32b").facts["listed"]
    for field in ("files", "pattern", "address", "tokenizer"):
        assert found.facts["listed"][field] == shipped[field]


@pytest.mark.parametrize(
    ("mix", "tokenizer", "folder"),
    [
        ("OLMo-mix-0625-official", "dolma2-tokenizer", "allenai/dolma3-tokenizer"),
        ("OLMo-longmino-mix-0925", "dolma2-tokenizer", "allenai/dolma3-tokenizer"),
        (
            "OLMo-midtraining-mix-0625-100B",
            "gpt-neox-olmo-dolma-v1_5",
            "allenai/gpt-neox-olmo-dolma-v1_5",
        ),
        ("OLMo-mix-0625", "dolma2-tokenizer", "allenai/dolma2-tokenizer"),
        ("OLMo-mix-0625", "dolma2-tokenizer-sigdig", "dolma2-tokenizer-sigdig"),
        ("dolma17", "gpt-neox-olmo-dolma-v1_5", "gpt-neox-olmo-dolma-v1_5"),
    ],
)
def test_the_lists_of_olmo_core_name_folders_of_tokenizers_in_their_own_way(
    tmp_path, mix, tokenizer, folder
):
    config = json.loads(json.dumps(OLMO))
    config["dataset"] |= {"mix": mix, "mix_base_dir": "https://olmo-data.org"}
    config["dataset"]["tokenizer"]["identifier"] = f"allenai/{tokenizer}"
    found = card(tmp_path, "olmo-core", json.dumps(config), files=1)
    assert found.facts["listed"]["tokenizer"] == folder


def olmo_of_one_file(**trainer):
    dataset = OLMO["dataset"] | {"paths": ["a.npy"]}
    return OLMO | {"dataset": dataset, "trainer": OLMO["trainer"] | trainer}


def test_what_changes_the_rows_of_olmo_core_while_it_trains_is_refused_or_said(
    tmp_path,
):
    scheduler = {
        "_CLASS_": "olmo_core.train.callbacks.batch_size_scheduler"
        ".BatchSizeSchedulerCallback",
        "batch_sizes": [16, 32],
    }
    other = {"_CLASS_": "olmo_core.train.callbacks.wandb.WandBCallback"}
    config = olmo_of_one_file(callbacks={"wandb": other, "batch": scheduler})
    with pytest.raises(
        ValueError, match="BatchSizeSchedulerCallback changes which .*by hand"
    ):
        card(tmp_path, "olmo-core", json.dumps(config))
    scheduler["enabled"] = False
    assert card(tmp_path, "olmo-core", json.dumps(config)).last_step == 6
    config = olmo_of_one_file(hard_stop={"value": 2, "unit": "steps"})
    config["dataset"]["instance_filter_config"] = {"repetition_max_count": 32}
    found = card(tmp_path, "olmo-core", json.dumps(config))
    assert found.last_step == 2
    assert (
        "which rows have no loss (instance_filter_config: repeated n-grams)"
        in (found.facts["unknown"])
    )


def test_llm_c_needs_its_shards(tmp_path):
    header = np.zeros(256, dtype="<i4")
    for number, tokens in enumerate((200, 130)):
        header[:3] = 20240520, 1, tokens
        content = header.tobytes() + np.arange(tokens, dtype="<u2").tobytes()
        (tmp_path / f"train_{number}.bin").write_bytes(content)
    text = f'mpirun -np 2 ./train_gpt2cu -i "{tmp_path}/train_*.bin" -b 3 -t 8 -d 96 -x 4 -o log'
    found = card(tmp_path, "llm.c", text)
    stage = found.facts["stages"][0]
    assert (stage["batch_size"], stage["dp_size"], stage["micro_batch_size"]) == (
        12,
        2,
        3,
    )
    order = "llm_c:micro_batch_size=3,dp_size=2"
    rows = Nanoset(sorted(tmp_path.glob("train_*.bin")), None, 8, 48, order=order)
    for step in range(1, 5):
        read = [(row.source, row.sample) for row in found.where(step)]
        assert read == [rows.order[k] for k in range(12 * step - 12, 12 * step)]
    assert found.where(1)[0].first_byte == 1024 + rows.order[0][1] * 16
    with pytest.raises(ValueError, match=r"no shard matches -i .*nowhere"):
        card(tmp_path, "llm.c", text.replace("train_*", "nowhere"))


def test_what_is_given_must_be_asked_for_and_agree(tmp_path):
    text = json.dumps(OLMO | {"dataset": OLMO["dataset"] | {"paths": ["a.npy"]}})
    with pytest.raises(
        ValueError, match="--given step: unknown key, did you mean 'steps'"
    ):
        card(tmp_path, "olmo-core", text, step=3)
    with pytest.raises(ValueError, match="--given steps=3: the config says 6"):
        card(tmp_path, "olmo-core", text, steps=3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1", "it has no section or field 'tokens'"),
        (
            "tokens: {train_steps: 9}\ndata_stages: [{start_training_step: 1}]",
            "it has .* field 'data'",
        ),
        ("tokens:\ndata_stages: []", "a section is empty or of another type .*None"),
        (
            "tokens: {train_steps: 9}\ndata_stages: []",
            "a section is empty or of another type",
        ),
        ("tokens: 5", "a section is empty or of another type .*'int'"),
    ],
)
def test_a_config_without_a_section_is_refused_by_its_name(tmp_path, text, problem):
    message = f"config is not a config of nanotron: {problem}.*; --loader names the"
    with pytest.raises(ValueError, match=message):
        card(tmp_path, "nanotron", text)


def test_the_command_asks_by_name(tmp_path, capsys):
    path = tmp_path / "config.json"
    config = OLMO | {"dataset": OLMO["dataset"] | {"paths": ["a.npy"]}, "trainer": {}}
    path.write_text(json.dumps(config))
    words = [
        "card",
        str(path),
        "--loader",
        "olmo-core",
        "--name",
        "x",
        "--date",
        "2026-11",
    ]
    assert main(words) == 1
    assert "lacks steps (optimizer steps of the run): add --given steps=..." in (
        capsys.readouterr().err
    )
    assert main([*words, "--given", "steps=7"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["steps"] == 7
    assert main([*words, "--given", "steps"]) == 2


def test_what_a_config_does_not_read_is_said(tmp_path):
    text = json.dumps(
        OLMO | {"trainer": {}} | {"dataset": OLMO["dataset"] | {"paths": ["a.npy"]}}
    )
    with pytest.raises(ValueError, match="steps: must be an integer, got 'three'"):
        card(tmp_path, "olmo-core", text, steps="three")
    stage = {"name": "first", "start_training_step": 1, "data": {"seed": 1}}
    for dataset in (None, {"hf_dataset_or_datasets": "c4"}):
        stage["data"]["dataset"] = dataset
        tokens = {"sequence_length": 4, "train_steps": 9}
        text = json.dumps({"tokens": tokens, "data_stages": [stage]})
        with pytest.raises(ValueError, match="stage first reads no token files: its"):
            card(tmp_path, "nanotron", text)
    with pytest.raises(ValueError, match="names no data.*merge them into one"):
        card(tmp_path, "gpt-neox", '{"seq-length": 4}')


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


MEGATRON = "--micro-batch-size 1 --global-batch-size 4 --train-iters 10 --seq-length 8"


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


def test_given_facts_that_a_card_does_not_need_are_refused(tmp_path):
    script = f"{MEGATRON} --data-path a"
    with pytest.raises(ValueError, match="--given files: this loader's card needs no"):
        card(tmp_path, "megatron", script, dtype="uint16", files=3)


@pytest.mark.parametrize(
    ("loader", "text", "message"),
    [
        ("gpt-neox", "- a\n- b\n", "config is not a config of gpt-neox: it must hold"),
        ("nanotron", "[1]", "config is not a config of nanotron: it must hold names"),
        ("nanotron", "a: [1\n", "config: line 2: expected"),
        ("gpt-neox", "seed: 1\nseed: 2\n", "config: line 2: found duplicate key"),
        ("olmo-core", "[1]", "config is not a config of olmo-core: it must hold names"),
        ("megatron", "--data-path 'a", "config: No closing quotation; close it in a"),
        (
            "olmo-core",
            '{"dataset": {"sequence_length": 0, "paths": ["a"]}, "data_loader": {}}',
            "dataset.sequence_length must be at least 1, got 0",
        ),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(tmp_path, loader, text, message):
    with pytest.raises(ValueError, match=message):
        card(tmp_path, loader, text)
