"""The engine: text in, token ids out, by any number of processes and always the same result.

1. This process (under torchrun: rank 0, see `in_rank_0`) reads the text, gathers documents into batches and has them
   encoded: by threads, by `num_workers` processes, or by the other ranks.
2. The ids come back in order, and it writes them into the sink: a token file, a `.bin/.idx` pair, rows of a chunk.

Nothing in memory grows with the input. Reading is the limit: reading and parsing JSON lines takes a second of processor
time for 280 to 320 MB of the embedded corpus (280,000 lines of 1,080 bytes), for 180 to 210 MB of WikiText-2 and
tinyshakespeare (360,000 lines of 530 bytes). The rejected alternative, a share of the input for each rank, has no such
limit, but took a second copy of the ids on disk, files that all nodes must see, and a protocol to join them.
"""

import contextlib
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nanoset_ref.files import lock, uninterrupted
from nanoset_ref.storage import BucketPath, absolute, located
from nanoset_ref.text import InputError, TextSource
from nanoset_ref.tokenise.encode import Encode, Encoder
from nanoset_ref.tokenise.helpers import JobError, other_ranks, started_helpers, tell


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
    source: TextSource,
    encoder: Encoder,
    sink: AbstractContextManager[Sink],
    target: str | os.PathLike[str],
    *,
    num_workers: int = 1,
    progress: bool | None = None,
) -> Counts:
    """Tokenise a source into a sink: in this process, with `num_workers` local ones, or with the ranks of torchrun.

    Args:
        source, encoder: the text, and what encodes it.
        sink: entered once the job has its lock. An exception leaves it by its `__exit__`, which is to leave no output
            behind.
        target: what the job is about, usually the file that the sink writes: the job's lock stands beside it.
        num_workers: local processes that encode; under torchrun its ranks are the workers and this is left at 1.
        progress: show a bar; None: if standard error is a terminal.

    Raises:
        InputError, DocumentError: as in `text`, and if there is no document at all. TokenizerError: as in `encode`.
        JobError: another job works on the same target, or a worker died.
    """
    ranks = other_ranks()
    if num_workers < 1 or (num_workers > 1 and ranks):
        raise ValueError(f"num_workers must be at least 1, and under torchrun 1, for its ranks work; got {num_workers}")
    encoder.warn_without_separator()
    started = started_helpers(num_workers if num_workers > 1 else 0)
    with _only_job(located(absolute(target))), sink as opened, started as helpers:
        helpers += ranks
        tell(helpers, encoder.library.described())
        encoders: list[Encode] = [helper.encode for helper in helpers]
        if ranks:
            encoders.append(encoder.library.encode)  # as all ranks do
        return _work(source, encoder, encoders, opened, None if progress is None else not progress)


def _work(source: TextSource, encoder: Encoder, encoders: list[Encode], sink: Sink, hidden: bool | None) -> Counts:
    """Read, encode and write all documents, with a bar over the bytes of the input."""
    start = time.monotonic()
    skipped: Counter[str] = Counter()
    read, done = Counter(bytes=0, characters=0), Counter(documents=0, tokens=0)

    def texts() -> Iterator[str]:
        for block in source.blocks():
            read["bytes"] += block.num_bytes
            for document in block.documents():
                read["characters"] += len(document.text)
                yield document.text
            skipped.update(block.skipped)

    def advance(characters: int) -> None:  # inside a long document, too
        read["encoded"] += characters
        bar.update(read["bytes"] * read["encoded"] // max(1, read["characters"]) - bar.n)

    bar = tqdm(total=source.num_bytes, unit="B", unit_scale=True, disable=hidden, dynamic_ncols=True)
    with bar, closing(encoder.stream(texts(), encoders, advance)) as batches:
        for ids, lengths in batches:
            sink.write(ids, lengths)
            done.update(documents=len(lengths), tokens=len(ids))
            rates = (count / (time.monotonic() - start) for count in done.values())
            bar.set_postfix_str("{:,.0f} documents/s, {:,.0f} tokens/s".format(*rates), refresh=False)
    if not done["documents"]:
        reasons = "; ".join(f"{number} skipped: {kind}" for kind, number in skipped.items())
        raise InputError(f"the input holds no usable document ({reasons or 'every line is blank'})")
    return Counts(**done, skipped=dict(skipped), backend=encoder.backend, seconds=time.monotonic() - start)


@contextlib.contextmanager
def _only_job(target: Path) -> Iterator[None]:
    """Be the one live job on a target, by the lock of a hidden file beside it, and let errors of writing name a place.

    Raises:
        JobError: another live job has it.

    In a bucket there are no locks: of two jobs on one target, the later one fails or, with `overwrite`, replaces.
    """
    if isinstance(target, BucketPath):
        yield
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.job")
    with open(path, "a") as file:
        is_locked = True
        with suppress(OSError):  # a filesystem without locks: two jobs with one output go unnoticed
            is_locked = lock(file)
        if not is_locked or not os.fstat(file.fileno()).st_nlink:  # another job has it, or has just removed it
            raise JobError(f"another job is writing {target}; wait for it or choose another output")
        try:
            yield
        except OSError as error:
            if error.errno and not error.filename:  # a plain `write` on a full disk does not know it
                error.filename = str(target)
            raise
        finally:
            uninterrupted(lambda: path.unlink(missing_ok=True))
