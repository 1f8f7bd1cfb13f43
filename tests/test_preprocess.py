"""The command: Nanotron's bytes with every backend and any number of processes, one clear line for every bad input."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from nanoset_ref.formats import verify
from nanoset_ref.preprocess import main, preprocess
from nanoset_ref.tokenise.encode import load_tokenizer
from nanoset_ref.tokens import TokenFile


@pytest.fixture
def command(golden, tmp_path, capsys):
    """Run the command in this process on an input; returns 0, or the last line on standard error."""

    def run(*options, input=golden / "preprocess" / "input.json", column="body"):
        where = ["--input", input, "--column", column, "--output-prefix", tmp_path / "new" / "out"]
        code = main([str(one) for one in (*where, "--tokenizer-name-or-path", golden / "tokenizer", *options)])
        assert code in (0, 1)
        return capsys.readouterr().err.splitlines()[-1] if code else 0

    return run


FILES = ["out_input_ids.documents.npy", "out_input_ids.json", "out_input_ids.npy"]


@pytest.mark.parametrize(
    ("backend", "workers"), [("auto", 1), ("hf", 1), ("gigatoken", 1), ("hf", 2), ("gigatoken", 3)]
)
def test_the_golden_file_byte_for_byte(golden, tmp_path, caplog, backend, workers):
    counts = preprocess(
        golden / "preprocess" / "input.json",
        tmp_path / "out",
        golden / "tokenizer",
        column="body",
        backend=backend,
        num_workers=workers,
    )
    expected = json.loads((golden / "preprocess" / "preprocess.json").read_text())
    assert (counts.documents, counts.tokens) == (expected["num_documents"], expected["num_tokens"])
    assert counts.backend == ("hf" if backend == "hf" else "gigatoken")
    written = (tmp_path / "out_input_ids.npy").read_bytes()
    assert written == (golden / "preprocess" / "corpus_input_ids.npy").read_bytes()
    assert sorted(os.listdir(tmp_path)) == FILES
    assert "nothing is put between documents" in caplog.text


def torchrun(*arguments):
    return subprocess.run(
        [sys.executable, *"-m torch.distributed.run --nproc-per-node 2 -m nanoset_ref.preprocess".split(), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_golden_file_under_torchrun(golden, tmp_path):
    ended = torchrun(
        *("--input", golden / "preprocess" / "input.json", "--split", "train", "--column", "body"),
        *("--output-prefix", tmp_path / "out", "--tokenizer-name-or-path", golden / "tokenizer", "--progress"),
    )
    assert ended.returncode == 0, ended.stderr
    written = (tmp_path / "out_input_ids.npy").read_bytes()
    assert written == (golden / "preprocess" / "corpus_input_ids.npy").read_bytes()
    assert ended.stdout.startswith(f"{tmp_path / 'out'}_input_ids.npy: 31 documents, 3,069 tokens in ")
    assert "tokens/s" in ended.stderr
    assert ended.stderr.count("nothing is put between documents") == 1
    assert sorted(os.listdir(tmp_path)) == FILES


def test_an_error_in_one_rank_ends_all_with_one_message_and_no_output(golden, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' * 3000 + "{bad}\n")
    ended = torchrun(
        *("--input", path, "--output-prefix", tmp_path / "out", "--tokenizer-name-or-path", golden / "tokenizer"),
        *("--backend", "hf", "--append-eod"),
    )
    assert ended.returncode == 1
    assert ended.stderr.count(f"nanoset_ref.preprocess: error: {path}:3001: not JSON") == 1
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_the_manifest_says_what_was_done(command, golden, tmp_path, capsys, caplog):
    assert command("--append-eod") == 0
    assert "between documents" not in caplog.text
    file = TokenFile(tmp_path / "new" / "out_input_ids.npy")
    assert capsys.readouterr().out.startswith(f"{file.path}: 31 documents, 3,100 tokens in ")
    assert "ids below 480, checksum as in the manifest" in verify(file.path)
    manifest = file.manifest
    assert (manifest.tokenizer, manifest.vocab_size, manifest.eos_token_id) == (str(golden / "tokenizer"), 480, 2)
    assert (manifest.appended_eod, manifest.added_special_tokens) == (True, False)
    assert (file.tokens[file.document_offsets[1:] - 1] == 2).all()
    lines = (golden / "preprocess" / "input.json").read_text().splitlines()
    texts = [json.loads(line)["body"] for line in lines]
    tokenizer = load_tokenizer(golden / "tokenizer")
    expected = [len(ids) + 1 for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    assert np.diff(file.document_offsets).tolist() == expected


def test_skipped_lines_are_counted(command, tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\nbroken\n{"body": 1}\n')
    assert command("--on-error", "skip", input=path, column="text") == 0
    out = capsys.readouterr().out
    assert "1 documents" in out
    assert "skipped 1: invalid JSON\nskipped 1: missing column\n" in out


def test_bad_inputs_are_one_line_and_exit_code_1(command, golden, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    broken = tmp_path / "a.jsonl"
    broken.write_text('{"text": "one", "id": 1}\n{"text": 5}\n')
    prefix = "nanoset_ref.preprocess: error: "
    missing = f"{tmp_path / 'missing.jsonl'}"
    for options, message in [
        ({"input": missing, "column": "text"}, f"{missing}: no such file or folder"),
        ({"input": tmp_path / "empty.jsonl"}, f"{tmp_path / 'empty.jsonl'}: the input is empty"),
        ({"input": broken, "column": "body"}, f"{broken}:1: no column 'body'; the columns here are ['text', 'id']"),
        ({"input": broken, "column": "text"}, f"{broken}:2: column 'text' must hold a string, got int"),
    ]:
        assert command(**options) == prefix + message
    assert command("--tokenizer-name-or-path", tmp_path).startswith(f"{prefix}{tmp_path}: no tokenizer to load")
    assert command() == 0
    said = command("--tokenizer-name-or-path", tmp_path / "no tokenizer")  # which is not even looked for
    assert "out_input_ids.npy exists and is left unchanged; --overwrite" in said
    assert sorted(os.listdir(tmp_path / "new")) == FILES
