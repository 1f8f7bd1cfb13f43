"""Real processes with real gloo between them, for tests: started quickly, killed for good.

They are forked from a server that has imported torch once, so that a run of several ranks starts in a moment instead of
five seconds. The first run pays for the server.
"""

import contextlib
import functools
import itertools
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

CONTEXT = multiprocessing.get_context("forkserver")


@functools.cache
def start_server() -> None:
    """Start the server with `ranks.warm` imported; before Python 3.12 it finds it only through PYTHONPATH."""
    paths = (
        f"{Path(__file__).parent.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    with mock.patch.dict(os.environ, PYTHONPATH=paths):
        CONTEXT.set_forkserver_preload(["ranks.warm"])
        forkserver.ensure_running()


# of ports; processes that run tests side by side begin far from each other
NUMBERS = itertools.count(os.getpid() * 1009)


def free_port() -> int:
    """A port that may be bound seconds later: no system gives one below 32768 to who asks for any."""
    while True:
        port = 12_000 + next(NUMBERS) % 20_000
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class Ranks:
    """`size` processes that each call target(*arguments) with the environment torchrun would give them.

    Args:
        target: a function of an importable module.
        log: file that takes what they print.
    """

    def __init__(
        self,
        size: int,
        target: Callable[..., Any],
        arguments: tuple[Any, ...],
        log: Path,
    ) -> None:
        start_server()
        port = free_port()
        self.log = log
        self.processes = [
            CONTEXT.Process(
                target=_run, args=(rank, size, port, target, arguments, str(log))
            )
            for rank in range(size)
        ]
        for process in self.processes:
            process.start()

    def kill(self) -> None:
        """SIGKILL to all of them at once."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()

    def wait_for_codes(self, seconds: float = 600.0) -> list[int | None]:
        """The exit codes, when all have ended by themselves."""
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        self.kill()
        return codes

    def wait(self) -> None:
        """Until all have ended well; else everything they printed is the error."""
        codes = self.wait_for_codes()
        assert codes == [0] * len(codes), f"exit codes {codes}:\n{self.log.read_text()}"


def _run(
    rank: int,
    size: int,
    port: int,
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    log: str,
) -> None:
    if (
        sys.platform == "linux"
    ):  # what a process that torchrun starts would use for its loading workers
        multiprocessing.set_start_method("fork", force=True)
    file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    code = target(*arguments)
    with contextlib.suppress(Exception):
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    os._exit(code or 0)
