"""nanoset-ref with bad input: one line on standard error, an exit code, nothing half-written."""

import contextlib
import os
import shlex

import numba
import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_files import write_range

from nanoset_ref import tokens
from nanoset_ref.cli import COMMANDS
from nanoset_ref.cli.run_options import segment_at
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.provenance import RunSegment


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("where --step 1", "name a run"),
        ("where --data a=1 b --step 1", "give every file a weight or none"),
        ("where --data nothing.npy --step 1", "no token file at nothing.npy"),
        ("where --data m.bin=1 --step 1", "give --num-samples"),
        ("where --data raw.npy=x --step 1", "no token file at raw.npy=x"),
        (
            "where --data raw.npy --row-length 5 --sequence-length 4 --step 1",
            "give either --row-length",
        ),
        (
            "where --data raw.npy --sequence-length 4 --split 9,1 --step 1",
            "--split applies to Megatron's samples",
        ),
        (
            "card broken.yaml --name x --date 2026-11 --given seed=9",
            "--given is for configs of other --loader",
        ),
        (
            "where --data raw.npy --sequence-length 9 --dp-size 9 --step 1",
            "has no steps",
        ),
        (
            "where --config raw.npy --data raw.npy --step 1",
            "--config FILE.yaml, --run CARD, or --data",
        ),
        ("where --config nothing.yaml --step 1", "nothing.yaml: No such file"),
        ("where --config broken.yaml --step 1", "broken.yaml"),
        (
            "when --data raw.npy --sequence-length 4 --text ' '",
            "the tokenizer is unknown",
        ),
        (
            "audit --data raw.npy --sequence-length 4 --state raw.npy",
            "raw.npy is not JSON",
        ),
        (
            "audit --data raw.npy --sequence-length 4 --state list.json",
            "cannot be compared with this run (ValueError: this is not a saved state of a loader: ",
        ),
        (
            "audit --data raw.npy --sequence-length 4 --state half.json",
            "a plan of version None, but this package",
        ),
        (
            "audit --data m.bin --sequence-length 4 --state half.json",
            "this run reads rows of another kind",
        ),
        ("inspect m.bin --png nofolder/a.png", "the folder nofolder does not exist"),
        ("inspect m.bin --png m.bin", "m.bin is read and cannot be written"),
        ("inspect m.bin --png m.idx --overwrite", "m.idx is read and cannot"),
        ("inspect m --png m.bin --overwrite", "m.bin is read and cannot be written"),
        (
            "replay 1 --data raw.npy --sequence-length 4 --order order.npy --num-samples 9 "
            "--output order.npy --overwrite",
            "order.npy is read and cannot be written",
        ),
        ("merge m.bin m.bin n.bin --tokenizer t", "a .bin/.idx pair records no token"),
        ("inspect m.bin --png raw.npy", "raw.npy exists and is left unchanged"),
        (
            "merge m.bin m.bin m.bin --overwrite",
            "m.bin is read and cannot be written at the same time",
        ),
        (
            "replay 1 --data m.bin --sequence-length 4 --output m.idx --overwrite",
            "m.idx is read and cannot be written",
        ),
        (
            "verify m.bin --png",
            "unrecognized arguments: --png; see nanoset-ref verify --help",
        ),
        (
            "verify m.bin --vocab-size 0",
            "must be an integer of at least 1, got '0'",
        ),
        (
            "show --data raw.npy --sequence-length 4 --position -1",
            "there is no position -1",
        ),
        (
            "convert m.bin a.npy --dtype wide",
            "argument --dtype: invalid choice: 'wide' (choose from",
        ),
        ("split m.bin a.npy raw.npy --held-out 1", "raw.npy exists"),
        ("split m.bin a.npy a.npy --held-out 1", "two files, got a.npy for both"),
        (
            "split m.bin a.npy b.npy --held-out nan",
            "a share between 0 and 1 or an integer, got nan",
        ),
        ("split m.bin a.npy b.npy --held-out 9", "held_out=9 selects 9"),
        (
            "split m.bin a.npy b.npy --held-out 1.0",
            "a share between 0 and 1 or an integer, got 1.0",
        ),
        (
            "split m.bin a.npy b.npy --held-out all",
            "--held-out: must be a share such as 0.01 or a number of documents, got 'all'",
        ),
        ("inspect raw.npy", "raw.npy records no document boundaries"),
        (
            "show --data raw.npy --sequence-length 4 --sample 99",
            "there is no sample 99",
        ),
        ("show --data raw.npy --sequence-length 4 --sample 0 --source 3", "no file 3"),
        (
            "show --data raw.npy --sequence-length 4 --position 1000",
            "there is no position 1000",
        ),
        (
            "estimate --data raw.npy --sequence-length 4 --num-samples -5",
            "argument --num-samples: must be an integer of at least 0, got '-5'",
        ),
        (
            "audit --data raw.npy --sequence-length 4 --num-loading-workers -1",
            "must be an integer of at least 0, got",
        ),
        (
            "show --data raw.npy --sequence-length 4 --num-samples -3 --position 0",
            "argument --num-samples: must be an integer of at least 0, got '-3'",
        ),
        (
            "show --data raw.npy --sequence-length 4 --seed -1 --position 0",
            "random_seed must be at least 0, got -1",
        ),
        (
            f"show --data raw.npy --sequence-length 4 --num-samples {10**30} --position 0",
            "and below 2**63, got '1000",
        ),
        (
            f"show --data m.bin --sequence-length 4 --num-samples {10**18} --position 0",
            "split_num_samples[0] must be below 2**48",
        ),
        (
            "index --data-path m --sequence-length 4 --path-to-cache c --split x",
            "split must be up to three numbers",
        ),
        (
            "index --data-path m=1 --sequence-length 4 --path-to-cache c",
            "weights need --split-num-samples TRAIN VALID",
        ),
        ("loss list.json", "list.json is not the metrics.jsonl of a run"),
        ("loss words.json", "words.json is not the metrics.jsonl of a run"),
        (
            "estimate --data raw.npy --sequence-length 4 --step-time 0",
            "--step-time must be a positive number, got 0.0",
        ),
        (
            "estimate --data raw.npy --step-time 1 --tokens-per-second 2",
            "either --tokens-per-second or --step-time",
        ),
        ("estimate", "name a run"),
        (
            "audit --data raw.npy --sequence-length 4 --micro-batch-size 99",
            "run has 0 steps: the 10 samples left are fewer than a step reads, 99; use fewer",
        ),
    ],
)
def test_bad_input_is_one_line_on_standard_error(
    run, tmp_path, monkeypatch, line, message
):
    arguments = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    write_range(tmp_path / "raw.npy", 41)
    assert run("convert", "raw.npy", "m.bin", "--eos-token-id", 7)[0] == 0
    (tmp_path / "broken.yaml").write_text("a: [1\nb: 2\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "words.json").write_text('{"step": 1, "loss": "x"}\n')
    np.save(tmp_path / "order.npy", np.arange(10))
    (tmp_path / "half.json").write_text(
        '{"consumed_train_samples": 1, "plan": {"files": [{}]}}'
    )
    before = sorted(tmp_path.iterdir())
    code, out, error = run(*arguments)
    assert (code in (1, 2), out) == (True, "")
    assert message in error
    assert (
        error.startswith(f"nanoset-ref {arguments[0]}: error: ")
        and error.count("\n") == 1
    )
    assert sorted(tmp_path.iterdir()) == before


def test_a_wrong_command_line_is_exit_code_2(run):
    for arguments in (
        [],
        ["fly"],
        ["show", "--data", "x"],
        ["show", "--position", "1", "--step", "2"],
    ):
        code, _, message = run(*arguments)
        assert code == 2
        assert (
            message.startswith("nanoset-ref")
            and message.endswith("--help\n")
            and message.count("\n") == 1
        )


def test_a_mistyped_command_is_told_the_closest_one(run):
    code, _, message = run("trian")
    assert code == 2
    assert "trian: unknown command, did you mean 'train'?" in message


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory")


def lose_a_peer():
    """As the backward pass raises it, outside of torch.distributed."""
    raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            lambda: [][3],
            "a bug of nanoset_ref; please report it (IndexError: list index out of range): NANOSET_REF_TRACE",
        ),
        (
            lambda: dist.all_reduce(None),
            "error: another rank has probably failed, and says why (TypeError",
        ),
        (
            lambda: lose_a_peer(),
            "error: another rank has probably failed, and says why (",
        ),
        (
            lambda: out_of_memory(),
            "there is not enough memory (OutOfMemoryError: CUDA out of memory)",
        ),
        (lambda: {}["a"], "(KeyError: 'a')"),
        (
            lambda: numba.njit(lambda number: number.nothing)(1),
            "a bug of nanoset_ref; please report it (TypingError: ",
        ),
        (lambda: np.empty(2**58), "there is not enough memory ("),
        (
            lambda: segment_at([RunSegment("run", range(3), Schedule(), 1)], 7),
            "error: step 7 is not one of this run's",
        ),
    ],
)
def test_an_error_that_nobody_foresaw_says_so_and_shows_its_traceback_on_request(
    run, monkeypatch, raised, said
):
    monkeypatch.setattr(tokens, "open_tokens", lambda *_: raised())
    code, _, error = run("inspect", "a.npy")
    assert code == 1 and said in error and error.count("\n") == 1 and len(error) < 500
    assert ("bug" in error) == ("bug" in said or "KeyError" in said)
    monkeypatch.setenv("NANOSET_REF_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in run("inspect", "a.npy")[2]


def test_a_working_directory_that_was_deleted_is_named_as_a_cause(
    run, tmp_path, monkeypatch
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(tokens, "open_tokens", lambda *_: os.getcwd())
    code, _, error = run("inspect", "/a.npy")
    assert code == 1 and "if the working directory was deleted, go to another" in error


BASES = {
    "inspect": ["empty.npy", "m.bin --eos-token-id"],
    "verify": ["empty.npy", "raw.npy --vocab-size"],
    "convert": ["raw.npy x.npy --dtype", "m.bin x.txt --dtype int32 --tokenizer"],
    "merge": ["m.bin", "m.bin dir x.npy --dtype"],
    "split": ["m.bin a.npy b.npy --held-out", "m.bin a.npy b.npy --held-out 9 --seed"],
    "show": [
        "--data raw.npy --sequence-length 4 --position 0 --num-samples",
        "--data m --sequence-length 4 --position",
    ],
    "where": [
        "--data raw.npy --sequence-length 4 --step",
        "--data m --sequence-length 4 --step 1 --split",
        "--run demo",
        "3 --run",
        "--run olmo-1b 3 --sizes",
    ],
    "when": [
        "--data m --sequence-length 4 --document",
        "--data m --document 0 --sequence-length",
        "--run demo --sample",
        "--run demo --byte-range 8",
    ],
    "audit": [
        "--data m.bin --sequence-length 4 --dp-size",
        "--data raw.npy --sequence-length 4 --order",
        "--config",
    ],
    "card": ["broken.yaml --date 2026-11 --name", "--name x --date 2026-11"],
    "replay": [
        "--data raw.npy --sequence-length 4 --step",
        "1 --data raw.npy --sequence-length 4 --steps",
        "1 --data raw.npy --sequence-length 4 --output",
        "--run demo",
    ],
    "skip": [
        "list.json --data raw.npy --sequence-length 4 --source",
        "--data raw.npy --sequence-length 4 --source 0",
        "list.json --run",
    ],
    "compare": ["demo", "demo pythia-70m --sizes"],
    "estimate": [
        "--data raw.npy --sequence-length 4 --step-time",
        "--data raw.npy --sequence-length 4 --gpus",
        "--config",
    ],
    "laws": ["nowhere:make --budget", "nowhere --seed"],
    "loss": ["raw.npy --lines", "list.json --lines"],
    "index": [
        "--data-path m --path-to-cache c --sequence-length",
        "--data-path m=1 --sequence-length 4 --path-to-cache c --split-num-samples 9 0",
        "--data-path m --sequence-length 4 --path-to-cache c --random-seed",
        "--data-path m --sequence-length 4 --split 1,1,0 --path-to-cache raw.npy --mid-level-dataset-surplus",
    ],
    "train": ["--config", "--example"],
    "preprocess": [
        "--output-prefix x --tokenizer-name-or-path none --input",
        "--input list.json --output-prefix",
    ],
    "megatron-preprocess": [
        "--input list.json --output-prefix x --tokenizer-model none --tokenizer-type"
    ],
    "chunks": [
        "mix --input_root dir --out_root x --subfolders a --num_chunks 2 --num_valid_samples_per_subfolder",
        "tokenize --input_root dir --out_root rows --tokenizer none --concat_tokens",
        "validate list.json --vocab_size",
        "convert dir --output_prefix",
    ],
}
WRONG = [
    "-1",
    "-3.5",
    "x",
    "nan",
    "1e999",
    "''",
    "dir",
    "raw.npy",
    "trunc",
    "broken.yaml",
    "a=b",
    "'1 2'",
    "\u00e9",
]
WRONG += [str(10**30), str(-(2**70))]


def test_every_command_is_tried_with_bad_input():
    assert BASES.keys() == COMMANDS.keys()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(
        [f"{name} {base}" for name, bases in BASES.items() for base in bases]
    ),
    st.sampled_from(WRONG),
)
def test_bad_input_is_never_an_error_of_a_library(run, tmp_path, base, value):
    """No word of pydantic, torch or numba, no traceback, no bug: at most one line, and an exit code that says so."""
    with contextlib.chdir(tmp_path):
        write_range(tmp_path / "raw.npy", 41)
        if not (tmp_path / "m.bin").exists():
            assert run("convert", "raw.npy", "m.bin", "--eos-token-id", 7)[0] == 0
        (tmp_path / "dir").mkdir(exist_ok=True)
        (tmp_path / "empty.npy").touch()
        (tmp_path / "trunc.bin").write_bytes(b"12")
        (tmp_path / "trunc.idx").write_bytes(b"MMIDIDX")
        (tmp_path / "broken.yaml").write_text("a: [1\n")
        (tmp_path / "list.json").write_text("[1]")
        code, out, error = run(*shlex.split(f"{base} {value}"))
    assert code in (0, 1, 2) and "Traceback" not in out + error
    assert not any(
        word in error for word in ("pydantic", "numba", "validation error", "bug of")
    )
    lines = [line for line in error.splitlines() if "WARNING" not in line]
    assert len(lines) <= 1 and all("error: " in line for line in lines)
    if code and not error:
        assert "BROKEN" in out or "bad" in out or "holds" in out, "a report says it"
