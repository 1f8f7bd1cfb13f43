"""Text to token ids by any number of processes, always with the same result.

1. This process (under torchrun: rank 0, see `in_rank_0`) gives each batch of text to the next
   free encoder (`encode_in_order`): its own threads, one for each core, and
   forked processes or the other ranks (`encoding_processes`), each on its share of the cores.
   These receive the text as it stands in the file.
2. The ids return in order and are written into the sink: a token file, a `.bin/.idx` pair, rows of
   a chunk.

Nothing in memory grows with the input. The rejected alternative, one share of the input per rank,
needs a second copy of the ids on disk, files that all nodes can see, and a protocol to join them.
"""

import contextlib
import dataclasses
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import has_live_writer, make_folder
from nanoset_ref.io.paths import PathLike, as_path
from nanoset_ref.io.urls import BucketPath
from nanoset_ref.preprocess.backends import MAX_THREADS, num_threads
from nanoset_ref.preprocess.batch_encoder import BatchFunction, EncodedBatch
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.encoding_processes import (
    JobError,
    RemoteEncoder,
    broadcast,
    forked_encoders,
    other_ranks,
)
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text import TextSource
from nanoset_ref.preprocess.text_blocks import TextBatch

EXIT_MANY_SKIPPED = 3  # see `too_many_skipped`
IN_BYTES = {"unit": "B", "unit_scale": True}  # of a progress bar
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """The result of a job.

    Attributes:
        target: the file written.
        documents, tokens: how many were written.
        skipped: {reason: number} of the documents left out.
        special_documents: documents that hold special tokens as text, with special_tokens="keep".
        special_tokens: {token: count} in these documents.
        backend: the library that encoded.
        seconds: from the first block of text to the complete files, without the time to load
            libraries and the tokenizer.
    """

    target: str
    documents: int
    tokens: int
    skipped: dict[str, int]
    special_documents: int
    special_tokens: dict[str, int]
    backend: str
    seconds: float


def too_many_skipped(skipped: int, documents: int) -> bool:
    """Whether more than 1 % of all documents, skipped and written, were skipped."""
    return 100 * skipped > skipped + documents


def exit_code(many_skipped: bool) -> int:
    """EXIT_MANY_SKIPPED or 0; always 0 under torchrun, to which any other code is a failure."""
    if many_skipped and "TORCHELASTIC_RUN_ID" not in os.environ:
        return EXIT_MANY_SKIPPED
    return 0


def tokenize_documents(
    source: TextSource,
    encoder: Encoder,
    sink: AbstractContextManager[Any],
    target: PathLike,
    *,
    num_workers: int = 1,
    progress: bool | None = None,
) -> Counts:
    """Tokenize a source into a sink, in local processes or in the ranks of torchrun.

    Args:
        source: the text.
        encoder: encodes the text.
        sink: a TokenFileWriter or the like: a context whose `write(ids, lengths)` takes documents
            in order (ids [sum(lengths)] back to back, lengths int64 [documents], in tokens), and
            whose `num_documents` and `num_tokens` are reported at the end. It is entered when no
            other job writes `target`; after an exception its `__exit__` must leave no output.
        target: the file that the sink writes with `files.atomic_write_set`; its folder is created.
        num_workers: local processes that encode, including this one; must be 1 under torchrun,
            where the ranks encode.
        progress: whether to show a bar over the bytes of the input; None shows it if standard error
            is a terminal.

    Raises:
        InputError, DocumentError: as in `text`, or there is no document at all.
        TokenizerError: see `Encoder`.
        JobError: another job writes the same target, or a worker died.
    """
    ranks = other_ranks()
    if not 1 <= num_workers <= MAX_THREADS or (num_workers > 1 and ranks):
        rule = f"num_workers must lie in 1 .. {MAX_THREADS}, and be 1 under torchrun, whose ranks "
        raise ValueError(f"{rule}are the workers; got {num_workers}")
    bar = progress_bar(total=source.num_bytes, shown=progress, **IN_BYTES)
    encoder.warn_without_separator()
    encoder.special_token_counts.reset()
    start = time.monotonic()
    with (
        forked_encoders(num_workers - 1, encoder) as workers,
        _only_writer(as_path(target)),
        sink as opened,
        bar,
    ):
        if ranks:
            broadcast(ranks, encoder.worker_config)
        remote = [partial(_encode_in, encoder, process) for process in workers + ranks]
        local = [encoder.encode_text] * num_threads(num_workers)
        skipped = _encode_all(source, encoder, [*remote, *local], opened, bar)
    encoder.special_token_counts.warn()
    _warn_of_skipped(target, skipped, opened.num_documents)
    return Counts(
        target=str(target),
        documents=opened.num_documents,
        tokens=opened.num_tokens,
        skipped=skipped,
        special_documents=encoder.special_token_counts.documents,
        special_tokens=dict(encoder.special_token_counts.tokens),
        backend=encoder.backend,
        seconds=time.monotonic() - start,
    )


def progress_bar(*arguments: Any, shown: bool | None = None, **options: Any) -> Any:
    """A bar of tqdm; None for `shown` shows it if standard error is a terminal."""
    with extra("text", "the progress bar"):
        from tqdm import tqdm

    hidden = None if shown is None else not shown
    return tqdm(*arguments, disable=hidden, dynamic_ncols=True, **options)


def _encode_in(
    encoder: Encoder, process: RemoteEncoder, batch: TextBatch
) -> EncodedBatch:
    """Encode a batch in another process; if that fails, encode it here, which raises the error."""
    encoded = process.encode(batch)
    if encoded is None:
        return encoder.encode_text(batch)
    return encoded


def _encode_all(
    source: TextSource,
    encoder: Encoder,
    encode_functions: Sequence[BatchFunction],
    sink: Any,
    bar: Any,
) -> dict[str, int]:
    """Read, encode and write all documents; return {reason: number} of the skipped documents."""
    start = time.monotonic()
    skipped = Counter[str]()
    done = Counter(documents=0, tokens=0)
    batches = (batch for block in source.blocks() for batch in block.batches())
    with closing(encoder.stream(batches, encode_functions)) as stream:
        for batch, encoded in stream:
            sink.write(encoded.ids, encoded.lengths)
            skipped.update(encoded.skipped)
            done.update(documents=len(encoded.lengths), tokens=len(encoded.ids))
            seconds = time.monotonic() - start
            rates = [f"{count / seconds:,.0f} {unit}/s" for unit, count in done.items()]
            bar.set_postfix_str(", ".join(rates), refresh=False)
            bar.update(batch.num_bytes)
    if not done["documents"]:
        reasons = _reasons(skipped) or "every line is blank"
        raise InputError(f"the input holds no usable document ({reasons})")
    return dict(skipped)


def _warn_of_skipped(target: PathLike, skipped: dict[str, int], documents: int) -> None:
    """Log a warning if more documents were left out than a run may lose silently."""
    number = sum(skipped.values())
    if too_many_skipped(number, documents):
        total = number + documents
        logger.warning(
            f"{target}: {number:,} of {total:,} documents were left out, {number / total:.1%} "
            f"({_reasons(skipped)})"
        )


def _reasons(skipped: dict[str, int]) -> str:
    """The reasons and numbers of skipped documents, as text."""
    return "; ".join(
        f"{number:,} skipped: {reason}" for reason, number in skipped.items()
    )


@contextlib.contextmanager
def _only_writer(target: Path) -> Iterator[None]:
    """Refuse a target that another job is writing, create its folder, and name it in write errors.

    In a bucket, or if two jobs start at the same moment, the job that ends last fails, or, with
    `overwrite`, replaces the other's file.
    """
    if not isinstance(target, BucketPath):
        make_folder(target.parent)
        if has_live_writer(target):
            raise JobError(
                f"another job is writing {target}; wait for it or choose another output"
            )
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:  # `write` on a full disk names no file
            error.filename = str(target)
        raise


tokenise = tokenize_documents  # an alias, kept for the public interface
