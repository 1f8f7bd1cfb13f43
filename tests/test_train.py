"""A run that is killed, at any moment and for good, goes on as if nothing had happened."""

import contextlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from ranks import Ranks, free_port
from ranks.tasks import (
    train_in_own_folder,
    train_run,
    train_with_small_files,
    write_gradients,
)
from run_config import GPT2, run_tree
from transformers import AutoConfig, AutoModelForCausalLM

import nanoset_ref
from nanoset_ref.cli import main as tool
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.tokens import TokenFileWriter
from nanoset_ref.train import (
    CheckpointError,
    Checkpoints,
    DistributedModel,
    Run,
    load_config,
    main,
    start_world,
)
from nanoset_ref.train.config import LRScheduleConfig, OptimizerConfig
from nanoset_ref.train.metrics import continue_metrics, read_metrics
from nanoset_ref.train.progress import Progress
from nanoset_ref.train.run import learning_rate

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
}


class Runs:
    """Runs over the same data: two stages, the second blended and read by a worker."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = [str(folder / f"{name}_input_ids.npy") for name in "ab"]
        for path, size in zip(self.paths, (4000, 3000), strict=True):
            with TokenFileWriter(path, dtype="uint16", vocab_size=300) as writer:
                writer.write_document(np.random.RandomState(size).randint(0, 300, size))

    def config(self, name, **options):
        """Write the YAML of a run called `name`; the file's path."""
        options = {"steps": 20, "interval": 3, "accumulation": 2} | options
        blend = {self.paths[0]: 0.5, self.paths[1]: 0.5}
        stages = [
            ("one", 1, {"dataset_path": self.paths[0]}, {}),
            ("two", 7, {"dataset_path": blend}, {"num_loading_workers": 1}),
        ]
        path = self.folder / f"{name}.yaml"
        path.write_text(
            json.dumps(run_tree(self.folder / name, stages, length=32, **options))
        )  # JSON is YAML
        return str(path)

    def start(self, name, **options):
        config = self.config(name, **options)
        size = options.get("dp", 1) * options.get("pp", 1) * options.get("tp", 1)
        return Ranks(
            size,
            train_run,
            (["--config", config, "--log-samples"],),
            self.folder / f"{name}.log",
        )

    def finish(self, name, **options):
        self.start(name, **options).wait()
        return self.lines(name)

    def lines(self, name):
        """The metrics so far, without the speed."""
        path = self.folder / name / "metrics.jsonl"
        lines = read_metrics(path) if path.exists() else []
        for line in lines:
            assert line.pop("tokens_per_second") > 0
            assert 0 <= line.pop("data_wait") <= 1
        return lines

    def kill_after(self, goal, name, seconds=0.0, **options):
        """Start a run, and SIGKILL all ranks `seconds` after it wrote `goal` lines; False if it ended before."""
        ranks = self.start(name, **options)
        while len(self.lines(name)) < goal:
            if all(process.exitcode == 0 for process in ranks.processes):
                return False
            assert not any(process.exitcode for process in ranks.processes), (
                ranks.log.read_text()
            )
            time.sleep(0.002)
        time.sleep(seconds)
        ranks.kill()
        return True


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def whole(runs):
    """The lines of a run that nobody interrupts."""
    return runs.finish("whole", dp=2)


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
        if not runs.kill_after(
            4 * round_ + moments.randint(0, 4), "killed", moments.uniform(0, 0.15), dp=2
        ):
            break
        assert runs.lines("killed") == whole[: len(runs.lines("killed"))]
    assert runs.finish("killed", dp=2) == whole


def test_killed_while_a_checkpoint_is_written_it_goes_on_from_the_one_before(
    runs, whole
):
    torn = runs.folder / "torn"
    for _ in range(2):
        ranks = runs.start("torn", dp=2)
        while not any(torn.glob(".step-*.tmp/shard*")):
            assert all(process.exitcode is None for process in ranks.processes), (
                ranks.log.read_text()
            )
        ranks.kill()
        assert any(torn.glob(".step-*.tmp"))
    assert runs.finish("torn", dp=2) == whole
    assert not any(torn.glob(".step-*.tmp"))


def test_other_numbers_of_ranks_read_the_same_global_batches(runs, whole):
    for dp, goal in ((4, 5), (1, 11)):
        assert runs.kill_after(goal, "elastic", dp=dp, accumulation=4 // dp)
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
    assert runs.kill_after(4, "three again", **options)
    assert runs.finish("three again", **options) == whole


@pytest.mark.parametrize("cut", ["pp", "tp"])
def test_a_model_that_is_cut_has_the_losses_of_the_whole_one(runs, cut):
    options = {"steps": 9, "interval": 4, "model": LLAMA}
    whole = runs.lines("one process") or runs.finish("one process", **options)
    assert runs.kill_after(5, cut, **options, **{cut: 2})
    lines = runs.finish(cut, **options, **{cut: 2})
    assert global_batches(lines) == global_batches(whole)
    for name in ("loss", "gradient_norm"):
        assert [line[name] for line in lines] == pytest.approx(
            [line[name] for line in whole], rel=1e-4
        )


ROWS = np.random.RandomState(7).randint(0, 300, (8, 9))
UNEVEN = (
    np.random.RandomState(8).rand(8, 8) < np.linspace(0, 1, 8)[:, None]
)  # no label of the first row counts
UNEVEN[2] = False  # nor of the first micro-batch of the first of two ranks


def gradients_of_one_batch():
    """Loss and gradients, by name, of the whole model and the whole batch at once."""
    torch.manual_seed(42)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**LLAMA)).train()
    logits = model(input_ids=torch.from_numpy(ROWS[:, :-1]), use_cache=False).logits
    counted = torch.from_numpy(UNEVEN)
    loss = torch.nn.functional.cross_entropy(
        logits[counted], torch.from_numpy(ROWS[:, 1:])[counted]
    )
    loss.backward()
    return {"loss": loss.item()} | {
        f"model.{name}": it.grad.numpy() for name, it in model.named_parameters()
    }


@pytest.mark.parametrize(
    ("rows", "accumulation", "ranks"),
    [
        (8, 1, {}),
        (2, 4, {}),
        (1, 8, {}),
        (2, 2, {"dp": 2}),
        (1, 2, {"dp": 4}),
        (2, 4, {"pp": 2}),
        (4, 2, {"tp": 2}),
    ],
)
def test_a_batch_in_any_parts_has_the_loss_and_the_gradient_of_the_whole(
    runs, tmp_path, rows, accumulation, ranks
):
    """Each counted label weighs the same, whichever micro-batch and rank it falls to."""
    stages = [("one", 1, {"dataset_path": runs.paths[0]}, {})]
    options = {
        "steps": 1,
        "length": 8,
        "rows": rows,
        "accumulation": accumulation,
        "model": LLAMA,
    }
    tree = run_tree(tmp_path, stages, **options, **ranks)
    size = int(np.prod(list(ranks.values()), dtype=int))
    Ranks(
        size,
        write_gradients,
        (str(tmp_path), tree, ROWS.tolist(), UNEVEN.tolist()),
        tmp_path / "log",
    ).wait()
    whole, found = gradients_of_one_batch(), {}
    for rank in range(size):
        part = np.load(tmp_path / f"{rank}.npz")
        assert float(part["loss"]) == pytest.approx(whole["loss"], rel=1e-5)
        found |= dict(part)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-3, atol=1e-6, err_msg=name
        )


def test_a_batch_without_a_counted_label_has_no_loss_and_a_gradient_of_zero(
    runs, tmp_path
):
    tree = run_tree(
        tmp_path,
        [("one", 1, {"dataset_path": runs.paths[0]}, {})],
        steps=1,
        length=8,
        accumulation=4,
    )
    nothing = np.zeros((8, 8), bool).tolist()
    Ranks(
        1,
        write_gradients,
        (str(tmp_path), tree, ROWS.tolist(), nothing),
        tmp_path / "log",
    ).wait()
    found = dict(np.load(tmp_path / "0.npz"))
    assert "loss" not in found
    assert all((value == 0).all() for value in found.values())


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
        said = first.communicate(timeout=60)[1]
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


def test_a_run_says_every_few_steps_how_it_goes_and_a_finished_one_that_it_is_complete(
    runs,
):
    options = {"steps": 8, "interval": 100}
    tree = json.loads(Path(runs.config("said", **options)).read_text())
    config = runs.folder / "said.yaml"
    config.write_text(
        json.dumps(tree | {"logging": {"iteration_step_info_interval": 3}})
    )
    log = runs.folder / "said.log"
    for _ in range(2):
        Ranks(1, train_run, (["--config", str(config)],), log).wait()
    losses = [f"{line['loss']:.4f}" for line in runs.lines("said")]
    line = r"step (\d+) of 8 \((one|two)\): loss ([\d.]+), [\d,]+ tokens/s, "
    line += r"waiting for data \d+\.\d%, \d+:\d\d:\d\d left"
    assert re.findall(line, log.read_text()) == [
        ("3", "one", losses[2]),
        ("6", "one", losses[5]),
        ("8", "two", losses[7]),
    ]
    complete = f"all 8 steps are done (see {runs.folder / 'said'}); to continue, raise tokens.train_steps"
    assert log.read_text().count(complete) == 1 and log.read_text().endswith(
        f"{complete}\n"
    )


def test_on_a_terminal_a_bar_says_what_the_lines_say(monkeypatch, capsys, caplog):
    caplog.set_level(logging.INFO)
    for is_terminal, is_shown in ((True, True), (False, True), (True, False)):
        monkeypatch.setattr(
            sys.stderr,
            "isatty",
            lambda is_terminal=is_terminal: is_terminal,
            raising=False,
        )
        with Progress(2, 4, 1, is_shown) as progress:
            progress.update({"step": 3, "stage": "one", "loss": 5.25}, 1000, 0.5, 0.1)
            progress.update({"step": 4, "stage": "one", "loss": None}, 1000, 0.5, 0.25)
        bar, lines = (
            capsys.readouterr().err,
            [record.getMessage() for record in caplog.records],
        )
        caplog.clear()
        said = [
            "loss 5.2500, 2,000 tokens/s, waiting for data 20.0%",
            "no loss, 2,000 tokens/s, waiting for data 50.0%",
        ]
        assert (said[1] in bar and "4/4" in bar) == (is_terminal and is_shown)
        assert [line.split(", 0:00:")[0] for line in lines] == (
            [f"step {3 + k} of 4 (one): {said[k]}" for k in range(2)]
            if is_shown and not is_terminal
            else []
        )


def test_a_step_without_a_counted_label_is_said_and_the_loss_of_a_log_with_such_steps_is_drawn(
    runs, monkeypatch, caplog, capsys
):
    monkeypatch.setattr(
        "nanoset_ref.train.model.DistributedModel.forward_backward", without_labels
    )
    config = load_config(runs.config("no labels", steps=8))
    run = Run(config, start_world())
    run.train()
    run.checkpoints.close()
    run.world.close()
    assert [line["loss"] for line in runs.lines("no labels")] == [None] * 8
    said = [
        record.getMessage()
        for record in caplog.records
        if "contributes to" in record.getMessage()
    ]
    assert said == [
        f"no label in step {k} contributes to the loss; the gradient is zero"
        for k in range(1, 9)
    ]
    log = runs.folder / "old.jsonl"
    losses = ["NaN", 2.0, "null", 1.0, "NaN", "Infinity"]
    log.write_text(
        "".join(
            f'{{"step": {step}, "loss": {loss}}}\n'
            for step, loss in enumerate(losses, 1)
        )
    )
    capsys.readouterr()
    assert tool(["loss", str(log), "--lines", "3"]) == 0
    assert [line.split()[1:5] for line in capsys.readouterr().out.splitlines()] == [
        ["1", "to", "2", "2.0000"],
        ["3", "to", "4", "1.0000"],
        ["5", "to", "6", "none"],
    ]


def without_labels(model, batches, whole=DistributedModel.forward_backward):
    """As if no label of the batches counted."""
    masks = [
        batch | {"label_mask": torch.zeros_like(batch["label_mask"])}
        for batch in batches
    ]
    return whole(model, masks)


def test_ranks_whose_copies_of_a_file_differ_save_no_checkpoint(tmp_path):
    """Each machine may have its own copy, and one of them may be old."""
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        path = tmp_path / str(rank) / "a.npy"
        with TokenFileWriter(path, dtype="uint16", vocab_size=300) as writer:
            writer.write_document(np.random.RandomState(rank).randint(0, 300, 4000))
    stages = [("one", 1, {"dataset_path": "a.npy"}, {})]
    tree = run_tree(tmp_path / "run", stages, steps=2, length=32, dp=2)
    (tmp_path / "run.yaml").write_text(json.dumps(tree))
    arguments = ["--config", str(tmp_path / "run.yaml")]
    ranks = Ranks(2, train_in_own_folder, (str(tmp_path), arguments), tmp_path / "log")
    assert 0 not in ranks.wait_for_codes()
    assert "this rank reads other tokens than rank 0" in (tmp_path / "log").read_text()
    assert not [*(tmp_path / "run").glob("step-*")]


@pytest.mark.parametrize("place", ["resume", "train"])
def test_a_run_that_ends_early_leaves_its_checkpoints_to_others(
    runs, monkeypatch, place
):
    """The process may live on, as that of a notebook does."""
    config = runs.config(f"ends early, {place}", steps=3)
    assert main(["--config", config]) == 0
    config = runs.config(f"ends early, {place}", steps=4)
    locks = []

    def end(run, *_, **options):
        locks.append(run.checkpoints._lock)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, place, end)
    assert main(["--config", config]) == 1
    held = Path(runs.folder, f"ends early, {place}", ".lock").stat()
    with contextlib.suppress(OSError):  # its number may belong to another file by now
        assert not os.path.samestat(os.fstat(*locks), held)


@pytest.mark.parametrize("lacking", ["model", "data"])
def test_a_state_that_is_not_of_a_training_run_is_a_checkpoint_error(runs, lacking):
    config = load_config(runs.config(f"without {lacking}", steps=8))
    world = start_world()
    checkpoints = Checkpoints(config.checkpoints.checkpoints_path, world)
    state = {"model": config.model.fields, "data": {}}
    checkpoints.save(
        3, {"a": torch.zeros(1)}, {key: state[key] for key in state if key != lacking}
    )
    checkpoints.close()
    with pytest.raises(
        CheckpointError,
        match="the checkpoint after step 3 in .* does not belong to a training run",
    ):
        Run(config, world)
    world.close()


def test_the_checkpoints_of_another_model_are_refused(runs, whole):
    ranks = runs.start("whole", dp=2, model=GPT2 | {"n_head": 2})  # of the same shapes
    assert 1 in ranks.wait_for_codes()
    assert (
        "continue with that one, or use another checkpoints_path"
        in ranks.log.read_text()
    )
    assert runs.lines("whole") == whole


@pytest.mark.parametrize(
    ("size", "interval", "needs"),
    [
        (100_000, 3, r"the checkpoint needs 4\d\d,\d\d\d bytes"),
        (1500, 100, "each step adds a line to metrics.jsonl"),
    ],
)
def test_a_full_disk_is_named_with_the_bytes_and_nothing_half_written_is_left(
    runs, size, interval, needs
):
    name = f"room for {size} bytes"
    words = ["--config", runs.config(name, interval=interval), "--log-samples"]
    ranks = Ranks(1, train_with_small_files, (words, size), runs.folder / f"{name}.log")
    assert ranks.wait_for_codes() == [1]
    said = ranks.log.read_text().splitlines()
    folder = runs.folder / name
    assert re.fullmatch(
        rf".*error: {folder}: cannot be written \(File too large\); {needs}, [\d,]+ bytes are free .*",
        said[-1],
    )
    assert not any("Traceback" in line for line in said)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "metrics.jsonl"]


def test_the_learning_rate_is_a_function_of_the_step():
    schedule = LRScheduleConfig(learning_rate=1.0, lr_warmup_steps=4, min_decay_lr=0.1)
    rates = [
        learning_rate(OptimizerConfig(learning_rate_scheduler=schedule), step, 12)
        for step in range(1, 13)
    ]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[7] == pytest.approx(0.55) and rates[-1] == pytest.approx(0.1)
    assert rates[3:] == sorted(rates[3:], reverse=True)


def test_another_number_of_steps_is_another_learning_rate_and_a_warning(runs):
    warnings = [
        runs.finish("longer", steps=steps) and (runs.folder / "longer.log").read_text()
        for steps in (8, 8, 10)
    ]
    said = "WARNING: train_steps was 8 and is now 10: the learning rate follows another curve"
    assert [text.count(said) for text in warnings] == [0, 0, 1]
    assert [text.count("WARNING") for text in warnings] == [0, 0, 1]
    *_, before, after, last = (line["learning_rate"] for line in runs.lines("longer"))
    assert before == last == 0 < after


def test_metrics_hold_each_step_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(
            json.dumps({"step": step, "run": 1, "data_wait": 0.1}) + "\n"
            for step in range(1, 6)
        )
        + '{"step": 6, "ru'
    )
    with continue_metrics(path, 3) as metrics:
        metrics.write(json.dumps({"step": 4, "run": 2}) + "\n")
    assert [(line["step"], line["run"]) for line in read_metrics(path)] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
    ]
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("elsewhere")
    continue_metrics(path, 4).close()
    assert path.is_symlink() and len(read_metrics(tmp_path / "elsewhere")) == 4
    foreign = '{"step": 4, "loss": 2.5}\n'
    path.write_text(foreign)
    with pytest.raises(ValueError, match="has lines of another program"):
        continue_metrics(path, 3)
    assert path.read_text() == foreign
    path.write_text("[1]\n")
    with pytest.raises(ValueError, match="is not the metrics.jsonl of a run"):
        continue_metrics(path, 3)


@pytest.mark.parametrize(
    "foreign",
    [
        '{"epoch": 3, "notes": "mine"}',
        "my notes",
        '{"step": 1, "loss": 2.0}',
        '{"a": [1',
    ],
)
def test_a_foreign_file_without_a_line_feed_is_left_alone(tmp_path, foreign):
    path = tmp_path / "metrics.jsonl"
    path.write_text(foreign)
    with pytest.raises(ValueError, match="metrics.jsonl"):
        continue_metrics(path, 0)
    assert path.read_text() == foreign


def test_a_last_line_that_lacks_its_line_feed_alone_is_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "data_wait": 0.1}')
    continue_metrics(path, 4).close()
    assert path.read_text() == '{"step": 1, "data_wait": 0.1}\n'
    for cut in ("{", '{"step": ', '{"step": 2, "data_w'):
        path.write_text(cut)
        assert read_metrics(path) == []
