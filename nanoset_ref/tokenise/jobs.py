"""The engine: text in, token ids out, by any number of processes and always the same result.

1. This process (under torchrun: rank 0) reads the text, gathers documents into batches and has them encoded: by
   threads, by `num_workers` processes, or by the other ranks.
2. The ids come back in order, and it writes them into the sink: a token file, a `.bin/.idx` pair, rows of a chunk.

Nothing in memory grows with the input. Reading is the limit: some 300 MB of text per second, as much as twenty
processes of the tokenizers library encode. The rejected alternative, a share of the input for each rank, has no such
limit, but took a second copy of the ids on disk, files that all nodes must see, and a protocol to join them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nanoset_ref.files import lock, refuse_existing, uninterrupted
from nanoset_ref.storage import BucketPath, absolute, located
from nanoset_ref.text import InputError, TextSource
from nanoset_ref.tokenise.encode import Backend, Encode, Encoder, load_tokenizer
from nanoset_ref.tokenise.helpers import JobError, help_along, started_helpers, tell
from nanoset_ref.tokenise.ranks import Ranks

PROBE_DOCUMENTS, PROBE_CHARS = 500, 2000


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
    kept: Path | None = None,
    num_workers: int = 1,
    progress: bool | None = None,
) -> Counts | None:
    """Tokenise a source into a sink: in this process, with `num_workers` local ones, or with the ranks of torchrun.

    Args:
        open_source: makes the source; called in one process only, as `open_sink` is.
        config: the tokenizer and what to do with it.
        open_sink: called with the Encoder before the work begins. An exception leaves the sink by its `__exit__`, which
            is to leave no output behind.
        target: what the job is about, usually the file that the sink writes: the job's lock stands beside it.
        kept: a file that must not exist, because the sink would refuse it: this is found out before anything is loaded.
        num_workers: local processes that encode; under torchrun its ranks are the workers and this is left at 1.
        progress: show a bar; None: if standard error is a terminal.

    Returns:
        Counts; None in the ranks of torchrun other than 0.

    Raises:
        FileExistsError: `kept` exists.
        InputError, DocumentError, TokenizerError: as in `text` and `encode`, and if there is no document at all.
        JobError: another job works on the same target, or a worker died. StoppedError: another rank has failed.
    """
    ranks = Ranks()
    if num_workers < 1 or (num_workers > 1 and ranks.others):
        raise ValueError(f"num_workers must be at least 1, and under torchrun 1, for its ranks work; got {num_workers}")
    if ranks.rank:
        help_along(ranks.others[0].connection)
        return None
    with ranks.one_fails_all(), _only_job(located(absolute(target))):
        if kept:
            refuse_existing(kept, False)
        source = open_source()
        texts = islice(source.documents(), PROBE_DOCUMENTS) if config.backend != "hf" else ()
        encoder = config.build(document.text[:PROBE_CHARS] for document in texts)
        encoder.warn_without_separator()
        with open_sink(encoder) as sink, started_helpers(num_workers if num_workers > 1 else 0) as started:
            helpers = [*started, *ranks.others]
            tell(helpers, encoder.library.described())
            encoders: list[Encode] = [helper.encode for helper in helpers]
            if ranks.others:
                encoders.append(encoder.library.encode)  # as all ranks do
            counts = _work(source, encoder, encoders, sink, None if progress is None else not progress)
    tell(ranks.others, None)
    return counts


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
