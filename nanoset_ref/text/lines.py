"""JSON lines: from bytes to a text, or to an error that says what is wrong with the line.

orjson parses. What it refuses goes to Python's `json`, which also takes NaN, Infinity and a byte-order mark, as many
writers produce them, and names the place where a line breaks.
"""

import json
from typing import Any

import orjson

MAKE_LINES = "a JSON array becomes JSON lines with: jq -c '.[]' in.json > out.jsonl"


class InputError(ValueError):
    """The input as a whole cannot be used: nothing matches, unknown kind of file, missing column, damaged file."""


class DocumentError(InputError):
    """One document cannot be used. `kind` is what `on_error="skip"` counts it as, `where` names its file and line."""

    def __init__(self, kind: str, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.kind, self.what = kind, what


def text_of_line(line: bytes, column: str) -> str | None:
    """The text in `column` of one JSON line, None for a blank line.

    Raises DocumentError without a `where`: invalid UTF-8, invalid JSON, not an object, missing column, not a string,
    lone surrogate (valid JSON, but no Unicode text: it has no UTF-8 form and no tokenizer accepts it).
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        if not line.strip():
            return None
        record = _parsed_slowly(line)
    if not isinstance(record, dict):
        what = f"every line must be one JSON object, got a {type(record).__name__}; {MAKE_LINES}"
        raise DocumentError("not an object", what)
    if column not in record:
        raise DocumentError("missing column", f"no column {column!r}; the columns here are {list(record)}")
    return text_of_value(record[column], column)


def _parsed_slowly(line: bytes) -> Any:
    try:
        return json.loads(line.rstrip())
    except UnicodeDecodeError as error:
        what = f"not UTF-8 ({error.reason} at byte {error.start} of the line)"
        raise DocumentError("invalid UTF-8", what) from None
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else error
        what = f"not JSON ({reason}); every line must be one JSON object; {MAKE_LINES}"
        raise DocumentError("invalid JSON", what) from None


def text_of_value(value: Any, column: str) -> str:
    """`value`, if it is a string that has a UTF-8 form."""
    if not isinstance(value, str):
        raise DocumentError("not a string", f"column {column!r} must hold a string, got {type(value).__name__}")
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError as error:
        what = f"lone surrogate {value[error.start]!r} at character {error.start} of column {column!r}"
        raise DocumentError("lone surrogate", what) from None
    return value
