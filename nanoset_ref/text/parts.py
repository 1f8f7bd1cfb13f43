"""The kinds of input and the blocks they are cut into: the units of work that several processes share out.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its range: it skips
   the tail of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead, and a line
   number (for a message) is counted only when there is something to say.
2. A compressed file can only be read from its start: its blocks are groups of whole lines, each carrying its bytes.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

Cost: a line lies in memory whole; a block costs nothing until it is read. The alternative, an index of all lines, has
to read everything once before the work begins.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from nanoset_ref.text.lines import DocumentError, InputError, checked_text, read_lines, text_of_line

BLOCK_BYTES = 1 << 20
PACKED = {".gz": "gzip", ".zst": "zstd"}
OnError = Literal["raise", "skip"]


class Document(NamedTuple):
    """One text. `where` ("file:line", counted from 1) is worked out only when asked for."""

    text: str
    block: Block
    number: int

    @property
    def where(self) -> str:
        return self.block.locate(self.number)


class Block:
    """A run of neighbouring rows of one part. Making one costs nothing; `documents()` reads it.

    Attributes:
        num_bytes: the bytes of the input on disk it has stood for so far (for progress).
        skipped: what `on_error="skip"` has left out so far, counted by kind.
    """

    def __init__(self, path: str, column: str, on_error: OnError) -> None:
        self.path, self.column, self.on_error = path, column, on_error
        self.num_bytes = 0
        self.skipped: Counter[str] = Counter()

    def rows(self) -> Iterator[Any]:
        raise NotImplementedError

    def text_of(self, row: Any) -> str | None:
        raise NotImplementedError

    def locate(self, number: int) -> str:
        """Where the row with this number (from 0, in this block) stands."""
        raise NotImplementedError

    def documents(self) -> Iterator[Document]:
        """The documents in order. Raises DocumentError at the first unusable one unless `on_error` is "skip"."""
        for number, row in enumerate(self.rows()):
            try:
                text = self.text_of(row)
            except DocumentError as error:
                if self.on_error == "raise":
                    raise DocumentError(error.kind, error.what, self.locate(number)) from None
                self.skipped[error.kind] += 1
            else:
                if text is not None:
                    yield Document(text, self, number)


class _LineBlock(Block):
    """The lines of a plain file whose first byte lies in [begin, end)."""

    def __init__(self, path: str, column: str, on_error: OnError, begin: int, end: int) -> None:
        super().__init__(path, column, on_error)
        self._begin, self._end = begin, end

    def rows(self) -> Iterator[bytes]:
        with open(self.path, "rb", buffering=BLOCK_BYTES) as file:
            for _, line in read_lines(file, self._begin, self._end):
                self.num_bytes += len(line)
                yield line

    def text_of(self, row: bytes) -> str | None:
        return text_of_line(row, self.column)

    def locate(self, number: int) -> str:
        with open(self.path, "rb", buffering=BLOCK_BYTES) as file:
            before = sum(1 for _ in read_lines(file, 0, self._begin))
        return f"{self.path}:{before + number + 1}"


class _ListBlock(Block):
    """Rows that were read, or are to be read, as a whole: `first` is the number of the first one in its file."""

    def __init__(
        self,
        path: str,
        column: str,
        on_error: OnError,
        first: int,
        read: Callable[[], Iterable[Any]],
        num_bytes: int,
        *,
        lines: bool = False,
    ) -> None:
        super().__init__(path, column, on_error)
        self._lines = lines  # of JSON; else the values of a column
        self._first, self._read, self._size = first, read, num_bytes

    def rows(self) -> Iterator[Any]:
        self.num_bytes = self._size
        yield from self._read()

    def text_of(self, row: bytes | str | None) -> str | None:
        return text_of_line(cast(bytes, row), self.column) if self._lines else checked_text(row, self.column)

    def locate(self, number: int) -> str:
        return f"{self.path}:{self._first + number}"


@dataclass(frozen=True)
class LineFile:
    """JSON lines, plain or compressed."""

    path: str
    num_bytes: int

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        packed = PACKED.get(Path(self.path).suffix)
        if packed is None:
            for begin in range(0, self.num_bytes, BLOCK_BYTES):
                yield _LineBlock(self.path, column, on_error, begin, min(begin + BLOCK_BYTES, self.num_bytes))
            return
        import pyarrow

        file = pyarrow.OSFile(self.path)
        first, consumed = 1, 0
        try:
            stream = io.BufferedReader(pyarrow.CompressedInputStream(file, packed), BLOCK_BYTES)
            while lines := stream.readlines(BLOCK_BYTES):
                yield _ListBlock(self.path, column, on_error, first, lines.__iter__, file.tell() - consumed, lines=True)
                first, consumed = first + len(lines), file.tell()
        except OSError as error:
            raise InputError(f"{self.path}: damaged after line {first - 1}: {error}") from None


@dataclass(frozen=True)
class ParquetFile:
    path: str
    num_bytes: int

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        import pyarrow
        from pyarrow import parquet

        try:
            file = parquet.ParquetFile(self.path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise InputError(f"{self.path}: not a readable Parquet file: {error}") from None
        require_column(column, file.schema_arrow.names, self.path)

        def read(group: int) -> Iterator[Any]:
            try:
                for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                    yield from batch.column(0).to_pylist()
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(f"{self.path}: row group {group} cannot be read: {error}") from None

        first = 1
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            size = self.num_bytes * rows // max(1, file.metadata.num_rows)
            yield _ListBlock(self.path, column, on_error, first, partial(read, group), size)
            first += rows


@dataclass(frozen=True)
class RowDataset:
    path: str
    num_bytes: int
    dataset: Any = field(repr=False)

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        require_column(column, self.dataset.column_names, self.path)
        texts = self.dataset.select_columns([column]).with_format(None)
        step = max(1, BLOCK_BYTES * len(texts) // max(1, self.num_bytes))
        for begin in range(0, len(texts), step):
            end = min(begin + step, len(texts))
            size = self.num_bytes * (end - begin) // len(texts)
            yield _ListBlock(self.path, column, on_error, begin + 1, partial(_rows_of, texts, column, begin, end), size)


def _rows_of(texts: Any, column: str, begin: int, end: int) -> list[Any]:
    return texts[begin:end][column]


def require_column(column: str, existing: Sequence[str], path: str) -> None:
    if column not in existing:
        raise InputError(f"{path}: no column {column!r}; the columns here are {list(existing)}")
