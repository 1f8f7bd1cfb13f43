"""The kinds of input, each a sequence of blocks: what a process reads at a time.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its range: it skips the
   rest of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead.
2. A compressed file can only be read from its start. Its blocks are groups of whole lines.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

A line lies in memory whole. Line numbers are counted only when there is something to say about a line.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from nanoset_ref.text.lines import DocumentError, InputError, checked_text, text_of_line

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 28  # bytes, out of a compressed file: a few kilobytes can unpack to as many gigabytes
OnError = Literal["raise", "skip"]
Piece = tuple[int, int, Callable[[], Iterable[Any]], Callable[[], int]]
PACKED = {".gz": "gzip", ".zst": "zstd"}


class Document(NamedTuple):
    """One text. `where` ("file:line", counted from 1) is worked out only when asked for."""

    text: str
    block: Block
    number: int

    @property
    def where(self) -> str:
        return f"{self.block.path}:{self.block.first() + self.number}"


@dataclass
class Block:
    """A run of neighbouring rows of one part. Making one costs nothing; `documents()` reads it.

    Attributes:
        begin: the bytes of the part before it.
        num_bytes: on disk, of the whole block, roughly (for progress).
        rows: reads it. first: the number of its first row, from 1. text_of: the text of a row.
        skipped: what `on_error="skip"` has left out so far, counted by kind.
    """

    path: str
    column: str
    on_error: OnError
    text_of: Callable[[Any, str], str | None]
    begin: int
    num_bytes: int
    rows: Callable[[], Iterable[Any]]
    first: Callable[[], int]
    skipped: Counter[str] = field(default_factory=Counter)

    def documents(self) -> Iterator[Document]:
        """The documents in order. Raises DocumentError at the first unusable one unless `on_error` is "skip"."""
        for number, row in enumerate(self.rows()):
            try:
                text = self.text_of(row, self.column)
            except DocumentError as error:
                if self.on_error == "raise":
                    raise DocumentError(error.kind, error.what, Document("", self, number).where) from None
                self.skipped[error.kind] += 1
            else:
                if text is not None:
                    yield Document(text, self, number)


@dataclass(frozen=True)
class TextPart(ABC):
    """One file or dataset; `num_bytes` on disk."""

    path: str
    num_bytes: int
    text_of: ClassVar[Callable[[Any, str], str | None]] = checked_text

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        """Its blocks in order."""
        for begin, end, rows, first in self._pieces(column):
            yield Block(self.path, column, on_error, type(self).text_of, begin, end - begin, rows, first)

    @abstractmethod
    def _pieces(self, column: str) -> Iterator[Piece]:
        """Of each block (first byte, end, its rows, the number of the first one)."""

    def _pieces_of_rows(self, sizes: list[int], values: Callable[[int], Iterable[Any]]) -> Iterator[Piece]:
        """Blocks of `sizes` rows, the k-th of which `values(k)` reads; each has its share of the bytes."""
        ends = list(accumulate(sizes, initial=0))
        for k, (before, after) in enumerate(pairwise(ends)):
            begin, end = (self.num_bytes * row // max(1, ends[-1]) for row in (before, after))
            yield begin, end, partial(values, k), partial(int, before + 1)


class LineFile(TextPart):
    """JSON lines."""

    text_of = text_of_line

    def _pieces(self, column: str) -> Iterator[Piece]:
        for begin in range(0, self.num_bytes, BLOCK_BYTES):
            end = min(begin + BLOCK_BYTES, self.num_bytes)
            yield begin, end, partial(self._lines, begin, end), partial(self._number, begin)

    def _lines(self, begin: int, end: int) -> Iterator[bytes]:
        """The lines whose first byte is in [begin, end)."""
        with open(self.path, "rb", buffering=BLOCK_BYTES) as file:
            if begin:
                file.seek(begin - 1)
                file.readline(end - begin + 1)  # of an earlier line; one that fills the whole range ends it
            while file.tell() < end and (line := file.readline()):
                yield line

    def _number(self, begin: int) -> int:
        return 1 + sum(1 for _ in self._lines(0, begin))


class PackedFile(TextPart):
    """JSON lines, compressed."""

    text_of = text_of_line

    def _pieces(self, column: str) -> Iterator[Piece]:
        import pyarrow

        file = pyarrow.OSFile(self.path)
        first, begin = 1, 0
        try:
            unpacked = pyarrow.CompressedInputStream(file, PACKED[Path(self.path).suffix])
            stream = io.BufferedReader(unpacked, BLOCK_BYTES)
            while lines := self._some_lines(stream, first):
                end = file.tell()
                yield begin, end, lines.copy, partial(int, first)
                first, begin = first + len(lines), min(end, self.num_bytes - 1)
        except OSError as error:
            raise InputError(f"{self.path}: damaged after line {first - 1}: {error}") from None

    def _some_lines(self, stream: io.BufferedReader, first: int) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while size < BLOCK_BYTES and (line := stream.readline(LONGEST_LINE)):
            if len(line) == LONGEST_LINE:
                where = f"{self.path}:{first + len(lines)}"
                raise InputError(f"{where}: unpacks to {LONGEST_LINE:,} bytes or more; unpack the file to read it")
            lines.append(line)
            size += len(line)
        return lines


class ParquetFile(TextPart):
    """A column of a Parquet file."""

    def _pieces(self, column: str) -> Iterator[Piece]:
        import pyarrow
        from pyarrow import parquet

        try:
            file = parquet.ParquetFile(self.path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise InputError(f"{self.path}: not a readable Parquet file: {error}") from None
        require_column(column, file.schema_arrow.names, self.path)

        def values(group: int) -> Iterator[Any]:
            try:
                for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                    yield from batch.column(0).to_pylist()
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(f"{self.path}: row group {group} cannot be read: {error}") from None

        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        return self._pieces_of_rows(sizes, values)


@dataclass(frozen=True)
class RowDataset(TextPart):
    """A column of a Hugging Face dataset."""

    dataset: Any = field(repr=False)

    def _pieces(self, column: str) -> Iterator[Piece]:
        texts = self.dataset.select_columns([column]).with_format(None)
        step = max(1, BLOCK_BYTES * len(texts) // max(1, self.num_bytes))
        sizes = [min(step, len(texts) - begin) for begin in range(0, len(texts), step)]
        return self._pieces_of_rows(sizes, lambda k: texts[k * step : (k + 1) * step][column])


def require_column(column: str, existing: Sequence[str], path: str) -> None:
    """Raise InputError, naming what there is, if the column is missing."""
    if column not in existing:
        raise InputError(f"{path}: no column {column!r}; the columns here are {list(existing)}")
