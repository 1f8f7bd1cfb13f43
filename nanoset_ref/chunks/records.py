"""Records: the lines {"token_ids": [...], "source": "..."} of tokenised subsets and chunks.

The ids of a line are read by a small compiled kernel, the rest of it by `orjson`: measured on one core, more than twice
the speed of reading whole lines with orjson or pyarrow, which make an object, or a builder call, of every id. A line of
any other shape (keys in another order, no blank after the comma, a broken line) takes the slow road through orjson, so
that the two roads accept exactly the same records.

Memory: one block of lines (1 MiB, or one line if it is longer) and its ids.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numba import njit
from numpy.typing import NDArray

PREFIX = b'{"token_ids": ['
BLOCK_BYTES = 1 << 20
MAX_ID = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records:
    """Consecutive lines of a file, parsed.

    Args:
        first_line: number of the first line in its file, counted from 1.
        ids: int32 [total ids], the ids of all lines back to back.
        offsets: int64 [lines + 1]: line i holds ids[offsets[i]:offsets[i + 1]].
        sources: per line the label, None where the record has none.
        errors: {index of a line: what is wrong with it}; such a line has no ids.
        num_bytes: of the lines in the file.
    """

    first_line: int
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    sources: list[str | None]
    errors: dict[int, str]
    num_bytes: int

    def __len__(self) -> int:
        return len(self.sources)


def format_records(rows: NDArray[Any], source: str) -> bytes:
    """The lines of `rows`, integers [n, length] of one source, byte for byte as Python's `json.dumps` writes them."""
    suffix = b', "source": ' + json.dumps(source).encode() + b"}\n"
    arrays = (
        orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ") for row in np.ascontiguousarray(rows)
    )
    return b"".join(b'{"token_ids": ' + array + suffix for array in arrays)


def record_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files among `paths`, and the .jsonl files below the folders among them, train_2 before train_10.

    Raises:
        FileNotFoundError: one does not exist. ValueError: there is no file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"no such file or folder: {path}")
        below = sorted(path.rglob("*.jsonl"), key=lambda file: re.sub(r"\d+", lambda n: n[0].zfill(20), str(file)))
        files += below if path.is_dir() else [path]
    if not files:
        raise ValueError("name at least one file of records")
    return files


def read_records(path: Path) -> Iterator[Records]:
    """Parse a file of records block by block. Nothing is raised for a bad line: it is named in `Records.errors`."""
    line = 1
    with open(path, "rb") as file:
        for block in line_blocks(file):
            records = _parse_block(block, line)
            line += len(records)
            yield records


def line_blocks(file: IO[bytes], block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Cut a binary file into pieces of about `block_bytes` that end with a line end, which the last may be given."""
    pieces: list[bytes] = []
    while piece := file.read(block_bytes):
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*pieces, piece[:end]])
            pieces = []
        pieces.append(piece[end:])
    if rest := b"".join(pieces):
        yield rest + b"\n"


def _parse_block(block: bytes, first_line: int) -> Records:
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    ids = np.empty(len(block) // 2 + 1, dtype=np.int32)  # an id takes a digit and a comma at least
    offsets, closings = np.zeros(len(ends) + 1, dtype=np.int64), np.empty(len(ends), dtype=np.int64)
    _parse(data, starts, ends, np.frombuffer(PREFIX, dtype=np.uint8), ids, offsets, closings)
    slow: dict[int, NDArray[np.int32]] = {}
    errors: dict[int, str] = {}
    sources: list[str | None] = []
    for i, (start, end, closing) in enumerate(zip(starts.tolist(), ends.tolist(), closings.tolist(), strict=True)):
        source, rest = None, block[closing + 1 : end]
        try:
            if closing and b"token_ids" not in rest:
                source = _read_source(orjson.loads(b'{"token_ids": 0' + rest))
            else:
                slow[i], source = _parse_slowly(block[start:end])
        except ValueError as error:
            errors[i] = getattr(error, "msg", str(error))
        sources.append(source)
    if slow or errors:
        parts = [ids[:0] if i in errors else slow.get(i, ids[offsets[i] : offsets[i + 1]]) for i in range(len(ends))]
        ids, offsets = np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Records(
        first_line=first_line,
        ids=ids[: offsets[-1]],
        offsets=offsets,
        sources=sources,
        errors=errors,
        num_bytes=len(block),
    )


def _parse_slowly(line: bytes) -> tuple[NDArray[np.int32], str | None]:
    if not line.strip():
        raise ValueError("blank line")
    record = orjson.loads(line)  # its error is a ValueError
    if not isinstance(record, dict) or not isinstance(record.get("token_ids"), list):
        raise ValueError('not an object with a list "token_ids"')
    ids = record["token_ids"]
    if not all(type(token) is int for token in ids):
        raise ValueError("token_ids holds something that is not an integer")
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_ID:
        raise ValueError(f"token_ids holds an id outside [0, {MAX_ID}]")
    return np.array(ids, dtype=np.int32), _read_source(record)


def _read_source(record: dict[str, Any]) -> str | None:
    source = record.get("source")
    if source is not None and not isinstance(source, str):
        raise ValueError(f"source must be a string, got {source!r}")
    return source


@njit(cache=True, nogil=True)
def _parse(data, starts, ends, prefix, ids, offsets, closings):
    """Read `prefix` id, id, ..., id ] of every line; closings[i] is where the ] stands, 0 for a line of another shape
    (then without ids).

    The data end with a line end, which no number, comma or bracket equals: reading stops there without a check of the
    bounds.
    """
    written = 0
    for line in range(len(starts)):
        at, begin = starts[line], written
        closings[line] = 0
        matches = 0
        while matches < len(prefix) and data[at] == prefix[matches]:
            at, matches = at + 1, matches + 1
        while matches == len(prefix):
            value, first = np.int64(0), at
            while 48 <= data[at] <= 57 and at - first < 9:
                value = value * 10 + (data[at] - 48)
                at += 1
            if at == first or (
                data[first] == 48 and at - first > 1
            ):  # no number, or a leading zero, which JSON forbids
                break
            ids[written] = value
            written += 1
            if data[at] == 44 and data[at + 1] == 32:  # ", "
                at += 2
                continue
            if data[at] == 93:  # "]"
                closings[line] = at
            break
        if not closings[line]:
            written = begin
        offsets[line + 1] = written
