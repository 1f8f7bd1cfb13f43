"""Checkpoints: complete or absent, and the newest valid one is found by itself.

    <folder>/step-00000010/shard-*.safetensors    model, optimizer and random states, one file per process
    <folder>/step-00000010/state.json             the state of the data; size and checksum of each file above

A checkpoint is written into a hidden folder, which is renamed when all is on the disk: a killed run leaves nothing that
looks like one. A folder that a disk or a copy broke later is known by its checksums, and the one before it is taken.
Nothing is deleted that this module did not write: a folder with another file in it stays, or is
moved aside.
torch.distributed.checkpoint stores the tensors by name, in pieces with their offsets, so any other number of ranks can
load them. The cost: the first process reads all files once for their checksums, when saving and when loading. No part
of it is a pickle, as the metadata of torch's default format are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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

from nanoset_ref.io.files import PathLike, atomic_write, checksum, read_json, sync_folder
from nanoset_ref.train.parallel import World

logger = logging.getLogger(__name__)

Content = dict[str, Any]
STATE = "state.json"
NAME = "step-" + "[0-9]" * 8  # of a checkpoint, as a glob
WRITTEN = re.compile(
    r"state\.json|\.state\.json\..*\.tmp|shard-.*\.safetensors"
)  # the files in one
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
LOCK_TRIES = 100  # ten seconds; the processes of a killed run are gone by then


class CheckpointError(ValueError):
    """The checkpoint folder cannot be used, or a checkpoint does not fit this run."""


class Checkpoints:
    """The checkpoints of one run, held by one job at a time.

    Args:
        folder: where they lie, created if it is missing; all processes must see it.
        world: the processes.
        keep: how many of the newest valid ones stay when another is complete; None: all.

    Raises:
        CheckpointError: another job is using the folder.
    """

    def __init__(self, folder: PathLike, world: World, keep: int | None = None) -> None:
        self.folder = Path(folder)
        self.world = world
        self.keep = keep
        self._valid: set[Path] = set()  # those that this job has read whole
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
        4. it reads the new checkpoint, and removes those before the newest `keep` valid ones

        Args:
            step: steps done.
            tensors: by name; tensors of one name are equal in all processes, or DTensors.
            state: JSON-serialisable; that of the first process is written.

        Raises:
            OSError: it cannot be written; if the disk is full, the error says how many bytes are
                needed and free. The half-written folder is removed.
        """
        target = self._path(step)
        temporary = _hidden(target)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        needs = f"the checkpoint needs {size:,} bytes"
        with named_where_full(self.folder, needs), contextlib.ExitStack() as stack:
            # 1.
            if self.world.is_first:
                for leftover in self.folder.glob(f".{NAME}.tmp"):
                    _clear(leftover)
                stack.callback(
                    shutil.rmtree, temporary, ignore_errors=True
                )  # a full disk is not to stay full
                temporary.mkdir()
            self.world.agree()
            # 2.
            try:
                save(
                    tensors,
                    storage_writer=HuggingFaceStorageWriter(str(temporary), save_distributed=True),
                )
            except (
                CheckpointException
            ) as error:  # a BaseException around what happened: a full disk, Ctrl-C
                raise next(iter(error.failures.values()))[0] from None
            # 3. and 4.
            if self.world.is_first:
                _write_state(temporary, step, state)
                _clear(target)  # it was broken, or this run would have begun after it
                os.replace(temporary, target)
                sync_folder(self.folder)
                self._prune()
            self.world.agree()

    def _prune(self) -> None:
        """Remove this run's checkpoints before the newest `keep` valid ones, and nothing else."""
        if self.keep is None:
            return
        kept = list(itertools.islice(self._newest_first(), self.keep))
        if len(kept) < self.keep:
            return
        for path in self._folders():
            if path >= kept[-1] or not _is_ours(path) or state_problem(path) is not None:
                continue
            if _model(path) == _model(kept[0]):
                hidden = _hidden(path)
                os.replace(
                    path, hidden
                )  # a killed removal leaves nothing that looks like a checkpoint
                shutil.rmtree(hidden)

    def newest(self) -> tuple[int, Content] | None:
        """(steps done, state) of the newest valid checkpoint, or None. Broken ones are skipped with a warning."""
        step = self.world.agree(self._newest_step() if self.world.is_first else 0)
        return (step, read_state(self._path(step))["state"]) if step else None

    def _newest_step(self) -> int:
        newest = next(self._newest_first(), None)
        return step_of(newest) if newest else 0

    def _newest_first(self) -> Iterator[Path]:
        """The valid checkpoints; each is read whole when it comes for the first time."""
        for path in self._folders():
            problem = None if path in self._valid else find_problem(path)
            if problem is None:
                self._valid.add(path)
                yield path
            else:
                logger.warning("skipping the checkpoint %s: %s", path, problem)

    def _folders(self) -> list[Path]:
        return sorted(self.folder.glob(NAME), reverse=True)

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
            raise CheckpointError(
                f"{path} is of another model ({problem}): take another checkpoints_path"
            ) from None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


def read_state(path: Path) -> Content:
    """{"step": int, "files": {name: [bytes, checksum]}, "state": dict} of a checkpoint."""
    return read_json(path / STATE)


def digest(content: Content) -> str:
    """Of state.json, as it is read back."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def step_of(path: Path) -> int:
    """The steps done when a checkpoint was saved, by its name."""
    return int(path.name.removeprefix("step-"))


def find_problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None."""
    problem = state_problem(path)
    if problem is not None:
        return problem
    try:
        for name, (size, expected) in read_state(path)["files"].items():
            file = path / name
            if file.parent != path or not file.is_file():
                return f"{name} is not a file of this folder"
            if file.stat().st_size != size or checksum(file) != expected:
                return f"{name} has changed: another size or checksum"
    except Exception as error:  # whatever JSON can hold instead of a state
        return f"{type(error).__name__}: {error}"
    return None


def state_problem(path: Path) -> str | None:
    """Why the state.json of a checkpoint cannot be used, or None."""
    try:
        content = read_state(path)
        if content.pop("checksum") != digest(content):
            return f"{STATE} has changed: another checksum"
        for key in ("step", "files", "state"):
            if key not in content:
                return f"{STATE} lacks {key!r}"
        if content["step"] != step_of(path):
            return f"{STATE} is the state after step {content['step']}, not {step_of(path)}"
    except Exception as error:  # whatever JSON can hold instead of a state
        return f"{type(error).__name__}: {error}"
    return None


def _model(path: Path) -> Any:
    """Which model a checkpoint says it is of; None if it says nothing."""
    state = read_state(path)["state"]
    return state.get("model") if isinstance(state, dict) else None


@contextlib.contextmanager
def named_where_full(folder: Path, needs: str) -> Iterator[None]:
    """Make the error of a full disk name the folder, what `needs` room, and the free bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename == os.fspath(folder):  # named already
            raise
        free = shutil.disk_usage(folder).free
        way = "make room, or name another checkpoints_path"
        said = f"{error.strerror}: {needs}, {free:,} bytes are free on this disk; {way}"
        raise OSError(error.errno, said, os.fspath(folder)) from error


def _write_state(folder: Path, step: int, state: Content) -> None:
    """Write the state, with sizes and checksums of the files that lie there."""
    files = {path.name: [path.stat().st_size, checksum(path)] for path in folder.iterdir()}
    content = json.loads(json.dumps({"step": step, "files": files, "state": state}))
    with atomic_write(folder / STATE, "w") as file:
        json.dump(content | {"checksum": digest(content)}, file, indent=1)


def _hidden(path: Path) -> Path:
    """The name of a checkpoint while it is written or deleted."""
    return path.with_name(f".{path.name}.tmp")


def _is_ours(path: Path) -> bool:
    """Whether this is a folder with nothing but files that `save` writes."""
    if path.is_symlink() or not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return all(
            entry.is_file(follow_symlinks=False) and WRITTEN.fullmatch(entry.name)
            for entry in entries
        )


def _clear(path: Path) -> None:
    """Make a name free: delete the folder if it is ours, else move aside whatever has the name."""
    if _is_ours(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.aside")
        os.replace(path, aside)
        logger.warning("%s holds something that is not of a checkpoint: it is now %s", path, aside)


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
            logger.warning(
                "%s cannot be locked (%s): make sure no other job trains there", path.parent, error
            )
            return descriptor
    os.close(descriptor)
    raise CheckpointError(f"another job trains in {path.parent}; wait for its end or stop it")
