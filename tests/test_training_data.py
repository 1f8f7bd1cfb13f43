"""Every kind of training data: its example, prepared and run as its head says, and exact resume."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks
from ranks.tasks import train_run
from ruamel.yaml import YAML
from run_config import put
from test_stages import run

from nanoset_ref import Nanoset, open_tokens
from nanoset_ref.chunks.chunk_conversion import chunk_files
from nanoset_ref.cli import main
from nanoset_ref.load import DatatroveNanoset
from nanoset_ref.megatron import (
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.provenance import audit, segments_of_config
from nanoset_ref.streaming import TokenStream
from nanoset_ref.train import Config, ConfigError, load_config, read_metrics, stages_of
from nanoset_ref.train.data_config import SECTION_BY_KEY
from nanoset_ref.train.train_command import EXAMPLES

S = 128


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with all that the heads of the examples make, up to the training itself."""
    folder = tmp_path_factory.mktemp("examples")
    done = []
    for path in EXAMPLES.values():
        head = path.read_text(encoding="utf-8").split("\ndata_stages")[0]
        script = "".join(
            f"{line[4:]}\n" for line in head.splitlines() if line.startswith("#   ")
        )
        before, _, after = script.partition("nanoset-ref train --example ")
        assert (
            after
            == f"{path.stem} > {path.stem}.yaml\nnanoset-ref train --config {path.stem}.yaml\n"
        )
        for command in before.replace("\\\n", " ").splitlines():
            if command not in done:
                done.append(command)
    outer = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    outer["PYTHONPATH"] = str(Path(__file__).parent.parent)
    subprocess.run(
        ["sh", "-e", "-c", "\n".join(done)],
        cwd=folder,
        env=os.environ | outer,
        check=True,
    )
    return folder


@pytest.fixture
def example(corpus, monkeypatch):
    """An example as a Config, after changes: values by their paths."""
    monkeypatch.chdir(corpus)

    def example(name, changes=None):
        tree = YAML(typ="safe").load(EXAMPLES[name].read_text(encoding="utf-8"))
        put(tree, changes or {})
        (corpus / "config.yaml").write_text(json.dumps(tree))
        return load_config("config.yaml")

    return example


def ranks(dp, rows):
    return {"parallelism.dp": dp, "tokens.micro_batch_size": rows}


def only(dataset):
    return {
        "data_stages": [
            {"name": "only", "start_training_step": 1, "data": {"dataset": dataset}}
        ]
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_printed_and_trains(corpus, monkeypatch, capsys, name):
    monkeypatch.chdir(corpus)
    assert main(["train", "--example", name]) == 0
    (corpus / f"{name}.yaml").write_text(
        capsys.readouterr().out.replace("train_steps: 20", "train_steps: 12")
    )
    log = corpus / f"{name}.log"
    Ranks(1, train_run, (["--config", f"{name}.yaml"],), log).wait()
    losses = [
        line["loss"] for line in read_metrics(f"checkpoints/{name}/metrics.jsonl")
    ]
    assert len(losses) == 12 and losses[-1] < losses[0]
    said = log.read_text()
    steps = [9, 10, 12] if name == "chunks" else [10, 12]  # a chunk ends with step 9
    announced = [
        line.split("checkpoint after step ")[1]
        for line in said.splitlines()
        if "checkpoint after" in line
    ]
    assert announced == [f"{step} in checkpoints/{name}" for step in steps]
    assert "\r" not in said, "no progress bar in a log"
    assert main(["loss", f"checkpoints/{name}/metrics.jsonl", "--lines", "4"]) == 0
    plot = capsys.readouterr().out.splitlines()
    assert len(plot) == 4 and plot[0].count("#") == 60 > plot[3].count("#")


def test_an_unknown_example_is_answered_with_the_names(capsys):
    for words in (["--example", "token"], []):
        assert main(["train", *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert (
        "there is no example 'token'; there are chunks, datatrove, megatron, text, tokens"
        in said[0]
    )
    assert (
        "give either --config FILE.yaml, or --example NAME" in said[1]
        and len(said) == 2
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_stopped_on_any_data_continues_exactly_with_any_number_of_ranks_or_is_refused(
    example, name
):
    """The samples of each step are those of the run that nobody stopped, also on other ranks; with other data none."""
    config, other = example(name, ranks(2, 2)), example(name, ranks(4, 1))
    whole, end = run(config, 20)
    assert len({sample for _, samples in whole for sample in samples}) > 20
    for stop in (3, 9, 10, 14):  # the second stage begins after step 10
        before, state = run(config, stop)
        middle, state = run(other, 2, state)
        after, state = run(config, 18 - stop, state)
        assert before + middle + after == whole
        parts = {"stages": None, "schedules": None}  # when the run went on
        assert state | parts == end | parts
    _, state = run(config, 2)
    if name == "chunks":  # whose order is that of the file
        state["stages"][0]["plan"]["files"][0]["checksum"] = "xxh3_128:0"
    with pytest.raises(PlanMismatch, match="seed: saved|checksum: saved"):
        run(example(name, {"data_stages.0.data.seed": 99}), 0, state)


def rows_read(config, steps):
    return [sample for _, samples in run(config, steps)[0] for sample in samples]


def test_each_kind_of_data_is_read_as_by_its_library(example):
    """First tokens of the first stage, against the datasets that read these formats by themselves."""
    positions = np.arange(40)
    weights = {"datasets/stories": 0.7, "datasets/programs": 0.3}
    folders = DatatroveNanoset(list(weights), list(weights.values()), S, 40, 6)
    assert rows_read(example("datatrove"), 10) == folders.read(positions)[:, 0].tolist()
    blend = {
        "datasets/stories_text_document": 0.7,
        "datasets/programs_text_document": 0.3,
    }
    options = {
        "data_path": blend,
        "split": "949,50,1",
        "split_num_samples": (200, 0, 0),
    }
    rows = NanosetBuilder(
        NanosetConfig(random_seed=1234, sequence_length=S, **options)
    ).build(["train"])[0]
    assert rows_read(example("megatron"), 10) == rows.read(positions)[:, 0].tolist()
    stream = TokenStream(
        "datasets/stories.jsonl",
        "datasets/tokenizer",
        S,
        append_eod=True,
        shuffle_buffer=100,
    )
    streamed = [
        int(row["input_ids"][0]) for _, row in zip(range(40), stream, strict=False)
    ]
    assert rows_read(example("text"), 10) == streamed
    lines = [
        json.loads(line)
        for path in chunk_files("mixed")
        for line in path.read_text().splitlines()
    ]
    assert rows_read(example("chunks"), 20) == [
        line["token_ids"][0] for line in lines[:80]
    ]


def test_text_with_special_tokens_is_refused_where_the_config_says_so(
    example, tmp_path
):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a <|endoftext|> b"}\n' * 200)
    dataset = {"text": str(path), "special_tokens": "refuse"}
    with pytest.raises(
        InputError, match="a.jsonl:1: the document holds the special token"
    ):
        rows_read(example("text", {"data_stages.0.data.dataset": dataset}), 10)


def test_a_run_over_chunks_is_a_stage_for_each_and_audited_as_any_other(example):
    config = example("chunks")
    found = [(stage.name, stage.steps) for stage in stages_of(config)]
    assert found == [
        ("mix, train_0", range(1, 10)),
        ("mix, train_1", range(10, 19)),
        ("mix, train_2", range(19, 21)),
    ]
    for name in ("chunks", "megatron", "datatrove", "tokens"):
        assert audit(segments_of_config(example(name))).ok
    with pytest.raises(ConfigError, match="streams text"):
        segments_of_config(example("text"))


@pytest.mark.parametrize(("stop", "rows"), [(4, 2), (9, 2), (4, 8)])
def test_chunks_keep_the_size_of_global_batches(example, stop, rows):
    """Of another size, train_0 would fill more steps or fewer: read again from its start, or left in the middle."""
    whole = rows_read(example("chunks"), 20)
    before, state = run(example("chunks"), stop)
    with pytest.raises(ConfigError, match=r"'mix, train_0'.*: keep the global"):
        run(example("chunks", ranks(1, rows)), 1, state)
    after, _ = run(example("chunks", ranks(2, 2)), 20 - stop, state)
    assert [sample for _, samples in before + after for sample in samples] == whole
    # a stage that ends before its chunk may go on in any size
    short = {"tokens.train_steps": 5}
    before, state = run(example("chunks", short), 4)
    after, _ = run(example("chunks", short | ranks(1, 6)), 1, state)
    assert [sample for _, samples in before + after for sample in samples] == whole[:22]


def test_a_pair_is_one_by_each_of_its_names_and_a_raw_file_has_the_dtype_that_is_given(
    example, tmp_path
):
    prefix = tmp_path / "pair"
    with MMapIndexedDatasetBuilder(f"{prefix}.bin", np.int32) as builder:
        builder.write(np.arange(40 * S + 1), [40 * S + 1])
    expected = (
        Nanoset(open_tokens(prefix), None, S, 80).read(np.arange(80))[:, 0].tolist()
    )
    np.arange(40 * S + 1, dtype="<i4").tofile(tmp_path / "raw.npy")
    for dataset in (
        {"dataset_path": [str(prefix)]},
        {"dataset_path": f"{prefix}.bin"},
        {"dataset_path": str(tmp_path / "raw.npy"), "token_dtype": "int32"},
    ):
        assert rows_read(example("tokens", only(dataset)), 20) == expected
    prefix.mkdir()  # such as the folder of the corpus, or its text: the pair is meant
    assert rows_read(example("tokens", only({"dataset_path": str(prefix)})), 20) == (
        expected
    )
    with pytest.raises(ConfigError, match="a file may be named once"):
        example("tokens", only({"dataset_path": [str(prefix), f"{prefix}.bin"]}))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (
            {"dataset": 3},
            f"dataset: must be a mapping with one of {', '.join(SECTION_BY_KEY)}",
        ),
        (
            {"data_path": "nowhere", "split": "1,0,0"},
            "/nowhere is not a corpus: nowhere.bin and nowhere.idx must both exist",
        ),
        ({"data_path": "nowhere"}, "dataset: give data_path with a split"),
        (
            {"data_path": {"nowhere": 0}, "split": "1"},
            "dataset: weights must be positive numbers",
        ),
        (
            {"data_path": "nowhere", "splt": "1,0,0"},
            "dataset.splt: unknown key, did you mean 'split'?",
        ),
        (
            {"dataset_path": "nowhere", "text": "x"},
            "dataset.text: does not belong here",
        ),
        ({"chunks": "nowhere"}, "/nowhere'"),
        (
            {"chunks": "mixed", "first_chunk": 60},
            "dataset.chunks: mixed has no chunk 60",
        ),
        ({"text": "nowhere.jsonl"}, "/nowhere.jsonl: no such file"),
        (
            {"dataset_path": ["nowhere", "datasets/stories_input_ids.npy"]},
            "dataset.dataset_path: no token file at",
        ),
        ({"dataset_path": "raw"}, "/raw has no file '*.ds'"),
        (
            {"dataset_path": "datasets/stories", "order": "stateless"},
            "folders of .ds files have Nanotron's order",
        ),
    ],
)
def test_errors_of_the_data_are_named_with_all_others(example, dataset, message):
    """A wrong number in another section hides nothing."""

    wrong = {"tokenizer.tokenizer_name_or_path": "no/where", "optimizer.clip_grad": -1}
    with pytest.raises(ConfigError) as error:
        example("tokens", {"data_stages.1.data.dataset": dataset, **wrong})
    assert f"data_stages[1].data.{message}" in str(error.value) or message in str(
        error.value
    )
    assert "optimizer.clip_grad: " in str(
        error.value
    ) and "tokenizer_name_or_path: no/where" in str(error.value)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("dataset_path", "{}_input_ids.npy"),
        ("data_path", "{}_text_document"),
        ("text", "{}.jsonl"),
        ("chunks", "{}"),
    ],
)
def test_a_relative_name_that_is_not_found_is_shown_with_the_folder_it_was_looked_for_in(
    example, key, found
):
    """A run that is continued from another folder."""
    name = found.format("datasets/none")
    wrong = {
        "data_stages.0.data.dataset": {key: name, **splits(key)},
        "tokenizer.tokenizer_name_or_path": "datasets/of_none",
    }
    with pytest.raises(ConfigError) as error:
        example("tokens", wrong)
    message = str(error.value)
    assert f"data_stages[0].data.dataset.{key}: " in message
    assert str(Path(name).absolute()) in message
    assert str(Path("datasets/of_none").absolute()) in message


def splits(key):
    return {"split": "1,0,0"} if key == "data_path" else {}


def test_data_that_cannot_fill_its_steps_is_refused(example):
    with pytest.raises(
        ConfigError, match="fill 540 steps of 4 samples, but the stage has 600"
    ):
        example("chunks", {"tokens.train_steps": 600})
    with pytest.raises(
        ConfigError,
        match=r"the chunk train_0 of mixed holds \d+ samples, fewer than a global batch of",
    ):
        example("chunks", {"tokens.micro_batch_size": 4096})
    unweighted = {
        "data_path": [
            "datasets/stories_text_document",
            "datasets/programs_text_document",
        ],
        "split": "1,0,0",
    }
    with pytest.raises(
        ConfigError,
        match="the stage reads 8000 samples, but its train split has only 2",
    ):
        run(example("megatron", {**only(unweighted), "tokens.train_steps": 2000}), 1)
    with pytest.raises(ConfigError, match=r"data.dataset.text: text needs a tokenizer"):
        example("text", {"tokenizer": None})


def test_a_config_made_in_python_takes_sections_as_they_are(example):
    config = example("text")
    assert Config.model_validate(config.model_dump(by_alias=True)) == config
