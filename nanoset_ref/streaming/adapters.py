"""Adapters: where elements come from, and what is done to each.

`__iter__` reads and does no more; `preprocess_line` does the heavy work and runs in the DataLoader's workers. An
adapter that also has `__len__` and `__getitem__` can seek: datasets then go straight to the elements they need, and a
resume costs nothing.

`LinesAdapter`, `JSONLinesAdapter` and `CSVAdapter` can seek. One pass over the file (about a GB per second) finds where
its records begin, 8 bytes each; afterwards a record is one slice of a memory map. The rejected alternative, to read on
from the start to the place wanted, makes a resume as slow as the run before it.
"""

from __future__ import annotations

import codecs
import csv
import json
import mmap
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 1 << 24


class Adapter(ABC):
    """Subclass it, give it `__iter__`, and `preprocess_line` where an element needs work.

    Args:
        hparams: anything your subclass wants to find as `self.hparams`.
    """

    def __init__(self, hparams: Any = None) -> None:
        self.hparams = hparams

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """All raw elements of one epoch, in the same order every time."""

    def preprocess_line(self, line: Any) -> Any:
        """One raw element made ready. A generator stands for several elements."""
        return line


def can_index(adapter: Adapter) -> bool:
    """Does the adapter have `len` and `adapter[i]` for the elements its `__iter__` yields?

    A subclass that replaces `__iter__` alone (to filter, say) has taken leave of its parent's index.
    """
    for cls in type(adapter).__mro__:
        if "__getitem__" in vars(cls):
            return operator.length_hint(adapter, -1) >= 0  # -1: its `len` is a TypeError
        if "__iter__" in vars(cls):
            return False
    return False


class LinesAdapter(Adapter):
    """The lines of a UTF-8 text file, without their line ends.

    Args:
        hparams: as in Adapter.
        filepath: the file, not compressed.

    Raises:
        FileNotFoundError: no such file.
        UnicodeDecodeError: on reading a line that is not UTF-8.
    """

    keeps_blank_lines = True
    quotes = ""  # between two of these a line end does not end a record

    def __init__(self, hparams: Any, filepath: str | os.PathLike[str]) -> None:
        super().__init__(hparams)
        self.filepath = os.fspath(filepath)
        self._map = _mapped(self.filepath)
        self._bounds = self._record_bounds()

    def __len__(self) -> int:
        return len(self._bounds)

    def __getitem__(self, index: int) -> str:
        begin, end = self._bounds[index].tolist()
        return self._map[begin:end].removesuffix(b"\r").decode()

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_map"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _map=_mapped(state["filepath"]))

    def _record_bounds(self) -> NDArray[np.int64]:
        """Where each record begins and ends, without its "\\n": int64 [records, 2]."""
        data = np.frombuffer(self._map, np.uint8)
        begin = len(codecs.BOM_UTF8) if self._map[:3] == codecs.BOM_UTF8 else 0
        ends = _places(data, "\n")
        if self.quotes:  # a line end after an odd number of quotes is within a field
            ends = ends[np.searchsorted(_places(data, self.quotes), ends) % 2 == 0]
        if len(data) > (ends[-1] + 1 if len(ends) else begin):
            ends = np.append(ends, len(data))  # the last record has no line end
        begins = np.append(begin, ends[:-1] + 1)[: len(ends)]
        if not self.keeps_blank_lines:
            lengths = ends - begins
            full = (lengths > 1) | ((lengths == 1) & (data[begins] != ord("\r")))
            begins, ends = begins[full], ends[full]
        return np.stack([begins, ends], axis=1)


class JSONLinesAdapter(LinesAdapter):
    """A JSON value per line; empty lines are none. The parsing happens in `preprocess_line`.

    Raises:
        ValueError: on preprocessing a line that is not JSON.
    """

    keeps_blank_lines = False

    def preprocess_line(self, line: str) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.filepath}: a line is not JSON ({error}): {line[:80]!r}") from None


class CSVAdapter(LinesAdapter):
    """Records of separated fields; a quoted field may hold line ends. The parsing happens in `preprocess_line`.

    Args:
        hparams: as in Adapter.
        filepath: the file, not compressed.
        delimiter: between fields; "\\t" for TSV.
        quotechar: around fields; None where the file has no quoting and a quote is a character like others.
        header: the first record names the columns, and records become dicts; else they are lists of str.

    A quote belongs around a field, not into the middle of one that has none around it.

    Raises:
        ValueError: a file without its header; on preprocessing, a record with more or fewer fields than the header.
    """

    keeps_blank_lines = False

    def __init__(
        self,
        hparams: Any,
        filepath: str | os.PathLike[str],
        *,
        delimiter: str = ",",
        quotechar: str | None = '"',
        header: bool = True,
    ) -> None:
        self.quotes = quotechar or ""
        super().__init__(hparams, filepath)
        self.format: dict[str, Any] = {"delimiter": delimiter, "quotechar": quotechar}
        if quotechar is None:
            self.format["quoting"] = csv.QUOTE_NONE
        self.columns: list[str] | None = None
        if header:
            if not len(self):
                raise ValueError(f"{self.filepath}: an empty file has no header; pass header=False if it has none")
            self.columns = self._fields(self[0])
            self._bounds = self._bounds[1:]

    def preprocess_line(self, line: str) -> Any:
        fields = self._fields(line)
        if self.columns is None:
            return fields
        if len(fields) != len(self.columns):
            what = f"{len(fields)} fields for the {len(self.columns)} columns {self.columns}"
            raise ValueError(f"{self.filepath}: a record has {what}: {line[:80]!r}")
        return dict(zip(self.columns, fields, strict=True))

    def _fields(self, record: str) -> list[str]:
        try:
            return next(csv.reader([record], **self.format))
        except csv.Error as error:
            raise ValueError(f"{self.filepath}: a record cannot be read ({error}): {record[:80]!r}") from None


class HuggingFaceAdapter(Adapter):
    """The rows of a `datasets.Dataset`, which can seek, or of a `datasets.IterableDataset`, which cannot.

    Args:
        hparams: as in Adapter.
        dataset: what `datasets.load_dataset(..., split=...)` returns, with or without streaming=True.

    A streaming dataset deals its files out to DataLoader workers on its own accord, which would take elements away from
    the dealing done here; it is read through its `iter(batch_size=...)`, which does not.
    """

    def __init__(self, hparams: Any, dataset: Any) -> None:
        super().__init__(hparams)
        if not hasattr(dataset, "column_names"):
            kind = type(dataset).__name__
            raise TypeError(f"dataset must be a datasets.Dataset or datasets.IterableDataset, got {kind}")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # TypeError for a streaming dataset

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __iter__(self) -> Iterator[Any]:
        for columns in self.dataset.iter(batch_size=256):
            for row in zip(*columns.values(), strict=True):
                yield dict(zip(columns, row, strict=True))

    def set_epoch(self, epoch: int) -> None:
        """A shuffled streaming dataset shuffles anew in every epoch."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)


def _mapped(filepath: str) -> Any:
    with open(filepath, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _places(data: NDArray[np.uint8], character: str) -> NDArray[np.int64]:
    """Where a character stands, int64; searched in windows, so that memory holds its places and no more."""
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(data), WINDOW):
        found.append(begin + np.flatnonzero(data[begin : begin + WINDOW] == ord(character)))
    return np.concatenate(found)
