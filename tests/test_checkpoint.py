"""Checkpoints: complete or absent, broken ones skipped, tensors for any layout, no pickle."""

import errno
import json
import logging
import os
import pickletools
import shutil
from types import SimpleNamespace

import pytest
import torch
from ranks import Ranks
from ranks.tasks import hold_lock, save_or_load_sharded

from nanoset_ref.train import (
    CheckpointError,
    Checkpoints,
    find_problem,
    read_state,
    start_world,
)
from nanoset_ref.train.checkpoint import STATE, state_checksum


@pytest.fixture(scope="module")
def world():
    world = start_world()
    yield world
    world.close()


@pytest.fixture
def checkpoints(world, tmp_path):
    checkpoints = Checkpoints(tmp_path / "run", world)
    yield checkpoints
    checkpoints.close()


def tensors(scale=1.0):
    return {
        "model.weight": scale * torch.arange(12.0).reshape(3, 4),
        "random.cpu.dp0.pp0": torch.arange(100, dtype=torch.uint8),
    }


def test_saved_checkpoints_load_unchanged(checkpoints):
    assert checkpoints.newest() is None
    checkpoints.save(5, tensors(), {})
    checkpoints.save(
        10, tensors(2.0), {"consumed_train_samples": 10**12, 2: "b", 10: "a"}
    )
    assert checkpoints.newest() == (
        10,
        {"consumed_train_samples": 10**12, "2": "b", "10": "a"},
    )
    loaded = {name: torch.zeros_like(tensor) for name, tensor in tensors().items()}
    checkpoints.load(10, loaded)
    assert all(loaded[name].equal(tensor) for name, tensor in tensors(2.0).items())
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        ".lock",
        "step-00000005",
        "step-00000010",
    ]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: (path / STATE).write_text("{"), "is not JSON"),
        (lambda path: (path / STATE).write_text("{}"), "KeyError"),
        (lambda path: (path / STATE).write_text("[]"), "TypeError"),
        (
            lambda path: (path / STATE).unlink() or os.mkfifo(path / STATE),
            "is not a regular file",
        ),
        (
            lambda path: name_file(path, "/dev/zero"),
            "/dev/zero is not a file of this folder",
        ),
        (
            lambda path: name_file(path, "../step-00000005/state.json"),
            "state.json is not a file of this folder",
        ),
        (
            lambda path: os.mkfifo(path / "pipe") or name_file(path, "pipe"),
            "pipe is not a file of this folder",
        ),
        (lambda path: change_state(path, files=["a"]), "AttributeError"),
        *(
            (lambda path, key=key: drop_from_state(path, key), f"lacks '{key}'")
            for key in ("step", "files", "state")
        ),
        (lambda path: change_state(path, step=5), "is the state after step 5, not 10"),
        (
            lambda path: count_on(path / STATE),
            "state.json has changed: another checksum",
        ),
        (
            lambda path: next(path.glob("*.safetensors")).unlink(),
            "is not a file of this folder",
        ),
        (
            lambda path: next(path.glob("*.safetensors")).write_bytes(b"short"),
            "has changed: another size",
        ),
        (
            lambda path: flip_a_bit(next(path.glob("*.safetensors"))),
            "has changed: another size or checksum",
        ),
        (lambda path: shutil.rmtree(path) or path.mkdir(), "FileNotFoundError"),
    ],
)
def test_a_broken_checkpoint_is_skipped_with_a_warning_and_written_again(
    checkpoints, caplog, damage, problem
):
    checkpoints.save(5, tensors(), {"n": 5})
    checkpoints.save(10, tensors(), {"n": 10})
    damage(checkpoints.folder / "step-00000010")
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest() == (5, {"n": 5})
    assert "skipping the checkpoint" in caplog.text and problem in caplog.text
    checkpoints.save(10, tensors(3.0), {"n": 11})
    assert checkpoints.newest() == (10, {"n": 11})


def count_on(path):
    path.write_text(path.read_text().replace('"n": 10', '"n": 11'))


def drop_from_state(path, *keys):
    """State.json without these keys, and with a right checksum."""
    content = {
        key: value
        for key, value in read_state(path).items()
        if key not in (*keys, "checksum")
    }
    (path / STATE).write_text(
        json.dumps(content | {"checksum": state_checksum(content)})
    )


def change_state(path, **changes):
    """Changes with a right checksum."""
    content = read_state(path) | changes
    del content["checksum"]
    (path / STATE).write_text(
        json.dumps(content | {"checksum": state_checksum(content)})
    )


def name_file(path, name):
    change_state(path, files={name: [0, "xxh3_128:0"]})


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_leftovers_of_a_killed_writer_are_removed(checkpoints):
    checkpoints.save(5, tensors(), {})
    left = checkpoints.folder / ".step-00000010.tmp"
    for copy in (left, checkpoints.folder / "step-00000010.bak"):
        shutil.copytree(checkpoints.folder / "step-00000005", copy)
    assert checkpoints.newest()[0] == 5
    checkpoints.save(6, tensors(), {})
    assert not left.exists()


def saved(checkpoints):
    """The names that lie in the folder, without its lock."""
    return sorted(
        path.name for path in checkpoints.folder.iterdir() if path.name != ".lock"
    )


def test_the_newest_valid_checkpoints_are_kept_and_older_ones_removed(checkpoints):
    for step in (1, 2, 3):
        checkpoints.save(step, tensors(), {})
    checkpoints.keep = 2
    for step, left in ((4, ["3", "4"]), (5, ["4", "5"])):
        checkpoints.save(step, tensors(), {})
        assert saved(checkpoints) == [f"step-0000000{name}" for name in left]
    flip_a_bit(next((checkpoints.folder / "step-00000004").glob("*.safetensors")))
    again = Checkpoints(checkpoints.folder.parent / "again", checkpoints.world, keep=2)
    for name in saved(checkpoints):
        shutil.copytree(checkpoints.folder / name, again.folder / name)
    again.save(6, tensors(), {})
    again.save(7, tensors(), {})
    assert saved(again) == [f"step-0000000{name}" for name in "67"]
    again.close()


def test_a_broken_checkpoint_is_not_counted_among_those_that_are_kept(checkpoints):
    for step in (1, 2, 3):
        checkpoints.save(step, tensors(), {})
    flip_a_bit(next((checkpoints.folder / "step-00000003").glob("*.safetensors")))
    checkpoints.keep = 2
    checkpoints.save(4, tensors(), {})
    assert saved(checkpoints) == ["step-00000002", "step-00000003", "step-00000004"]


def test_checkpoints_of_other_runs_are_neither_removed_nor_replaced(
    checkpoints, tmp_path
):
    for step in (1, 2, 3, 5, 8):
        checkpoints.save(step, tensors(), {"model": "another" if step == 2 else "this"})
    (checkpoints.folder / "step-00000001/notes.txt").write_text("mine")
    os.replace(checkpoints.folder / "step-00000003", tmp_path / "moved")
    (checkpoints.folder / "step-00000003").symlink_to(tmp_path / "moved")
    (checkpoints.folder / "step-00000004").write_text("mine")
    (checkpoints.folder / "step-00000006").mkdir()
    (checkpoints.folder / ".step-00000007.tmp").mkdir()
    (checkpoints.folder / ".step-00000007.tmp/notes.txt").write_text("mine")
    (checkpoints.folder / "step-00000009").write_text("mine")
    before = saved(checkpoints)
    checkpoints.keep = 1
    checkpoints.save(9, tensors(), {"model": "this"})
    gone = {*before} - {*saved(checkpoints)}
    assert gone == {"step-00000005", "step-00000008", ".step-00000007.tmp"}
    assert checkpoints.newest()[0] == 9
    aside = [
        path / "notes.txt" if path.is_dir() else path
        for path in checkpoints.folder.glob("*.aside")
    ]
    assert [path.read_text() for path in aside] == ["mine", "mine"]


def test_another_model_is_refused(checkpoints):
    checkpoints.save(5, tensors(), {})
    for wrong in ({"model.bias": torch.zeros(3)}, {"model.weight": torch.zeros(4, 4)}):
        with pytest.raises(
            CheckpointError,
            match=rf"belongs to another model .*{next(iter(wrong))}.*use another",
        ):
            checkpoints.load(5, wrong)


def test_nothing_in_a_checkpoint_is_a_pickle(checkpoints):
    checkpoints.save(5, tensors(), {"n": 1})
    path = checkpoints.folder / "step-00000005"
    assert json.loads((path / STATE).read_text())["state"] == {"n": 1}
    for file in path.iterdir():
        assert file.suffix in (".json", ".safetensors")
        with pytest.raises(ValueError, match=r"opcode|pickle"):
            list(pickletools.genops(file.read_bytes()))
    assert find_problem(path) is None


def test_sharded_tensors_load_on_any_number_of_ranks(tmp_path):
    for size in (3, 2, 4):  # saved by three
        Ranks(
            size, save_or_load_sharded, (str(tmp_path / "run"),), tmp_path / "log"
        ).wait()


def test_one_job_at_a_time(checkpoints, tmp_path):
    Ranks(1, hold_lock, (str(checkpoints.folder),), tmp_path / "log").wait()
    assert (
        f"another job trains in {checkpoints.folder}" in (tmp_path / "log").read_text()
    )


def test_a_folder_named_like_the_lock_is_refused(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(
        CheckpointError, match=r"\.lock is a folder, and the lock of the"
    ):
        Checkpoints(tmp_path, SimpleNamespace(is_main_rank=True))


def test_a_filesystem_without_locks_is_no_other_job(
    world, tmp_path, monkeypatch, caplog
):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with caplog.at_level(logging.WARNING):
        Checkpoints(tmp_path / "run", world).close()
    assert "cannot be locked" in caplog.text
