"""What several processes need to do one job: a folder under a lock, shared counters, a bar, and news of a death.

Workers claim their work with one primitive, `add(key, amount)`: add to a shared counter, return what it held before.

    local workers   an array in shared memory (`multiprocessing`, started afresh with "spawn")
    torchrun ranks  the job's TCPStore, over as many nodes as it has; no process group, no collectives

The lock is an `flock` on a file in a hidden folder beside the job's target. It dies with its holder, so a second job on
the same target is told at once, and what a killed job left is removed by the next one. A file with a process id in it
would go stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import IO, Any, Protocol

from tqdm import tqdm

DOCUMENTS, TOKENS, BYTES, NEXT_PART, FIRST_PART = range(5)  # the counters; part p of the input has FIRST_PART + p
PATIENCE_S = 300.0
logger = logging.getLogger(__name__)


class JobError(RuntimeError):
    """The job cannot go on: another job is at work on its target, or a worker died."""


class StoppedError(JobError):
    """Another rank failed, and has said why."""


class Counters(Protocol):
    def add(self, key: int, amount: int) -> int:
        """Add to a counter; returns its value before."""
        ...


class LocalCounters:
    """Counters of processes on one machine, or (without a context) of one process alone."""

    def __init__(self, num_parts: int, context: Any = None) -> None:
        size = FIRST_PART + num_parts
        self._values: Any = context.RawArray("q", size) if context else [0] * size
        self._lock: Any = context.Lock() if context else contextlib.nullcontext()

    def add(self, key: int, amount: int) -> int:
        if not amount:  # whoever only reads is not to wait for a lock that a killed worker holds
            return int(self._values[key])
        with self._lock:
            before = int(self._values[key])
            self._values[key] = before + amount
        return before


@contextlib.contextmanager
def job_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside `target` for the one live job on it; empty on entry (but for its lock), gone on exit.

    Raises:
        JobError: another live job has it.
    """
    folder = target.parent / f".{target.name}.job"
    while (lock := _locked(folder, target)) is None:
        pass  # another job ended and removed the folder just now
    with lock:
        for entry in folder.iterdir():
            if entry.name != "lock":
                entry.unlink()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked(folder: Path, target: Path) -> IO[str] | None:
    """The open lock of the folder, or None if the folder was removed while it was taken."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
        lock = stack.enter_context(open(folder / "lock", "a"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(f"another job is writing {target}; wait for it or choose another output") from None
        except OSError:  # a filesystem without locks only loses this protection
            logger.warning("%s: this filesystem has no locks; do not start two jobs with this output", folder)
        if os.path.samestat(os.stat(folder / "lock"), os.fstat(lock.fileno())):
            stack.pop_all()
            return lock
    return None


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Let an error of writing, such as "No space left on device", say where; a plain `write` does not know."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


class Bar:
    """A progress bar over the bytes of the input, with documents/s, tokens/s and the time left.

    Args:
        num_bytes: the size of the input.
        shown: None shows the bar where standard error is a terminal.
    """

    def __init__(self, num_bytes: int, shown: bool | None) -> None:
        disable = None if shown is None else not shown
        self._bar = tqdm(total=num_bytes, unit="B", unit_scale=True, disable=disable, dynamic_ncols=True)
        self._start = time.monotonic()

    def show(self, counters: Counters) -> None:
        if self._bar.disable:
            return
        documents, tokens, done = (counters.add(key, 0) for key in (DOCUMENTS, TOKENS, BYTES))
        seconds = max(1e-3, time.monotonic() - self._start)
        rates = (tqdm.format_sizeof(count / seconds) for count in (documents, tokens))
        self._bar.set_postfix_str("{} documents/s, {} tokens/s".format(*rates), refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class Ranks:
    """The ranks of one torchrun job during one call; every rank makes the same calls in the same order."""

    def __init__(self) -> None:
        from torch.distributed.distributed_c10d import PrefixStore

        store, calls = _store()
        calls.append(None)
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._store = PrefixStore(f"nanoset_ref/{len(calls)}", store)

    def add(self, key: int, amount: int) -> int:
        return int(self._store.add(f"counter/{key}", amount)) - amount

    def publish(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def wait_for(self, *keys: str, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
        """The values of `keys`, once they are all there.

        Raises:
            StoppedError: a rank has failed.
            JobError: nothing moved for five minutes although this rank is waiting for others to finish a few blocks.
        """
        last, since = -1, time.monotonic()
        while not self._store.check(list(keys)):
            self.check()
            meanwhile()
            moved = self.add(TOKENS, 0)
            if moved != last:
                last, since = moved, time.monotonic()
            elif moved and time.monotonic() - since > PATIENCE_S:
                missing = ", ".join(key for key in keys if not self._store.check([key]))
                raise JobError(f"nothing heard for {PATIENCE_S:.0f} s of {missing}: a rank or its node is gone")
            time.sleep(0.05)
        return [self._store.get(key).decode() for key in keys]

    def fail(self) -> None:
        """Tell all ranks that this one has failed."""
        with contextlib.suppress(RuntimeError):  # the store may be what failed
            self._store.set("failed", str(self.rank))

    def check(self) -> None:
        """Raise StoppedError if a rank has failed."""
        if self._store.check(["failed"]):
            raise StoppedError(f"stopped, because rank {self._store.get('failed').decode()} failed")


def under_torchrun() -> bool:
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@cache
def _store() -> tuple[Any, list[None]]:
    """The store that torchrun set up, and a list that counts the calls of this process."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=timedelta(minutes=30)))
    return store, []


def is_main_rank() -> bool:
    """Whether this process is rank 0, or no rank at all."""
    return int(os.environ.get("RANK", "0")) == 0
