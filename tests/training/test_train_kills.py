"""A run that is killed, at any moment and for good, goes on as if nothing had happened, on any number of ranks."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xxhash
from ranks import free_port
from run_config import LLAMA

from nanoset_ref.load.nanoset import Nanoset


def global_batches(lines):
    """Per step, the samples in the order of their positions, whichever rank read them."""
    return [(line["stage"], sorted(sum(line["samples"], []))) for line in lines]


def test_killed_at_random_moments_a_run_equals_the_uninterrupted_one_bit_for_bit(
    runs, whole
):
    assert [line["step"] for line in whole] == list(range(1, 21))
    assert [line["stage"] for line in whole] == ["one"] * 6 + ["two"] * 14
    ids = Nanoset(runs.paths[0], None, 32, 8).read(np.arange(8))[:, :-1]
    digests = [xxhash.xxh3_64_hexdigest(row.tobytes()) for row in ids]
    assert whole[0]["samples"] == [
        [[k, digests[k]] for k in range(rank, 8, 2)] for rank in range(2)
    ]
    moments = random.Random(7)
    for round_ in range(5):  # in both stages, whatever the machine's speed
        goal = 4 * round_ + moments.randint(0, 4)
        ranks = runs.start("killed", dp=2)
        if not runs.kill_once(
            lambda goal=goal: len(runs.lines("killed")) >= goal,
            ranks,
            moments.uniform(0, 0.15),
        ):
            break
        assert runs.lines("killed") == whole[: len(runs.lines("killed"))]
    assert runs.finish("killed", dp=2) == whole


def test_killed_while_a_checkpoint_is_written_it_goes_on_from_the_one_before(
    runs, whole
):
    torn = runs.folder / "torn"
    for place, written in (("shards", "shard*"), ("state", "state.json")):
        ranks = runs.start("torn", hold=(place, 6), dp=2)
        hidden = f".step-00000006.tmp/{written}"
        assert runs.kill_once(lambda hidden=hidden: any(torn.glob(hidden)), ranks)
        saved = sorted(path.name for path in torn.glob("*step-*"))
        assert saved == [".step-00000006.tmp", "step-00000003"]
    assert runs.finish("torn", dp=2) == whole
    assert not any(torn.glob(".step-*.tmp"))


def test_other_numbers_of_ranks_read_the_same_global_batches(runs, whole):
    for dp, goal in ((4, 5), (1, 11)):
        runs.kill_after(goal, "elastic", dp=dp, accumulation=4 // dp)
    lines = runs.finish("elastic", dp=2)
    assert global_batches(lines) == global_batches(whole)
    assert [len(line["samples"]) for line in lines[:3] + lines[5:9] + lines[-2:]] == [
        4
    ] * 3 + [1] * 4 + [2] * 2
    assert [line["consumed_train_samples"] for line in lines] == [
        8 * step for step in range(1, 21)
    ]


def test_three_ranks_resume_bit_for_bit_as_well(runs):
    """With DistributedDataParallel they do not: it adds up in another order after its first step."""
    options = {"steps": 9, "dp": 3, "accumulation": 1, "model": LLAMA}
    whole = runs.finish("three", **options)
    runs.kill_after(4, "three again", **options)
    assert runs.finish("three again", **options) == whole


@pytest.mark.parametrize("cut", ["pp", "tp"])
def test_a_model_that_is_cut_has_the_losses_of_the_whole_one(runs, cut):
    options = {"steps": 9, "interval": 4, "model": LLAMA}
    whole = runs.lines("one process") or runs.finish("one process", **options)
    runs.kill_after(5, cut, **options, **{cut: 2})
    lines = runs.finish(cut, **options, **{cut: 2})
    assert global_batches(lines) == global_batches(whole)
    for name in ("loss", "gradient_norm"):
        assert [line[name] for line in lines] == pytest.approx(
            [line[name] for line in whole], rel=1e-4
        )


def ranks_of(name):
    """The processes, torchrun itself left out, that run a config."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if (
                any(word.endswith(f"/{name}.yaml".encode()) for word in words)
                and b"torch.distributed.run" not in words
            ):
                found.append(int(path.parent.name))
    return found


@pytest.mark.only_on("linux")  # looks into /proc
@pytest.mark.parametrize(
    ("name", "steps"), [("torchrun early", 0), ("torchrun late", 4)]
)
def test_torchrun_killed_takes_its_ranks_along_and_the_run_goes_on(
    runs, whole, name, steps
):
    """At any moment: while the ranks import, and when they train."""
    words = [
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
        "-m",
        "nanoset_ref.train",
        "--log-samples",
    ]
    with open(runs.folder / f"{name}.log", "wb") as log:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *words,
            "--config",
            runs.config(name, dp=2),
        ]
        agent = subprocess.Popen(command, stdout=log, stderr=log)
    while (
        len(runs.lines(name)) < steps or len(ranks_of(name)) < 2
    ) and agent.poll() is None:
        time.sleep(0.01)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    assert runs.lines(name) or not steps, (runs.folder / f"{name}.log").read_text()
    while ranks_of(name):
        time.sleep(0.05)
    if steps:
        assert runs.finish(name, dp=2) == whole
