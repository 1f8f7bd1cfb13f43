"""Rows, the lines {"token_ids": [...], "source": "..."} of subsets and chunks.

Rows packed by best fit also have {..., "document_lengths": [...]} and end in padding.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref.io.extras import extra
from nanoset_ref.io.njit import njit
from nanoset_ref.io.paths import PathLike, as_list, file_size
from nanoset_ref.io.types import Int64Array, IntegerArray, Json, Uint8Array

OPENING = re.compile(rb'"token_ids"\s*:\s*\[')


class Row(NamedTuple):
    """The ids of a row, integers [length], its label, and the lengths of its documents.

    A row without a label has the source None; only best fit writes the lengths.
    """

    ids: Int64Array
    source: str | None
    document_lengths: list[int] | None


def format_row(
    ids: IntegerArray, source: str, document_lengths: list[int] | None = None
) -> bytes:
    """Format a row, integers [length], byte for byte like Python's `json.dumps`."""
    with extra("text", "preparing a corpus"):
        import orjson
    numbers = orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")
    rest: Json = {"source": source}
    if document_lengths:
        rest["document_lengths"] = document_lengths
    return b'{"token_ids": %b, %b\n' % (numbers, json.dumps(rest)[1:].encode())


def read_row(line: bytes, num_tokens: int | None, vocab_size: int | None) -> Row:
    """Parse a row.

    1. Find the list of ids, and let orjson parse the line without them, because Python objects for
       ids would take most of the time.
    2. Parse the ids.

    Args:
        line: one JSON object.
        num_tokens: the number of ids; None: any number but 0.
        vocab_size: every id must be below it; None: below 2^31.

    Raises:
        ValueError: the line is not such a row; the message is one line.
    """
    with extra("text", "preparing a corpus"):
        import orjson
    # 1. the line without its ids
    opening = OPENING.search(line)
    start = opening.end() if opening else 0
    end = line.find(b"]", start) if opening else 0
    try:
        row = orjson.loads(line[:start] + line[end:])
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}") from error
    # 2. the ids
    # an id takes at least 2 bytes, as "1,"
    ids = np.empty((end - start) // 2 + 1, dtype=np.int64)
    count = _read_ids(
        np.frombuffer(line[start:end].strip() + b",", dtype=np.uint8), ids
    )
    if not isinstance(row, dict) or row.get("token_ids") != [] or not count:
        raise ValueError('not an object with a list of ids "token_ids"')
    if num_tokens not in (None, count):
        raise ValueError(f"{count} token_ids, expected {num_tokens}")
    limit = vocab_size or 1 << 31
    if ids[:count].max() >= limit:
        raise ValueError(f"an id is not below {limit}")
    source = row.get("source")
    # NumPy's arrays of text, which keep the labels of a token file, drop a NUL at the end
    if not isinstance(source, str | None) or str(source).endswith("\0"):
        raise ValueError("the source is not a string, or ends in NUL")
    lengths = row.get("document_lengths")
    if lengths is not None and not _are_document_lengths(lengths, count):
        raise ValueError(
            f"document_lengths are not positive integers with a sum of at most {count}"
        )
    return Row(ids[:count], source, lengths)


def _are_document_lengths(lengths: Any, count: int) -> bool:
    """Whether a value is a list of positive integers that sum to at most `count`."""
    are_counts = isinstance(lengths, list) and all(
        type(length) is int and length > 0 for length in lengths
    )
    return are_counts and 0 < sum(lengths) <= count


@njit
def _read_ids(text: Uint8Array, ids: Int64Array) -> int:
    """Parse `1, 20, 300,` into `ids`; return their number, or 0 for anything else.

    Args:
        text: uint8 [bytes], ASCII, with a comma after each id. An id has 1 to 18 digits, and only 0
            starts with 0.
        ids: int64 [at least the number of commas], the output.
    """
    count = value = digits = 0
    for byte in text:
        if 48 <= byte <= 57 and digits < 18 and (value or not digits):  # 0 to 9
            value = value * 10 + byte - 48
            digits += 1
        elif byte == 44 and digits:  # a comma
            ids[count] = value
            count += 1
            value = digits = 0
        elif byte != 32 or digits:  # not a space before an id
            return 0
    return count


def row_files(paths: Iterable[PathLike] | PathLike) -> list[Path]:
    """List the files in `paths`, and the .jsonl files below its folders, train_2 before train_10.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a folder has no .jsonl file.
    """
    files = []
    for path in map(Path, as_list(paths)):
        below = (
            sorted(path.rglob("*.jsonl"), key=_natural_key) if path.is_dir() else [path]
        )
        if not below:
            raise ValueError(f"{path} has no .jsonl file of rows")
        files += below
    for path in files:
        file_size(path)  # refuses pipes, folders and devices
    return files


def _natural_key(path: Path) -> tuple[str, Path]:
    """Numbers as numbers; then the path, because train_1 and train_01 have one number."""
    return re.sub(r"\d+", lambda number: number[0].zfill(20), str(path)), path
