"""Cards from any config: a name for all that it does not say, and for a file that is none."""

import json

import pytest
from loader_configs import MEGATRON, NANOTRON, OLMO, card

from nanoset_ref.cli import main


def test_options_must_be_needed_and_agree_with_the_config(tmp_path):
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


def test_options_that_a_config_ignores_are_named(tmp_path):
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


def test_the_ranks_are_given_whole_or_asked_for(tmp_path):
    config = OLMO | {"dataset": OLMO["dataset"] | {"paths": ["a.npy"]}}
    text = json.dumps(config)
    with pytest.raises(ValueError, match="lacks micro_batch_size .rows of a rank"):
        card(tmp_path, "olmo-core", text, dp_size=2)
    with pytest.raises(ValueError, match="lacks dp_size .data-parallel ranks"):
        card(tmp_path, "olmo-core", text, micro_batch_size=2)
    [stage] = card(tmp_path, "olmo-core", text, dp_size=2, micro_batch_size=1).stages
    assert (stage["dp_size"], stage["micro_batch_size"]) == (2, 1)
    assert card(tmp_path, "olmo-core", text).stages[0]["dp_size"] is None


def test_a_card_names_the_tokenizer_that_the_config_names(tmp_path):
    config = OLMO | {"dataset": OLMO["dataset"] | {"paths": ["a.npy"]}}
    nanotron = NANOTRON.format(folder="s3://bucket")
    named = "tokenizer: {{tokenizer_name_or_path: {}}}\n".format
    for loader, text, name in (
        ("olmo-core", json.dumps(config), "allenai/dolma2-tokenizer"),
        ("nanotron", nanotron + named("gpt2"), "gpt2"),
        ("nanotron", nanotron + named("null"), None),
        ("nanotron", nanotron + "tokenizer:\n", None),
        ("nanotron", nanotron, None),
    ):
        facts = card(tmp_path, loader, text).facts
        assert facts["tokenizer"] == {"name": name, "hash": None}, text
        assert ("the tokenizer" in facts["unknown"]) == (name is None), text


def test_a_script_of_olmo_core_is_not_a_config(capsys):
    words = "card train.py --loader olmo-core --name x --date 2026-11"
    assert main(words.split()) == 1
    error = capsys.readouterr().err
    assert "train.py is a folder or Python script: give " in error
    assert "OLMo-core's config.json" in error


@pytest.mark.parametrize("text", ["torchrun pretrain_gpt.py --seed 1\n", "a: 1\n"])
def test_a_config_of_another_system_names_the_option_for_it(tmp_path, capsys, text):
    path = tmp_path / "pretrain.sh"
    path.write_text(text)
    assert main(["card", str(path), "--name", "x", "--date", "2026-11"]) == 1
    assert "--loader names another system that wrote it" in capsys.readouterr().err
