"""Checkpoints of a run: saved by ranks that agree, refused by another model, complete or absent."""

import contextlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks import Ranks
from ranks.tasks import (
    train_in_own_folder,
    train_with_small_files,
)
from run_config import GPT2, run_tree

from nanoset_ref.tokens import TokenFileWriter
from nanoset_ref.train import (
    CheckpointError,
    Checkpoints,
    Run,
    load_config,
    main,
    start_world,
)


def test_ranks_whose_copies_of_a_file_differ_do_no_step_on_them(tmp_path):
    """Each machine may have its own copy, and one of them may be old."""
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        for name, seed in {"same.npy": 2, "other.npy": rank}.items():
            path = tmp_path / str(rank) / name
            with TokenFileWriter(path, dtype="uint16", vocab_size=300) as writer:
                tokens = np.random.RandomState(seed).randint(0, 300, 4000)
                writer.write_document(tokens)
    stages = [
        ("one", 1, {"dataset_path": "same.npy"}, {}),
        ("two", 3, {"dataset_path": "other.npy"}, {}),
    ]
    tree = run_tree(tmp_path / "run", stages, steps=4, length=32, dp=2)
    (tmp_path / "run.yaml").write_text(json.dumps(tree))
    arguments = ["--config", str(tmp_path / "run.yaml")]
    ranks = Ranks(2, train_in_own_folder, (str(tmp_path), arguments), tmp_path / "log")
    assert 0 not in ranks.wait_for_codes()
    assert "this rank reads other tokens than rank 0" in (tmp_path / "log").read_text()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"] for line in lines] == ["one", "one"]
    saved = sorted(path.name for path in (tmp_path / "run").glob("step-*"))
    assert saved == ["step-00000001", "step-00000002"]


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
