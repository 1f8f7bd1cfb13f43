"""Other processes that encode for this one: each has a copy of the tokenizer library.

They are started here, or they are the other ranks of torchrun: rank 0 decides and does the work,
and they encode for it. They end when their connection does, so none survives a killed rank 0, and a
killed helper is noticed at once. (A `ProcessPoolExecutor` uses named semaphores, which stay in
shared memory when the whole group is killed, and its processes keep each other's pipes open after
their parent has died.)

Ranks find each other through the store of torchrun's agent, over all nodes of the job, and end with
their launcher (see `cli.launcher`), so no later job can join this one. A connection requires a key
from that store.

Messages are JSON, never unpickled:
    an object            backend, tokenizer, and whether it splits special tokens
    a list of texts      answered by their lengths, int64 [texts], and ids, int32, back to back
    null                 the end
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import cache, wraps
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from nanoset_ref.io.extras import extra
from nanoset_ref.io.torchrun import is_main_rank, under_torchrun
from nanoset_ref.preprocess.backends import LIBRARIES, Ragged, threads
from nanoset_ref.preprocess.special import restored

WHERE = "nanoset_ref/where"  # key in the store of torchrun: port and key of rank 0
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]  # PYTHONPATH would put a script's folder before the standard library
from multiprocessing.connection import Connection
from nanoset_ref.preprocess.ranks import serve
serve(Connection(int(sys.argv[1])))
"""


class JobError(RuntimeError):
    """The job cannot continue: another job is writing its target, or a helper died."""


def _orjson() -> Any:
    with extra("text", "sending texts to other processes"):
        import orjson
    return orjson


class Helper(NamedTuple):
    """The connection to another process that encodes for this one."""

    name: str
    connection: Connection

    def encode(self, texts: list[str]) -> Ragged:
        """Encode in that process; JobError if it has ended."""
        try:
            self.connection.send_bytes(_orjson().dumps(texts))
            lengths = self.connection.recv_bytes()
            ids = self.connection.recv_bytes()
        except (EOFError, OSError):
            what = "died amid its work (was it killed, for want of memory?); nothing was written"
            raise JobError(f"{self.name} {what}") from None
        return np.frombuffer(ids, np.int32), np.frombuffer(lengths, np.int64)


def broadcast(helpers: Iterable[Helper], message: dict[str, Any] | None) -> None:
    """Send a message to all helpers; `Helper.encode` reports the dead ones."""
    for helper in helpers:
        with suppress(OSError):
            helper.connection.send_bytes(_orjson().dumps(message))


@contextmanager
def started_helpers(count: int) -> Iterator[list[Helper]]:
    """Start `count` processes, which end with this context or this process, and ignore its Ctrl-C."""
    with ExitStack() as stack:
        helpers = []
        for number in range(count):
            ours, theirs = Pipe()
            end = theirs.fileno()
            command = [sys.executable, "-c", PROGRAM, str(end), *sys.path]
            variables = os.environ | {"RAYON_NUM_THREADS": str(threads(count))}
            process = subprocess.Popen(
                command, env=variables, pass_fds=[end], start_new_session=True
            )
            theirs.close()
            stack.callback(process.wait)
            stack.callback(process.terminate)
            helpers.append(Helper(f"worker {number} (pid {process.pid})", ours))
        yield helpers


def serve(connection: Connection) -> None:
    """Answer messages until null arrives.

    If the other end is gone, this process ends silently: the other has reported the error.
    """
    try:
        while (message := _orjson().loads(connection.recv_bytes())) is not None:
            if isinstance(message, dict):
                tokenizer = restored(message["tokenizer"], message["split"])
                encode = LIBRARIES[message["backend"]](tokenizer)
                continue
            ids, lengths = encode(message)
            connection.send_bytes(lengths.tobytes())
            connection.send_bytes(ids.astype(np.int32, copy=False).tobytes())
    except (EOFError, ConnectionError, TimeoutError):
        sys.exit(1)


# ---- the ranks of torchrun


def in_rank_0(function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
    """Run a function in rank 0 of torchrun only; the other ranks encode for it and return None.

    Every rank must call it. If rank 0's process ends, so do the others. An error is raised in rank
    0 alone, and the others return; rank 0 may catch it and call again together with them. Without
    torchrun, this is the function itself.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result | None:
        joined = other_ranks()
        if joined and not is_main_rank():
            serve(joined[0].connection)
            return None
        try:
            return function(*arguments, **options)
        finally:
            broadcast(joined, None)

    return call


@cache
def other_ranks() -> list[Helper]:
    """In rank 0 the other ranks, in the others rank 0; [] without torchrun.

    The first call connects them, and shares the cores of a machine among its ranks.
    """
    if not under_torchrun():
        return []
    from torch.distributed.rendezvous import rendezvous  # keeps torch away without torchrun

    store, rank, size = next(rendezvous("env://", timeout=timedelta(minutes=5)))
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    os.environ["RAYON_NUM_THREADS"] = str(threads(ranks_here))
    if rank == 0:
        key = secrets.token_hex()
        with Listener(("", 0), backlog=size, authkey=key.encode()) as listener:
            store.set(WHERE, f"{listener.address[1]} {key}")
            connections = [_tuned(listener.accept()) for _ in range(1, size)]
        return [Helper("another rank", connection) for connection in connections]
    while not store.check([WHERE]):
        time.sleep(0.05)
    port, key = store.get(WHERE).decode().split()
    address = os.environ["MASTER_ADDR"], int(port)
    return [Helper("rank 0", _tuned(Client(address, authkey=key.encode())))]


def _tuned(connection: Any) -> Connection:
    """Send messages without delay, and notice within minutes that a node is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as handle:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    return connection
