"""Adapters: the source of a dataset's elements, and the preprocessing of each.

`__iter__` only reads; `preprocess_line` does the heavy work and runs in the DataLoader's workers.
An adapter that also has `__len__` and `__getitem__` can seek: datasets then read only the elements
they need, and a resume is immediate.

`LinesAdapter`, `JSONLinesAdapter` and `CSVAdapter` can seek. One pass over the file (about a GB per
second) finds the bounds of its records, 16 bytes each. After that a record is one slice of a memory
map.
"""

import codecs
import csv
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.types import Int64Array, Uint8Array
from nanoset_ref.streaming.file_map import FileMap

SCAN_BYTES = 1 << 24  # compared at once


class Adapter(ABC):
    """Base class: a subclass defines `__iter__`, and `preprocess_line` if its elements need work.

    Args:
        hparams: any object, stored as `self.hparams`.
    """

    def __init__(self, hparams: Any = None) -> None:
        self.hparams = hparams

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Yield all raw elements of one epoch, always in the same order."""

    def preprocess_line(self, line: Any) -> Any:
        """Preprocess one raw element; a generator function may make several elements of it."""
        return line


def can_index(adapter: Adapter) -> bool:
    """Whether the adapter has `len` and `adapter[i]` for the elements that its `__iter__` yields.

    If a subclass overrides only `__iter__` (for example to filter), its parent's index does not
    fit.
    """
    for cls in type(adapter).__mro__:
        if "__getitem__" in vars(cls):
            # -1: `len` raises a TypeError
            return operator.length_hint(adapter, -1) >= 0
        if "__iter__" in vars(cls):
            break
    return False


class LinesAdapter(Adapter):
    """The lines of a UTF-8 text file, without line ends.

    Args:
        hparams: see Adapter.
        filepath: the file, not compressed.

    Raises:
        FileNotFoundError: the file does not exist.
        UnicodeDecodeError: a line that is read is not UTF-8.
    """

    keeps_blank_lines = True
    quote: str | None = None  # a line end between two quotes does not end a record

    def __init__(self, hparams: Any, filepath: PathLike) -> None:
        super().__init__(hparams)
        self._file = FileMap(filepath)
        self.filepath = self._file.path
        data = np.frombuffer(self._file.bytes, np.uint8)
        ends = _offsets_of(data, "\n")
        if self.quote:
            quotes_before = np.searchsorted(_offsets_of(data, self.quote), ends)
            ends = ends[quotes_before % 2 == 0]
        first = 3 if self._file.bytes[:3] == codecs.BOM_UTF8 else 0
        starts = np.insert(ends + 1, 0, first)
        ends = np.append(ends, len(data))
        # "\r\n" is also a line end
        longer = ends > starts
        longer[longer] = data[ends[longer] - 1] == ord("\r")
        ends -= longer
        kept = starts < (len(data) if self.keeps_blank_lines else ends)
        # bounds of each record, in bytes
        self._bounds = np.stack([starts, ends], axis=1)[kept]

    def __len__(self) -> int:
        return len(self._bounds)

    def __getitem__(self, index: int) -> str:
        start, stop = self._bounds[index].tolist()
        return self._file.bytes[start:stop].decode()

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def preprocess_line(self, line: str) -> Any:
        """Convert a line to an element."""
        try:
            return self.parse(line)
        except (ValueError, RecursionError, csv.Error) as error:
            raise ValueError(
                f"{self.filepath}: {line[:80]!r} cannot be read: {error}"
            ) from None

    def parse(self, line: str) -> Any:
        """Parse a line."""
        return line


class JSONLinesAdapter(LinesAdapter):
    """A JSON value per line; empty lines are skipped. `preprocess_line` parses.

    Raises:
        ValueError: a line that is preprocessed is not JSON.
    """

    keeps_blank_lines = False

    def parse(self, line: str) -> Any:
        """A line as a JSON value."""
        return json.loads(line)


def _require_character(value: Any, name: str) -> None:
    """Raise ValueError unless a value is one character of a line."""
    if not isinstance(value, str) or len(value) != 1 or value in "\r\n":
        raise ValueError(f"{name} must be one character of a line, got {value!r}")


class CSVAdapter(LinesAdapter):
    """Records of separated fields; a quoted field may contain line ends. `preprocess_line` parses.

    Args:
        hparams: see Adapter.
        filepath: the file, not compressed.
        delimiter: the character between fields; "\\t" for TSV.
        quotechar: the ASCII character around fields; None if a quote is an ordinary character.
        header: the first record names the columns, and records become dicts; False: records are
            lists of str.

    Quotes enclose whole fields; a quote in the middle of an unquoted field is not supported.

    Raises:
        ValueError: delimiter or quotechar is not one character, quotechar is not ASCII, or both are
            the same; the header is missing, or names a column twice. While preprocessing: a record
            has more or fewer fields than the header, or a quote that is not closed.
    """

    keeps_blank_lines = False

    def __init__(
        self,
        hparams: Any,
        filepath: PathLike,
        *,
        delimiter: str = ",",
        quotechar: str | None = '"',
        header: bool = True,
    ) -> None:
        _require_character(delimiter, "delimiter")
        if quotechar is not None:
            _require_character(quotechar, "quotechar")
            if not quotechar.isascii():
                raise ValueError(
                    f"quotechar must be an ASCII character, got {quotechar!r}: replace it in the "
                    "file, or pass quotechar=None, which reads it as text"
                )
        if delimiter == quotechar:
            raise ValueError(f"delimiter and quotechar must differ, got {delimiter!r}")
        self.quote = quotechar
        super().__init__(hparams, filepath)
        quoting = csv.QUOTE_NONE if quotechar is None else csv.QUOTE_MINIMAL
        self.format: dict[str, Any] = {
            "delimiter": delimiter,
            "quotechar": quotechar,
            "quoting": quoting,
            "strict": True,  # a quote that is not closed is an error
        }
        self.columns: list[str] | None = None
        if header:
            if not len(self):
                raise ValueError(
                    f"{self.filepath} is empty; pass header=False if it has no header"
                )
            self.columns = self.preprocess_line(self[0])
            self._bounds = self._bounds[1:]
            if len(set(self.columns)) < len(self.columns):
                raise ValueError(
                    f"{self.filepath}: a column is named twice: {self.columns}; pass header=False"
                )

    def parse(self, line: str) -> Any:
        """A line as {column: field}."""
        # the limit of the process is 131,072 characters, unless it was raised
        if len(line) > csv.field_size_limit():
            csv.field_size_limit(len(line))
        fields = next(csv.reader([line], **self.format))
        if self.columns is None:
            return fields
        if len(fields) != len(self.columns):
            raise ValueError(
                f"{len(fields)} fields for the {len(self.columns)} columns {self.columns}"
            )
        return dict(zip(self.columns, fields, strict=True))


class HuggingFaceAdapter(Adapter):
    """The rows of a `datasets.Dataset` or `datasets.IterableDataset`; only the first can seek.

    Args:
        hparams: see Adapter.
        dataset: the result of `datasets.load_dataset(..., split=...)`, with or without
            streaming=True.

    Rows are dicts. TypeError while reading if the dataset's format gives tables instead: arrow,
    pandas, polars.

    Iterated directly, a streaming dataset would divide its files among the DataLoader's workers, in
    addition to the division done here. Its `iter(batch_size=...)` does not divide them.
    """

    def __init__(self, hparams: Any, dataset: Any) -> None:
        super().__init__(hparams)
        if not hasattr(dataset, "column_names"):
            type_name = type(dataset).__name__
            raise TypeError(
                f"dataset must be a datasets.Dataset or IterableDataset, got {type_name}"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # TypeError for a streaming dataset

    def __getitem__(self, index: int) -> Any:
        return _columns(self.dataset[index])

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataset.iter(batch_size=256):
            columns = _columns(batch)
            for row in zip(*columns.values(), strict=True):
                yield dict(zip(columns, row, strict=True))

    def set_epoch(self, epoch: int) -> None:
        """Make a shuffled streaming dataset shuffle again in every epoch."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)


def _columns(value: Any) -> Mapping[str, Any]:
    """A row or batch of `datasets`; TypeError if its format makes it a table."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"the dataset's format gives a {type(value).__name__} instead of a dict; pass "
            "dataset.with_format(None)"
        )
    return value


def _offsets_of(data: Uint8Array, character: str) -> Int64Array:
    """The offsets of an ASCII character, SCAN_BYTES at a time: a mask is as large as its data."""
    offsets = [np.empty(0, np.int64)]
    for start in range(0, len(data), SCAN_BYTES):
        is_match = data[start : start + SCAN_BYTES] == ord(character)
        offsets.append(start + np.flatnonzero(is_match))
    return np.concatenate(offsets)
