"""The text of a row: a JSON line, or a row of a table; many JSON lines are parsed at once.

One call of msgspec parses all lines of a batch. If that fails, or if a line is not clearly one
object, each line is parsed separately by orjson. Python's `json` parses the lines that orjson
refuses: it also accepts NaN, Infinity and byte-order marks, and reports the position of an error.
`datasets.load_dataset("json")` would first write the corpus a second time, as Arrow, and report a
broken line without its number.
"""

import codecs
import functools
import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from nanoset_ref.io.extras import extra

HOW_TO_MAKE_LINES = (
    "a JSON array becomes JSON lines with: jq -c '.[]' in.json > out.jsonl "
    "(objects over several lines: jq -c .); preprocess --on-error skip leaves out a bad line"
)


class InputError(ValueError):
    """The input as a whole is unusable: no match, unknown type, missing column, damaged file."""


class DocumentError(InputError):
    """One document is unusable; `on_error="skip"` counts it under its `reason`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def texts_of_lines(data: bytes, columns: Sequence[str]) -> list[str] | None:
    """Parse the texts of JSON lines, all at once.

    Every line must begin with "{" and end with "}", or every line with "}" and a carriage return.
    In JSON no "{" follows a "}" without a comma, so an object ends with each line; and if there are
    as many objects as lines, each line is one object.

    Args:
        data: whole lines; the last may lack its line feed.
        columns: the columns to look for.

    Returns:
        One text for each line. None if a line may be blank, invalid, without any of the columns or
        with something other than a string in one, or if it has white space around its object.
    """
    if not data.endswith(b"\n"):
        data += b"\n"
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    last = characters[ends - 1]
    if (last == ord("\r")).all():
        last = characters[ends - 2]
    first = characters[np.append(0, ends[:-1] + 1)]
    if (last != ord("}")).any() or (first != ord("{")).any():
        return None
    try:
        data.decode()  # msgspec does not look into strings that it skips
        rows = _decoder(tuple(columns)).decode_lines(data)
    except (ValueError, RecursionError):
        return None
    if len(rows) != len(ends):
        return None
    texts = [row.text_0 for row in rows]
    for index in range(1, len(columns)):
        others = map(attrgetter(f"text_{index}"), rows)
        texts = [
            other if text is None else text
            for text, other in zip(texts, others, strict=True)
        ]
    return None if None in texts else texts


@functools.cache
def _decoder(columns: tuple[str, ...]) -> Any:
    """msgspec's decoder of objects: text_0, text_1, ... hold the strings of `columns`, or None."""
    with extra("text", "reading JSON lines"):
        import msgspec

    fields = {f"text_{index}": column for index, column in enumerate(columns)}
    defaults = [(name, str, None) for name in fields]
    row = msgspec.defstruct("Row", defaults, rename=fields, gc=False)
    return msgspec.json.Decoder(row)


@functools.cache
def _orjson() -> Any:
    """The library orjson, imported at the first line."""
    with extra("text", "reading JSON lines"):
        import orjson
    return orjson


def text_of(row: Any, columns: Sequence[str]) -> str | None:
    """The text of a row, in the first of `columns` that it has; None for a blank line.

    Args:
        row: a JSON line in bytes, or a dict.
        columns: names.

    Raises:
        DocumentError: (no location) invalid JSON or UTF-8, not an object, no such column, not a
            string, or a lone surrogate: valid JSON, but no tokenizer accepts it.
    """
    if isinstance(row, bytes):
        try:
            row = _orjson().loads(row)
        except json.JSONDecodeError:
            if not row.removeprefix(codecs.BOM_UTF8).strip():
                return None
            row = _parse_with_json(row)
    if not isinstance(row, dict):
        raise DocumentError(
            "not an object",
            f"every line must be one JSON object, got a {type(row).__name__}; {HOW_TO_MAKE_LINES}",
        )
    for column in columns:
        if column in row:
            break
    else:
        raise DocumentError("missing column", missing_column(columns, row))
    text = row[column]
    if not isinstance(text, str):
        raise DocumentError(
            "not a string",
            f"column {column!r} must hold a string in UTF-8, got {type(text).__name__}: convert "
            "the column, name another, or leave such rows out (preprocess --on-error skip)",
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DocumentError(
                "lone surrogate",
                f"lone surrogate {text[error.start]!r} at character {error.start} "
                f"of column {column!r}",
            ) from None
    return text


def _parse_with_json(line: bytes) -> Any:
    """The value of a line that orjson refused."""
    try:
        return json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise DocumentError(
        "invalid JSON",
        f"not JSON ({reason}); every line must be one JSON object; {HOW_TO_MAKE_LINES}",
    )


def missing_column(wanted: Sequence[str], columns: Iterable[str]) -> str:
    """The message for a missing column."""
    return f"no column {' or '.join(map(repr, wanted))}; the columns here are {list(columns)}"
