"""The command: Nanotron's bytes with every backend and any number of processes, one clear line for every bad input."""

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from torch.distributed import TCPStore

from nanoset_ref.preprocess import encoding_processes, main, preprocess
from nanoset_ref.tokens import TokenFile, verify


@pytest.fixture
def command(golden, tmp_path, capsys):
    """Run the command in this process on an input; returns its exit code or, if that is 1, what is wrong."""

    def run(*options, input=golden / "preprocess" / "input.json", column="body"):
        where = [
            "--input",
            input,
            "--column",
            column,
            "--output-prefix",
            tmp_path / "new" / "out",
        ]
        code = main(
            [
                str(one)
                for one in (
                    *where,
                    "--tokenizer-name-or-path",
                    golden / "tokenizer",
                    *options,
                )
            ]
        )
        assert code in (0, 1, 3)
        return capsys.readouterr().err.splitlines()[-1] if code == 1 else code

    return run


FILES = ["out_input_ids.documents.npy", "out_input_ids.json", "out_input_ids.npy"]


@pytest.mark.parametrize(
    ("backend", "workers"), [("auto", 1), ("hf", 2), ("gigatoken", 3)]
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
    assert (counts.documents, counts.tokens) == (
        expected["num_documents"],
        expected["num_tokens"],
    )
    assert counts.backend == ("hf" if backend == "hf" else "gigatoken")
    written = (tmp_path / "out_input_ids.npy").read_bytes()
    assert written == (golden / "preprocess" / "corpus_input_ids.npy").read_bytes()
    assert sorted(os.listdir(tmp_path)) == FILES
    assert "nothing separates the documents" in caplog.text


def torchrun(*arguments):
    return subprocess.run(
        [
            sys.executable,
            *"-m torch.distributed.run --nproc-per-node 2 -m nanoset_ref.preprocess".split(),
            *arguments,
        ],
        capture_output=True,
        text=True,
    )


def test_the_golden_file_under_torchrun(golden, tmp_path):
    ended = torchrun(
        *(
            "--input",
            golden / "preprocess" / "input.json",
            "--split",
            "train",
            "--column",
            "body",
        ),
        *(
            "--output-prefix",
            tmp_path / "out",
            "--tokenizer-name-or-path",
            golden / "tokenizer",
            "--progress",
        ),
    )
    assert ended.returncode == 0, ended.stderr
    written = (tmp_path / "out_input_ids.npy").read_bytes()
    assert written == (golden / "preprocess" / "corpus_input_ids.npy").read_bytes()
    assert ended.stdout.startswith(
        f"{tmp_path / 'out'}_input_ids.npy: 31 documents, 3,069 tokens in "
    )
    assert "tokens/s" in ended.stderr
    assert ended.stderr.count("nothing separates the documents") == 1
    assert sorted(os.listdir(tmp_path)) == FILES


def test_an_error_in_one_rank_ends_all_with_one_message_and_no_output(golden, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' * 3000 + "{bad}\n")
    ended = torchrun(
        *(
            "--input",
            path,
            "--output-prefix",
            tmp_path / "out",
            "--tokenizer-name-or-path",
            golden / "tokenizer",
        ),
        *("--backend", "hf", "--append-eod"),
    )
    assert ended.returncode == 1
    assert (
        ended.stderr.count(f"nanoset_ref.preprocess: error: {path}:3001: not JSON") == 1
    )
    assert os.listdir(tmp_path) == ["a.jsonl"]


class AgentStore(TCPStore):
    """The store of torchrun's agent, which outlives the ranks."""

    def __init__(self):
        super().__init__("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.asked = threading.Event()

    def check(self, keys):
        self.asked.set()
        return super().check(keys)


def test_ranks_that_torchrun_starts_again_wait_for_the_new_rank_0(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setattr(encoding_processes, "under_torchrun", lambda: True)
    store, rank = AgentStore(), ContextVar("rank")
    monkeypatch.setattr(
        sys.modules["torch.distributed.rendezvous"],
        "rendezvous",
        lambda *_, **__: iter([(store, rank.get(), 2)]),
    )

    def connect(number):
        rank.set(number)
        return encoding_processes.other_ranks.__wrapped__()

    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            store.asked.clear()
            rank_1 = pool.submit(connect, 1)
            store.asked.wait()  # it comes first
            ends = connect(0) + rank_1.result()
            for end in ends:
                end.connection.close()


def test_the_manifest_says_what_was_done(command, golden, tmp_path, capsys, caplog):
    assert command("--append-eod") == 0
    assert "between documents" not in caplog.text
    file = TokenFile(tmp_path / "new" / "out_input_ids.npy")
    assert capsys.readouterr().out.startswith(
        f"{file.path}: 31 documents, 3,100 tokens in "
    )
    assert "ids below 480, checksum as recorded" in verify(file.path)
    manifest = file.manifest
    assert (manifest.tokenizer, manifest.vocab_size, manifest.eos_token_id) == (
        str(golden / "tokenizer"),
        480,
        2,
    )
    assert (manifest.appended_eod, manifest.added_special_tokens) == (True, False)
    assert (file.tokens[file.document_offsets[1:] - 1] == 2).all()


def test_bad_inputs_are_one_line_and_exit_code_1_or_counted(
    command, golden, tmp_path, capsys, caplog
):
    broken, missing = tmp_path / "a.jsonl", tmp_path / "missing.jsonl"
    broken.write_text('{"text": "one", "id": 1}\n{"text": 5}\n')
    prefix = "nanoset_ref.preprocess: error: "
    assert command(input=missing) == f"{prefix}{missing}: no such file or folder"
    assert (
        command(input=broken)
        == f"{prefix}{broken}:1: no column 'body'; the columns here are ['text', 'id']"
    )
    assert command("--tokenizer-name-or-path", tmp_path).startswith(
        f"{prefix}{tmp_path}: no tokenizer to load"
    )
    assert command("--on-error", "skip", input=broken, column="text") == 3
    assert (
        "1 of 2 documents were left out, 50.0% (1 skipped: not a string)" in caplog.text
    )
    assert re.search(
        r"1 documents, .*\nskipped 1: not a string\n$", capsys.readouterr().out
    )
    said = command(
        "--tokenizer-name-or-path", tmp_path / "no tokenizer"
    )  # which is not even looked for
    assert "out_input_ids.npy exists and is left unchanged; --overwrite" in said
    assert sorted(os.listdir(tmp_path / "new")) == FILES
    assert "files have no configurations" in command(
        "--overwrite", "--dataset-config", "en"
    )


@pytest.mark.parametrize(("bad", "code"), [(1, 0), (2, 3)])
def test_one_percent_may_be_left_out_without_a_word_and_no_more(
    command, tmp_path, caplog, monkeypatch, bad, code
):
    path = tmp_path / "a.jsonl"
    path.write_text("{bad\n" * bad + '{"body": "good"}\n' * (100 - bad))
    words = ["--on-error", "skip", "--append-eod", "--overwrite"]
    assert command(*words, input=path) == code
    assert ("documents were left out" in caplog.text) == bool(code)
    monkeypatch.setattr("nanoset_ref.cli.command.end_with_launcher", lambda: None)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert command(*words, input=path) == 0
    assert (
        TokenFile(tmp_path / "new" / "out_input_ids.npy").manifest.num_documents
        == 100 - bad
    )


def test_documents_that_hold_special_tokens_are_counted_in_a_warning_or_split_or_refused(
    command, tmp_path, caplog
):
    path = tmp_path / "a.jsonl"
    texts = ["before </s> after", "none", "</s><s></s>"]
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))

    def ends():
        return (TokenFile(tmp_path / "new" / "out_input_ids.npy").tokens == 2).sum()

    assert command("--append-eod", input=path) == 0
    assert ends() == 6
    assert (
        f"{path}:1: the document holds the special token '</s>', which is kept"
        in caplog.text
    )
    assert (
        "documents that hold special tokens: 2 (3 x </s>, 1 x <s>); --special-tokens split"
        in caplog.text
    )
    caplog.clear()
    assert (
        command("--append-eod", "--overwrite", "--special-tokens", "split", input=path)
        == 0
    )
    assert (ends(), "special tokens" in caplog.text) == (3, False)
    refused = command("--overwrite", "--special-tokens", "refuse", input=path)
    assert (
        f"{path}:1: the document holds the special token '</s>'; remove it, or use --special-tokens"
        in refused
    )
    assert ends() == 3
