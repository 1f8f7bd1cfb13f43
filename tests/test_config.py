"""The YAML of a run: what is right is read, what is wrong is named with its path."""

import json
import os

import numpy as np
import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML
from run_config import put

from corpus_generator import train_tokenizer
from nanoset_ref.tokens import MMapIndexedDatasetBuilder, TokenFileWriter
from nanoset_ref.train import Config, ConfigError, load_config, stages_of

SEEDS = """
data_stages:
  - name: General purpose training (Single dataset)
    start_training_step: 1
    data: {{dataset: {{dataset_path: {a}}}, num_loading_workers: 0, seed: 1234}}
  - name: Second purpose training (> 1 dataset)
    start_training_step: 15
    data: {{dataset: {{dataset_path: [{a}, {b}]}}, num_loading_workers: 0, seed: 1234}}
  - name: Third purpose training (Blended dataset)
    start_training_step: 25
    data: {{dataset: {{dataset_path: {{{a}: 0.8, {b}: 2e-1}}}}, num_loading_workers: 0, seed: 1234}}
tokens: {{sequence_length: 8, train_steps: 30, micro_batch_size: 2, batch_accumulation_per_replica: 4}}
parallelism: {{dp: 2}}
model:
  model_config: {{model_type: llama, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 300}}
checkpoints: {{checkpoints_path: checkpoints, checkpoint_interval: 10}}
optimizer: {{learning_rate_scheduler: {{learning_rate: 1e-3}}}}
"""


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name in "ab":
        paths[name] = str(tmp_path / f"{name}_input_ids.npy")
        with TokenFileWriter(paths[name], dtype="uint16", vocab_size=300) as writer:
            writer.write_document(np.arange(200))
    return paths


@pytest.fixture
def load(files, tmp_path):
    """Load the seeds' config after changes: values by their paths."""

    def load(changes):
        tree = YAML(typ="safe").load(SEEDS.format(**files))
        put(tree, changes)
        path = tmp_path / "config.yaml"
        YAML().dump(tree, path)
        return load_config(path)

    return load


def test_the_three_forms_of_dataset_path_are_read(load, files, tmp_path):
    (tmp_path / "config.yaml").write_text(SEEDS.format(**files))
    config = load_config(tmp_path / "config.yaml")
    assert [stage.start_training_step for stage in config.data_stages] == [1, 15, 25]
    written = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    again = Config.model_validate(json.loads(json.dumps(written)))
    assert again == config, "as a checkpoint records it"
    paths = [stage.data.dataset.dataset_path for stage in config.data_stages]
    assert paths[0] == {files["a"]: None}
    assert list(paths[1].items()) == [(files["a"], None), (files["b"], None)]
    assert paths[2] == {files["a"]: 0.8, files["b"]: 0.2}  # 2e-1 is a number
    assert config.optimizer.learning_rate_scheduler.learning_rate == 0.001
    assert config.global_batch_size == 16
    assert not config.data_stages[0].data.dataset.continues
    with pytest.raises(ValidationError, match="frozen"):
        config.tokens.train_steps = 3
    near = {"dataset_path": os.path.relpath(files["a"]), "order": "stateless"}
    dataset = load({"data_stages.0.data.dataset": near}).data_stages[0].data.dataset
    assert dataset.continues and dataset.dataset_path == {files["a"]: None}


START, PATHS = (
    "data_stages.1.start_training_step",
    "data_stages.1.data.dataset.dataset_path",
)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (START, 1, "data_stages[1].start_training_step: 1 is used twice"),
        (
            "data_stages.0.start_training_step",
            2,
            "data_stages: one stage must have start_training_step 1",
        ),
        (START, "15", "start_training_step: should be a valid integer, got '15'"),
        (
            "data_stages.1.name",
            "Third purpose training (Blended dataset)",
            "data_stages[2].name: 'Third purpo",
        ),
        (
            "data_stages.1.data.seed",
            2**32,
            "data_stages[1].data.seed: should be less than 4294967296, got 4294967296",
        ),
        (
            PATHS,
            3,
            "data_stages[1].data.dataset.dataset_path: must be one path, a list of",
        ),
        (PATHS, {"a": 1, "b": None}, "dataset_path: must be one path, a list of"),
        (PATHS, {"a": -1}, "/a: should be greater than or equal to 0, got -1"),
        (
            PATHS,
            {"a": 0},
            "dataset_path: must name at least one file with a weight above 0",
        ),
        (
            PATHS,
            ["a", "./a"],
            "dataset_path: a file may be named once, got ['a', './a']",
        ),
        (
            "data_stages.1.data.dataset.order",
            "random",
            "order: should be 'nanotron' or 'stateless', got 'random'",
        ),
        (
            "tokens.train_steps",
            10**30,
            "train_steps: should be less than 9223372036854775808, got 1000",
        ),
        (
            "tokens.sequence_length",
            4096,
            "tokens.sequence_length: 4096 is above the model's 2048 positions",
        ),
        ("tokens.sequence_length", 200, "dataset_path: "),
        (
            "parallelism.tp",
            4,
            "parallelism.tp: 4 does not divide model.model_config.num_attention_heads 2",
        ),
        (
            "parallelism.pp",
            8,
            "parallelism.pp: 8 stages for 2 layers; each needs at least one",
        ),
        (
            "model.model_config.vocab_size",
            299,
            "300 ids, but model.model_config.vocab_size is only 299",
        ),
        (
            "model.model_config.model_type",
            None,
            "model.model_config: model_type is missing; give one of transformers, such as llama",
        ),
        (
            "model.model_config.model_type",
            "lama",
            "model.model_config: of model_type 'lama': Unrecogn",
        ),
        (
            "model.model_config.model_type",
            ["llama"],
            "model.model_config: of model_type ['llama']: ",
        ),
        (
            "model.model_config.hiden_size",
            8,
            "model.model_config: hiden_size: unknown key, did you mean 'hid",
        ),
        (
            "model.model_config.hidden_size",
            0,
            "model.model_config: hidden_size: must be at least 1, got 0",
        ),
        ("model.model_config.vocab_size", None, "model_config: "),
        (
            "checkpoints.checkpoints_path",
            "",
            "checkpoints.checkpoints_path: String should have at least 1 character, got ''",
        ),
        (
            "optimizer.clip_grad",
            float("nan"),
            "optimizer.clip_grad: should be a finite number, got nan",
        ),
    ],
)
def test_errors_name_the_path_of_the_key(load, path, value, message):
    with pytest.raises(ConfigError) as error:
        load({path: value})
    assert "config.yaml: " in str(error.value)
    assert message in str(error.value)


def test_each_pipeline_stage_needs_a_micro_batch(load):
    changes = {"parallelism.pp": 2, "tokens.batch_accumulation_per_replica": 1}
    with pytest.raises(
        ConfigError, match="1 micro-batches are fewer than the 2 stages"
    ):
        load(changes)


def test_a_trial_that_ends_before_later_stages_says_which_are_not_reached(load, caplog):
    config = load({"tokens.train_steps": 15})
    assert [(stage.name[:6], stage.steps) for stage in stages_of(config)] == [
        ("Genera", range(1, 15)),
        ("Second", range(15, 16)),
    ]
    unreached = "the stage 'Third purpose training (Blended dataset)' is not reached: it begins at step 25, but tokens."
    assert [record.getMessage()[: len(unreached)] for record in caplog.records] == [
        unreached
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_text_is_not_read_ahead(load, tmp_path):
    (tmp_path / "text.jsonl").write_text('{"text": "a"}\n')
    data = {"dataset": {"text": str(tmp_path / "text.jsonl")}, "read_ahead": 3}
    with pytest.raises(ConfigError, match=r"data.read_ahead: it has no effect on text"):
        load({"data_stages.1.data": data})


@pytest.mark.parametrize(
    ("path", "message"),
    [("taken", "folder, got the file"), ("s3://tokens/cache", "local path")],
)
def test_a_cache_that_cannot_be_a_folder_is_found_before_the_run(
    load, tmp_path, path, message
):
    tokens = np.arange(200, dtype=np.int32)
    with MMapIndexedDatasetBuilder(tmp_path / "corpus.bin", np.int32) as builder:
        builder.add_document(tokens, [200])
    (tmp_path / "taken").write_text("")
    data = {"data_path": str(tmp_path / "corpus"), "split": "1,0,0"}
    load({"data_stages.1.data.dataset": data})
    if path == "taken":
        path = str(tmp_path / path)
    with pytest.raises(ConfigError, match=f"path_to_cache must be a.*{message}"):
        load({"data_stages.1.data.dataset": data | {"path_to_cache": path}})


def test_a_stage_with_fewer_samples_than_a_global_batch_is_refused(load):
    """Of 200 tokens there are 24 samples of 8."""
    load({"tokens.batch_accumulation_per_replica": 6})
    with pytest.raises(ConfigError) as error:
        load({"tokens.batch_accumulation_per_replica": 7})
    numbers = "holds 24 samples, fewer than a global batch of 28 (parallelism.dp 2 x micro_batch_size 2 x batch_acc"
    said = str(error.value).splitlines()
    assert (
        len(said) == 1
        and f"data_stages[0].data.dataset.dataset_path: {numbers}" in said[0]
    )


def test_everything_that_is_wrong_is_reported_at_once(load):
    changes = {
        "tokens.train_steps": "x",
        "model": {},
        "general": {"seed": 1.5},
        "zzz": [1] * 10**4,
    }
    with pytest.raises(ConfigError) as error:
        load(changes)
    found = [
        line.partition("config.yaml: ")[2] for line in str(error.value).split(";\n")
    ]
    assert found == [
        "tokens.train_steps: should be a valid integer, got 'x'",
        "model.model_config: is missing",
        "general.seed: should be a valid integer, got 1.5",
        "zzz: unknown key",
    ]


def test_the_tokenizer_must_fit_the_model_and_the_files(load, tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    tokenizer = train_tokenizer(["a few words, and then some words more"] * 2)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    size = tokenizer.get_vocab_size()
    named = {"tokenizer": {"tokenizer_name_or_path": str(folder)}}
    with pytest.raises(
        ConfigError,
        match=rf"300 ids, but the tokenizer of tokenizer.tokenizer_name_or_path has {size}",
    ):
        load(named)

    small = {
        "model.model_config.vocab_size": size - 1,
        "model.model_config.max_position_embeddings": 4,
    }
    with pytest.raises(ConfigError) as error:
        load(named | small)
    only = f"ids, but model.model_config.vocab_size is only {size - 1}"
    for what in (
        f"or_path: the tokenizer has {size} {only}",
        f"a_input_ids.npy has 300 {only}",
        "the model's 4 pos",
    ):
        assert what in str(error.value)


ALIASES = [
    "a0: &a0 [x]",
    *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 30)),
]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: {{ one }}", "line 1: found unhashable key"),
        ("? [a, b]\n: 1", "should be"),
        ("name: 2024-13-45", "month must be in 1..12"),
        ("name: !!int abc", "invalid literal for int"),
        (
            "name: " + 20_000 * "1" + "x",
            "config.yaml: ",
        ),  # quadratic for some regular expressions
        ("name: " + 5000 * "1", "4300 digits"),
        ("name: " + "[" * 3000, "nested more than 32 deep"),
        ("\n".join(ALIASES), "more than 16 aliases"),
        ("\udcff", "save it as UTF-8: 'utf-8' codec can't decode byte 0xff"),
        ("\n".join(ALIASES[:9]), "tokens: is missing"),
        ("a: 1\na: 2", 'line 2: found duplicate key "a"'),
        ('{&a": [{"b": 1}]}', "a key is a mapping or a list"),
        ("tokens: &a [*a]", "tokens: should be a valid dictionary"),
        ("a: " + "x" * 600_000, "more than 524,288 characters"),
        (
            '{"text": "a"}\n{"text": "b"}',
            "line 2: expected '<document start>', but found",
        ),
    ],
)
def test_unparsable_configs_are_named_too(tmp_path, text, message):
    (tmp_path / "config.yaml").write_text(text + "\n", errors="surrogateescape")
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "config.yaml")
    assert message in str(error.value)
    assert all(
        "config.yaml: " in line and len(line) < 600
        for line in str(error.value).splitlines()
    )
