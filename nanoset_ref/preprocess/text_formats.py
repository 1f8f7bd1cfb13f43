"""Cut each kind of input into blocks: JSON lines, plain or compressed, and tables.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its
   range: it skips the rest of its predecessor's last line and reads its own last line to the end.
   Nothing is scanned ahead.
2. A compressed file can only be read from its start. Its blocks are groups of whole lines.
3. A Parquet file is cut at its row groups, and these into batches; a dataset at fixed row numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import file_size, file_version
from nanoset_ref.preprocess.json_lines import InputError, missing_column
from nanoset_ref.preprocess.text_blocks import Content, OnError, TextBlock, TextPart

BLOCK_BYTES = 1 << 20
# bytes, in a compressed file; a few kilobytes can unpack to gigabytes
MAX_LINE_BYTES = 1 << 28
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = tuple(
    ".json .json.gz .json.zst .jsonl .jsonl.gz .jsonl.zst .parquet".split()
)


def part_of_file(path: str, columns: tuple[str, ...], on_error: OnError) -> TextPart:
    """A file as a part of an input, by the type in its name."""
    if not path.endswith(SUFFIXES):
        raise InputError(
            f"{path}: unknown type of file; known types are {', '.join(SUFFIXES)}"
        )
    read_blocks = _line_blocks
    if path.endswith(".parquet"):
        read_blocks = _parquet_blocks
    elif path.endswith(tuple(COMPRESSED)):
        read_blocks = _compressed_blocks
    num_bytes = file_size(path)
    return TextPart(path, num_bytes, columns, on_error, read_blocks, file_version(path))


def _line_blocks(part: TextPart) -> Iterator[TextBlock]:
    """Blocks of a file of JSON lines."""

    def first(start: int) -> int:
        with open(part.path, "rb") as file:
            ends = 0
            for offset in range(0, start - 1, BLOCK_BYTES):
                ends += file.read(min(BLOCK_BYTES, start - 1 - offset)).count(b"\n")
        return 1 + ends + bool(start)

    for start in range(0, part.num_bytes, BLOCK_BYTES):
        stop = min(start + BLOCK_BYTES, part.num_bytes)
        # functions: a block that is made reads nothing
        lines = partial(_lines_between, part, start, stop)
        yield TextBlock(
            part, stop - start, partial(iter, [(lines, 0)]), partial(first, start)
        )


def _lines_between(part: TextPart, start: int, stop: int) -> bytes:
    """The lines of a file whose first byte is in [start, stop)."""
    # read one byte more: it tells whether a line begins at `start`
    before = min(start, 1)
    lines = b""
    with open(part.path, "rb") as file:
        file.seek(start - before)
        data = file.read(stop - start + before)
        line_start = data.find(b"\n") + 1 if before else 0
        begins_here = line_start > 0 or not before
        if begins_here and line_start < len(data):
            rest = b"" if data.endswith(b"\n") else file.readline()
            lines = b"".join([memoryview(data)[line_start:], rest])
    part.check_unchanged()  # the other blocks belong to the version that was opened
    return lines


def _compressed_blocks(part: TextPart) -> Iterator[TextBlock]:
    """Blocks of a compressed file of JSON lines."""
    with extra("text", "reading compressed files"):
        import pyarrow

    file = pyarrow.OSFile(part.path)
    first = 1
    start = 0
    with _report_damage(part.path):
        unpacked = pyarrow.CompressedInputStream(
            file, COMPRESSED[Path(part.path).suffix]
        )
        stream = io.BufferedReader(unpacked, BLOCK_BYTES)
        while data := stream.read(BLOCK_BYTES):
            rest = stream.readline(MAX_LINE_BYTES)  # the end of the block's last line
            if len(rest) == MAX_LINE_BYTES:
                number = first + data.count(b"\n")
                raise InputError(
                    f"{part.path}:{number}: unpacks to {MAX_LINE_BYTES:,} bytes or more; "
                    "unpack the file to read it"
                )
            # functions that return the lines, and the number of the first one
            lines = partial(bytes, data + rest)
            packed = file.tell() - start
            yield TextBlock(
                part, packed, partial(iter, [(lines, 0)]), partial(int, first)
            )
            first += data.count(b"\n") + rest.count(b"\n")
            start = file.tell()
    part.check_unchanged()


def _parquet_blocks(part: TextPart) -> Iterator[TextBlock]:
    """Blocks of one column of a Parquet file."""
    with extra("text", "reading Parquet files"):
        from pyarrow import parquet

    with _report_damage(part.path):
        file = parquet.ParquetFile(part.path)
    part.check_unchanged()
    name = _column(part, file.schema_arrow.names)
    part = dataclasses.replace(part, columns=(name,))

    def read(group: int) -> Iterator[Content]:
        """Batches of about BLOCK_BYTES."""
        where = f"{part.path}, row group {group}"
        with _report_damage(where):
            facts = file.metadata.row_group(group)
            # of all columns: asking for the size of one ends the process if its statistics are
            # damaged (pyarrow 26.0)
            unpacked = max(1, facts.total_byte_size)
            size = max(1, facts.num_rows * BLOCK_BYTES // unpacked)
            for batch in file.iter_batches(size, row_groups=[group], columns=[name]):
                # by its name: beside "a.b", a struct "a" with a field "b" is read as well
                yield ArrowValues(batch.column(name), where), batch.num_rows
        part.check_unchanged()

    groups = map(file.metadata.row_group, range(file.num_row_groups))
    return _table_blocks(part, [group.num_rows for group in groups], read)


@dataclass(frozen=True)
class ArrowValues:
    """The content of a batch of a table.

    Args:
        column: an Arrow array.
        where: its location, for errors.
    """

    column: Any
    where: str = ""

    def __call__(self) -> list[Any]:
        """Read the values; a string that is not UTF-8 remains bytes."""
        with _report_damage(self.where):
            try:
                self.column.validate(full=True)
            except ValueError:
                values = self.column.cast("large_binary")
                values.validate(full=True)
                return list(map(_decode, values.to_pylist()))
            return self.column.to_pylist()  # to_numpy would import pandas

    def message(self) -> memoryview:
        """The array as an Arrow stream, for another process."""
        with extra("text", "reading Parquet files"):
            import pyarrow

        sink = pyarrow.BufferOutputStream()
        batch = pyarrow.record_batch([self.column], [""])
        with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return memoryview(sink.getvalue())

    @classmethod
    def from_message(cls, message: bytes) -> ArrowValues:
        """The values in a `message`."""
        with extra("text", "reading Parquet files"):
            import pyarrow

        return cls(pyarrow.ipc.open_stream(message).read_next_batch().column(0))


def _decode(value: Any) -> Any:
    """The text of a value; None or invalid UTF-8 as it is."""
    with contextlib.suppress(AttributeError, UnicodeDecodeError):
        return value.decode()
    return value


def blocks_of_dataset(dataset: Any, part: TextPart) -> Iterator[TextBlock]:
    """Blocks of one column of a Hugging Face dataset."""
    rows = len(dataset)
    step = max(1, BLOCK_BYTES * rows // max(1, part.num_bytes))
    column = _column(part, dataset.column_names)
    texts = dataset.select_columns([column]).with_format("arrow")

    def read(number: int) -> Iterator[Content]:
        table = texts[number * step : (number + 1) * step]
        yield ArrowValues(table.column(0).combine_chunks(), part.path), table.num_rows

    sizes = [min(step, rows - start) for start in range(0, rows, step)]
    return _table_blocks(dataclasses.replace(part, columns=(column,)), sizes, read)


def _column(part: TextPart, columns: list[str]) -> str:
    """The first column of a part that is among `columns`, once."""
    for column in part.columns:
        if columns.count(column) > 1:
            raise InputError(
                f"{part.path}: several columns have the name {column!r}; rename all but one"
            )
        if column in columns:
            return column
    raise InputError(f"{part.path}: {missing_column(part.columns, columns)}")


def _table_blocks(
    part: TextPart, sizes: Sequence[int], read: Callable[[int], Iterable[Content]]
) -> Iterator[TextBlock]:
    """Blocks of a table.

    Args:
        part: the table.
        sizes: the rows of each block.
        read: reads block k.
    """
    first = 1
    total = sum(sizes) or 1
    # `partial(int, first)` is a function that returns the number of the first row
    for k, size in enumerate(sizes):
        share = part.num_bytes * size // total
        yield TextBlock(part, share, partial(read, k), partial(int, first), size)
        first += size


@contextlib.contextmanager
def _report_damage(where: str) -> Iterator[None]:
    """Convert a library's error about the content to an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:
        problem = f"damaged: {error}"
        if "Frame requires too much memory" in problem:
            problem = "its window is above 128 MiB; unpack it with zstd -d --long=31"
        raise InputError(f"{where}: {problem}") from None
