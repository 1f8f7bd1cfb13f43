"""Processes that run a loader, so that a loader that hangs or dies is a finding, not the end.

A forked process answers one `EpochRequest` after another. It has a separate session: if it does not
answer in time, it is killed together with the workers that it started. Two processes alternate, so
that a resumed loader never runs in the process, with its random generators, of the loader that it
continues.
"""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import pickle
import re
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
import tracemalloc
import warnings
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from nanoset_ref.io.signals import deferred_signals
from nanoset_ref.laws.adapter import Adapter
from nanoset_ref.laws.batch_rows import mask_fault, overwrite, rows_in
from nanoset_ref.laws.findings import Batches, Kind

LAWS_FOLDER = os.path.dirname(__file__)
SETTINGS = ("world_size", "workers", "seed", "epoch", "batch_size")
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_stopped_loaders: list[Any] = []  # loaders that a stop left in the middle of an epoch


@dataclass(frozen=True, kw_only=True)
class EpochRequest:
    """One epoch, or a part of it, on every rank.

    Args:
        data: a number of rows, or a Corpus.
        world_size, workers, seed, epoch, batch_size: as `make` takes them.
        steps: batches to take on every rank.
        take_states: whether to take the states after these batches.
        resume_from: the states of the ranks that this epoch continues; rank r takes state r mod
            the number of states.
        overwrite_batches: whether to write to every batch once its rows are known.
        measure: whether to measure time and memory.
        take_length: whether to take the loader's length.
    """

    data: Any
    world_size: int
    workers: int
    seed: int
    epoch: int
    batch_size: int
    steps: int
    take_states: bool = False
    resume_from: tuple[bytes, ...] = ()
    overwrite_batches: bool = False
    measure: bool = False
    take_length: bool = False


@dataclass
class EpochTrace:
    """The result of an `EpochRequest`.

    Attributes:
        batches: [rank][step] -> the rows.
        states: the state of every rank, pickled when it was taken.
        lengths: for each rank the declared length, if it was taken.
        faults: {law: the first fault of a batch or a mask}.
        seconds: the time of the last rank, if it was measured.
        memory: its peak in bytes.
        error: the error that ended the epoch early; "" if there was none.
        kind: how it ended, if there was an error: "crash" or "hang".
        refused: whether the error was a ValueError before the first batch of its rank.
    """

    batches: Batches = field(default_factory=list)
    states: tuple[bytes, ...] = ()
    lengths: list[int] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    memory: int = 0
    error: str = ""
    kind: Kind = "crash"
    refused: bool = False


def run_ranks(adapter: Adapter, request: EpochRequest) -> EpochTrace:
    """Run a loader on all ranks, one after another, in this process."""
    trace = EpochTrace()
    _stopped_loaders.clear()
    try:
        for rank in range(request.world_size):
            _run_rank(adapter, request, rank, trace)
    except (Exception, SystemExit) as error:
        trace.error = describe_error(error)
        has_begun = any(trace.batches[rank:])
        trace.refused = isinstance(error, ValueError) and not has_begun
    return trace


def _run_rank(
    adapter: Adapter, request: EpochRequest, rank: int, trace: EpochTrace
) -> None:
    """Run one rank, and add its results to `trace`."""
    started = time.perf_counter()
    if request.measure:
        tracemalloc.start()
    loader = _make_loader(adapter, request, rank)
    if request.take_length:
        trace.lengths.append(len(loader))
    batches = islice(loader, request.steps) if request.steps else ()
    read: list[tuple[Any, ...]] = []
    trace.batches.append(read)
    held = []
    for batch in batches:
        read.append(_rows(adapter, batch))
        wrong = mask_fault(batch, adapter.mask) if adapter.mask else ""
        if wrong:
            trace.faults.setdefault("masks", wrong)
        if request.overwrite_batches:
            overwrite(batch)
        else:
            held.append(batch)
    if request.measure:
        trace.seconds = time.perf_counter() - started
        _, trace.memory = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    if request.take_states and adapter.state_of:
        state = adapter.state_of(loader)
        trace.states += (pickle.dumps(state),)
        _stopped_loaders.append((loader, batches))
    for step, batch in enumerate(held):
        if _rows(adapter, batch) != read[step]:
            changed = f"the batch of rank {rank} at step {step} changed after it was delivered"
            trace.faults.setdefault("owned", changed)


def _make_loader(adapter: Adapter, request: EpochRequest, rank: int) -> Any:
    """Make the loader of one rank, from its state if there is one."""
    state = None
    if request.resume_from:
        owner = rank % len(request.resume_from)
        state = pickle.loads(request.resume_from[owner])
    settings = {name: getattr(request, name) for name in SETTINGS}
    loader = adapter.make(request.data, rank=rank, state=state, **settings)
    if not hasattr(loader, "__iter__"):
        raise TypeError(f"make returned {loader!r:.80}, not an iterable of batches")
    return loader


def _rows(adapter: Adapter, batch: Any) -> tuple[Any, ...]:
    """The rows of a batch; TypeError if they cannot be told."""
    format = adapter.format
    if adapter.rows_of:
        batch = list(adapter.rows_of(batch))
        format = "rows"
    try:
        return rows_in(batch, format)
    except Exception as error:
        raise TypeError(
            f"found no row numbers in the batch {batch!r:.80} ({error}); give rows_of="
        ) from error


class LoaderProcesses(contextlib.AbstractContextManager["LoaderProcesses"]):
    """Runs a loader in two processes that alternate, and has a temporary folder for its corpora.

    The processes are forked, so that a function defined in a notebook can be run. Leaving this
    context ends them and removes the folder.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.temporary = tempfile.TemporaryDirectory()
        # (process, connection, file of its stack)
        self.processes: list[Any] = [None, None]

    def __exit__(self, *error: object) -> None:
        for number in (0, 1):
            self._kill(number)
        self.temporary.cleanup()

    def run(self, request: EpochRequest, *, kill: bool = False) -> EpochTrace:
        """Run in the next process; with `kill`, end it by SIGKILL as soon as it has answered."""
        self.processes.reverse()
        if self.processes[0] is None:
            with deferred_signals():  # until `__exit__` knows the process
                self.processes[0] = self._start()
        process, connection, stack = self.processes[0]
        try:
            connection.send(request)
            if connection.poll(self.adapter.limit):
                trace = connection.recv()
                if kill:
                    self._kill(0)
                return trace
            trace = EpochTrace(
                error=f"no answer in {self.adapter.limit:g} s", kind="hang"
            )
        except (EOFError, OSError):
            process.join(20)
            trace = EpochTrace(error=f"the process died: exit code {process.exitcode}")
        # the main thread of the last stack that faulthandler wrote, innermost frame first
        stacks = os.pread(stack.fileno(), 1 << 20, 0).decode()
        main_thread = stacks.rpartition("(most recent call first)")[2]
        trace.error += _innermost_frame(main_thread)
        self._kill(0)
        return trace

    def _start(self) -> Any:
        """Fork a process that answers requests."""
        context = multiprocessing.get_context("fork")
        parent_end, child_end = context.Pipe()
        stack = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        process = context.Process(
            target=_answer_requests, args=(child_end, self.adapter, stack)
        )
        with warnings.catch_warnings():
            # a fork with threads, which the child does not use
            warnings.simplefilter("ignore")
            process.start()
        child_end.close()
        return process, parent_end, stack

    def _kill(self, number: int) -> None:
        """End a process and all that it started."""
        if self.processes[number] is None:
            return
        process, connection, stack = self.processes[number]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        connection.close()
        stack.close()
        self.processes[number] = None


def _answer_requests(connection: Any, adapter: Adapter, stack: Any) -> None:
    """Answer requests until the parent has ended; discard the output of loaders."""
    os.setsid()
    gc.freeze()  # else a collection visits, and so copies, all objects of the parent
    faulthandler.disable()  # a library may have replaced the handlers, which `enable` would leave
    faulthandler.enable(stack, all_threads=False)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    # keep libraries from waiting for threads of the parent, which do not survive the fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # the generators of both processes would begin in the state of their parent, and draw alike;
    # Python seeds that of `random` after a fork
    np.random.seed()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(1)
        torch.seed()
    parent = os.getppid()
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while os.getppid() == parent:
            if connection.poll(1):
                request = connection.recv()
                faulthandler.dump_traceback_later(0.9 * adapter.limit, file=stack)
                connection.send(run_ranks(adapter, request))
                faulthandler.cancel_dump_traceback_later()
    os._exit(0)


def describe_error(error: BaseException) -> str:
    """An error in one line, with the innermost frame of a loader and its libraries.

    The message of an error that another process raised may hold a traceback: its first and last
    line are kept.
    """
    said = f"{type(error).__name__}: {error}".strip().splitlines()
    ends = " ... ".join(dict.fromkeys((said[0], said[-1])))
    frames = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    stack = "\n".join(reversed(frames + said))
    return ends + _innermost_frame(stack)


def _innermost_frame(stack: str) -> str:
    """The innermost frame of a loader and its libraries, as in ", in make (loader.py:12)"."""
    for path, line, name in re.findall(r'File "(.+)", line (\d+),? in (.+)', stack):
        is_standard = path.startswith(STANDARD_LIBRARY) and "site-packages" not in path
        if not is_standard and not path.startswith((LAWS_FOLDER, "<")):
            return f", in {name} ({os.path.basename(path)}:{line})"
    return ""
