"""nanoset-ref on runs: show, where, when, audit, by hand and from a YAML file."""

import json

import numpy as np
import pytest
from cli_helpers import LAYOUT, ids_of
from run_config import GPT2, run_tree

from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import MMapIndexedDatasetBuilder
from nanoset_ref.preprocess.tokenizer import load_tokenizer
from nanoset_ref.tokens import TokenFile, TokenFileWriter


def test_show_decodes_what_is_asked(run, ask, corpus, stories):
    data = ("--data", ids_of(corpus), *LAYOUT)
    assert stories[3] in run("show", *data, "--document", 3)[1]
    step = ask("show", *data, "--num-samples", 100, "--step", 1)
    assert len(step) == 8
    sample = Nanoset(ids_of(corpus), None, 32, 100).order[0][1]
    for asked in (("--num-samples", 100, "--position", 0), ("--sample", sample)):
        assert ask("show", *data, *asked)[0]["text"] == step[0]["text"]


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_a_text_is_read_where_its_own_tokens_are(
    run, ask, corpus, stories, tmp_path, suffix
):
    """The oracle: pieces cut anywhere from the text, found by plain search; and the rows that a step shows."""
    run("convert", ids_of(corpus), tmp_path / f"a{suffix}")
    file = TokenFile(ids_of(corpus))
    data = (
        "--data",
        tmp_path / f"a{suffix}",
        "--sequence-length",
        16,
        "--tokenizer",
        file.manifest.tokenizer,
    )
    decode = load_tokenizer(file.manifest.tokenizer).decode
    for document, first, length in [(0, 3, 40), (4, 17, 25), (9, 30, 60)]:
        piece = stories[document][first : first + length].strip()
        found = ask("when", *data, "--text", piece)
        assert {row["document"] for row in found} == {
            number for number, text in enumerate(stories) if piece in text
        }
        for row in found:
            start, stop = row["tokens"]
            ids = file.tokens[file.document_offsets[row["document"]] :][
                start:stop
            ].tolist()
            assert piece in decode(ids)
            assert piece not in decode(ids[1:]) and piece not in decode(ids[:-1])
            (origin,) = ask("where", *data, "--step", row["step"])
            parts = [
                part for part in origin["parts"] if part["document"] == row["document"]
            ]
            assert any(
                max(part["start"], start) < min(part["stop"], stop) for part in parts
            )
    assert (
        run("when", *data, "--text", piece, "--consumed-train-samples", 10**9)[1]
        == "this run does not read it\n"
    )
    assert (
        "no document contains 'zyzzyva quokka'"
        in run("when", *data, "--text", "zyzzyva quokka")[2]
    )


def test_where_looks_into_megatron_style_data(run, ask, corpus, tmp_path):
    run("convert", ids_of(corpus), tmp_path / "m.bin")
    rows, *others = [
        ask("where", "--data", tmp_path / name, *LAYOUT, "--step", 1)
        for name in ("m", "m.bin", "m.idx")
    ]
    assert others == [rows, rows]


@pytest.mark.parametrize("weights", [("", ""), ("=3", "=1")])
def test_audit_proves_megatron_style_runs(run, ask, corpus, tmp_path, weights):
    """The oracle: every row's origin, counted."""
    data = ["--data"]
    for domain, weight in zip(("stories", "programs"), weights, strict=True):
        run("convert", ids_of(corpus, domain), tmp_path / f"{domain}.bin")
        data.append(f"{tmp_path / domain}{weight}")
    data += ["--num-samples", 3000] if weights[0] else []
    report = ask("audit", *data, *LAYOUT)
    assert report["ok"]
    (segment,) = report["segments"]
    rows = ask(
        "where",
        *data,
        "--sequence-length",
        32,
        "--dp-size",
        8 * segment["num_steps"],
        "--step",
        1,
    )
    for number, source in enumerate(segment["sources"]):
        mine = [row for row in rows if row["source"] == number]
        assert (
            source["read"]
            == source["distinct"]
            == len({row["sample"] for row in mine})
            == len(mine)
        )
        assert source["most_reads"] >= len({row["epoch"] for row in mine})
    assert run("audit", *data, *LAYOUT)[1].endswith("every law holds\n")


def test_a_bin_without_idx_or_with_an_order_is_read_as_a_token_file(
    run, ask, corpus, tmp_path
):
    run("convert", ids_of(corpus, "stories"), tmp_path / "a.bin", "--dtype", "int32")
    (tmp_path / "raw.bin").write_bytes((tmp_path / "a.bin").read_bytes())
    raw, pair = (
        [tmp_path / "raw.bin", "--token-dtype", "int32"],
        [tmp_path / "a.bin", "--order", "nanotron"],
    )
    for words in (raw, pair):
        file, found = [
            [
                row["sample"]
                for row in ask("where", "--data", *data, *LAYOUT, "--step", 1)
            ]
            for data in ([ids_of(corpus, "stories")], words)
        ]
        assert found == file


def test_audit_proves_a_run_and_says_what_another_plan_would_do(
    run, ask, corpus, tmp_path
):
    paths = [ids_of(corpus), ids_of(corpus, "programs")]
    code, text, _ = run("audit", "--data", *paths, *LAYOUT, "--num-loading-workers", 4)
    assert code == 0
    assert text.endswith("every law holds\n")
    state = {"consumed_train_samples": 64, "plan": Nanoset(paths, None, 32, 100).plan}
    (tmp_path / "state.json").write_text(json.dumps(state))
    for order, exact in (("nanotron", True), ("stateless", False)):
        report = ask(
            "audit",
            "--data",
            *paths,
            *LAYOUT,
            "--order",
            order,
            "--state",
            tmp_path / "state.json",
        )
        assert report["continuation"]["exact"] == exact


def test_a_yaml_file_names_the_run(run, ask, corpus, tmp_path):
    dataset = {"dataset_path": str(ids_of(corpus))}
    stages = [("first", 1, dataset, {"seed": 1}), ("second", 4, dataset, {"seed": 1})]
    model = GPT2 | {"vocab_size": 8192}
    config = run_tree(
        tmp_path / "checkpoints", stages, steps=6, length=32, model=model, dp=2
    )
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    code, text, _ = run("audit", "--config", tmp_path / "run.yaml")
    assert code == 0
    assert "first: 3 steps" in text and "second: 3 steps" in text
    record = {
        "first_position": 0,
        "consumed_train_samples": 4,
        "plan": Nanoset(ids_of(corpus), None, 32, 12, 1).plan,
    }
    for name, expected in (
        ("second", "reads the same tokens"),
        ("third", "saved in the stage 'third'"),
    ):
        state = {
            "step": 4,
            "state": {
                "data": {
                    "step": 4,
                    "stages": [record | {"name": "first"}, record | {"name": name}],
                }
            },
        }
        (tmp_path / "state.json").write_text(json.dumps(state))
        code, text, error = run(
            "audit",
            "--config",
            tmp_path / "run.yaml",
            "--state",
            tmp_path / "state.json",
        )
        assert code == (name == "third")
        assert expected in text + error
    rows = ask("where", "--config", tmp_path / "run.yaml", "--step", 4)
    assert [row["slot"]["position"] for row in rows] == [0, 2, 1, 3], (
        "the second stage starts over"
    )
    code, _, error = run("where", "--config", tmp_path / "run.yaml", "--step", 7)
    assert (code, error) == (
        1,
        "nanoset-ref where: error: step 7 is not one of this run's steps 1 to 6\n",
    )


def test_stages_with_ids_of_32_and_64_bits_are_replayed_into_one_file(run, tmp_path):
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write_document(np.arange(401) % 100)
    with MMapIndexedDatasetBuilder(tmp_path / "c.bin", np.int64) as builder:
        builder.add_document(np.arange(401) % 100, [401])
    stages = [
        ("one", 1, {"dataset_path": str(tmp_path / "a.npy")}, {}),
        ("two", 3, {"data_path": str(tmp_path / "c"), "split": "1,0,0"}, {}),
    ]
    config = run_tree(tmp_path / "k", stages, steps=4, length=4, model=GPT2)
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    words = ("replay", 2, "--steps", 2, "--config", tmp_path / "run.yaml")
    code, printed, error = run(*words)
    assert code == 0, error
    code, _, error = run(*words, "--output", tmp_path / "r.npy")
    assert code == 0, error
    rows = np.load(tmp_path / "r.npy")
    assert rows.dtype == np.int64
    assert [" ".join(map(str, row)) for row in rows] == printed.splitlines()


def test_a_yaml_file_names_the_tokenizer_where_the_files_do_not(run, corpus, tmp_path):
    pair = tmp_path / "pair.bin"
    run("convert", ids_of(corpus), pair)
    stages = [("only", 1, {"dataset_path": str(pair)}, {})]
    config = run_tree(
        tmp_path / "checkpoints",
        stages,
        steps=1,
        length=32,
        model=GPT2 | {"vocab_size": 8192},
    )
    for tokenizer, expected in (
        ({}, 1),
        ({"tokenizer": {"tokenizer_name_or_path": str(corpus / "tokenizer")}}, 0),
    ):
        (tmp_path / "run.yaml").write_text(json.dumps(config | tokenizer))
        assert (
            run("where", "--config", tmp_path / "run.yaml", "--step", 1, "--text")[0]
            == expected
        )


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_ds_file_says_its_tokenizer_and_the_width_of_its_ids(
    run, corpus, stories, tmp_path, dtype
):
    run("convert", ids_of(corpus), tmp_path / "a.ds", "--dtype", dtype)
    code, text, _ = run(
        "show", "--data", tmp_path / "a.ds", "--sequence-length", 32, "--document", 3
    )
    assert code == 0 and stories[3] in text


def test_the_loss_of_a_folder_of_checkpoints_is_that_of_its_metrics(run, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1, "loss": 2.0}\n')
    expected = run("loss", metrics)
    assert expected[0] == 0 and "2.0000" in expected[1]
    assert run("loss", tmp_path) == expected
