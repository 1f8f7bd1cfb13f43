"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets, in one fixed order.

A `TextSource` is a list of parts (a file, a dataset), and every part is a sequence of blocks of about a MiB. The order
of parts, blocks and documents depends on the input alone.

1. A plain file is cut at fixed byte offsets. A block owns the lines whose *first* byte lies in its range: it skips the
   rest of its predecessor's last line and reads its own last line to the end. Nothing is scanned ahead.
2. A compressed file can only be read from its start. Its blocks are groups of whole lines.
3. A Parquet file is cut at its row groups, a dataset at fixed row numbers.

A line lies in memory whole; nothing else grows with the input. Blank lines are no documents. Line numbers are counted
only when there is something to say about a line. orjson parses; what it refuses goes to Python's `json`, which also
takes NaN, Infinity and a byte-order mark, as many writers produce them, and names the place where a line breaks.
`datasets.load_dataset("json")` reads only what nothing else can: it first writes the corpus a second time as Arrow, and
reports a broken line without its number.
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
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import listed

BLOCK_BYTES = 1 << 20
LONGEST_LINE = (
    1 << 28
)  # bytes, out of a compressed file: a few kilobytes can unpack to as many gigabytes
PACKED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (
    *(kind + packed for kind in (".json", ".jsonl") for packed in ("", *PACKED)),
    ".parquet",
)
SAVED = (
    "state.json",
    "dataset_dict.json",
)  # one of them lies in a folder that Dataset.save_to_disk has written
PROBE_DOCUMENTS, PROBE_CHARS = 500, 2000  # of a text on which a tokenizer is tried
PROBE_PARTS = 20
MAKE_LINES = "a JSON array becomes JSON lines with: jq -c '.[]' in.json > out.jsonl"
OnError = Literal["raise", "skip"]


class InputError(ValueError):
    """The input as a whole cannot be used: nothing matches, unknown kind of file, missing column, damaged file."""


class DocumentError(InputError):
    """One document cannot be used. `kind` is what `on_error="skip"` counts it as."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


@dataclass(frozen=True)
class TextSource:
    """What `open_text` returns: an ordered list of parts, each a sequence of blocks; `column` is as it was given."""

    column: str | Sequence[str]
    parts: tuple[TextPart, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk, in bytes: what the `num_bytes` of all blocks add up to, roughly."""
        return sum(part.num_bytes for part in self.parts)

    def blocks(self) -> Iterator[Block]:
        """The blocks in their order."""
        for part in self.parts:
            yield from part.kind(part)

    def documents(self) -> Iterator[Document]:
        """All documents in their order."""
        for block in self.blocks():
            yield from block.documents()

    def beginning(self) -> Iterator[str]:
        """The beginnings of the first documents of some parts, evenly spaced: a tokenizer is tried on them.

        A document that cannot be read ends its part here; the run that comes to it says what is wrong.
        """
        chosen = self.parts[:: math.ceil(len(self.parts) / PROBE_PARTS)]
        number = math.ceil(PROBE_DOCUMENTS / len(chosen))
        for part in chosen:
            documents = dataclasses.replace(self, parts=(part,)).documents()
            with contextlib.suppress(InputError):
                for document in islice(documents, number):
                    yield document.text[:PROBE_CHARS]


# ---- what an input is


def open_text(
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str | Sequence[str] = "text",
    split: str | None = None,
    on_error: OnError = "raise",
    config: str | None = None,
) -> TextSource:
    """Find out what `input` is and return its documents as a `TextSource`.

    Args:
        input: a .json/.jsonl file (one JSON object per line; .gz and .zst too), a .parquet file, a folder (all such
            files below it, sorted by path), a glob, a folder written by `Dataset.save_to_disk`, the name of a Hub
            dataset, or a list of these, read in the order given.
        column: the name of the column with the text; or several names: a document has its text in the first of them
            that it has, whatever other documents have.
        split: of a dataset. A folder with a split is read by `datasets.load_dataset`; a file has only "train".
        on_error: "raise" stops at the first document that cannot be used; "skip" leaves it out and counts it.
        config: the configuration of a Hub dataset, where it has several; files and saved datasets have none.

    Raises:
        FileNotFoundError: no such file, nothing matches.
        InputError: wrong kind of file, empty input, unknown split, configuration or missing column, with what exists.
    """
    if on_error not in get_args(OnError):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    inputs = listed(input)
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
            raise InputError(
                f"{name}: files have no configurations, got {config!r}; leave it out (--dataset-config)"
            )
        parts += [_file(file, columns, on_error) for file in files]
    source = TextSource(column, tuple(parts))
    if not source.num_bytes:
        raise InputError(f"{', '.join(map(str, inputs)) or 'an empty list'}: the input is empty")
    return source


def _files(name: str) -> list[str] | None:
    """The files that a name stands for; None: it is the name of a dataset."""
    path = Path(name)
    if path.is_file():
        return [name]
    if path.is_dir():
        if any((path / saved).is_file() for saved in SAVED):
            return None
        files = list(map(str, text_files(path)))
    elif path.exists():
        raise InputError(
            f"{name} is neither a regular file nor a folder; copy what it holds into a file"
        )
    elif glob.has_magic(name):
        files = sorted(file for file in glob.glob(name, recursive=True) if os.path.isfile(file))
    elif name.endswith(SUFFIXES) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FileNotFoundError(f"{name}: no such file or folder")
    else:
        return None
    if not files:
        raise FileNotFoundError(f"{name}: no file matches; known kinds are {', '.join(SUFFIXES)}")
    return files


def text_files(folder: Path) -> list[Path]:
    """The files with text below a folder, sorted; not what lies in .ipynb_checkpoints, nor _SUCCESS."""
    found = (
        file
        for file in sorted(folder.rglob("*"))
        if file.name.endswith(SUFFIXES) and file.is_file()
    )
    return [
        file
        for file in found
        if not any(part[0] in "._" for part in file.relative_to(folder).parts)
    ]


def hub_problem() -> str:
    """Why the Hub cannot be reached, if so. Asked once, because other libraries ask for a minute before they say so."""
    with extra("text", "reading from the Hub"):
        from huggingface_hub import constants, get_session

    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # of the HTTP library
        return f"{constants.ENDPOINT} cannot be reached: {error}"
    return ""


def _load_dataset(name: str, split: str | None, config: str | None) -> tuple[Any, str]:
    """A dataset, and how errors call it."""
    with extra("text", "reading a dataset"):
        import datasets

    saved = any(Path(name, file).is_file() for file in SAVED)
    if not Path(name).exists() and (problem := hub_problem()):
        cached = "HF_HUB_OFFLINE=1 reads what was downloaded before"
        raise InputError(f"{name}: neither a file nor a folder, and {problem}; {cached}")
    if saved and config is not None:
        what = "a dataset written by save_to_disk has no configurations"
        raise InputError(f"{name}: {what}, got {config!r}; leave it out (--dataset-config)")
    try:
        data = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except (
        Exception
    ) as error:  # the Hub, the network, the cache and the builders each raise their own
        raise InputError(
            f"{name}: neither a file, a folder nor a dataset that loads ({error})"
        ) from error
    splits = data if isinstance(data, dict) else {data.split and str(data.split): data}
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise InputError(f"{name}: name one of its splits {list(splits)}, got {split!r}")
    return splits[split], f"{name} ({split})" if split else name


# ---- parts, blocks, documents


class Document(NamedTuple):
    """One text. `where` ("file:line", counted from 1) is worked out only when asked for."""

    text: str
    block: Block
    number: int

    @property
    def where(self) -> str:
        return f"{self.block.part.path}:{self.block.first() + self.number}"


@dataclass(frozen=True)
class TextPart:
    """One file or dataset; `num_bytes` on disk. `kind` cuts it into blocks.

    A document has its text in the first of `columns` that it has.
    """

    path: str
    num_bytes: int
    columns: tuple[str, ...]
    on_error: OnError
    kind: Callable[[TextPart], Iterator[Block]]


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
        for number, row in enumerate(self.rows()):
            try:
                text = text_of(row, self.part.columns)
            except DocumentError as error:
                if self.part.on_error == "raise":
                    raise DocumentError(
                        error.kind, f"{Document('', self, number).where}: {error}"
                    ) from None
                self.skipped[error.kind] += 1
            else:
                if text is not None:
                    yield Document(text, self, number)


def _file(path: str, columns: tuple[str, ...], on_error: OnError) -> TextPart:
    """A file by its name."""
    if not path.endswith(SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(SUFFIXES)}")
    kinds = {".parquet": _parquet} | dict.fromkeys(PACKED, _packed_lines)
    return TextPart(
        path, os.path.getsize(path), columns, on_error, kinds.get(Path(path).suffix, _lines)
    )


def _lines(part: TextPart) -> Iterator[Block]:
    """JSON lines."""

    def rows(begin: int, end: int) -> Iterator[bytes]:
        """The lines whose first byte is in [begin, end)."""
        with open(part.path, "rb", buffering=BLOCK_BYTES) as file:
            if begin:
                file.seek(begin - 1)
                file.readline(
                    end - begin + 1
                )  # of an earlier line; one that fills the whole range ends it
            while file.tell() < end and (line := file.readline()):
                yield line

    def first(begin: int) -> int:
        return 1 + sum(1 for _ in rows(0, begin))

    for begin in range(0, part.num_bytes, BLOCK_BYTES):
        end = min(begin + BLOCK_BYTES, part.num_bytes)
        yield Block(part, end - begin, partial(rows, begin, end), partial(first, begin))


def _packed_lines(part: TextPart) -> Iterator[Block]:
    """JSON lines, compressed."""
    with extra("text", "reading compressed files"):
        import pyarrow

    file = pyarrow.OSFile(part.path)
    first, begin = 1, 0
    with _damage(part.path):
        unpacked = pyarrow.CompressedInputStream(file, PACKED[Path(part.path).suffix])
        stream = io.BufferedReader(unpacked, BLOCK_BYTES)
        while data := stream.read(BLOCK_BYTES):
            rest = stream.readline(LONGEST_LINE)  # of its last line
            if len(rest) == LONGEST_LINE:
                number = first + data.count(b"\n")
                what = f"unpacks to {LONGEST_LINE:,} bytes or more; unpack the file to read it"
                raise InputError(f"{part.path}:{number}: {what}")
            lines = io.BytesIO(data + rest).readlines()
            yield Block(part, file.tell() - begin, lines.copy, partial(int, first))
            first, begin = first + len(lines), file.tell()


def _parquet(part: TextPart) -> Iterator[Block]:
    """A column of a Parquet file."""
    with extra("text", "reading Parquet files"):
        from pyarrow import parquet

    with _damage(part.path):
        file = parquet.ParquetFile(part.path)
    column = _column(part, file.schema_arrow.names)

    def read(group: int) -> Iterator[dict[str, Any]]:
        with _damage(f"{part.path}, row group {group}"):
            for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                yield from batch.to_pylist()

    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return _table(part, sizes, read)


def _dataset(dataset: Any, part: TextPart) -> Iterator[Block]:
    """A column of a Hugging Face dataset."""
    rows = len(dataset)
    step = max(1, BLOCK_BYTES * rows // max(1, part.num_bytes))
    column = _column(part, dataset.column_names)

    def read(number: int) -> list[dict[str, Any]]:
        texts = dataset.select_columns([column]).with_format(None)
        values = texts[number * step : (number + 1) * step][column]
        return [{column: value} for value in values]

    return _table(part, [min(step, rows - begin) for begin in range(0, rows, step)], read)


def _column(part: TextPart, columns: Sequence[str]) -> str:
    """The first column of a part that a table with these `columns` has."""
    for column in part.columns:
        if column in columns:
            return column
    raise InputError(f"{part.path}: {_no_column(part.columns, columns)}")


def _no_column(wanted: Sequence[str], columns: Iterable[str]) -> str:
    return f"no column {' or '.join(map(repr, wanted))}; the columns here are {list(columns)}"


def _table(
    part: TextPart, sizes: Sequence[int], read: Callable[[int], Iterable[Any]]
) -> Iterator[Block]:
    """Blocks of `sizes` rows, the k-th of which `read(k)` reads; each has its share of the bytes."""
    first, total = 1, sum(sizes) or 1
    for k, size in enumerate(sizes):
        yield Block(part, part.num_bytes * size // total, partial(read, k), partial(int, first))
        first += size


@contextlib.contextmanager
def _damage(where: str) -> Iterator[None]:
    """Name the file that a library cannot read; its errors say only what it saw there."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{where}: damaged: {error}") from None


# ---- one line


@functools.cache
def _orjson() -> Any:
    with extra("text", "reading JSON lines"):
        import orjson
    return orjson


def text_of(row: Any, columns: Sequence[str]) -> str | None:
    """The text of a row, which is the bytes of a JSON line or a dict, in the first of `columns` that it has.

    None for a blank line.

    Raises DocumentError without a place: invalid JSON (or UTF-8), not an object, missing column, not a string,
    lone surrogate (valid JSON, but no Unicode text: it has no UTF-8 form and no tokenizer accepts it).
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
        raise DocumentError(
            "not a string", f"column {column!r} must hold a string, got {type(text).__name__}"
        )
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        what = (
            f"lone surrogate {text[error.start]!r} at character {error.start} of column {column!r}"
        )
        raise DocumentError("lone surrogate", what) from None
    return text


def _parsed_slowly(line: bytes) -> Any:
    try:
        return json.loads(line.rstrip())
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg} at character {error.pos}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        what = f"not JSON ({reason}); every line must be one JSON object; {MAKE_LINES}"
        raise DocumentError("invalid JSON", what) from None
