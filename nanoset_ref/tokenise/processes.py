"""Processes that encode for this one: each holds a copy of the tokenizer library and answers over a pipe.

They end when their pipe does, so none outlives a killed parent, and a killed one is noticed at once. A
`ProcessPoolExecutor` does the same work with named semaphores, which stay in shared memory when the whole group is
killed, and its processes hold each other's pipes open after their parent has died.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

from nanoset_ref.tokenise.backends import Ragged, Slow, threads


class JobError(RuntimeError):
    """The job cannot go on: another job is at work on its target, or a worker died."""


class Workers:
    """`count` processes with one library; a context manager. Each of `count` threads may call `encode` at a time."""

    def __init__(self, library: Slow, count: int) -> None:
        self.count = count
        self._idle: SimpleQueue[tuple[BaseProcess, Connection]] = SimpleQueue()
        self._processes: list[BaseProcess] = []
        context: Any = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # it would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # for the children: the parent decides
        try:
            for number in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve, args=(theirs, library, count), name=f"worker {number}", daemon=True
                )
                process.start()
                theirs.close()
                self._processes.append(process)
                self._idle.put((process, ours))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

    def encode(self, texts: list[str]) -> Ragged:
        """As the library's `encode`, in the next process that is free. Raises JobError if that process has ended."""
        process, pipe = self._idle.get()
        try:
            pipe.send(texts)
            return pipe.recv()
        except (EOFError, OSError):
            process.join()
            code = process.exitcode or 0
            end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise JobError(f"{process.name} (pid {process.pid}) {end} amid its work; nothing was written") from None
        finally:
            self._idle.put((process, pipe))


def _serve(pipe: Connection, library: Slow, count: int) -> None:
    use_cores(count)
    try:
        while True:
            pipe.send(library.encode(pipe.recv()))
    except (EOFError, OSError):  # the parent has ended
        return


def use_cores(processes: int) -> None:
    """Share the cores of this machine out among so many processes."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(max(1, threads() // processes)))
