"""Data whose rows identify themselves: a token encodes its row and its place in the row.

A row has S = 8 tokens: row 0 is [8 ... 15], row 1 is [16 ... 23], and row r begins at S (r + 1).
Numbers below S are padding and the ends of documents. In text formats, a row is a line of these
numbers.

>>> tokens_of_rows(np.arange(2))
array([[ 8,  9, 10, 11, 12, 13, 14, 15],
       [16, 17, 18, 19, 20, 21, 22, 23]])
"""

import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref.io.extras import extra
from nanoset_ref.io.types import Int64Array

ROW_LENGTH = 8  # S
# the most rows whose tokens, and the label after them, fit raw uint16
NPY_ROWS = 2**16 // ROW_LENGTH - 2


class Corpus(NamedTuple):
    """The `data` of an adapter that needs more than a number of rows.

    Attributes:
        paths: one file or folder per source; empty if the loader does not read files.
        rows: rows of each source; the first row of a source follows the last row of the source
            before.
        weights: the weights of the sources, with sum 1; None: there is one source.
        sequence_length: S, tokens in a row. A .npy file (raw uint16) ends with an extra token, for
            labels.
    """

    paths: list[str]
    rows: list[int]
    weights: list[float] | None = None
    sequence_length: int = ROW_LENGTH

    @property
    def path(self) -> str:
        """The path of the first source, or of the only one."""
        return self.paths[0]


def tokens_of_rows(rows: Int64Array) -> Int64Array:
    """The tokens of rows, int64 [len(rows), S]."""
    return ROW_LENGTH * (rows[:, None] + 1) + np.arange(ROW_LENGTH)


def write_corpus(
    folder: Path,
    format: str,
    rows: list[int],
    weights: list[float] | None = None,
) -> Corpus:
    """Write sources into a folder, in a format of `WRITERS`; the format "rows" writes nothing.

    Args:
        folder: created if needed.
        format: "rows", or a format of `WRITERS`.
        rows: rows of each source.
        weights: the weights of the sources, with sum 1.

    Raises:
        ValueError: the format is unknown, or it is npy, and a token does not fit its uint16.
    """
    if format == "rows":
        return Corpus([], rows, weights)
    if format not in WRITERS:
        raise ValueError(
            f"format must be rows or one of {', '.join(WRITERS)}, got {format!r}"
        )
    if format == "npy" and sum(rows) > NPY_ROWS:
        raise ValueError(
            f"the format npy is raw uint16, which has numbers for {NPY_ROWS:,} rows, got "
            f"{sum(rows):,}: use bin or ds"
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    first = 0
    for number, count in enumerate(rows):
        path = folder / f"{number}.{format}"
        if not path.exists():
            numbers = np.arange(first, first + count)
            WRITERS[format](path, tokens_of_rows(numbers))
        first += count
        paths.append(str(path))
    return Corpus(paths, rows, weights)


def lines_of(tokens: Int64Array) -> list[str]:
    """Rows of tokens, int64 [rows, S], as lines of text."""
    return [" ".join(map(str, row)) for row in tokens.tolist()]


def _npy(path: Path, tokens: Int64Array) -> None:
    """Write raw uint16, with one token more for the last label."""
    label = tokens[-1, -1] + 1
    np.append(tokens, label).astype("<u2").tofile(path)


def _documents(path: Path, tokens: Int64Array) -> None:
    """Write a .bin or .ds file, which records the dtype of its ids: uint16 if they fit."""
    # no other format needs them
    from nanoset_ref.tokens import token_dtype_for
    from nanoset_ref.tokens.conversion import WRITERS as DOCUMENT_WRITERS

    dtype = token_dtype_for(int(tokens[-1, -1]) + 1)
    with DOCUMENT_WRITERS[path.suffix](path, dtype=dtype, overwrite=False) as writer:
        writer.write(tokens.ravel(), [ROW_LENGTH] * len(tokens))


def _jsonl(path: Path, tokens: Int64Array) -> None:
    """Write a JSON object per row, with the text in its column "text"."""
    lines = [json.dumps({"text": line}) for line in lines_of(tokens)]
    path.write_text("\n".join(lines) + "\n")


def _parquet(path: Path, tokens: Int64Array) -> None:
    """Write a column "text", in row groups of 7 rows."""
    with extra("text", "a corpus of Parquet"):
        from pyarrow import parquet, table

    rows = table({"text": lines_of(tokens)})
    parquet.write_table(rows, path, row_group_size=7)


def _tar(path: Path, tokens: Int64Array) -> None:
    """Write a text file per row into an archive, as WebDataset reads it."""
    with tarfile.open(path, "w") as archive:
        for number, line in enumerate(lines_of(tokens)):
            member = tarfile.TarInfo(f"{number:06}.txt")
            member.size = len(line)
            archive.addfile(member, BytesIO(line.encode()))


@contextmanager
def _package(name: str, format: str) -> Iterator[None]:
    """Import an optional library in this block; it is in no extra."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"the format {format} needs {name} ({error}): pip install {name}"
        ) from error


def _mds(path: Path, tokens: Int64Array) -> None:
    """Write the shards of mosaicml-streaming, of at most 2,048 bytes."""
    with _package("mosaicml-streaming", "mds"):
        from streaming import MDSWriter

    columns = {"tokens": "ndarray:int64:8"}
    with MDSWriter(out=str(path), columns=columns, size_limit=2048) as writer:
        for row in tokens:
            writer.write({"tokens": row})


def _litdata(path: Path, tokens: Int64Array) -> None:
    """Write the chunks of litdata, of 7 rows."""
    with _package("litdata", "litdata"):
        from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(path), chunk_size=7)
    for number, row in enumerate(tokens):
        writer.add_item(number, row)
    writer.done()
    writer.merge()


WRITERS: dict[str, Callable[[Path, Int64Array], Any]] = {
    "npy": _npy,
    "bin": _documents,
    "ds": _documents,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "tar": _tar,
    "mds": _mds,
    "litdata": _litdata,
}
