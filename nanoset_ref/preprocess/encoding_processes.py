"""Other processes that encode for this one: each has a copy of the tokenizer library.

They are forked here, or are the other ranks of torchrun: rank 0 reads and writes, and they encode
for it. Such a process ends when its connection closes, so none survives a killed rank 0, and a
killed one is noticed at once. (A `ProcessPoolExecutor` uses named semaphores, which stay in
shared memory when the whole group is killed, and its processes keep each other's pipes open after
their parent has died.) A forked process starts with the tokenizer; a new one would load libraries
for a second.

Ranks on all nodes of the job find each other through the store of torchrun's agent. They end with
their launcher (see `cli.startup`), so a later job cannot join this one. A connection requires a
key from that store.

Messages are JSON and bytes, never pickles:
    {"tokenizer": ...}        an `Encoder.worker_config`
    {"columns": ...}          followed by the text of a batch: JSON lines as they stand in a file,
                              or an Arrow stream
    {"dtype": ..., ...}       the answer, followed by its arrays: the ids, then the others (int64)
    null                      the answer to a batch that cannot be encoded; the end
"""

import json
import os
import secrets
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import cache, partial, wraps
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

import numpy as np

from nanoset_ref.io.signals import deferred_signals
from nanoset_ref.io.torchrun import integer_setting, is_main_rank, under_torchrun
from nanoset_ref.io.types import Json
from nanoset_ref.preprocess.backends import num_threads
from nanoset_ref.preprocess.batch_encoder import BatchEncoder, EncodedBatch
from nanoset_ref.preprocess.text_blocks import OnError, TextBatch, TextBlock, TextPart
from nanoset_ref.preprocess.text_formats import ArrowValues
from nanoset_ref.preprocess.tokenizer import rebuild_tokenizer

ADDRESS_KEY = "nanoset_ref/where"  # in the store of torchrun: port and key of rank 0
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class JobError(RuntimeError):
    """The job cannot continue: another job is writing its target, or a worker died."""


class RemoteEncoder(NamedTuple):
    """The connection to another process that encodes for this one."""

    name: str
    connection: Connection

    def encode(self, batch: TextBatch) -> EncodedBatch | None:
        """Read a batch here and encode it in the other process.

        Returns:
            The documents, without their numbers; None if the process cannot encode
            them.

        Raises:
            JobError: the process has ended.
        """
        part = batch.block.part
        content: Any = batch.content
        is_table = isinstance(content, ArrowValues)
        query = {
            "columns": part.columns,
            "on_error": part.on_error,
            "is_table": is_table,
        }
        text = content.message() if is_table else content()
        try:
            _send(self.connection, query, text)
            answer, arrays = _receive(self.connection)
        except (EOFError, OSError):
            raise JobError(
                f"{self.name} died while it worked (perhaps killed for lack of memory); "
                "nothing was written"
            ) from None
        if answer is None:
            return None
        ids = np.frombuffer(arrays[0], answer["dtype"])
        lengths, documents, token_ids = [
            np.frombuffer(array, np.int64) for array in arrays[1:]
        ]
        return EncodedBatch(ids, lengths, (documents, token_ids), (), answer["skipped"])


def _send(connection: Connection, message: Any, *contents: Any) -> None:
    """Send a message, the sizes of its contents in bytes, and the contents."""
    sizes = [memoryview(content).nbytes for content in contents]
    connection.send_bytes(json.dumps([message, sizes]).encode())
    with open(connection.fileno(), "wb", closefd=False) as file:
        file.writelines(contents)


def _receive(connection: Connection) -> tuple[Any, list[bytes]]:
    """Receive a message and its contents; EOFError if the other process has ended."""
    message, sizes = json.loads(connection.recv_bytes())
    # a Connection would copy large contents three times
    with open(connection.fileno(), "rb", closefd=False) as file:
        contents = [file.read(size) for size in sizes]
    if list(map(len, contents)) != sizes:
        raise EOFError
    return message, contents


def broadcast(encoders: Iterable[RemoteEncoder], message: Json | None) -> None:
    """Send a message to all of them; a dead one is reported by `RemoteEncoder.encode`."""
    for encoder in encoders:
        with suppress(OSError):
            _send(encoder.connection, message)


@contextmanager
def forked_encoders(count: int, encoder: BatchEncoder) -> Iterator[list[RemoteEncoder]]:
    """Fork processes that encode until this context or this process ends; they ignore signals.

    Args:
        count: how many; they share the cores with this process.
        encoder: the encoder that they use.

    Yields:
        A RemoteEncoder for each thread of each process.
    """
    with ExitStack() as stack:
        forked: list[RemoteEncoder] = []
        for number in range(count):
            pipes = [Pipe() for _ in range(num_threads(count + 1))]
            parent_ends, child_ends = zip(*pipes, strict=True)
            with deferred_signals(), warnings.catch_warnings():
                # Python warns about threads that hold locks; none encodes here before the fork
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
                if not pid:
                    # else this process would keep itself and others alive
                    for earlier in forked:
                        earlier.connection.close()
                    for connection in parent_ends:
                        connection.close()
                    _serve_until_the_end(child_ends, encoder)
                stack.callback(os.waitpid, pid, 0)
                stack.callback(os.kill, pid, signal.SIGKILL)
            for connection in child_ends:
                connection.close()
            name = f"worker {number} (pid {pid})"
            forked += [RemoteEncoder(name, connection) for connection in parent_ends]
        yield forked


def _serve_until_the_end(
    connections: Sequence[Connection], encoder: BatchEncoder
) -> NoReturn:
    """Serve each connection in a thread, in a forked process."""

    def serve_one(connection: Connection) -> None:
        with connection:  # so that the other process notices, whatever ends this thread
            serve(connection, encoder)

    try:
        os.setsid()
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads were not forked
        with ThreadPoolExecutor(len(connections)) as pool:
            pool.map(serve_one, connections)
    finally:
        os._exit(0)  # skips the parent's exit handlers and buffers


def serve(connection: Connection, encoder: BatchEncoder | None = None) -> None:
    """Answer messages until null arrives.

    If the other process is gone, this one exits silently; the other has reported the error.

    Args:
        connection: the connection to the other process.
        encoder: the encoder; None if a message will describe it.
    """
    with suppress(EOFError, ConnectionError, TimeoutError):
        while True:
            message, texts = _receive(connection)
            if message is None:
                return
            if "tokenizer" in message:
                fast = rebuild_tokenizer(message.pop("tokenizer"), message.pop("split"))
                encoder = BatchEncoder(fast, **message)
                continue
            assert encoder, "a batch came before the tokenizer"
            try:
                encoded = encoder.encode_text(_batch(texts[0], **message))
            except Exception:
                # the other process encodes the batch again, and raises the error
                _send(connection, None)
                continue
            answer = {"dtype": encoded.ids.dtype.name, "skipped": encoded.skipped}
            arrays = (encoded.ids, encoded.lengths, *encoded.found_tokens)
            _send(connection, answer, *arrays)
    sys.exit(1)


def _batch(
    text: bytes, columns: Sequence[str], on_error: OnError, is_table: bool
) -> TextBatch:
    """A batch from another process; see `RemoteEncoder.encode`."""
    content: Any = partial(bytes, text)  # returns the text
    if is_table:
        content = ArrowValues.from_message(text)
    # a part without blocks, and a block without batches: only the columns and `on_error` matter
    part = TextPart("", 0, tuple(columns), on_error, lambda part: iter(()))
    return TextBatch(TextBlock(part, 0, list, int), 0, 0, content)


# ---- the ranks of torchrun


def in_rank_0(
    function: Callable[Arguments, Result],
) -> Callable[Arguments, Result | None]:
    """Decorate a function that runs in rank 0 of torchrun; other ranks encode and return None.

    Every rank must call it. If rank 0's process ends, so do the others. An error is raised in rank
    0 alone, and the others return; rank 0 may catch it and call again together with them. Without
    torchrun, the function runs as it is.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result | None:
        ranks = other_ranks()
        if ranks and not is_main_rank():
            serve(ranks[0].connection)
            return None
        try:
            return function(*arguments, **options)
        finally:
            broadcast(ranks, None)

    return call


@cache
def other_ranks() -> list[RemoteEncoder]:
    """The other ranks, in rank 0; rank 0, in the other ranks; [] without torchrun.

    The first call connects the ranks, and shares the cores of a machine among its ranks.
    """
    if not under_torchrun():
        return []
    # torch is not imported without torchrun
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=timedelta(minutes=5)))
    ranks_here = integer_setting("LOCAL_WORLD_SIZE", size, 1)
    os.environ["RAYON_NUM_THREADS"] = str(num_threads(ranks_here))
    if rank == 0:
        key = secrets.token_hex()
        with Listener(("", 0), backlog=size, authkey=key.encode()) as listener:
            store.set(ADDRESS_KEY, f"{listener.address[1]} {key}")
            accepted = [_with_socket_options(listener.accept()) for _ in range(1, size)]
            store.delete_key(ADDRESS_KEY)  # torchrun --max-restarts keeps its store
            return [
                RemoteEncoder("another rank", connection) for connection in accepted
            ]
    while not store.check([ADDRESS_KEY]):
        time.sleep(0.05)
    port, key = store.get(ADDRESS_KEY).decode().split()
    address = os.environ["MASTER_ADDR"], int(port)
    connection = _with_socket_options(Client(address, authkey=key.encode()))
    return [RemoteEncoder("rank 0", connection)]


def _with_socket_options(connection: Any) -> Connection:
    """Send messages without delay, and notice within minutes that a node is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as handle:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    return connection
