"""Checkpoints that are complete or absent, and a search for the newest valid one.

    <folder>/step-00000010/shard-*.safetensors  model, optimizer, random states; one per process
    <folder>/step-00000010/state.json           state of the data; sizes and checksums of the above

A checkpoint is written into a hidden folder and renamed once everything is on the disk: a killed
run leaves nothing that looks like one. Checksums detect a checkpoint that a disk or a copy damaged
later; the one before it is used. Only files that this module wrote are deleted: a folder with any
other file in it stays, or is moved aside.

torch.distributed.checkpoint stores the tensors by name, in pieces with their offsets, so any other
number of ranks can load them. The cost: the first process reads all files once for their checksums,
when saving and when loading. There is no pickle in it (law 9 of docs/laws.md), unlike the metadata
of torch's default format.
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

from nanoset_ref.io.files import atomic_write, sync_folder
from nanoset_ref.io.paths import PathLike, checksum, read_json
from nanoset_ref.train.parallel import World

logger = logging.getLogger(__name__)

Content = dict[str, Any]
STATE = "state.json"
NAME = "step-" + "[0-9]" * 8  # of a checkpoint, as a glob
WRITTEN = re.compile(r"state\.json|\.state\.json\..*\.tmp|shard-.*\.safetensors")
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
LOCK_TRIES = 100  # ten seconds; the processes of a killed run are gone by then


class CheckpointError(ValueError):
    """The checkpoint folder cannot be used, or a checkpoint does not fit this run."""


class Checkpoints:
    """The checkpoints of one run, held by one job at a time.

    Args:
        folder: created if it is missing; all processes must see it.
        world: the processes.
        keep: how many of the newest valid checkpoints to keep when a new one is complete; None:
            all.

    Raises:
        CheckpointError: another job is using the folder.
    """

    def __init__(self, folder: PathLike, world: World, keep: int | None = None) -> None:
        self.folder = Path(folder)
        self.world = world
        self.keep = keep
        self._valid: set[Path] = set()  # this job has read these and verified their checksums
        if world.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.folder / ".lock")
        world.agree()

    def close(self) -> None:
        """Release the folder to other jobs."""
        if self.world.is_first:
            os.close(self._lock)

    def save(self, step: int, tensors: dict[str, Tensor], state: Content) -> None:
        """Write a checkpoint; all processes call this together.

        1. the first process removes leftovers of killed jobs and creates the hidden folder
        2. every process writes its pieces; of equal tensors one process writes one
        3. the first process adds the state with the checksums, and renames the folder
        4. it verifies the new checkpoint, and removes those before the newest `keep` valid ones

        Args:
            step: steps done.
            tensors: by name; tensors of one name are equal in all processes, or DTensors.
            state: JSON-serializable; the first process's is written.

        Raises:
            OSError: the checkpoint cannot be written; if the disk is full, the error gives the
                bytes needed and the bytes free. The unfinished folder is removed.
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
                # free the disk again if saving failed
                stack.callback(shutil.rmtree, temporary, ignore_errors=True)
                temporary.mkdir()
            self.world.agree()
            # 2.
            writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
            try:
                save(tensors, storage_writer=writer)
            except CheckpointException as error:  # a BaseException: a full disk, Ctrl-C
                raise _cause(error) from None
            # 3. and 4.
            if self.world.is_first:
                _write_state(temporary, step, state)
                _clear(target)  # damaged, or of a later step than this run began with
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
                os.replace(path, hidden)  # so that a kill leaves nothing that looks like one
                shutil.rmtree(hidden)

    def newest(self) -> tuple[int, Content] | None:
        """Find the newest valid checkpoint, (steps done, state); warn of damaged ones."""
        step = 0
        if self.world.is_first:
            step = next(map(step_of, self._newest_first()), 0)
        step = self.world.agree(step)
        if step == 0:
            return None
        return step, read_state(self._path(step))["state"]

    def _newest_first(self) -> Iterator[Path]:
        """Yield the valid checkpoints; each is verified the first time."""
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
        """Fill `tensors` in place from the checkpoint of `step`, whatever the number of ranks that
        wrote it.

        Raises:
            CheckpointError: it lacks one of the tensors, or has it in another shape.
        """
        path = self._path(step)
        try:
            load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))
        except CheckpointException as error:
            raise CheckpointError(
                f"{path} is of another model ({_cause(error)}): take another checkpoints_path"
            ) from None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


def _cause(error: CheckpointException) -> BaseException:
    """The error of the first process that failed."""
    return next(iter(error.failures.values()))[0]


def read_state(path: Path) -> Content:
    """{"step": int, "files": {name: [bytes, checksum]}, "state": dict} of a checkpoint."""
    return read_json(path / STATE)


def digest(content: Content) -> str:
    """The checksum of the values in state.json."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def step_of(path: Path) -> int:
    """The steps done when a checkpoint was saved, from its name."""
    return int(path.name.removeprefix("step-"))


def find_problem(path: Path) -> str | None:
    """Return why a checkpoint cannot be used, or None. Reads all of its files."""
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
    except Exception as error:  # JSON can hold anything instead of a state
        return f"{type(error).__name__}: {error}"
    return None


def state_problem(path: Path) -> str | None:
    """Return why the state.json of a checkpoint cannot be used, or None."""
    try:
        content = read_state(path)
        if content.pop("checksum") != digest(content):
            return f"{STATE} has changed: another checksum"
        for key in ("step", "files", "state"):
            if key not in content:
                return f"{STATE} lacks {key!r}"
        if content["step"] != step_of(path):
            return f"{STATE} is the state after step {content['step']}, not {step_of(path)}"
    except Exception as error:  # JSON can hold anything instead of a state
        return f"{type(error).__name__}: {error}"
    return None


def _model(path: Path) -> Any:
    """The model that a checkpoint names; None if it names none."""
    state = read_state(path)["state"]
    return state.get("model") if isinstance(state, dict) else None


@contextlib.contextmanager
def named_where_full(folder: Path, needs: str) -> Iterator[None]:
    """Add the folder, the bytes needed and the bytes free to the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename == os.fspath(folder):  # named already
            raise
        free = shutil.disk_usage(folder).free
        way_out = "make room, or name another checkpoints_path"
        message = f"{error.strerror}: {needs}, {free:,} bytes are free on this disk; {way_out}"
        raise OSError(error.errno, message, os.fspath(folder)) from error


def _write_state(folder: Path, step: int, state: Content) -> None:
    """Write state.json, with sizes and checksums of all other files in the folder."""
    files = {path.name: [path.stat().st_size, checksum(path)] for path in folder.iterdir()}
    content = json.loads(json.dumps({"step": step, "files": files, "state": state}))
    with atomic_write(folder / STATE, "w") as file:
        json.dump(content | {"checksum": digest(content)}, file, indent=1)


def _hidden(path: Path) -> Path:
    """The name of a checkpoint while it is written or deleted."""
    return path.with_name(f".{path.name}.tmp")


def _is_ours(path: Path) -> bool:
    """Whether this is a folder that holds only files that `save` writes."""
    if path.is_symlink() or not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return all(
            entry.is_file(follow_symlinks=False) and WRITTEN.fullmatch(entry.name)
            for entry in entries
        )


def _clear(path: Path) -> None:
    """Free a name: delete the folder if it is ours, or else move aside whatever has the name."""
    if _is_ours(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.aside")
        os.replace(path, aside)
        logger.warning("%s holds something that is not of a checkpoint: it is now %s", path, aside)


def _lock(path: Path) -> int:
    """Lock `path` for this process, not for workers forked from it; return its descriptor."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except (BlockingIOError, PermissionError):
            time.sleep(0.1)
        except OSError as error:
            message = "%s cannot be locked (%s): make sure no other job trains there"
            logger.warning(message, path.parent, error)
            return descriptor
    os.close(descriptor)
    raise CheckpointError(f"another job trains in {path.parent}; wait for its end or stop it")
