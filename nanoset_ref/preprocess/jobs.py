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
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from nanoset_ref.io.buckets import BucketPath, located
from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import remove_leftovers
from nanoset_ref.preprocess.backends import Encode
from nanoset_ref.preprocess.encode import Encoder
from nanoset_ref.preprocess.ranks import JobError, other_ranks, started_helpers, tell
from nanoset_ref.preprocess.text import Document, InputError, TextSource

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """What a job did.

    Args:
        target: what was written.
        documents, tokens: how many are in the files that were written.
        skipped: documents left out, {kind: how many}.
        special_documents: documents that hold special tokens as text, with special_tokens="keep".
        special_tokens: which, {token: how often}.
        backend: that encoded.
        seconds: from the first block of text to the complete files. Before it libraries and the tokenizer are loaded.
    """

    target: str
    documents: int
    tokens: int
    skipped: dict[str, int]
    special_documents: int
    special_tokens: dict[str, int]
    backend: str
    seconds: float

    @property
    def left_out_many(self) -> bool:
        """Whether more documents were left out than a run may lose without a word."""
        return too_many(sum(self.skipped.values()), self.documents)


def too_many(skipped: int, documents: int) -> bool:
    """Whether `skipped` documents are more than 1 % of those skipped and the `documents` written together."""
    return 100 * skipped > skipped + documents


def tokenise(
    source: TextSource,
    encoder: Encoder,
    sink: AbstractContextManager[Any],
    target: str | os.PathLike[str],
    *,
    num_workers: int = 1,
    progress: bool | None = None,
) -> Counts:
    """Tokenise a source into a sink: in this process, with `num_workers` local ones, or with the ranks of torchrun.

    Args:
        source, encoder: the text, and what encodes it.
        sink: a TokenFileWriter, or another whose `write(ids, lengths)` takes documents in order: ids [sum(lengths)]
            back to back, lengths int64 [documents], in tokens; `num_documents` and `num_tokens` say in the end how
            many are in what it wrote, and are what is reported. Entered when nobody else writes `target`. An exception
            leaves it by its `__exit__`, which is to leave no output behind.
        target: what the sink writes by `files.atomic_write_set`; its folder is made.
        num_workers: local processes that encode; under torchrun its ranks are the workers and this is left at 1.
        progress: show a bar over the bytes of the input; None: if standard error is a terminal.

    Raises:
        InputError, DocumentError: as in `text`, and if there is no document at all. TokenizerError: as in `encode`.
        JobError: another job works on the same target, or a worker died.
    """
    ranks = other_ranks()
    if num_workers < 1 or (num_workers > 1 and ranks):
        raise ValueError(
            f"num_workers must be at least 1, and under torchrun 1, for its ranks work; got {num_workers}"
        )
    with extra("text", "the progress bar"):
        from tqdm import tqdm
    encoder.warn_without_separator()
    encoder.found.restart()
    start, hidden = time.monotonic(), None if progress is None else not progress
    with (
        _only_writer(located(target)),
        sink as opened,
        started_helpers(num_workers if num_workers > 1 else 0) as helpers,
        tqdm(
            total=source.num_bytes, unit="B", unit_scale=True, disable=hidden, dynamic_ncols=True
        ) as bar,
    ):
        tell(helpers + ranks, encoder.described)
        encoders = [helper.encode for helper in helpers + ranks] + [encoder.encode] * bool(ranks)
        skipped = _work(source, encoder, encoders, opened, bar)
    encoder.found.warn()
    _warn_of_skipped(target, skipped, opened.num_documents)
    return Counts(
        target=str(target),
        documents=opened.num_documents,
        tokens=opened.num_tokens,
        skipped=skipped,
        special_documents=encoder.found.documents,
        special_tokens=dict(encoder.found.tokens),
        backend=encoder.backend,
        seconds=time.monotonic() - start,
    )


def _work(
    source: TextSource, encoder: Encoder, encoders: list[Encode], sink: Any, bar: Any
) -> dict[str, int]:
    """Read, encode and write all documents; returns how many were skipped, by kind."""
    start, skipped, done = time.monotonic(), Counter[str](), Counter(documents=0, tokens=0)
    read = Counter(bytes=0, characters=0, encoded=0)

    def documents() -> Iterator[Document]:
        for block in source.blocks():
            read["bytes"] += block.num_bytes
            for document in block.documents():
                read["characters"] += len(document.text)
                yield document
            skipped.update(block.skipped)

    def advance(characters: int) -> None:  # inside a long document, too
        read["encoded"] += characters
        bar.update(read["bytes"] * read["encoded"] // max(1, read["characters"]) - bar.n)

    with closing(encoder.stream(documents(), encoders, advance)) as batches:
        for ids, lengths in batches:
            sink.write(ids, lengths)
            done.update(documents=len(lengths), tokens=len(ids))
            rates = (count / (time.monotonic() - start) for count in done.values())
            bar.set_postfix_str(
                "{:,.0f} documents/s, {:,.0f} tokens/s".format(*rates), refresh=False
            )
    if not done["documents"]:
        reasons = _reasons(skipped) or "every line is blank"
        raise InputError(f"the input holds no usable document ({reasons})")
    return dict(skipped)


def _warn_of_skipped(
    target: str | os.PathLike[str], skipped: dict[str, int], documents: int
) -> None:
    """Log a warning if more documents were left out than a run may lose without a word."""
    number = sum(skipped.values())
    if too_many(number, documents):
        total = number + documents
        what = f"{number:,} of {total:,} documents were left out, {number / total:.1%}"
        logger.warning("%s: %s (%s)", target, what, _reasons(skipped))


def _reasons(skipped: dict[str, int]) -> str:
    return "; ".join(f"{number:,} skipped: {kind}" for kind, number in skipped.items())


@contextlib.contextmanager
def _only_writer(target: Path) -> Iterator[None]:
    """Refuse a target that a live job writes, make its folder, and let errors of writing name it.

    In a bucket, and of two jobs that start at the same moment, the later to end fails or, with `overwrite`, replaces.
    """
    if not isinstance(target, BucketPath):
        target.parent.mkdir(parents=True, exist_ok=True)
        if remove_leftovers(target):
            raise JobError(f"another job is writing {target}; wait for it or choose another output")
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:  # a plain `write` on a full disk does not know it
            error.filename = str(target)
        raise
