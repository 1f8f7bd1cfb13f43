"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets, in one fixed order.

A `TextSource` is a list of parts (a file, a dataset) and every part is a sequence of blocks of about a MiB that know how
to read themselves. The order of parts, blocks and documents depends on the input alone, so several processes can share
the blocks out among themselves and still agree on what the result is.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its range: it skips the
   tail of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead, and a line number
   (for a message) is counted only when there is something to say.
2. A compressed file can only be read from its start: its blocks are groups of whole lines, each carrying its bytes.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

Cost: a block is read in one go, a line lies in memory whole, nothing grows with the input. Blank lines are no documents.
The alternative, `datasets.load_dataset("json")` for everything, first writes the corpus a second time as Arrow, reports a
broken line without its number and cannot leave one out; it is used for what only it can read.
"""

from __future__ import annotations

import glob
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import orjson

BLOCK_BYTES = 1 << 20
SUFFIXES = tuple(kind + packed for kind in (".json", ".jsonl") for packed in ("", ".gz", ".zst")) + (".parquet",)
OnError = Literal["raise", "skip"]


class InputError(ValueError):
    """The input as a whole cannot be used: nothing matches, unknown kind of file, missing column, damaged file."""


class DocumentError(InputError):
    """One document cannot be used. `kind` is what `on_error="skip"` counts it as, `where` names its file and line."""

    def __init__(self, kind: str, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.kind, self.what, self.where = kind, what, where


class Document(NamedTuple):
    """One text. `where` ("file:line" or "dataset, row n") is worked out only when asked for."""

    text: str
    block: Block
    row: int

    @property
    def where(self) -> str:
        return self.block.locate(self.row)


@dataclass
class Block:
    """A run of neighbouring rows of one part, read when `documents()` is called.

    `num_bytes` is its share of the input on disk (for progress); `skipped` counts by kind, after `documents()`, what
    `on_error="skip"` left out.
    """

    num_bytes: int
    rows: Callable[[], Iterable[Any]]
    text_of: Callable[[Any], str | None]
    locate: Callable[[int], str]
    on_error: OnError
    skipped: Counter[str] = field(default_factory=Counter)

    def documents(self) -> Iterator[Document]:
        """The documents in order. Raises DocumentError at the first unusable one unless `on_error` is "skip"."""
        for row, raw in enumerate(self.rows()):
            try:
                text = self.text_of(raw)
            except DocumentError as error:
                if self.on_error == "raise":
                    raise DocumentError(error.kind, error.what, self.locate(row)) from None
                self.skipped[error.kind] += 1
            else:
                if text is not None:
                    yield Document(text, self, row)


def read_lines(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, line with its newline) for the lines of a seekable file whose first byte is in [begin, end).

    Passing over lines costs no parsing, and `read_lines(file, offset, size)` goes on at an offset that was handed out.
    """
    offset = begin
    if begin:
        file.seek(begin - 1)
        head = file.readline(end - begin + 1)  # a line that fills the whole range is somebody else's
        if not head.endswith(b"\n"):
            return
        offset += len(head) - 1
    while offset < end and (line := file.readline()):
        yield offset, line
        offset += len(line)


def text_of_line(line: bytes, column: str) -> str | None:
    """The text in `column` of one JSON line, None for a blank line.

    Python's `json` has the second word: it accepts NaN, Infinity and a byte-order mark, as many writers produce them.
    Raises DocumentError without a `where`: invalid UTF-8, invalid JSON, not an object, missing column, not a string, lone
    surrogate (valid JSON, but no Unicode text: it has no UTF-8 form and no tokenizer accepts it).
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except UnicodeDecodeError as error:
            raise DocumentError("invalid UTF-8", f"not UTF-8 ({error.reason} at byte {error.start} of the line)") from None
        except (ValueError, RecursionError) as error:
            what = f"not JSON ({error}); every line must be one JSON object"
            raise DocumentError("invalid JSON", what) from None
    if not isinstance(record, dict):
        what = f"every line must be one JSON object, got a {type(record).__name__}"
        if isinstance(record, list):
            what += "; a JSON array becomes JSON lines with: jq -c '.[]' in.json > out.jsonl"
        raise DocumentError("not an object", what)
    if column not in record:
        raise DocumentError("missing column", f"no column {column!r}; the columns here are {list(record)}")
    return _checked(record[column], column)


def _checked(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise DocumentError("not a string", f"column {column!r} must hold a string, got {type(value).__name__}")
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError as error:
        what = f"lone surrogate {value[error.start]!r} at character {error.start} of column {column!r}"
        raise DocumentError("lone surrogate", what) from None
    return value


@dataclass(frozen=True)
class _LineFile:
    """JSON lines, plain or compressed."""

    path: str
    num_bytes: int

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        def text_of(line: bytes) -> str | None:
            return text_of_line(line, column)

        packed = {".gz": "gzip", ".zst": "zstd"}.get(Path(self.path).suffix)
        if packed is None:
            for begin in range(0, self.num_bytes, BLOCK_BYTES):
                end = min(begin + BLOCK_BYTES, self.num_bytes)
                yield Block(end - begin, _Span(self.path, begin, end), text_of, _Span(self.path, 0, begin).locate, on_error)
            return
        import pyarrow

        source = pyarrow.OSFile(self.path)
        first, consumed = 1, 0
        try:
            stream = io.BufferedReader(pyarrow.CompressedInputStream(source, packed), BLOCK_BYTES)
            while lines := stream.readlines(BLOCK_BYTES):
                here, consumed = source.tell() - consumed, source.tell()
                yield Block(here, lines.__iter__, text_of, lambda row, n=first: f"{self.path}:{n + row}", on_error)
                first += len(lines)
        except OSError as error:
            raise InputError(f"{self.path}: damaged after line {first - 1}: {error}") from None


@dataclass(frozen=True)
class _Span:
    """The lines of a plain file that begin in [begin, end)."""

    path: str
    begin: int
    end: int

    def __call__(self) -> Iterator[bytes]:
        with open(self.path, "rb", buffering=BLOCK_BYTES) as file:
            for _, line in read_lines(file, self.begin, self.end):
                yield line

    def locate(self, row: int) -> str:
        """The place of the row-th line that begins after this span."""
        return f"{self.path}:{sum(1 for _ in self()) + row + 1}"


@dataclass(frozen=True)
class _ParquetFile:
    path: str
    num_bytes: int

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        import pyarrow
        from pyarrow import parquet

        try:
            file = parquet.ParquetFile(self.path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise InputError(f"{self.path}: not a readable Parquet file: {error}") from None
        _require_column(column, file.schema_arrow.names, self.path)
        first = 0
        for group in range(file.num_row_groups):
            num_rows = file.metadata.row_group(group).num_rows

            def rows(group: int = group) -> Iterator[Any]:
                for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                    yield from batch.column(0).to_pylist()

            yield Block(
                self.num_bytes * num_rows // file.metadata.num_rows,
                rows,
                lambda value: _checked(value, column),
                lambda row, first=first: f"{self.path}, row {first + row}",
                on_error,
            )
            first += num_rows


@dataclass(frozen=True)
class _Dataset:
    path: str
    dataset: Any = field(repr=False)
    num_bytes: int

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        _require_column(column, self.dataset.column_names, self.path)
        texts = self.dataset.select_columns([column]).with_format(None)
        bytes_per_row = max(1, self.num_bytes // max(1, len(texts)))
        step = max(1, BLOCK_BYTES // bytes_per_row)
        for begin in range(0, len(texts), step):
            end = min(begin + step, len(texts))
            yield Block(
                bytes_per_row * (end - begin),
                lambda begin=begin, end=end: texts[begin:end][column],
                lambda value: _checked(value, column),
                lambda row, begin=begin: f"{self.path}, row {begin + row}",
                on_error,
            )


def _require_column(column: str, existing: Sequence[str], path: str) -> None:
    if column not in existing:
        raise InputError(f"{path}: no column {column!r}; the columns here are {list(existing)}")


@dataclass(frozen=True)
class TextSource:
    """What `open_text` returns: an ordered list of parts, each a sequence of blocks. It can be sent to other processes."""

    column: str
    on_error: OnError
    parts: tuple[_LineFile | _ParquetFile | _Dataset, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk, in bytes: what the `num_bytes` of all blocks add up to, roughly."""
        return sum(part.num_bytes for part in self.parts)

    def blocks_of(self, part: int) -> Iterator[Block]:
        """The blocks of one part, in order."""
        return self.parts[part].blocks(self.column, self.on_error)

    def blocks(self) -> Iterator[Block]:
        """All blocks in their global order."""
        for part in range(len(self.parts)):
            yield from self.blocks_of(part)

    def documents(self) -> Iterator[Document]:
        """All documents in their global order."""
        for block in self.blocks():
            yield from block.documents()


def open_text(
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str = "text",
    split: str | None = None,
    on_error: OnError = "raise",
    config: str | None = None,
) -> TextSource:
    """Find out what `input` is and return its documents as a `TextSource`.

    Args:
        input: a .json/.jsonl file (one JSON object per line; .gz and .zst too), a .parquet file, a folder (all such files
            below it, sorted by path), a glob, a folder written by `Dataset.save_to_disk`, the name of a Hub dataset,
            or a list of these, read in the order given.
        column: the name of the column with the text.
        split: the split of a dataset. A folder with a split is read by `datasets.load_dataset`; a file has only "train".
        on_error: "raise" stops at the first document that cannot be used; "skip" leaves it out and counts it.
        config: the configuration of a Hub dataset, where it has several.

    Raises:
        FileNotFoundError: no such file, nothing matches.
        InputError: wrong kind of file, empty input, unknown split or missing column, with what exists.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    inputs = [input] if isinstance(input, (str, os.PathLike)) else list(input)
    if not inputs:
        raise InputError("the list of inputs is empty")
    parts = tuple(part for one in inputs for part in _parts(os.fspath(one), split, config))
    if not sum(part.num_bytes for part in parts):
        raise InputError(f"{', '.join(map(str, inputs))}: the input is empty")
    for part in parts:
        if isinstance(part, _Dataset):
            _require_column(column, part.dataset.column_names, part.path)
    return TextSource(column, on_error, parts)


def _parts(input: str, split: str | None, config: str | None) -> Iterator[_LineFile | _ParquetFile | _Dataset]:
    path = Path(input)
    saved = any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
    if path.is_dir() and not saved and split is None:
        files = sorted(str(file) for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
        files = [file for file in files if not Path(file).name.startswith((".", "_"))]
        if not files:
            raise FileNotFoundError(f"{input}: the folder holds no file ending in {', '.join(SUFFIXES)}")
    elif path.is_file():
        files = [input]
    elif glob.has_magic(input):
        files = sorted(file for file in glob.glob(input, recursive=True) if Path(file).is_file())
        if not files:
            raise FileNotFoundError(f"{input}: no file matches")
    elif not path.is_dir() and (input.endswith(SUFFIXES) or input.startswith((".", "/", "~")) or input.count("/") > 1):
        raise FileNotFoundError(f"{input}: no such file or folder")
    else:
        yield _load_dataset(input, split, config, saved)
        return
    if split not in (None, "train"):
        raise InputError(f"{input}: a file has no splits other than 'train', got {split!r}")
    for file in files:
        if not file.endswith(SUFFIXES):
            raise InputError(f"{file}: unknown kind of file; known are {', '.join(SUFFIXES)}")
        yield (_ParquetFile if file.endswith(".parquet") else _LineFile)(file, os.path.getsize(file))


def _load_dataset(name: str, split: str | None, config: str | None, saved: bool) -> _Dataset:
    import datasets

    try:
        data = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except Exception as error:  # the Hub, the network, the cache and the builders each raise their own
        raise InputError(f"{name}: neither a file, a folder nor a dataset that loads ({error})") from error
    if isinstance(data, datasets.DatasetDict):
        if split is None and len(data) == 1:
            split = next(iter(data))
        if split not in data:
            raise InputError(f"{name}: name one of its splits {list(data)}, got {split!r}")
        data = data[split]
    elif split is not None and split != str(data.split):
        raise InputError(f"{name}: holds the split {str(data.split)!r}, got {split!r}")
    return _Dataset(f"{name} ({split})" if split else name, data, int(data.data.nbytes))
