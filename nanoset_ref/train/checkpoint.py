"""Checkpoints that are complete or absent, and a search for the newest valid one.

    <folder>/step-00000010/shard-*.safetensors  model, optimizer, random states; one per process
    <folder>/step-00000010/state.json           state of the data; sizes and checksums of the above

A checkpoint is written into a hidden folder, which is renamed once everything is on the disk: a
killed run leaves nothing that looks like a checkpoint. Checksums detect damage by a disk or a copy;
then the checkpoint before is used. Only files of this module are deleted: a folder with any other
file stays, or is moved aside.

torch.distributed.checkpoint stores the tensors by name, in pieces with their offsets, so any number
of ranks can load them. The cost: the first process reads all files once for their checksums, when
saving and when loading. Unlike torch's default format, the files contain no pickle (law 9 of
docs/laws.md).
"""

import contextlib
import itertools
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from nanoset_ref.io.files import make_folder, sync_folder, write_text
from nanoset_ref.io.full_disk import explain_full_disk
from nanoset_ref.io.locks import lock_for_process
from nanoset_ref.io.paths import PathLike, checksum, read_json
from nanoset_ref.io.types import Json
from nanoset_ref.io.urls import local_path
from nanoset_ref.train.parallel import World

logger = logging.getLogger(__name__)

STATE = "state.json"
CHECKPOINT_GLOB = "step-" + "[0-9]" * 8
# names of the files that `save` writes
CHECKPOINT_FILE = re.compile(
    r"state\.json|\.state\.json\..*\.tmp|shard-.*\.safetensors"
)
FOLDER_OPTION = "checkpoints_path"
LOCK_TRIES = 100  # ten seconds, after which the processes of a killed run have ended


class CheckpointError(ValueError):
    """The checkpoint folder cannot be used, or a checkpoint does not fit this run."""


class Checkpoints:
    """The checkpoints of one run; one job at a time may use them.

    Args:
        folder: the run's folder, shared by all processes; created if it is missing.
        world: the processes.
        keep: how many of the newest valid checkpoints to keep after each save; None: all.

    Raises:
        CheckpointError: another job is using the folder.
    """

    def __init__(self, folder: PathLike, world: World, keep: int | None = None) -> None:
        self.folder = local_path(folder, "the folder of checkpoints")
        self.world = world
        self.keep = keep
        # this job has read these and verified their checksums
        self._valid: set[Path] = set()
        if world.is_main_rank:
            make_folder(self.folder)
            self._lock = _lock(self.folder / ".lock")
        world.broadcast()

    def close(self) -> None:
        """Release the folder to other jobs."""
        if self.world.is_main_rank:
            os.close(self._lock)

    def save(self, step: int, tensors: dict[str, Tensor], state: Json) -> None:
        """Write a checkpoint; all processes call this together.

        1. The first process removes leftovers of killed jobs and creates the hidden folder.
        2. Every process writes its pieces; replicated tensors are written once.
        3. The first process adds the state with the checksums, and renames the folder.
        4. The first process verifies the new checkpoint, and removes those before the newest `keep`
           valid ones.

        Args:
            step: the number of steps done.
            tensors: {name: tensor}; tensors of one name are equal in all processes, or DTensors.
            state: JSON-serializable; the first process writes its own.

        Raises:
            OSError: the checkpoint cannot be written; if the disk is full, the error gives the
                bytes needed and the bytes free. The unfinished folder is removed.
        """
        target = self._path(step)
        temporary = _hidden_path(target)
        size = sum(tensor.nbytes for tensor in tensors.values())
        needs = f"the checkpoint needs {size:,} bytes, "
        with (
            explain_full_disk(self.folder, self.folder, needs, FOLDER_OPTION),
            contextlib.ExitStack() as stack,
        ):
            # 1. create the hidden folder
            if self.world.is_main_rank:
                for leftover in self.folder.glob(f".{CHECKPOINT_GLOB}.tmp"):
                    _delete_or_move_aside(leftover)
                # free the disk again if saving failed
                stack.callback(shutil.rmtree, temporary, ignore_errors=True)
                temporary.mkdir()
            self.world.broadcast()
            # 2. write the tensors
            writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
            try:
                save(tensors, storage_writer=writer)
            # it wraps any failure, even KeyboardInterrupt
            except CheckpointException as error:
                raise _cause(error) from None
            # 3. and 4. write the state, rename the folder, remove old checkpoints
            if self.world.is_main_rank:
                _write_state(temporary, step, state)
                # left from a damaged checkpoint or a run that had gone further
                _delete_or_move_aside(target)
                os.replace(temporary, target)
                sync_folder(self.folder)
                self._prune()
            self.world.broadcast()

    def _prune(self) -> None:
        """Remove this run's checkpoints before the newest `keep` valid ones, and nothing else."""
        if self.keep is None:
            return
        kept = list(itertools.islice(self._newest_first(), self.keep))
        if len(kept) < self.keep:
            return
        for path in self._folders():
            if path >= kept[-1] or not _has_only_own_files(path):
                continue
            if find_problem(path, read_files=False) is not None:
                continue
            if _saved_model(path) == _saved_model(kept[0]):
                hidden = _hidden_path(path)
                # a killed run leaves nothing that looks like a checkpoint
                os.replace(path, hidden)
                shutil.rmtree(hidden)

    def newest(self) -> tuple[int, Json] | None:
        """Find the newest valid checkpoint; warn of damaged ones.

        Returns:
            (steps done, state), or None if there is no valid checkpoint.
        """
        step = 0
        if self.world.is_main_rank:
            step = next(map(step_of, self._newest_first()), 0)
        step = self.world.broadcast(step)
        if step == 0:
            return None
        return step, read_state(self._path(step))["state"]

    def _newest_first(self) -> Iterator[Path]:
        """Yield the valid checkpoints, newest first; each is verified once."""
        for path in self._folders():
            problem = None if path in self._valid else find_problem(path)
            if problem is None:
                self._valid.add(path)
                yield path
            else:
                logger.warning("skipping the checkpoint %s: %s", path, problem)

    def _folders(self) -> list[Path]:
        """The folders of checkpoints, those of the latest steps first."""
        return sorted(self.folder.glob(CHECKPOINT_GLOB), reverse=True)

    def load(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Fill `tensors` in place from the checkpoint of `step`.

        Any number of ranks may have written the checkpoint.

        Raises:
            CheckpointError: the checkpoint lacks a tensor, or a tensor has another shape.
        """
        path = self._path(step)
        try:
            load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))
        except CheckpointException as error:
            raise CheckpointError(
                f"{path} belongs to another model ({_cause(error)}): use another checkpoints_path"
            ) from None

    def _path(self, step: int) -> Path:
        """The folder of the checkpoint after a step."""
        return self.folder / f"step-{step:08d}"


def _cause(error: CheckpointException) -> BaseException:
    """The error of the first process that failed."""
    return next(iter(error.failures.values()))[0]


def read_state(path: Path) -> Json:
    """{"step": int, "files": {name: [bytes, checksum]}, "state": dict} of a checkpoint."""
    return read_json(path / STATE)


def state_checksum(content: Json) -> str:
    """The checksum of the values in state.json."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def step_of(path: Path) -> int:
    """The number of steps done when a checkpoint was saved, from its name."""
    return int(path.name.removeprefix("step-"))


def find_problem(path: Path, *, read_files: bool = True) -> str | None:
    """Return why a checkpoint cannot be used, or None.

    Args:
        path: its folder.
        read_files: whether to read all of its files, or only state.json.
    """
    try:
        content = read_state(path)
        if content.pop("checksum") != state_checksum(content):
            return f"{STATE} has changed: another checksum"
        for key in ("step", "files", "state"):
            if key not in content:
                return f"{STATE} lacks {key!r}"
        if content["step"] != step_of(path):
            return f"{STATE} is the state after step {content['step']}, not {step_of(path)}"
        files = content["files"] if read_files else {}
        for name, (size, expected) in files.items():
            file = path / name
            if file.parent != path or not file.is_file():
                return f"{name} is not a file of this folder"
            if file.stat().st_size != size or checksum(file) != expected:
                return f"{name} has changed: another size or checksum"
    except Exception as error:  # JSON can contain anything instead of a state
        return f"{type(error).__name__}: {error}"
    return None


def _saved_model(path: Path) -> Any:
    """The model that a checkpoint names; None if it names none."""
    state = read_state(path)["state"]
    return state.get("model") if isinstance(state, dict) else None


def _write_state(folder: Path, step: int, state: Json) -> None:
    """Write state.json, with sizes and checksums of all other files in the folder."""
    files = {
        path.name: [path.stat().st_size, checksum(path)] for path in folder.iterdir()
    }
    content = json.loads(json.dumps({"step": step, "files": files, "state": state}))
    content["checksum"] = state_checksum(content)
    write_text(folder / STATE, json.dumps(content, indent=1))


def _hidden_path(path: Path) -> Path:
    """The hidden name of a checkpoint while it is written or deleted."""
    return path.with_name(f".{path.name}.tmp")


def _has_only_own_files(path: Path) -> bool:
    """Whether this is a folder that holds nothing but files that `save` writes."""
    if path.is_symlink() or not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return all(
            entry.is_file(follow_symlinks=False)
            and CHECKPOINT_FILE.fullmatch(entry.name)
            for entry in entries
        )


def _delete_or_move_aside(path: Path) -> None:
    """Delete a folder of our own files; move aside anything else that has this name."""
    if _has_only_own_files(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.aside")
        os.replace(path, aside)
        logger.warning("%s is not a checkpoint; moved to %s", path, aside)


def _lock(path: Path) -> int:
    """Lock `path` for this process, not for workers forked from it; return its descriptor."""
    if path.is_dir():
        raise CheckpointError(
            f"{path} is a folder, and the lock of the run has this name: move it, or use another "
            "checkpoints_path"
        )
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    for _ in range(LOCK_TRIES):
        try:
            if lock_for_process(descriptor):
                return descriptor
        except OSError as error:
            logger.warning(
                "%s cannot be locked (%s): make sure that no other job trains there",
                path.parent,
                error,
            )
            return descriptor
        time.sleep(0.1)
    os.close(descriptor)
    raise CheckpointError(
        f"another job trains in {path.parent}; wait until it ends, or stop it"
    )
