"""A YAML 1.2 file as plain values, and what pydantic says about them in words that name the place.

ruamel.yaml refuses a key that is used twice and reads `1e-4` as a number. Size, depth and aliases are limited before
any value is built, so a hostile file ends as quickly as a right one. No value is ever printed whole.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from nanoset_ref.files import PathLike, require_regular

MAX_CHARACTERS = 1 << 19
MAX_DEPTH = 32
MAX_ALIASES = 16  # aliases within aliases multiply: 16 of them at most 400 times


class ConfigError(ValueError):
    """Something in a config is wrong; the message names its path in the YAML file."""


def read_yaml(path: PathLike) -> Any:
    """The dicts, lists and scalars of a YAML file.

    Raises:
        FileNotFoundError: no such file.
        ConfigError: not YAML, or more of it than the limits allow.
    """
    require_regular(path)
    text = Path(path).read_text(encoding="utf-8")
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"has more than {MAX_CHARACTERS:,} characters; a config names files, it does not hold data")
    parser = YAML(typ="safe", pure=True)
    depth = aliases = 0
    try:
        for event in parser.parse(text):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            aliases += isinstance(event, AliasEvent)
            if depth > MAX_DEPTH or aliases > MAX_ALIASES:
                raise ConfigError(f"nested more than {MAX_DEPTH} deep, or with more than {MAX_ALIASES} aliases (*name)")
        return parser.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"line {line}: {one_line(error.problem)}") from error
    except (YAMLError, KeyError, OverflowError) as error:
        raise ConfigError(one_line(error)) from error


def one_line(error: object) -> str:
    """At most 300 characters of what a library says."""
    return " ".join(str(error)[:300].split())


def problems_of(error: ValidationError, keys: Collection[str] = ()) -> list[str]:
    """Everything pydantic found, one line each: "data_stages[1].data.seed: input should be a valid integer, got '7'".

    Args:
        error: of a model; ValueErrors of its own validators, not of those of its sections, name the path in each line.
        keys: known ones, for the suggestion after a misspelt key.
    """
    problems = []
    for found in error.errors(include_url=False):
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]]
        message = f"{found['msg']}, got {reprlib.repr(found['input'])}".replace("Input should", "should")
        if found["type"] == "extra_forbidden":
            message = unknown_key(str(found["loc"][-1]), keys)
        elif found["type"] == "missing":
            message = "is missing"
        elif found["type"] == "value_error":
            message = str(found["ctx"]["error"])
            parts = parts if len(parts) > 1 else []
        place = "".join(parts).removeprefix(".")
        problems += [f"{place}: {line}" if place else line for line in message.splitlines()]
    return problems


def unknown_key(key: str, known: Collection[str]) -> str:
    """What to say about a key that is not known, with the closest one that is."""
    if key in known:
        return "does not belong here"
    close = difflib.get_close_matches(key, known, n=1)
    return f"unknown key, did you mean {close[0]!r}?" if close else "unknown key"
