"""The kinds of input, each a sequence of runs of neighbouring rows: what a process reads at a time.

1. A plain file is cut at fixed byte offsets. A run owns the lines whose *first* byte lies in its range: it skips the
   rest of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead.
2. A compressed file can only be read from its start. Its runs are groups of whole lines.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

A line lies in memory whole. Line numbers are counted only when there is something to say about a line.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nanoset_ref.text.lines import InputError, checked_text, read_lines, text_of_line

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 28  # bytes, out of a compressed file: a few kilobytes can unpack to as many gigabytes
PACKED = {".gz": "gzip", ".zst": "zstd"}


class Run(NamedTuple):
    """Neighbouring rows of one part.

    begin: the bytes of the part before it. rows: reads it, yields each row with its bytes on disk.
    first: the number of its first row in the part, from 1.
    """

    begin: int
    rows: Callable[[], Iterable[tuple[Any, int]]]
    first: Callable[[], int]


@dataclass(frozen=True)
class Part(ABC):
    """One file or dataset; `num_bytes` on disk."""

    path: str
    num_bytes: int

    @abstractmethod
    def runs(self, column: str) -> Iterator[Run]:
        """Its runs in order; reading begins where they are asked for their rows."""

    def text_of(self, row: Any, column: str) -> str | None:
        """The text of one row, None if it holds none."""
        return checked_text(row, column)


class LineFile(Part):
    """JSON lines."""

    def runs(self, column: str) -> Iterator[Run]:
        for begin in range(0, self.num_bytes, BLOCK_BYTES):
            end = min(begin + BLOCK_BYTES, self.num_bytes)
            yield Run(begin, partial(self._lines, begin, end), partial(self._number, begin))

    def text_of(self, row: Any, column: str) -> str | None:
        return text_of_line(row, column)

    def _lines(self, begin: int, end: int) -> Iterator[tuple[bytes, int]]:
        with open(self.path, "rb", buffering=BLOCK_BYTES) as file:
            for _, line in read_lines(file, begin, end):
                yield line, len(line)

    def _number(self, begin: int) -> int:
        return 1 + sum(1 for _ in self._lines(0, begin))


class PackedFile(LineFile):
    """JSON lines, compressed."""

    def runs(self, column: str) -> Iterator[Run]:
        import pyarrow

        file = pyarrow.OSFile(self.path)
        first, begin = 1, 0
        try:
            unpacked = pyarrow.CompressedInputStream(file, PACKED[Path(self.path).suffix])
            stream = io.BufferedReader(unpacked, BLOCK_BYTES)
            while lines := self._some_lines(stream, first):
                end = file.tell()
                yield Run(begin, partial(_counted, lines.copy, end - begin), partial(int, first))
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


class ParquetFile(Part):
    """A column of a Parquet file."""

    def runs(self, column: str) -> Iterator[Run]:
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
        yield from _runs_of_rows(self.num_bytes, sizes, values)


@dataclass(frozen=True)
class RowDataset(Part):
    """A column of a Hugging Face dataset."""

    dataset: Any = field(repr=False)

    def runs(self, column: str) -> Iterator[Run]:
        texts = self.dataset.select_columns([column]).with_format(None)
        step = max(1, BLOCK_BYTES * len(texts) // max(1, self.num_bytes))
        sizes = [min(step, len(texts) - begin) for begin in range(0, len(texts), step)]
        yield from _runs_of_rows(self.num_bytes, sizes, lambda k: texts[k * step : (k + 1) * step][column])


def _runs_of_rows(num_bytes: int, sizes: list[int], values: Callable[[int], Iterable[Any]]) -> Iterator[Run]:
    """Runs of `sizes` rows, the k-th of which `values(k)` reads; each counts for its share of the bytes."""
    rows, before = sum(sizes), 0
    for k, size in enumerate(sizes):
        begin, end = (num_bytes * row // max(1, rows) for row in (before, before + size))
        yield Run(begin, partial(_counted, partial(values, k), end - begin), partial(int, before + 1))
        before += size


def _counted(read: Callable[[], Iterable[Any]], num_bytes: int) -> Iterator[tuple[Any, int]]:
    """The rows, the first of which counts for the bytes of all."""
    for row in read():
        yield row, num_bytes
        num_bytes = 0


def require_column(column: str, existing: Sequence[str], path: str) -> None:
    """Raise InputError, naming what there is, if the column is missing."""
    if column not in existing:
        raise InputError(f"{path}: no column {column!r}; the columns here are {list(existing)}")
