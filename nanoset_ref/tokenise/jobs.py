"""The engine: text in, token ids out, by any number of workers and always the same result.

1. The input is an ordered list of blocks of about a MiB (see `text`). Each rank of torchrun takes a contiguous share of
   them, the same number of bytes for all; without torchrun rank 0 is alone and takes everything.
2. A rank reads its share, gathers documents into batches, and has them encoded by threads or by `workers` processes.
   The batches come back in order.
3. Rank 0 writes what comes into the sink: a token file, a `.bin/.idx` pair, rows of a chunk. The others write the ids
   into a hidden file beside the target, and the lengths of the documents into another.
4. Rank 0 waits for rank 1, 2, ... and copies their files into the sink in this order.

    shares        0: a b c    1: d e    2: f g h
    sink          a b c                 written by rank 0 as it goes
    files                     d e       f g h
    sink          a b c       d e       f g h

Nothing in memory grows with the input. The ids of all ranks but the first take their room on disk twice until the end.
The rejected alternative, shared counters by which ranks claim blocks one by one, evens out slow ranks, but took a table
of blocks, a protocol for the end of each file, and 3 times the code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.files import lock
from nanoset_ref.text import InputError, TextSource
from nanoset_ref.tokenise.backends import Ragged
from nanoset_ref.tokenise.encode import Backend, Encoder, load_tokenizer
from nanoset_ref.tokenise.processes import JobError, Workers, use_cores
from nanoset_ref.tokenise.ranks import Ranks
from nanoset_ref.tokenise.work import Share

PROBE_DOCUMENTS, PROBE_CHARS = 2000, 1 << 18
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How each rank makes its Encoder; the fields are Encoder's, `tokenizer` a name or a folder."""

    tokenizer: str
    backend: Backend = "auto"
    add_special_tokens: bool = False
    append_eod: bool = False
    bos_text: str = ""
    eos_text: str = ""

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
    """Tokenise a source into a sink, in this process, with `workers` local processes, or with the ranks of torchrun.

    Args:
        open_source: makes the source; called once, and by each rank of torchrun.
        config: the tokenizer and what to do with it.
        open_sink: called with the Encoder before the work begins, in one process only. An exception leaves the sink by
            its `__exit__`, which is to leave no output behind.
        target: what the job is about, usually the file that the sink writes: the job's hidden files stand beside it.
        workers: local processes that encode; under torchrun its ranks are the workers and this is left at 1.
        progress: show a bar; None: if standard error is a terminal.

    Returns:
        Counts; None in the ranks of torchrun other than 0, once their share is done.

    Raises:
        InputError, DocumentError, TokenizerError: as in `text` and `encode`, and if there is no document at all.
        JobError: another job works on the same target, or a worker died. StoppedError: another rank has failed.
    """
    ranks = Ranks()
    if workers < 1 or (workers > 1 and ranks.size > 1):
        raise ValueError(f"workers must be at least 1, and under torchrun 1, for its ranks work; got {workers}")
    if ranks.size > 1:
        use_cores(int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size)))
    target = Path(os.path.abspath(target))
    with ranks.one_fails_all(), _errors_name(target.parent):
        if ranks.rank:
            _help(ranks, open_source, config, target)
            return None
        with _only_job(target), ExitStack() as stack:
            source = open_source()
            encoder = config.build(_probe(source) if config.backend != "hf" else ())
            sink = stack.enter_context(open_sink(encoder))
            ranks.publish("plan", json.dumps([encoder.backend, repr(source)]))
            start = time.monotonic()
            processes = stack.enter_context(Workers(encoder.library, workers)) if workers > 1 else None
            share = Share(ranks, source, encoder, progress)
            written: Counter[str] = Counter()
            for ids, lengths in _all_shares(ranks, share, processes, target):
                sink.write(ids, lengths)
                written.update(documents=len(lengths), tokens=len(ids))
            if not written["documents"]:
                reasons = "; ".join(f"{number} skipped: {kind}" for kind, number in share.skipped.items())
                raise InputError(f"the input holds no usable document ({reasons or 'every line is blank'})")
            return Counts(
                **written,
                skipped=dict(share.skipped),
                backend=encoder.backend,
                seconds=time.monotonic() - start,
            )


def _all_shares(ranks: Ranks, share: Share, processes: Workers | None, target: Path) -> Iterator[Ragged]:
    """The documents of rank 0, then those of the others in their order, each as soon as it is done."""
    yield from share.encoded(processes)
    for rank in range(1, ranks.size):
        share.skipped += Counter(json.loads(ranks.wait_for(f"rank {rank}")))
        yield from share.handed_over(_beside(target, str(rank)))


def _help(ranks: Ranks, open_source: Callable[[], TextSource], config: EncoderConfig, target: Path) -> None:
    """What a rank other than 0 does."""
    backend, expected = json.loads(ranks.wait_for("plan"))
    source = open_source()
    if not _beside(target, "lock").exists():
        raise JobError(f"rank {ranks.rank} does not see {target.parent} as rank 0 does; all nodes must see the output")
    if repr(source) != expected:
        raise JobError(f"rank {ranks.rank} sees another input than rank 0 (other files or other sizes)")
    encoder = dataclasses.replace(config, backend="gigatoken" if backend == "gigatoken" else "hf").build()
    share = Share(ranks, source, encoder, shown=False)
    share.hand_over(_beside(target, str(ranks.rank)))
    ranks.publish(f"rank {ranks.rank}", json.dumps(share.skipped))


@contextlib.contextmanager
def _only_job(target: Path) -> Iterator[None]:
    """Be the one live job on a target: hold its lock, and remove the hidden files that a killed one has left.

    Raises:
        JobError: another live job has it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(_beside(target, "lock"), "a") as file:
        try:
            locked = lock(file)
        except OSError:
            logger.warning("%s: this filesystem has no locks; do not start two jobs with one output", file.name)
            locked = True
        if not locked or not os.fstat(file.fileno()).st_nlink:  # another job has it, or has just removed it
            raise JobError(f"another job is writing {target}; wait for it or choose another output")
        _remove_files(target, but=file.name)
        try:
            yield
        finally:
            _remove_files(target)


def _remove_files(target: Path, but: str = "") -> None:
    for entry in list(os.scandir(target.parent)):
        if entry.name.startswith(_beside(target, "").name) and entry.path != but:
            os.unlink(entry)


def _beside(target: Path, name: str) -> Path:
    """A hidden file of the job on a target."""
    return target.with_name(f".{target.name}.job.{name}")


@contextlib.contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Let an error of writing, such as "No space left on device", say where; a plain `write` does not know."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _probe(source: TextSource) -> Iterator[str]:
    """The first texts of the corpus."""
    size = 0
    for document in islice(source.documents(), PROBE_DOCUMENTS):
        yield document.text[:PROBE_CHARS]
        size += len(document.text)
        if size > PROBE_CHARS:
            return
