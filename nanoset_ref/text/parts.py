"""The kinds of input, each a sequence of blocks: what is read at a time.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its range: it skips the
   rest of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead.
2. A compressed file can only be read from its start. Its blocks are groups of whole lines.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

A line lies in memory whole. Line numbers are counted only when there is something to say about a line.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from nanoset_ref.text.lines import DocumentError, InputError, text_of_line, text_of_value

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 28  # bytes, out of a compressed file: a few kilobytes can unpack to as many gigabytes
PACKED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (*(kind + packed for kind in (".json", ".jsonl") for packed in ("", *PACKED)), ".parquet")
OnError = Literal["raise", "skip"]


class Document(NamedTuple):
    """One text. `where` ("file:line", counted from 1) is worked out only when asked for."""

    text: str
    block: Block
    number: int

    @property
    def where(self) -> str:
        return f"{self.block.part.path}:{self.block.first() + self.number}"


@dataclass
class Block:
    """A run of neighbouring rows of one part. Making one costs nothing; `documents()` reads it.

    Attributes:
        num_bytes: on disk, roughly (for progress).
        rows: reads it. first: the number of its first row, from 1.
        skipped: what `on_error="skip"` has left out so far, counted by kind.
    """

    part: TextPart
    num_bytes: int
    rows: Callable[[], Iterable[Any]]
    first: Callable[[], int]
    skipped: Counter[str] = field(default_factory=Counter)

    def documents(self) -> Iterator[Document]:
        """The documents in order. Raises DocumentError at the first unusable one unless `on_error` is "skip"."""
        text_of, column = type(self.part).text_of, self.part.column
        for number, row in enumerate(self.rows()):
            try:
                text = text_of(row, column)
            except DocumentError as error:
                if self.part.on_error == "raise":
                    raise DocumentError(error.kind, error.what, Document("", self, number).where) from None
                self.skipped[error.kind] += 1
            else:
                if text is not None:
                    yield Document(text, self, number)


@dataclass(frozen=True)
class TextPart:
    """One file or dataset; `num_bytes` on disk."""

    path: str
    num_bytes: int
    column: str
    on_error: OnError
    text_of: ClassVar[Callable[[Any, str], str | None]] = text_of_value

    def blocks(self) -> Iterator[Block]:
        """Its blocks in order. Raises InputError where there is no such column."""
        raise NotImplementedError

    def _blocks_of(self, sizes: Sequence[int], values: Callable[[int], Iterable[Any]]) -> Iterator[Block]:
        """Blocks of `sizes` rows, the k-th of which `values(k)` reads; each has its share of the bytes."""
        first, total = 1, sum(sizes) or 1
        for k, size in enumerate(sizes):
            yield Block(self, self.num_bytes * size // total, partial(values, k), partial(int, first))
            first += size

    def _require_column(self, existing: Sequence[str]) -> None:
        if self.column not in existing:
            raise InputError(f"{self.path}: no column {self.column!r}; the columns here are {list(existing)}")


class LineFile(TextPart):
    """JSON lines."""

    text_of = text_of_line

    def blocks(self) -> Iterator[Block]:
        for begin in range(0, self.num_bytes, BLOCK_BYTES):
            end = min(begin + BLOCK_BYTES, self.num_bytes)
            yield Block(self, end - begin, partial(self._lines, begin, end), partial(self._number, begin))

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

    def blocks(self) -> Iterator[Block]:
        import pyarrow

        file = pyarrow.OSFile(self.path)
        first, begin = 1, 0
        try:
            unpacked = pyarrow.CompressedInputStream(file, PACKED[Path(self.path).suffix])
            stream = io.BufferedReader(unpacked, BLOCK_BYTES)
            while lines := self._some_lines(stream, first):
                yield Block(self, file.tell() - begin, lines.copy, partial(int, first))
                first, begin = first + len(lines), file.tell()
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

    def blocks(self) -> Iterator[Block]:
        import pyarrow
        from pyarrow import parquet

        try:
            file = parquet.ParquetFile(self.path)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: not a readable Parquet file: {error}") from None
        self._require_column(file.schema_arrow.names)

        def values(group: int) -> Iterator[Any]:
            try:
                for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[self.column]):
                    yield from batch.column(0).to_pylist()
            except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
                raise InputError(f"{self.path}: row group {group} cannot be read: {error}") from None

        return self._blocks_of([file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)], values)


@dataclass(frozen=True)
class RowDataset(TextPart):
    """A column of a Hugging Face dataset."""

    dataset: Any = field(repr=False)

    def blocks(self) -> Iterator[Block]:
        self._require_column(self.dataset.column_names)
        texts = self.dataset.select_columns([self.column]).with_format(None)
        step = max(1, BLOCK_BYTES * len(texts) // max(1, self.num_bytes))
        begins = range(0, len(texts), step)
        sizes = [min(step, len(texts) - begin) for begin in begins]
        return self._blocks_of(sizes, lambda k: texts[begins[k] : begins[k] + step][self.column])


def file_part(path: str, column: str, on_error: OnError) -> TextPart:
    """A file by its name."""
    if not path.endswith(SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(SUFFIXES)}")
    kinds = {".parquet": ParquetFile} | dict.fromkeys(PACKED, PackedFile)
    return kinds.get(Path(path).suffix, LineFile)(path, os.path.getsize(path), column, on_error)
