"""Checkpoints: complete or absent, and the newest valid one is found by itself.

    <folder>/step-00000010/shard-*.safetensors    model, optimizer and random states, one file per process
    <folder>/step-00000010/state.json             the state of the data; size and checksum of each file above

A checkpoint is written into a hidden folder, which is renamed when all is on the disk: who is killed meanwhile leaves
nothing that looks like one. A folder that was broken later, by a disk or a copy, is known by its checksums; the one
before it is taken instead. torch.distributed.checkpoint stores the tensors by name, in pieces with their offsets, so
any other number of ranks can load them. The cost: the first process reads all files once for their checksums, when
saving and when loading. The alternative it rejects is torch's default format, whose metadata are a pickle.
"""

from __future__ import annotations

import errno
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
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from nanoset_ref.files import atomic_write, checksum, sync_folder
from nanoset_ref.training.parallel import World

logger = logging.getLogger(__name__)

STATE = "state.json"
LOCK_SECONDS = 10.0  # the processes of a killed run are gone by then


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

    def __init__(self, folder: str | os.PathLike[str], world: World) -> None:
        self.folder = Path(folder)
        self.world = world
        if world.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.folder / ".lock")
        world.barrier()

    def close(self) -> None:
        """Let another job have the folder."""
        if self.world.is_first:
            os.close(self._lock)

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write a checkpoint; all processes call this together.

        1. the first process removes what killed jobs left and makes the hidden folder
        2. every process writes its pieces; of equal tensors one process writes one
        3. the first process adds the state with the checksums, and renames the folder

        Args:
            step: steps done.
            tensors: by name; tensors of one name are equal in all processes, or DTensors.
            state: JSON-serialisable; that of the first process is written.
        """
        target = self.folder / f"step-{step:08d}"
        temporary = self.folder / f".{target.name}.tmp"
        if self.world.is_first:
            for leftover in self.folder.glob(".step-*.tmp"):
                shutil.rmtree(leftover)
            temporary.mkdir()
        self.world.barrier()
        save(tensors, storage_writer=HuggingFaceStorageWriter(str(temporary), save_distributed=True))
        if self.world.is_first:
            files = {path.name: [path.stat().st_size, checksum(path)] for path in sorted(temporary.iterdir())}
            with atomic_write(temporary / STATE, "w") as file:
                told = json.loads(json.dumps({"step": step, "files": files, "state": state}))
                json.dump(told | {"checksum": _digest(told)}, file, indent=1)
            if target.exists():  # it was broken, or this run would have begun after it
                shutil.rmtree(target)
            os.replace(temporary, target)
            sync_folder(self.folder)
        self.world.barrier()

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """(steps done, state) of the newest valid checkpoint, or None. Broken ones are skipped with a warning."""
        found = 0
        for path in sorted(self.folder.glob("step-*"), reverse=True) if self.world.is_first else ():
            problem = find_problem(path)
            if problem is None:
                step = read_state(path)["step"]
                if path == self._path(step):
                    found = step
                    break
                problem = f"it holds step {step}; give it its name back"
            logger.warning("skipping the checkpoint %s: %s", path, problem)
        found = self.world.agree(found)
        return (found, read_state(self._path(found))["state"]) if found else None

    def load(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Fill `tensors` in place from the checkpoint of `step`, whatever the number of ranks that wrote it.

        Raises:
            CheckpointError: it lacks one of the tensors, or has it in another shape.
        """
        reader = HuggingFaceStorageReader(str(self._path(step)))
        saved = reader.read_metadata().state_dict_metadata
        for name, tensor in tensors.items():
            if name not in saved:
                raise CheckpointError(f"{self._path(step)} has no tensor {name!r}: it is of another model")
            size = getattr(saved[name], "size", None)
            if size != tensor.size():
                raise CheckpointError(
                    f"{self._path(step)} has {name!r} of shape {tuple(size or ())}, this model {tuple(tensor.size())}: "
                    "continue with the saved model_config, or use another checkpoints_path"
                )
        load(tensors, storage_reader=reader)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


def read_state(path: Path) -> dict[str, Any]:
    """{"step": int, "files": {name: [bytes, checksum]}, "state": dict} of a checkpoint."""
    return json.loads((path / STATE).read_text(encoding="utf-8"))


def _digest(told: dict[str, Any]) -> str:
    """Of what state.json says, as it is read back."""
    return xxhash.xxh3_128_hexdigest(json.dumps(told, sort_keys=True).encode())


def find_problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None."""
    try:
        told = read_state(path)
        files, expected, _ = told["files"], told.pop("checksum", None), (told["step"], told["state"])
        if expected is not None and expected != _digest(told):
            return f"{STATE} has changed: another checksum"
        for name, (size, expected) in files.items():
            found = (path / name).stat().st_size
            if found != size:
                return f"{name} has {found} bytes instead of {size}"
            if checksum(path / name) != expected:
                return f"{name} has changed: another checksum"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _lock(path: Path) -> int:
    """Hold `path` for this process; workers forked from it do not inherit a record lock. Returns the descriptor."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    last_try = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                logger.warning("%s cannot be locked (%s): see to it that no other job trains there", path.parent, error)
                return descriptor
            if time.monotonic() > last_try:
                os.close(descriptor)
                raise CheckpointError(f"another job trains in {path.parent}; wait for its end or stop it") from error
            time.sleep(0.1)
