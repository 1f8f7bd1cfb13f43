"""Checkpoints: complete or absent, and the newest valid one is found by itself.

    <folder>/step-00000010/shard-*.safetensors    model, optimizer and random states, one file per process
    <folder>/step-00000010/state.json             the state of the data; size and checksum of each file above

A checkpoint is written into a hidden folder, which is renamed when all is on the disk: a killed run leaves nothing that
looks like one. A folder that a disk or a copy broke later is known by its checksums, and the one before it is taken.
torch.distributed.checkpoint stores the tensors by name, in pieces with their offsets, so any other number of ranks can
load them. The cost: the first process reads all files once for their checksums, when saving and when loading. No part
of it is a pickle, as the metadata of torch's default format are.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import xxhash
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from nanoset_ref.files import PathLike, atomic_write, checksum, read_json, sync_folder
from nanoset_ref.training.parallel import World

logger = logging.getLogger(__name__)

Content = dict[str, Any]
STATE = "state.json"
LOCK_TRIES = 100  # ten seconds; the processes of a killed run are gone by then


class CheckpointError(ValueError):
    """The checkpoint folder cannot be used, or a checkpoint does not fit this run."""


class Checkpoints:
    """The checkpoints of one run, held by one job at a time.

    Args:
        folder: where they lie, created if it is missing; all processes must see it.
        world: the processes.

    Raises:
        CheckpointError: another job is using the folder.
    """

    def __init__(self, folder: PathLike, world: World) -> None:
        self.folder = Path(folder)
        self.world = world
        if world.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.folder / ".lock")
        world.agree()

    def close(self) -> None:
        """Let another job have the folder."""
        if self.world.is_first:
            os.close(self._lock)

    def save(self, step: int, tensors: dict[str, Tensor], state: Content) -> None:
        """Write a checkpoint; all processes call this together.

        1. the first process removes what killed jobs left and makes the hidden folder
        2. every process writes its pieces; of equal tensors one process writes one
        3. the first process adds the state with the checksums, and renames the folder

        Args:
            step: steps done.
            tensors: by name; tensors of one name are equal in all processes, or DTensors.
            state: JSON-serialisable; that of the first process is written.
        """
        target = self._path(step)
        temporary = target.with_name(f".{target.name}.tmp")
        with contextlib.ExitStack() as stack:
            if self.world.is_first:
                for leftover in self.folder.glob(".step-*.tmp"):
                    shutil.rmtree(leftover)
                stack.callback(shutil.rmtree, temporary, ignore_errors=True)  # a full disk is not to stay full
                temporary.mkdir()
            self.world.agree()
            try:
                save(tensors, storage_writer=HuggingFaceStorageWriter(str(temporary), save_distributed=True))
            except CheckpointException as error:  # a BaseException around what happened: a full disk, Ctrl-C
                raise next(iter(error.failures.values()))[0] from None
            if self.world.is_first:
                files = {path.name: [path.stat().st_size, checksum(path)] for path in temporary.iterdir()}
                content = json.loads(json.dumps({"step": step, "files": files, "state": state}))
                with atomic_write(temporary / STATE, "w") as file:
                    json.dump(content | {"checksum": digest(content)}, file, indent=1)
                if target.exists():  # it was broken, or this run would have begun after it
                    shutil.rmtree(target)
                os.replace(temporary, target)
                sync_folder(self.folder)
            self.world.agree()

    def newest(self) -> tuple[int, Content] | None:
        """(steps done, state) of the newest valid checkpoint, or None. Broken ones are skipped with a warning."""
        step = self.world.agree(self._newest_step() if self.world.is_first else 0)
        return (step, read_state(self._path(step))["state"]) if step else None

    def _newest_step(self) -> int:
        for path in sorted(self.folder.glob("step-" + "[0-9]" * 8), reverse=True):
            problem = find_problem(path)
            if problem is None:
                return int(path.name.removeprefix("step-"))
            logger.warning("skipping the checkpoint %s: %s", path, problem)
        return 0

    def load(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Fill `tensors` in place from the checkpoint of `step`, whatever the number of ranks that wrote it.

        Raises:
            CheckpointError: it lacks one of the tensors, or has it in another shape.
        """
        path = self._path(step)
        try:
            load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))
        except CheckpointException as error:
            problem = next(iter(error.failures.values()))[0]
            raise CheckpointError(f"{path} is of another model ({problem}): take another checkpoints_path") from None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


def read_state(path: Path) -> Content:
    """{"step": int, "files": {name: [bytes, checksum]}, "state": dict} of a checkpoint."""
    return read_json(path / STATE)


def digest(content: Content) -> str:
    """Of state.json, as it is read back."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def find_problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None."""
    try:
        content = read_state(path)
        if content.pop("checksum") != digest(content):
            return f"{STATE} has changed: another checksum"
        for name, (size, expected) in content["files"].items():
            file = path / name
            if file.parent != path or not file.is_file():
                return f"{name} is not a file of this folder"
            if file.stat().st_size != size or checksum(file) != expected:
                return f"{name} has changed: another size or checksum"
    except Exception as error:  # whatever JSON can hold instead of a state
        return f"{type(error).__name__}: {error}"
    return None


def _lock(path: Path) -> int:
    """Hold `path` for this process; workers forked from it do not inherit a record lock. Returns the descriptor."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except (BlockingIOError, PermissionError):
            time.sleep(0.1)
        except OSError as error:
            logger.warning("%s cannot be locked (%s): make sure no other job trains there", path.parent, error)
            return descriptor
    os.close(descriptor)
    raise CheckpointError(f"another job trains in {path.parent}; wait for its end or stop it")
