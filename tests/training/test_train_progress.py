"""What a run says of its steps: lines or a bar, the learning rate, and metrics with each step once."""

import json
import logging
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from ranks import Ranks
from ranks.tasks import train_run

from nanoset_ref.cli import main as tool
from nanoset_ref.train import DistributedModel, Run, load_config, start_world
from nanoset_ref.train.config import LRScheduleConfig, OptimizerConfig
from nanoset_ref.train.metrics import continue_metrics, read_metrics
from nanoset_ref.train.progress import Progress
from nanoset_ref.train.run import learning_rate


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
