"""Processes that run a loader, so that one that hangs or dies is a finding and not the end.

A player is a forked process that answers one `Run` after another. It has a session of its own: when it does not answer
in time, it is killed together with the workers that it started. Two players take turns, so that a resumed loader never
shares a process, and the state of its random generators, with the loader that it continues.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import time
import traceback
import tracemalloc
import warnings
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from nanoset_ref.laws.adapter import Adapter
from nanoset_ref.laws.identity import rows_in, write_into, wrong_mask

Batches = list[list[tuple[Any, ...]]]  # of every rank, at every step, the rows

_abandoned: list[Any] = []  # loaders in the middle of an epoch, as a stop leaves them


@dataclass(frozen=True, kw_only=True)
class Run:
    """One epoch, or a part of it, on every rank.

    Args:
        data: a number of rows, or a Corpus.
        steps: batches to take on every rank.
        state: whether to take the states after them.
        states: of the ranks that this run continues; rank r takes the one of rank r mod their number.
        spoil: write into every batch once its rows are known.
        measure: trace the memory.
    """

    data: Any
    world_size: int
    batch_size: int
    workers: int
    seed: int
    epoch: int
    steps: int
    state: bool = False
    states: tuple[bytes, ...] = ()
    spoil: bool = False
    measure: bool = False


@dataclass
class Trace:
    """The rows that a run has read.

    Attributes:
        batches: of every rank, at every step, the rows.
        states: of every rank, pickled when they were taken.
        lengths: len(loader) before the first batch, if it is claimed.
        changed: whether a batch that was held has changed since.
        mask: the problem of a mask.
        seconds: until the first batch of rank 0.
        memory: bytes, the peak.
        error: the error that ended the run early.
        refused: whether it was a ValueError.
    """

    batches: Batches = field(default_factory=list)
    states: tuple[bytes, ...] = ()
    lengths: list[int] = field(default_factory=list)
    changed: str = ""
    mask: str = ""
    seconds: float = 0.0
    memory: int = 0
    error: str = ""
    kind: Any = ""
    refused: bool = False


def play(adapter: Adapter, run: Run) -> Trace:
    """Run a loader on all ranks, one after another, in this process."""
    trace = Trace()
    _abandoned.clear()
    try:
        for rank in range(run.world_size):
            _play_rank(adapter, run, rank, trace)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        trace.error = f"{type(error).__name__}: {error} ({where})"
        trace.kind = "crash"
        trace.refused = isinstance(error, ValueError)
    return trace


def _play_rank(adapter: Adapter, run: Run, rank: int, trace: Trace) -> None:
    started = time.perf_counter()
    if run.measure:
        tracemalloc.start()
    state = None
    if run.states:
        state = pickle.loads(run.states[rank % len(run.states)])
    loader: Any = adapter.make(
        run.data,
        rank=rank,
        world_size=run.world_size,
        workers=run.workers,
        seed=run.seed,
        epoch=run.epoch,
        batch_size=run.batch_size,
        state=state,
    )
    if "length" in adapter.claims.split():
        sized: Any = loader
        trace.lengths.append(len(sized))
    read: list[tuple[Any, ...]] = []
    trace.batches.append(read)
    held = []
    batches = islice(loader, run.steps) if run.steps else ()
    for batch in batches:
        if not read and rank == 0:
            trace.seconds = time.perf_counter() - started
        rows = _rows(adapter, batch)
        read.append(rows)
        if adapter.mask and not trace.mask:
            trace.mask = wrong_mask(batch, adapter.mask)
        if run.spoil:
            write_into(batch)
        else:
            held.append(batch)
    if run.measure:
        trace.memory = max(trace.memory, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    if run.state and adapter.state_of:
        trace.states += (pickle.dumps(adapter.state_of(loader)),)
        _abandoned.append((loader, batches))
    for step, batch in enumerate(held):
        if _rows(adapter, batch) != read[step] and not trace.changed:
            trace.changed = (
                f"the batch of rank {rank} at step {step} changed after it was delivered"
            )


def _rows(adapter: Adapter, batch: Any) -> tuple[Any, ...]:
    if adapter.rows_of:
        return tuple(adapter.rows_of(batch))
    return rows_in(batch, adapter.format)


class Players:
    """Two processes that take turns; a context that ends them.

    They are forked, so that functions that were defined in a notebook can be played.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.context: Any = multiprocessing.get_context("fork")
        self.seats: list[Any] = [None, None]
        self.turn = 0

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *error: object) -> None:
        for seat in range(len(self.seats)):
            self._kill(seat)

    def play(self, run: Run, *, kill: bool = False) -> Trace:
        """Play a run in the next process; with `kill`, end that process by SIGKILL as soon as it has answered."""
        self.turn = 1 - self.turn
        seat = self.turn
        if self.seats[seat] is None:
            self.seats[seat] = self._start()
        process, connection = self.seats[seat]
        trace = Trace(error=f"no answer in {self.adapter.limit:g} s", kind="hang")
        try:
            connection.send(run)
            if connection.poll(self.adapter.limit):
                trace = connection.recv()
            else:
                kill = True
        except (EOFError, OSError):
            process.join(1)
            trace = Trace(error=f"the process died: exit code {process.exitcode}", kind="crash")
            kill = True
        if kill:
            self._kill(seat)
        return trace

    def _start(self) -> Any:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.adapter))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fork beside threads: they are not used by the child
            process.start()
        theirs.close()
        return process, ours

    def _kill(self, seat: int) -> None:
        if self.seats[seat] is None:
            return
        process, connection = self.seats[seat]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        connection.close()
        self.seats[seat] = None


def _serve(connection: Any, adapter: Adapter) -> None:
    """Answer runs until the other side is gone; what loaders print goes nowhere."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    parent = os.getppid()
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while os.getppid() == parent:
            if connection.poll(1):
                connection.send(play(adapter, connection.recv()))
    os._exit(0)
