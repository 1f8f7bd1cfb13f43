"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets.

A `TextSource` is a list of parts (a file, a dataset); each part is a sequence of blocks, and each
block one of batches of about a MiB, which are read and encoded as a whole. The order of parts,
blocks and documents depends on the input alone.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its
   range: it skips the rest of its predecessor's last line and reads its own last line to the end.
   Nothing is scanned ahead.
2. A compressed file can only be read from its start. Its blocks are groups of whole lines.
3. A Parquet file is cut at its row groups, and these into batches; a dataset at fixed row numbers.

A line is held in memory whole; nothing else grows with the input. Blank lines are no documents.
Lines are counted only when an error or a warning names one.

One call of msgspec parses all lines of a batch, and one call of Arrow converts its values. If that
fails, or if a line is not plainly one object, the batch is read again line by line: orjson parses;
a line that it refuses goes to Python's `json`, which also accepts the NaN, Infinity and byte-order
marks of many writers, and reports where a line breaks. `datasets.load_dataset("json")` would first
write the corpus a second time, as Arrow, and report a broken line without its number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import io
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import as_list

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 28  # bytes, in a compressed file: a few kilobytes can unpack to gigabytes
PACKED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (
    ".json",
    ".json.gz",
    ".json.zst",
    ".jsonl",
    ".jsonl.gz",
    ".jsonl.zst",
    ".parquet",
)
SAVED = ("state.json", "dataset_dict.json")  # one of them is in a folder of Dataset.save_to_disk
PROBE_PARTS = 20  # most parts on which a tokenizer is tried
PROBE_DOCUMENTS = 500  # about, of all these parts
PROBE_CHARS = 2000  # of each document
MAKE_LINES = "a JSON array becomes JSON lines with: jq -c '.[]' in.json > out.jsonl"
OnError = Literal["raise", "skip"]


# reads the lines, or the values, of a batch; the number of its rows, 0 where nothing follows it
Content = tuple[Callable[[], bytes | list[Any]], int]


class InputError(ValueError):
    """The input as a whole is unusable: no match, unknown kind, missing column, damaged file."""


class DocumentError(InputError):
    """One document is unusable; `on_error="skip"` counts it under its `kind`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class TextSource:
    """An ordered list of parts, each a sequence of blocks; `open_text` makes one.

    Args:
        column: as given to `open_text`.
        parts: the files and datasets.
    """

    column: str | Sequence[str]
    parts: tuple[TextPart, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk, roughly the sum of `num_bytes` over all blocks."""
        return sum(part.num_bytes for part in self.parts)

    def blocks(self) -> Iterator[TextBlock]:
        for part in self.parts:
            yield from part.kind(part)

    def documents(self) -> Iterator[Document]:
        for block in self.blocks():
            yield from block.documents()

    def beginning(self) -> Iterator[str]:
        """Beginnings of the first documents of evenly spaced parts, on which a tokenizer is tried.

        An unreadable document ends its part here; reading the whole part will report the error.
        """
        chosen = self.parts[:: math.ceil(len(self.parts) / PROBE_PARTS)]
        number = math.ceil(PROBE_DOCUMENTS / len(chosen))
        for part in chosen:
            documents = dataclasses.replace(self, parts=(part,)).documents()
            with contextlib.suppress(InputError):
                for document in islice(documents, number):
                    yield document.text[:PROBE_CHARS]


# ---- inputs


def open_text(
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str | Sequence[str] = "text",
    split: str | None = None,
    on_error: OnError = "raise",
    config: str | None = None,
) -> TextSource:
    """Open the documents of `input`, whatever it is.

    Args:
        input: a .json/.jsonl file (one JSON object per line; .gz and .zst too), a .parquet file, a
            folder (all such files below it, sorted by path), a glob, a folder written by
            `Dataset.save_to_disk`, the name of a Hub dataset, or a list of these, read in the order
            given.
        column: the column with the text; or several names: the first one that a document has.
        split: of a dataset. A folder with a split is read by `datasets.load_dataset`; a file has
            only "train".
        on_error: "raise" stops at the first unusable document; "skip" leaves it out and counts it.
        config: the configuration of a Hub dataset that has several.

    Raises:
        FileNotFoundError: no such file, no match.
        InputError: wrong kind of file, empty input, unknown split or configuration, missing column;
            the message lists what exists.
    """
    if on_error not in get_args(OnError):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    inputs = as_list(input)
    columns = (column,) if isinstance(column, str) else tuple(column)
    parts = []
    for name in map(os.fspath, inputs):
        files = None if split and os.path.isdir(name) else _files(name)
        if files is None:
            data, title = _load_dataset(name, split, config)
            kind = partial(_dataset, data)
            parts.append(TextPart(title, int(data.data.nbytes), columns, on_error, kind))
            continue
        if split not in (None, "train"):
            raise InputError(f"{name}: a file has no splits other than 'train', got {split!r}")
        if config is not None:
            raise _no_configurations(name, "files have", config)
        parts += [_file(file, columns, on_error) for file in files]
    source = TextSource(column, tuple(parts))
    if not source.num_bytes:
        raise InputError(f"{', '.join(map(str, inputs)) or 'an empty list'}: the input is empty")
    return source


def _no_configurations(name: str, who: str, config: str) -> InputError:
    what = f"{who} no configurations, got {config!r}; leave it out (--dataset-config)"
    return InputError(f"{name}: {what}")


def _is_saved(folder: Path) -> bool:
    """Whether Dataset.save_to_disk wrote a folder."""
    return any((folder / name).is_file() for name in SAVED)


def _files(name: str) -> list[str] | None:
    """The files that a name stands for; None: it is the name of a dataset."""
    path = Path(name)
    if path.is_file():
        return [name]
    if path.is_dir():
        if _is_saved(path):
            return None
        files = [str(file) for file in text_files(path)]
    elif path.exists():
        raise InputError(f"{name} is no regular file and no folder; copy its content into a file")
    elif glob.has_magic(name):
        files = sorted(filter(os.path.isfile, glob.glob(name, recursive=True)))
    elif name.endswith(SUFFIXES) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FileNotFoundError(f"{name}: no such file or folder")
    else:
        return None
    if not files:
        raise FileNotFoundError(f"{name}: no file matches; known kinds are {', '.join(SUFFIXES)}")
    return files


def text_files(folder: Path) -> list[Path]:
    """The files with text below a folder, sorted; without .ipynb_checkpoints, _SUCCESS and other
    names that begin with "." or "_".
    """
    found = []
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        if file.name.endswith(SUFFIXES) and not hidden and file.is_file():
            found.append(file)
    return found


def hub_problem() -> str:
    """Why the Hub cannot be reached, or "": one request, where other libraries retry for a minute."""
    with extra("text", "reading from the Hub"):
        from huggingface_hub import constants, get_session

    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # of the HTTP library
        return f"{constants.ENDPOINT} cannot be reached: {error}"
    return ""


def _load_dataset(name: str, split: str | None, config: str | None) -> tuple[Any, str]:
    """A dataset, and its name in errors."""
    with extra("text", "reading a dataset"):
        import datasets

    saved = _is_saved(Path(name))
    if saved and config is not None:
        raise _no_configurations(name, "a dataset written by save_to_disk has", config)
    problem = "" if Path(name).exists() else hub_problem()
    if problem:
        cached = "HF_HUB_OFFLINE=1 reads what was downloaded before"
        raise InputError(f"{name}: neither a file nor a folder, and {problem}; {cached}")
    try:
        data = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except Exception as error:  # the Hub, the network, the cache and the builders raise their own
        what = f"neither a file, a folder nor a dataset that loads ({error})"
        raise InputError(f"{name}: {what}") from error
    splits = data if isinstance(data, dict) else {data.split and str(data.split): data}
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise InputError(f"{name}: name one of its splits {list(splits)}, got {split!r}")
    return splits[split], f"{name} ({split})" if split else name


# ---- parts, blocks, documents


class Document(NamedTuple):
    """One text: row `number` of a block, counted from 0."""

    text: str
    block: TextBlock
    number: int

    @property
    def where(self) -> str:
        """The place as "file:line", counted from 1."""
        return f"{self.block.part.path}:{self.block.first() + self.number}"


@dataclass(frozen=True)
class TextPart:
    """One file or dataset.

    Args:
        path: its name in errors.
        num_bytes: on disk.
        columns: a document has its text in the first of them that it has.
        on_error: "raise" or "skip".
        kind: cuts the part into blocks.
    """

    path: str
    num_bytes: int
    columns: tuple[str, ...]
    on_error: OnError
    kind: Callable[[TextPart], Iterator[TextBlock]]


class Read(NamedTuple):
    """The documents of a batch.

    Args:
        texts: of the documents.
        rows: the number of each in its block, counted from 0.
        skipped: {kind: number} of the documents that `on_error="skip"` leaves out.
    """

    texts: list[str]
    rows: Sequence[int]
    skipped: dict[str, int]


@dataclass
class TextBlock:
    """Consecutive rows of one part. Making a block costs nothing; its batches are read.

    Args:
        part: the file or dataset.
        num_bytes: on disk, roughly (for progress).
        contents: reads the rows, batch by batch: (number of rows before it, its `content`).
        num_rows: of a table; None: the lines are one batch.
        first: returns the number of the first row, from 1.
        skipped: documents that `on_error="skip"` has left out so far, counted by kind.
    """

    part: TextPart
    num_bytes: int
    contents: Callable[[], Iterable[Content]]
    first: Callable[[], int]
    num_rows: int | None = None
    skipped: Counter[str] = field(default_factory=Counter)

    def batches(self) -> Iterator[TextBatch]:
        """The batches in order."""
        row = 0
        before = 0  # bytes
        for content, size in self.contents():
            bytes_so_far = self.num_bytes
            if self.num_rows:
                bytes_so_far = self.num_bytes * (row + size) // self.num_rows
            yield TextBatch(self, row, bytes_so_far - before, content)
            before = bytes_so_far
            row += size

    def documents(self) -> Iterator[Document]:
        """The documents in order; DocumentError at an unusable one unless `on_error` is "skip"."""
        for batch in self.batches():
            texts = batch.texts()
            if texts is None:
                yield from batch.line_by_line(self.skipped)
            else:
                yield from map(Document, texts, repeat(self), count(batch.row))


@dataclass(frozen=True)
class TextBatch:
    """Consecutive rows of one block, read and encoded at once; threads may read several.

    Args:
        block: the block.
        row: the number of the first row in the block, counted from 0.
        num_bytes: its share of the block's.
        content: reads JSON lines as bytes, or the values of a column.
        since: rows of the block before this one are left out.
    """

    block: TextBlock
    row: int
    num_bytes: int
    content: Callable[[], bytes | list[Any]]
    since: int = 0

    def read(self) -> Read:
        """All documents; DocumentError at an unusable one unless `on_error` is "skip"."""
        texts = self.texts()
        if texts is not None:
            first = max(self.row, self.since)
            texts = texts[first - self.row :]
            return Read(texts, range(first, first + len(texts)), {})
        skipped = Counter[str]()
        documents = list(self.line_by_line(skipped))
        texts = [document.text for document in documents]
        return Read(texts, [document.number for document in documents], dict(skipped))

    def texts(self) -> list[str] | None:
        """The text of every row; None if a row may be blank or unusable."""
        content = self.content()
        if isinstance(content, bytes):
            return texts_of_lines(content, self.block.part.columns)
        return content if {*map(type, content)} <= {str} else None

    def line_by_line(self, skipped: Counter[str]) -> Iterator[Document]:
        """The documents, row by row, with the checks and errors of `text_of`."""
        part = self.block.part
        content = self.content()
        if isinstance(content, bytes):
            rows: Iterable[Any] = io.BytesIO(content)
        else:
            rows = ({part.columns[0]: value} for value in content)
        for number, row in enumerate(rows, self.row):
            if number < self.since:
                continue
            try:
                text = text_of(row, part.columns)
            except DocumentError as error:
                if part.on_error == "raise":
                    where = Document("", self.block, number).where
                    raise DocumentError(error.kind, f"{where}: {error}") from None
                skipped[error.kind] += 1
                continue
            if text is not None:
                yield Document(text, self.block, number)

    def where(self, index: int) -> str:
        """The place of a document, by its index among those of the batch."""
        return next(islice(self.line_by_line(Counter()), index, None)).where


def _file(path: str, columns: tuple[str, ...], on_error: OnError) -> TextPart:
    if not path.endswith(SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(SUFFIXES)}")
    kind = _lines
    if path.endswith(".parquet"):
        kind = _parquet
    elif path.endswith(tuple(PACKED)):
        kind = _packed_lines
    return TextPart(path, os.path.getsize(path), columns, on_error, kind)


def _lines(part: TextPart) -> Iterator[TextBlock]:
    """Blocks of a file of JSON lines."""

    def first(start: int) -> int:
        with open(part.path, "rb") as file:
            ends = 0
            for at in range(0, start - 1, BLOCK_BYTES):
                ends += file.read(min(BLOCK_BYTES, start - 1 - at)).count(b"\n")
        return 1 + ends + bool(start)

    for start in range(0, part.num_bytes, BLOCK_BYTES):
        stop = min(start + BLOCK_BYTES, part.num_bytes)
        lines = partial(_lines_between, part.path, start, stop)
        yield TextBlock(part, stop - start, partial(_one_batch, lines), partial(first, start))


def _lines_between(path: str, start: int, stop: int) -> bytes:
    """The lines of a file whose first byte is in [start, stop)."""
    before = min(start, 1)  # the byte before tells whether a line begins at `start`
    with open(path, "rb") as file:
        file.seek(start - before)
        data = file.read(stop - start + before)
        begin = data.find(b"\n") + 1 if before else 0
        if (before and not begin) or begin == len(data):
            return b""
        rest = b"" if data.endswith(b"\n") else file.readline()
    return b"".join([memoryview(data)[begin:], rest])


def _one_batch(content: Callable[[], bytes | list[Any]]) -> list[Content]:
    return [(content, 0)]


def _packed_lines(part: TextPart) -> Iterator[TextBlock]:
    """Blocks of a compressed file of JSON lines."""
    with extra("text", "reading compressed files"):
        import pyarrow

    file = pyarrow.OSFile(part.path)
    first = 1
    start = 0
    with _damage(part.path):
        unpacked = pyarrow.CompressedInputStream(file, PACKED[Path(part.path).suffix])
        stream = io.BufferedReader(unpacked, BLOCK_BYTES)
        while data := stream.read(BLOCK_BYTES):
            rest = stream.readline(LONGEST_LINE)  # of its last line
            if len(rest) == LONGEST_LINE:
                number = first + data.count(b"\n")
                what = f"unpacks to {LONGEST_LINE:,} bytes or more; unpack the file to read it"
                raise InputError(f"{part.path}:{number}: {what}")
            lines = partial(_one_batch, partial(bytes, data + rest))
            yield TextBlock(part, file.tell() - start, lines, partial(int, first))
            first += data.count(b"\n") + rest.count(b"\n")
            start = file.tell()


def _parquet(part: TextPart) -> Iterator[TextBlock]:
    """Blocks of one column of a Parquet file."""
    with extra("text", "reading Parquet files"):
        from pyarrow import parquet

    with _damage(part.path):
        file = parquet.ParquetFile(part.path)
    name = _column(part, file.schema_arrow.names)
    part = dataclasses.replace(part, columns=(name,))

    def read(group: int) -> Iterator[Content]:
        """Batches of about BLOCK_BYTES."""
        facts = file.metadata.row_group(group)
        columns = map(facts.column, range(facts.num_columns))
        sizes = [one.total_uncompressed_size for one in columns if one.path_in_schema == name]
        size = max(1, facts.num_rows * BLOCK_BYTES // max(1, sum(sizes)))
        where = f"{part.path}, row group {group}"
        with _damage(where):
            for batch in file.iter_batches(size, row_groups=[group], columns=[name]):
                yield ArrowValues(batch.column(0), where), batch.num_rows

    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return _table(part, sizes, read)


@dataclass(frozen=True)
class ArrowValues:
    """The content of a batch of a table.

    Args:
        column: an Arrow array.
        where: its place, for errors.
    """

    column: Any
    where: str = ""

    def __call__(self) -> list[Any]:
        """The values."""
        with _damage(self.where):
            self.column.validate(full=True)
            if str(self.column.type) not in ("string", "large_string"):
                return list(self.column.to_pylist())
            return list(self.column.to_numpy(zero_copy_only=False))

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
        with extra("text", "reading Parquet files"):
            import pyarrow

        return cls(pyarrow.ipc.open_stream(message).read_next_batch().column(0))


def _dataset(dataset: Any, part: TextPart) -> Iterator[TextBlock]:
    """Blocks of one column of a Hugging Face dataset."""
    rows = len(dataset)
    step = max(1, BLOCK_BYTES * rows // max(1, part.num_bytes))
    column = _column(part, dataset.column_names)
    texts = dataset.select_columns([column]).with_format("arrow")

    def read(number: int) -> Iterator[Content]:
        table = texts[number * step : (number + 1) * step]
        yield ArrowValues(table.column(0).combine_chunks(), part.path), table.num_rows

    sizes = [min(step, rows - start) for start in range(0, rows, step)]
    return _table(dataclasses.replace(part, columns=(column,)), sizes, read)


def _column(part: TextPart, columns: Iterable[str]) -> str:
    """The first column of a part that is among `columns`."""
    for column in part.columns:
        if column in columns:
            return column
    raise InputError(f"{part.path}: {_no_column(part.columns, columns)}")


def _no_column(wanted: Sequence[str], columns: Iterable[str]) -> str:
    return f"no column {' or '.join(map(repr, wanted))}; the columns here are {list(columns)}"


def _table(
    part: TextPart, sizes: Sequence[int], read: Callable[[int], Iterable[Content]]
) -> Iterator[TextBlock]:
    """Blocks of `sizes` rows; `read(k)` reads the k-th. Each has its share of the bytes."""
    first = 1
    total = sum(sizes) or 1
    for k, size in enumerate(sizes):
        share = part.num_bytes * size // total
        yield TextBlock(part, share, partial(read, k), partial(int, first), size)
        first += size


@contextlib.contextmanager
def _damage(where: str) -> Iterator[None]:
    """Turn a library's error about the content into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{where}: damaged: {error}") from None


# ---- rows


def texts_of_lines(data: bytes, columns: Sequence[str]) -> list[str] | None:
    """The texts of JSON lines, all parsed at once.

    Every line must begin with "{" and end with "}", or each with "}" and a carriage return. In JSON
    no "{" follows a "}" without a comma, so an object ends with each line, and the lines are one
    object each if there are as many of them.

    Args:
        data: whole lines; the last may lack its line feed.
        columns: names.

    Returns:
        One text for each line. None if a line may be blank, invalid, without any of the columns or
        with another value in one of them, or if it has white space around its object.
    """
    if not data.endswith(b"\n"):
        data += b"\n"
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    last = characters[ends - 1]
    if (last == ord("\r")).all():
        last = characters[ends - 2]
    first = characters[np.append(0, ends[:-1] + 1)]
    if (last != ord("}")).any() or (first != ord("{")).any():
        return None
    try:
        data.decode()  # msgspec does not look into strings that it skips
        rows = _decoder(tuple(columns)).decode_lines(data)
    except (ValueError, RecursionError):
        return None
    if len(rows) != len(ends):
        return None
    texts = [row.text_0 for row in rows]
    for place in range(1, len(columns)):
        others = map(attrgetter(f"text_{place}"), rows)
        texts = [other if text is None else text for text, other in zip(texts, others, strict=True)]
    return None if None in texts else texts


@functools.cache
def _decoder(columns: tuple[str, ...]) -> Any:
    """msgspec's decoder of objects: text_0, text_1, ... hold the strings of `columns`, or None."""
    with extra("text", "reading JSON lines"):
        import msgspec

    fields = {f"text_{place}": column for place, column in enumerate(columns)}
    defaults = [(name, str, None) for name in fields]
    row = msgspec.defstruct("Row", defaults, rename=fields, gc=False)
    return msgspec.json.Decoder(row)


@functools.cache
def _orjson() -> Any:
    with extra("text", "reading JSON lines"):
        import orjson
    return orjson


def text_of(row: Any, columns: Sequence[str]) -> str | None:
    """The text of a row, in the first of `columns` that it has; None for a blank line.

    Args:
        row: a JSON line in bytes, or a dict.
        columns: names.

    Raises:
        DocumentError: (without a place) invalid JSON or UTF-8, not an object, no such column, not a
            string, or a lone surrogate: valid JSON, but no tokenizer accepts it.
    """
    if isinstance(row, bytes):
        try:
            row = _orjson().loads(row)
        except json.JSONDecodeError:
            if not row.strip():
                return None
            row = _parsed_slowly(row)
    if not isinstance(row, dict):
        what = f"every line must be one JSON object, got a {type(row).__name__}; {MAKE_LINES}"
        raise DocumentError("not an object", what)
    for column in columns:
        if column in row:
            break
    else:
        raise DocumentError("missing column", _no_column(columns, row))
    text = row[column]
    if not isinstance(text, str):
        what = f"column {column!r} must hold a string, got {type(text).__name__}"
        raise DocumentError("not a string", what)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            character = f"{text[error.start]!r} at character {error.start}"
            what = f"lone surrogate {character} of column {column!r}"
            raise DocumentError("lone surrogate", what) from None
    return text


def _parsed_slowly(line: bytes) -> Any:
    """The value of a line that orjson refused."""
    try:
        return json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    what = f"not JSON ({reason}); every line must be one JSON object; {MAKE_LINES}"
    raise DocumentError("invalid JSON", what)
