"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets, in one fixed order.

A `TextSource` is a list of parts (a file, a dataset) and every part is a sequence of blocks of about a MiB that know
how to read themselves. The order of parts, blocks and documents depends on the input alone, so several processes can
share the blocks out among themselves and still agree on what the result is.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its range: it skips
   the tail of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead, and a line
   number (for a message) is counted only when there is something to say.
2. A compressed file can only be read from its start: its blocks are groups of whole lines, each carrying its bytes.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

Cost: a line lies in memory whole, nothing grows with the input. Blank lines are no documents. The alternative,
`datasets.load_dataset("json")` for everything, first writes the corpus a second time as Arrow, reports a broken line
without its number and cannot leave one out; it is used for what only it can read.
"""

from __future__ import annotations

import glob
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import orjson

BLOCK_BYTES = 1 << 20
PACKED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (*(kind + packed for kind in (".json", ".jsonl") for packed in ("", *PACKED)), ".parquet")
OnError = Literal["raise", "skip"]


class InputError(ValueError):
    """The input as a whole cannot be used: nothing matches, unknown kind of file, missing column, damaged file."""


class DocumentError(InputError):
    """One document cannot be used. `kind` is what `on_error="skip"` counts it as, `where` names its file and line."""

    def __init__(self, kind: str, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.kind, self.what, self.where = kind, what, where


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
        self, path: str, column: str, on_error: OnError, first: int, read: Callable[[], Iterable[Any]], num_bytes: int
    ) -> None:
        super().__init__(path, column, on_error)
        self._first, self._read, self._size = first, read, num_bytes

    def rows(self) -> Iterator[Any]:
        self.num_bytes = self._size
        yield from self._read()

    def text_of(self, row: bytes | str | None) -> str | None:
        return text_of_line(row, self.column) if isinstance(row, bytes) else _checked(row, self.column)

    def locate(self, number: int) -> str:
        return f"{self.path}:{self._first + number}"


def read_lines(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, line with its newline) for the lines of a seekable file whose first byte is in [begin, end).

    Passing over lines costs no parsing, and `read_lines(file, offset, size)` goes on at an offset that was handed out.
    """
    offset = begin
    file.seek(max(0, begin - 1))
    if begin:
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
    Raises DocumentError without a `where`: invalid UTF-8, invalid JSON, not an object, missing column, not a string,
    lone surrogate (valid JSON, but no Unicode text: it has no UTF-8 form and no tokenizer accepts it).
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        if not line.strip():
            return None
        try:
            record = json.loads(line.rstrip())
        except UnicodeDecodeError as error:
            what = f"not UTF-8 ({error.reason} at byte {error.start} of the line)"
            raise DocumentError("invalid UTF-8", what) from None
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
            what = f"not JSON ({reason}); every line must be one JSON object{_hint(line)}"
            raise DocumentError("invalid JSON", what) from None
    if not isinstance(record, dict):
        what = f"every line must be one JSON object, got a {type(record).__name__}{_hint(line)}"
        raise DocumentError("not an object", what)
    if column not in record:
        raise DocumentError("missing column", f"no column {column!r}; the columns here are {list(record)}")
    return _checked(record[column], column)


def _hint(line: bytes) -> str:
    is_array = line.lstrip().startswith(b"[")
    return "; a JSON array becomes JSON lines with: jq -c '.[]' in.json > out.jsonl" if is_array else ""


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
class _Lines:
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
                yield _ListBlock(self.path, column, on_error, first, lines.__iter__, file.tell() - consumed)
                first, consumed = first + len(lines), file.tell()
        except OSError as error:
            raise InputError(f"{self.path}: damaged after line {first - 1}: {error}") from None


@dataclass(frozen=True)
class _Parquet:
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

        def read(group: int) -> Iterator[Any]:
            for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                yield from batch.column(0).to_pylist()

        first = 1
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            size = self.num_bytes * rows // file.metadata.num_rows
            yield _ListBlock(self.path, column, on_error, first, partial(read, group), size)
            first += rows


@dataclass(frozen=True)
class _Dataset:
    path: str
    num_bytes: int
    dataset: Any = field(repr=False)

    def blocks(self, column: str, on_error: OnError) -> Iterator[Block]:
        _require_column(column, self.dataset.column_names, self.path)
        texts = self.dataset.select_columns([column]).with_format(None)
        step = max(1, BLOCK_BYTES * len(texts) // max(1, self.num_bytes))
        for begin in range(0, len(texts), step):
            end = min(begin + step, len(texts))
            size = self.num_bytes * (end - begin) // len(texts)
            yield _ListBlock(self.path, column, on_error, begin + 1, partial(_rows_of, texts, column, begin, end), size)


def _rows_of(texts: Any, column: str, begin: int, end: int) -> list[Any]:
    return texts[begin:end][column]


def _require_column(column: str, existing: Sequence[str], path: str) -> None:
    if column not in existing:
        raise InputError(f"{path}: no column {column!r}; the columns here are {list(existing)}")


@dataclass(frozen=True)
class TextSource:
    """What `open_text` returns: an ordered list of parts, each a sequence of blocks. Other processes may be sent it."""

    column: str
    on_error: OnError
    parts: tuple[_Lines | _Parquet | _Dataset, ...]

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
        input: a .json/.jsonl file (one JSON object per line; .gz and .zst too), a .parquet file, a folder (all such
            files below it, sorted by path), a glob, a folder written by `Dataset.save_to_disk`, the name of a Hub
            dataset, or a list of these, read in the order given.
        column: the name of the column with the text.
        split: of a dataset. A folder with a split is read by `datasets.load_dataset`; a file has only "train".
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


def _parts(input: str, split: str | None, config: str | None) -> Iterator[_Lines | _Parquet | _Dataset]:
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
        yield (_Parquet if file.endswith(".parquet") else _Lines)(file, os.path.getsize(file))


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
    return _Dataset(f"{name} ({split})" if split else name, int(data.data.nbytes), data)
