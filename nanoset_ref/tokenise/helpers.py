"""Other processes that encode for this one: each has a copy of the tokenizer library and answers over a connection.

They are started here, or are the other ranks of torchrun. They end when their connection does, so none outlives the
killed process that it helps, and a killed helper is noticed at once. A `ProcessPoolExecutor` does the same work with
named semaphores, which stay in shared memory when the whole group is killed, and its processes hold each other's pipes
open after their parent has died.

Messages are JSON, and the answer to a list of texts is two: lengths int64 [texts], and ids int32 back to back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import orjson

from nanoset_ref.tokenise.backends import Ragged, library, threads

STOP = {"stop": True}  # no list of texts, and no answer
PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]  # not as PYTHONPATH, where a script's neighbours would go before the standard library
from nanoset_ref.tokenise.helpers import serve
serve(int(sys.argv[1]))
"""


class JobError(RuntimeError):
    """The job cannot go on: another job is at work on its target, or a helper died."""


class StoppedError(JobError):
    """Another rank failed, and has said why; this one has nothing to say."""

    reported_elsewhere = True


class Helper(NamedTuple):
    """Another process, seen from the one that it helps."""

    name: str
    connection: Connection

    def encode(self, texts: list[str]) -> Ragged:
        """As the library's `encode`, in that process. Raises JobError if it has ended."""
        try:
            self.connection.send_bytes(orjson.dumps(texts))
            lengths, ids = self.connection.recv_bytes(), self.connection.recv_bytes()
        except (EOFError, OSError):
            what = "died amid its work (was it killed, for want of memory?); nothing was written"
            raise JobError(f"{self.name} {what}") from None
        return np.frombuffer(ids, np.int32), np.frombuffer(lengths, np.int64)


def tell(helpers: Iterable[Helper], message: Any) -> None:
    """Send all a message; that one has died is left to be found out by whoever needs it."""
    for helper in helpers:
        with suppress(OSError):
            helper.connection.send_bytes(orjson.dumps(message))


@contextmanager
def started_helpers(count: int) -> Iterator[list[Helper]]:
    """`count` new processes, which end with this context or this process, and do not see its Ctrl-C."""
    with ExitStack() as stack:
        helpers = []
        for number in range(count):
            ours, theirs = Pipe()
            end = theirs.fileno()
            command = [sys.executable, "-c", PROGRAM, str(end), *sys.path]
            variables = os.environ | {"RAYON_NUM_THREADS": str(threads(count))}
            process = subprocess.Popen(command, env=variables, pass_fds=[end], start_new_session=True)
            theirs.close()
            stack.callback(process.wait)
            stack.callback(process.terminate)
            helpers.append(Helper(f"worker {number} (pid {process.pid})", ours))
        yield helpers


def serve(connection: int) -> None:
    """What a started helper does."""
    with suppress(StoppedError):
        help_along(Connection(connection))


def help_along(connection: Connection) -> None:
    """Receive the library, then encode what comes until None does. Raises StoppedError."""
    encode = library(*receive(connection)).encode
    while (texts := receive(connection)) is not None:
        ids, lengths = encode(texts)
        with _stopped_with_the_other_end():
            connection.send_bytes(lengths.tobytes())
            connection.send_bytes(ids.astype(np.int32, copy=False).tobytes())


def receive(connection: Connection) -> Any:
    """The next message. Raises StoppedError if that is what it says, or if the sender has ended."""
    with _stopped_with_the_other_end():
        message = orjson.loads(connection.recv_bytes())
    if message == STOP:
        raise StoppedError
    return message


@contextmanager
def _stopped_with_the_other_end() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise StoppedError from error
