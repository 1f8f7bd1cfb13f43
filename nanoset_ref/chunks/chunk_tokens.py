"""A chunk, one .jsonl file of rows, read as it lies: every row a sample, in the order of the file.

To open a chunk is to find where its lines begin (8 bytes each, one pass over the file); a row is parsed when it is
read, by the rank that reads it: 80 microseconds for 2,049 ids. Whoever reads a chunk many times converts it to a token
file (`chunks_to_tokens`).
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nanoset_ref.chunks import ChunkManifest
from nanoset_ref.files import PathLike
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Order
from nanoset_ref.rows import Span
from nanoset_ref.tokens import TokenFileError, Tokens

Int64 = NDArray[np.int64]


class ChunkFile(Tokens):
    """One chunk.

    Args:
        path: the file. A manifest in its folder, or the one above, says how many rows it has and what is known of them.

    Attributes:
        row_length: tokens in a row, R; its samples are of sequence_length R - 1.
        line_starts: int64 [rows + 1], the bytes where the rows begin, and the end.

    Raises:
        TokenFileError: the file holds no row, or its folder is not finished.
    """

    windows = "disjoint"
    document_offsets = None  # a row holds pieces of several

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self.dtype = np.dtype(np.int32)
        rows, self._settings = None, {}
        for folder in self.path.parents[:2]:
            manifest = ChunkManifest.read(folder)
            if manifest and not manifest.complete:
                raise TokenFileError(f"{folder} is not finished: run the command that makes it once more")
            entry = manifest and manifest.files.get(self.path.relative_to(folder).as_posix())
            if manifest and entry:
                rows, self._settings = entry.lines, manifest.model_dump()["settings"]
        self.row_length = self._settings.get("concat_tokens") or len(self._parse(0))
        self.num_tokens = (rows or len(self.line_starts) - 1) * self.row_length

    @property
    def facts(self) -> dict[str, Any]:
        return {name: self._settings[name] for name in ("tokenizer", "vocab_size") if self._settings.get(name)}

    @cached_property
    def line_starts(self) -> Int64:
        with open(self.path, "rb") as file:
            return np.fromiter(accumulate(map(len, file), initial=0), dtype=np.int64)

    @cached_property
    def tokens(self) -> NDArray[np.int32]:
        """As `Tokens.tokens`, but in memory."""
        return np.array([self.row(number) for number in range(self.num_tokens // self.row_length)], np.int32).ravel()

    def row(self, number: int) -> list[int]:
        """The ids of a row; a TokenFileError names a line that is no row of this length."""
        ids = self._parse(number)
        if len(ids) != self.row_length:
            raise TokenFileError(f"{self.path}:{number + 1}: {len(ids)} tokens, expected {self.row_length}")
        return ids

    def _parse(self, number: int) -> list[int]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.line_starts[number])
                return orjson.loads(file.readline())["token_ids"]
        except (ValueError, LookupError, TypeError) as error:
            raise TokenFileError(f"{self.path}:{number + 1}: no row of a chunk; validate it") from error

    def num_samples(self, sequence_length: int) -> int:
        """Its rows; a TokenFileError for another length than they have."""
        if sequence_length != self.row_length - 1:
            raise TokenFileError(
                f"{self.path} has rows of {self.row_length} tokens: sequence_length must be {self.row_length - 1}, "
                f"got {sequence_length}"
            )
        return self.num_tokens // self.row_length


class FileOrder(Order):
    """The samples of one file as they lie in it, again and again."""

    name = "file"

    def lookup(self, positions: Int64) -> tuple[Int64, Int64]:
        return np.zeros_like(positions), positions % self.samples_per_epoch

    def _positions(self, dataset: int, sample: int, until: int) -> Int64:
        return np.arange(sample, until, self.samples_per_epoch)

    def _counts(self, until: int) -> Int64:
        return np.array([until])


class ChunkNanoset(Nanoset):
    """The rows of a chunk in their order; the arguments are those of a Nanoset."""

    def __init__(self, path: PathLike, sequence_length: int, train_split_num_samples: int) -> None:
        file = ChunkFile(path)
        order = FileOrder([file.num_samples(sequence_length)], None, train_split_num_samples)
        super().__init__(file, None, sequence_length, train_split_num_samples, order=order)
        self.file = file

    def _fill(self, positions: Int64, out: NDArray[Any]) -> None:
        for row, sample in zip(out, self.order[positions][1].tolist(), strict=True):
            row[:] = self.file.row(sample)

    def spans(self, position: int) -> list[Span]:
        """As `Rows.spans`; the bytes are those of the line."""
        sample = self.order[position][1]
        first, begin = sample * self.row_length, self.file.line_starts[sample : sample + 2].tolist()
        return [Span(None, first, first + self.row_length, *begin)]


def chunk_files(folder: PathLike) -> list[Path]:
    """The chunks of a folder, chunk 2 before chunk 10: what `mix` wrote (its train/), or any folder of .jsonl files.

    Raises:
        FileNotFoundError: it holds none.
    """
    folder = Path(folder)
    train = folder / "train"
    found = (train if train.is_dir() else folder).glob("*.jsonl")
    files = sorted(found, key=lambda path: re.sub(r"\d+", lambda number: number[0].zfill(20), path.name))
    if not files:
        raise FileNotFoundError(f"{folder} holds no chunk, a .jsonl file of rows; `chunks mix` writes them")
    return files
