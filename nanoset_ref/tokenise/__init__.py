"""The engine: text in, token ids out, with any number of workers and always the same result.

1. The input is an ordered list of parts (files), each an ordered list of blocks of about a MiB (see `text`). Which
   block comes where does not depend on the workers; who does it, does.
2. A worker claims a file nobody has begun, then its blocks one by one, by counters the workers share. When no file is
   left it helps with those that others have begun. So a compressed file is unpacked once, and again only by helpers at
   the end; a slow block or a huge document holds up nobody.
3. Each worker appends the ids to a file of its own in the job's hidden folder, the lengths of the documents to another,
   and notes (part, block, documents) of every block.
4. When all are done, the blocks are copied in their order into the sink: a token file, a `.bin/.idx` pair, rows of a
   chunk. The result is the same byte for byte. One process alone writes into the sink straight away.

Cost: nothing in memory grows with the input but 100 bytes per block. With several workers the ids take their room on
disk twice until the end, and the copy adds a few per cent of the time. The alternative, sharing the input out
beforehand (document i to worker i mod N), needs no counters, but the slowest share decides, and the order depends on N.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from hashlib import sha256
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.text import InputError, TextSource
from nanoset_ref.tokenise.backends import threads
from nanoset_ref.tokenise.encode import Backend, Encoder, load_tokenizer
from nanoset_ref.tokenise.shares import REPORT_S, Share, encode_part, merged
from nanoset_ref.tokenise.workers import (
    Bar,
    JobError,
    LocalCounters,
    Ranks,
    StoppedError,
    errors_name,
    job_folder,
    under_torchrun,
)

PROBE_DOCUMENTS, PROBE_CHARS = 2000, 1 << 18


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How to make the Encoder of each worker; the fields are Encoder's, `tokenizer` a name or a folder."""

    tokenizer: str
    backend: Backend = "auto"
    add_special_tokens: bool = False
    append_eod: bool = False
    dtype: str | None = None

    def build(self, probe: Iterable[str] = ()) -> Encoder:
        options = dataclasses.asdict(self)
        return Encoder(load_tokenizer(options.pop("tokenizer")), probe=list(probe), **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """What a job did: documents and tokens written, documents left out by kind, the backend that ran, seconds."""

    documents: int
    tokens: int
    skipped: dict[str, int]
    backend: str
    seconds: float


class Sink(Protocol):
    """Takes documents in order; TokenFileWriter is one."""

    def write(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> object:
        """ids: [sum(lengths)] back to back; lengths: int64 [number of documents], in tokens."""
        ...


def tokenise(
    open_source: Callable[[], TextSource],
    config: EncoderConfig,
    open_sink: Callable[[Encoder], AbstractContextManager[Sink]],
    target: str | os.PathLike[str],
    *,
    workers: int = 1,
    progress: bool | None = None,
) -> Counts | None:
    """Tokenise a source into a sink, in this process, in `workers` local processes, or with the ranks of torchrun.

    Args:
        open_source: makes the source; called once, and by each rank of torchrun.
        config: the tokenizer and what to do with it.
        open_sink: called with the Encoder before the work begins, in one process only. An exception leaves the sink by
            its `__exit__`, which is to leave no output behind.
        target: what the job is about, usually the file that the sink writes: the job's folder stands beside it.
        workers: local processes; under torchrun its ranks are the workers and this is left at 1.
        progress: show a bar; None: if standard error is a terminal.

    Returns:
        Counts; None in the ranks of torchrun other than 0, once their share is done.

    Raises:
        InputError, DocumentError, TokenizerError: as in `text` and `encode`, and if there is no document at all.
        JobError: another job works on the same target, or a worker died. StoppedError: another rank has failed.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    target = Path(os.path.abspath(target))
    if under_torchrun():
        if workers > 1:
            raise ValueError(f"under torchrun its ranks are the workers; leave out workers={workers}")
        return _with_ranks(open_source, config, open_sink, target, progress)
    with errors_name(target.parent), ExitStack() as stack:
        job = _Job(stack, open_source, config, open_sink, target, progress)
        return job.run_local(workers) if workers > 1 else job.run_alone()


class _Job:
    """What the one process in charge has open: folder and lock, source, encoder, sink, bar."""

    def __init__(
        self,
        stack: ExitStack,
        open_source: Callable[[], TextSource],
        config: EncoderConfig,
        open_sink: Callable[[Encoder], AbstractContextManager[Sink]],
        target: Path,
        progress: bool | None,
    ) -> None:
        self.folder = stack.enter_context(job_folder(target))
        self.source = open_source()
        self.encoder = config.build(_probe(self.source) if config.backend != "hf" else ())
        backend: Backend = "gigatoken" if self.encoder.backend == "gigatoken" else "hf"
        self.config = dataclasses.replace(config, backend=backend)
        self.sink = stack.enter_context(open_sink(self.encoder))
        self.bar = Bar(self.source.num_bytes, progress)
        stack.callback(self.bar.close)
        self._start = time.monotonic()

    def run_alone(self) -> Counts:
        counters = LocalCounters(0)

        def write(ids: NDArray[Any], lengths: NDArray[np.int64]) -> None:
            self.sink.write(ids, lengths[lengths >= 0])

        share = Share(self.encoder, counters, lambda: self.bar.show(counters))
        share.encode(self.source.blocks(), self.source.on_error, write)
        return self.counts(share.documents, share.tokens, share.skipped)

    def run_local(self, workers: int) -> Counts:
        """Start the workers, watch them, merge."""
        context = multiprocessing.get_context("spawn")
        counters = LocalCounters(len(self.source.parts), context)
        running: dict[Any, Any] = {}  # the end of a pipe -> the worker at its other end
        skipped: Counter[str] = Counter()
        try:
            for rank in range(workers):
                ours, theirs = context.Pipe(duplex=False)
                arguments = (rank, workers, self.source, self.encoder, self.folder, counters, theirs)
                process = context.Process(target=_local_worker, args=arguments, name=f"worker {rank}", daemon=True)
                process.start()
                running[ours] = process
                theirs.close()  # so that the death of the worker closes the pipe
            while running:
                for connection in wait(list(running), timeout=REPORT_S):
                    skipped += _answer(connection, running[connection])
                    running.pop(connection).join()
                self.bar.show(counters)
        finally:
            for process in running.values():
                process.terminate()
                process.join()
        return self.merge(workers, skipped)

    def merge(self, workers: int, skipped: Counter[str]) -> Counts:
        documents = tokens = 0
        for ids, lengths in merged(self.folder, workers, self.encoder.dtype):
            self.sink.write(ids, lengths)
            documents, tokens = documents + len(lengths), tokens + len(ids)
        return self.counts(documents, tokens, skipped)

    def counts(self, documents: int, tokens: int, skipped: Counter[str]) -> Counts:
        if not documents:
            reasons = "; ".join(f"{number} skipped: {kind}" for kind, number in skipped.items())
            raise InputError(f"the input holds no usable document ({reasons or 'every line is blank'})")
        return Counts(
            documents=documents,
            tokens=tokens,
            skipped=dict(skipped),
            backend=self.encoder.backend,
            seconds=time.monotonic() - self._start,
        )


def _with_ranks(
    open_source: Callable[[], TextSource],
    config: EncoderConfig,
    open_sink: Callable[[Encoder], AbstractContextManager[Sink]],
    target: Path,
    progress: bool | None,
) -> Counts | None:
    """Rank 0 opens everything and says what the others are to do; all work; rank 0 merges."""
    from torch.distributed import DistError

    _use_cores(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    ranks = Ranks()
    try:
        if ranks.rank:
            plan = json.loads(ranks.wait_for("plan")[0])
            source = open_source()
            folder = Path(plan["folder"])
            if not (folder / "lock").exists():
                raise JobError(f"rank {ranks.rank} does not see {folder}: the output must lie where all nodes see it")
            if plan["input"] != _fingerprint(source):
                raise JobError(f"rank {ranks.rank} sees another input than rank 0 (other files or other sizes)")
            encoder = dataclasses.replace(config, backend=plan["backend"]).build()
            skipped = encode_part(ranks.rank, encoder, source, folder, ranks, ranks.check)
            ranks.publish(f"rank {ranks.rank}", json.dumps(skipped))
            return None
        with errors_name(target.parent), ExitStack() as stack:
            job = _Job(stack, open_source, config, open_sink, target, progress)
            plan = {"folder": str(job.folder), "input": _fingerprint(job.source), "backend": job.config.backend}
            ranks.publish("plan", json.dumps(plan))

            def report() -> None:
                ranks.check()
                job.bar.show(ranks)

            skipped = encode_part(0, job.encoder, job.source, job.folder, ranks, report)
            others = ranks.wait_for(*(f"rank {rank}" for rank in range(1, ranks.size)), meanwhile=report)
            return job.merge(ranks.size, sum((Counter(json.loads(other)) for other in others), skipped))
    except StoppedError:
        raise
    except DistError as error:
        raise StoppedError(f"the store of the job is gone, and with it rank 0 or its node ({error})") from error
    except BaseException:
        ranks.fail()
        raise


def _local_worker(
    rank: int,
    workers: int,
    source: TextSource,
    encoder: Encoder,
    folder: Path,
    counters: LocalCounters,
    answer: Connection,
) -> None:
    """One local process: does its part and sends what it skipped, or why it failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process in charge decides
    _use_cores(workers)
    parent = multiprocessing.parent_process()

    def check() -> None:
        if parent is not None and not parent.is_alive():
            raise SystemExit(1)

    try:
        skipped = encode_part(rank, encoder, source, folder, counters, check)
        answer.send(("done", dict(skipped)))
    except ValueError as error:
        answer.send(("refused", str(error)))
    except OSError as error:
        answer.send(("failed", str(error)))
    except Exception:
        answer.send(("failed", traceback.format_exc()))


def _answer(connection: Any, process: Any) -> Counter[str]:
    """What a worker that has ended had to say."""
    try:
        kind, content = connection.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise JobError(f"{process.name} (pid {process.pid}) {end} amid its work; nothing was written") from None
    if kind == "done":
        return Counter(content)
    raise InputError(content) if kind == "refused" else JobError(f"{process.name} failed: {content}")


def _use_cores(workers_here: int) -> None:
    os.environ.setdefault("RAYON_NUM_THREADS", str(max(1, threads() // workers_here)))


def _probe(source: TextSource) -> Iterator[str]:
    """The first texts of the corpus."""
    size = 0
    for document in islice(source.documents(), PROBE_DOCUMENTS):
        yield document.text[:PROBE_CHARS]
        size += len(document.text)
        if size > PROBE_CHARS:
            return


def _fingerprint(source: TextSource) -> str:
    return sha256(repr(source).encode()).hexdigest()
