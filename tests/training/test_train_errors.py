"""A run that is interrupted, or has a wrong config, or whose rank fails: one line, and no process is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ranks import free_port

import nanoset_ref
from nanoset_ref.train import main

INTERRUPTED = "error: interrupted; the same command continues after the newest checkpoint, if there is one"


def test_an_interrupted_run_says_so_in_one_line(runs):
    command = [
        sys.executable,
        "-m",
        "nanoset_ref.train",
        "--config",
        runs.config("interrupted", steps=10_000),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len(runs.lines("interrupted")) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1].splitlines()
    assert process.returncode == 1 and "Traceback (most recent call last):" not in said
    assert said[-1].endswith(INTERRUPTED)


def test_interrupted_under_torchrun_the_first_rank_says_so_once_before_the_traceback_of_torchrun(
    runs,
):
    """torchrun raises in its own process when it has passed Ctrl-C on; no rank can stop that."""
    words = [
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
        "-m",
        "nanoset_ref.train",
    ]
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    command += ["--config", runs.config("interrupted ranks", steps=10_000, dp=2)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len(runs.lines("interrupted ranks")) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    before, _, torchruns = said.partition("Traceback (most recent call last):\n")
    # the first rank may end before torchrun says that it sends the signal to the second
    ours = [line for line in before.splitlines() if "closing signal" not in line]
    assert (
        f"{INTERRUPTED} (a traceback after this line comes from torchrun itself)"
        in ours[-1]
    )
    assert [line for line in ours if "error:" in line] == ours[-1:]
    assert "Traceback" not in torchruns
    assert str(Path(nanoset_ref.__file__).parent) not in torchruns


UNFINISHED = """
import sys
import torch
import torch.distributed as dist
from nanoset_ref.train import train_command

def train():
    rank = int(sys.argv[1])
    store = "file://" + sys.argv[2]
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    if rank == 1:
        sys.stdin.read()
        return
    dist.all_reduce(torch.ones(1), async_op=True)
    raise ValueError("no such thing")

train_command.train = train
sys.exit(train_command.main([]))
"""


def test_a_rank_that_fails_ends_before_the_others_end_their_part_of_a_collective(
    tmp_path,
):
    command = [sys.executable, "-c", UNFINISHED]
    first, second = (
        subprocess.Popen(
            [*command, rank, tmp_path / "store"],
            env=os.environ | {"RANK": rank, "WORLD_SIZE": "2"},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    )
    try:
        said = first.communicate(timeout=300)[1]
        assert said == "nanoset_ref.train: error: no such thing\n"
        assert first.returncode == 1
    finally:
        for process in (second, first):
            process.communicate()


def test_a_wrong_config_ends_with_one_line_and_exit_code_1(runs, capsys):
    config = runs.config("wrong", dp=2)
    assert main(["--config", config]) == 1
    said = capsys.readouterr().err
    assert said.startswith("nanoset_ref.train: error: ") and said.count("\n") == 1
    assert "needs 2 processes, not 1: start 2 with torchrun" in said
    for path, words in (
        (runs.config("wrong", pp=2), "got 'gpt2'"),
        ("nowhere.yaml", "nowhere.yaml"),
    ):
        assert main(["--config", path]) == 1
        assert words in capsys.readouterr().err
