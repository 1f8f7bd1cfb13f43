"""One worker's share: claim blocks, encode them, write part files; and the part files of all workers back in order.

    <rank>.ids          the ids of the worker's blocks, back to back
    <rank>.lengths      int64, tokens of each document; -1 for one that was left out
    <rank>.blocks.npy   int64 [blocks, 3]: part of the input, number of the block in it, documents

A worker appends and never seeks. The alternative, sending ids to one writer, makes that writer the limit and keeps in
memory what came too early.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.text import Block, Document, DocumentError, OnError, TextSource
from nanoset_ref.tokenise.encode import EncodeError, Encoder
from nanoset_ref.tokenise.workers import (
    BYTES,
    DOCUMENTS,
    FIRST_PART,
    NEXT_PART,
    TOKENS,
    Counters,
    JobError,
    errors_name,
)

CLOSED = 1 << 40  # added to the counter of a part whose last block is claimed
REPORT_S = 0.2


class Share:
    """One worker's share of the work: encodes blocks and keeps count."""

    def __init__(self, encoder: Encoder, counters: Counters, report: Callable[[], None]) -> None:
        self._encoder, self._counters, self._report = encoder, counters, report
        self.documents = self.tokens = self.documents_read = 0
        self.skipped: Counter[str] = Counter()
        self._bytes_read = self._characters_read = self._characters_encoded = self._tokens_encoded = 0
        self._reported = {DOCUMENTS: 0, TOKENS: 0, BYTES: 0}
        self._next_report = 0.0
        self._waiting: deque[Document] = deque()  # read, not yet encoded

    def encode(
        self,
        blocks: Iterable[Block],
        on_error: OnError,
        write: Callable[[NDArray[Any], NDArray[np.int64]], None],
    ) -> None:
        """Encode all documents of `blocks`; `write` gets whole documents in order, length -1 for one left out."""
        try:
            for ids, lengths in self._encoder.stream(self._texts(blocks), on_error=on_error, advance=self._advance):
                for _ in range(len(lengths)):
                    self._waiting.popleft()
                refused = int((lengths < 0).sum())
                if refused:
                    self.skipped["id too large"] += refused
                write(ids, lengths)
                self.documents += len(lengths) - refused
                self.tokens += len(ids)
        except EncodeError as error:
            document = self._waiting[error.index - self.documents - self.skipped["id too large"]]
            raise DocumentError(error.kind, str(error), document.where) from None
        self._tokens_encoded = self.tokens
        self._advance(0, 0, at_once=True)

    def _texts(self, blocks: Iterable[Block]) -> Iterator[str]:
        for block in blocks:
            before = 0
            for document in block.documents():
                self._waiting.append(document)
                self.documents_read += 1
                self._bytes_read += block.num_bytes - before
                self._characters_read += len(document.text)
                before = block.num_bytes
                yield document.text
            self._bytes_read += block.num_bytes - before
            self.skipped += block.skipped

    def _advance(self, characters: int, tokens: int, at_once: bool = False) -> None:
        """Report. Of the bytes read, the part is done that the encoded characters are of those read."""
        self._characters_encoded += characters
        self._tokens_encoded += tokens
        if at_once or time.monotonic() > self._next_report:
            self._next_report = time.monotonic() + REPORT_S
            done = self._bytes_read * self._characters_encoded // max(1, self._characters_read)
            for key, value in ((DOCUMENTS, self.documents), (TOKENS, self._tokens_encoded), (BYTES, done)):
                self._counters.add(key, value - self._reported[key])
                self._reported[key] = value
            self._report()


def encode_part(
    rank: int, encoder: Encoder, source: TextSource, folder: Path, counters: Counters, report: Callable[[], None]
) -> Counter[str]:
    """Do one worker's share into its part files; returns what was skipped."""
    share = Share(encoder, counters, report)
    table: list[tuple[int, int, int]] = []

    def noted() -> Iterator[Block]:
        for part, index, block in claimed(source, counters):
            before = share.documents_read
            yield block
            table.append((part, index, share.documents_read - before))

    with (
        errors_name(folder),
        open(folder / f"{rank}.ids", "wb") as ids_file,
        open(folder / f"{rank}.lengths", "wb") as lengths_file,
    ):

        def write(ids: NDArray[Any], lengths: NDArray[np.int64]) -> None:
            ids_file.write(ids.data)
            lengths_file.write(lengths.data)

        share.encode(noted(), source.on_error, write)
    np.save(folder / f"{rank}.blocks.npy", np.array(table, np.int64).reshape(-1, 3), allow_pickle=False)
    return share.skipped


def claimed(source: TextSource, counters: Counters) -> Iterator[tuple[int, int, Block]]:
    """Claim (part, number of the block in it, block) until nothing is left: first own parts, then those of others."""
    num_parts = len(source.parts)
    while (part := counters.add(NEXT_PART, 1)) < num_parts:
        yield from _claimed_of(source, counters, part)
    for part in range(num_parts):
        yield from _claimed_of(source, counters, part)


def _claimed_of(source: TextSource, counters: Counters, part: int) -> Iterator[tuple[int, int, Block]]:
    mine = counters.add(FIRST_PART + part, 1)
    if mine < CLOSED:
        for index, block in enumerate(source.blocks_of(part)):
            if index == mine:
                yield part, index, block
                mine = counters.add(FIRST_PART + part, 1)
        if mine < CLOSED:
            counters.add(FIRST_PART + part, CLOSED)


def merged(folder: Path, workers: int, dtype: np.dtype[Any]) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """The (ids, lengths) of all blocks in their order, mapped from the part files."""
    ids, lengths, tables = [], [], []
    for rank in range(workers):
        ids.append(_mapped(folder / f"{rank}.ids", dtype))
        lengths.append(_mapped(folder / f"{rank}.lengths", np.dtype(np.int64)))
        table = np.load(folder / f"{rank}.blocks.npy", allow_pickle=False)  # part, index, number of documents
        ends = np.cumsum(table[:, 2])
        spans = zip(ends - table[:, 2], ends, strict=True)
        tokens = np.array([lengths[rank][begin:end].clip(0).sum() for begin, end in spans], np.int64)
        columns = [*table.T, np.full(len(table), rank), ends - table[:, 2], np.cumsum(tokens) - tokens, tokens]
        tables.append(np.stack(columns, axis=1))
    blocks = np.concatenate(tables)
    blocks = blocks[np.lexsort((blocks[:, 1], blocks[:, 0]))]
    previous = np.concatenate([[[-1, -1]], blocks[:-1, :2]])
    follows = np.where(blocks[:, 0] == previous[:, 0], blocks[:, 1] == previous[:, 1] + 1, blocks[:, 1] == 0)
    if not follows.all():
        raise JobError("some blocks were tokenised twice or never; this is a defect of nanoset_ref.tokenise")
    for _, _, documents, rank, document, token, tokens in blocks.tolist():
        if documents:
            some = lengths[rank][document : document + documents]
            yield ids[rank][token : token + tokens], some[some >= 0]


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.memmap(path, dtype, "r").view(np.ndarray) if path.stat().st_size else np.empty(0, dtype)
