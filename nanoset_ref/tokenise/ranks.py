"""The ranks of torchrun: rank 0 decides and is helped by the others.

They find each other through the store of torchrun's agent, over as many nodes as the job has; from then on a connection
joins rank 0 with each other rank. A rank that dies closes its connection, so the others end, too, within moments. All
end with their launcher (see `launcher`): no later job can join this one.

A connection opens only to those who know a key out of that store, and nothing that comes over it is unpickled.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from nanoset_ref.launcher import under_torchrun
from nanoset_ref.tokenise.backends import threads
from nanoset_ref.tokenise.helpers import STOP, Helper, receive, tell

WHERE = "nanoset_ref/where"


class Ranks:
    """The ranks of one torchrun job; alone, rank 0 of 1. Every rank makes the same calls in the same order."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"]) if under_torchrun() else 0
        self.others = _others(self.rank) if under_torchrun() else []  # of rank 0; for the others: rank 0

    @contextmanager
    def one_fails_all(self) -> Iterator[None]:
        """Stop the others if rank 0 fails."""
        try:
            yield
        except BaseException:
            tell(self.others, STOP)
            raise

    def agree(self, decide: Callable[[], str]) -> str:
        """Rank 0 decides, and all ranks get its answer. Raises StoppedError in the others if it fails."""
        if self.rank:
            return receive(self.others[0].connection)
        with self.one_fails_all():
            answer = decide()
        tell(self.others, answer)
        return answer


@cache
def _others(rank: int) -> list[Helper]:
    """Join rank 0 with the others, once in each process, and share the cores of a machine out among its ranks."""
    from torch.distributed.rendezvous import rendezvous

    store, _, size = next(rendezvous("env://", timeout=timedelta(minutes=5)))
    os.environ["RAYON_NUM_THREADS"] = str(threads(int(os.environ.get("LOCAL_WORLD_SIZE", size))))
    if rank == 0:
        key = secrets.token_hex()
        with Listener(("", 0), backlog=size, authkey=key.encode()) as listener:
            store.set(WHERE, f"{listener.address[1]} {key}")
            connections = [_tuned(listener.accept()) for _ in range(1, size)]
        return [Helper(receive(connection), connection) for connection in connections]
    while not store.check([WHERE]):
        time.sleep(0.05)
    port, key = store.get(WHERE).decode().split()
    connection = _tuned(Client((os.environ["MASTER_ADDR"], int(port)), authkey=key.encode()))
    lead = Helper("rank 0", connection)
    tell([lead], f"rank {rank}")
    return [lead]


def _tuned(connection: Any) -> Connection:
    """Messages leave at once, and a node that is gone is noticed after some minutes."""
    with socket.socket(fileno=os.dup(connection.fileno())) as handle:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    return connection
