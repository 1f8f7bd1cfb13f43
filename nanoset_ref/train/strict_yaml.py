"""A YAML 1.2 file as plain values.

ruamel.yaml refuses a key that is used twice and reads `1e-4` as a number. Size, depth and aliases are limited before
any value is built, so a hostile file ends as quickly as a right one. No value is ever printed whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import PathLike, require_regular

with extra("train", "reading YAML"):
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

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
        raise ConfigError(
            f"has more than {MAX_CHARACTERS:,} characters; a config names files, it does not hold data"
        )
    parser = YAML(typ="safe", pure=True)
    depth = aliases = 0
    try:
        for event in parser.parse(text):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            aliases += isinstance(event, AliasEvent)
            if depth > MAX_DEPTH or aliases > MAX_ALIASES:
                raise ConfigError(
                    f"nested more than {MAX_DEPTH} deep, or with more than {MAX_ALIASES} aliases (*name)"
                )
        return parser.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"line {line}: {one_line(error.problem)}") from error
    except (YAMLError, KeyError, OverflowError) as error:
        raise ConfigError(one_line(error)) from error


def one_line(error: object) -> str:
    """At most 300 characters of what a library says."""
    return " ".join(str(error)[:300].split())
