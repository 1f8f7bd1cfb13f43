"""Where the documents of a subset go: into rows of a file of records, into a spool, or to several places at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.chunks.packing import Packer
from nanoset_ref.chunks.records import format_records
from nanoset_ref.files import atomic_write
from nanoset_ref.tokenise import Sink


class RowsWriter:
    """A sink that packs documents into rows and writes them as records; counts them."""

    def __init__(self, packer: Packer, source: str) -> None:
        self.packer, self._source = packer, source
        self.samples = self.padding = 0

    @contextlib.contextmanager
    def open(self, path: Path, pad_id: int | None) -> Iterator[RowsWriter]:
        """`pad_id` fills up the last row; None leaves the tail in the packer."""
        with atomic_write(path) as self._file:
            yield self
            if pad_id is not None and len(tail := self.packer.tail):
                self.padding = self.packer.row_length - len(tail)
                self.write(np.full(self.padding, pad_id, dtype=tail.dtype), np.array([self.padding]))

    def write(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        self.write_rows(self.packer.add(ids, lengths))

    def write_rows(self, rows: NDArray[Any]) -> None:
        self._file.write(format_records(rows, self._source))
        self.samples += len(rows)


class Spool:
    """A sink that keeps the rows of one worker of the original script in a file without a name."""

    def __init__(self, packer: Packer, dtype: np.dtype[Any], file: IO[bytes]) -> None:
        self.packer, self._dtype, self._file = packer, dtype, file

    def write(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        self._file.write(self.packer.add(ids, lengths).astype(self._dtype).tobytes())

    def rows(self) -> NDArray[Any]:
        """[rows, row_length], mapped."""
        self._file.flush()
        ids = np.memmap(self._file, self._dtype, "r") if self._file.tell() else np.empty(0, self._dtype)
        return ids.reshape(-1, self.packer.row_length)


class Tee:
    """A sink that hands everything to several."""

    def __init__(self, sinks: list[Sink]) -> None:
        self._sinks = sinks

    def write(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        for sink in self._sinks:
            sink.write(ids, lengths)
