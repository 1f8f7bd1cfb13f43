"""YAML to frozen dataclasses, refusing what PyYAML lets pass.

1. A key that stands twice in a mapping is an error (PyYAML keeps the last one in silence).
2. `1e-4` is a number, as in YAML 1.2 (for PyYAML it is a string, for want of a dot).
3. Every key must be a field, every value of the field's type; an error says where: "data_stages[1].data.seed: ...".

Validation beyond types is the dataclasses' own: a ConfigError of theirs begins with the name of a field, and gets the
path put before it. What it costs: nothing that one could measure; a config has a hundred lines.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import types
import typing
from collections.abc import Collection, Hashable
from typing import Any, Literal, TypeVar

import yaml

T = TypeVar("T")
_KINDS = {int: "an integer", float: "a number", str: "a string", bool: "true or false", dict: "a mapping"}


class ConfigError(ValueError):
    """Something in a config is wrong; the message names its path in the YAML file."""


class _Loader(yaml.SafeLoader):
    # not YAML 1.1's integers, to which 0100 is 64 and 1:30 is 90
    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise ConfigError(f"line {key_node.start_mark.line + 1}: {key!r} cannot be a key; quote braces")
            if key in seen:
                raise ConfigError(f"line {key_node.start_mark.line + 1}: the key {key!r} stands twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"([-+]?(0|[1-9][\d_]*)|0x[\da-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def load_yaml(path: str | os.PathLike[str], kind: type[T]) -> T:
    """Read a YAML file as the dataclass `kind`.

    Raises:
        FileNotFoundError: no such file.
        ConfigError: anything wrong in it, with the file's name and the path in it.
    """
    with open(path, encoding="utf-8") as file:
        try:
            return read_value(kind, yaml.load(file, _Loader), "")
        except (ValueError, OverflowError, KeyError, RecursionError, yaml.YAMLError) as error:
            what = " ".join(str(error).split())  # the parser's own errors are of several lines
            raise ConfigError(f"{os.fspath(path)}: {what}") from error


def read_value(kind: Any, value: Any, where: str) -> Any:
    """What YAML gave, as what a field wants.

    Args:
        kind: a dataclass, int, float, str, bool, dict, Any, Literal, X | None or tuple[X, ...].
        value: of dicts, lists and scalars.
        where: path of the value, "" for the whole file.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else read_value(arguments[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: must be a list, got {value!r}")
        return tuple(read_value(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where}: must be one of {', '.join(arguments)}, got {value!r}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    kind = origin or kind
    if kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise ConfigError(f"{where}: must be {_KINDS[kind]}, got {value!r}")


def _read_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(f"{where or 'the file'}: must be a mapping, got {value!r}")
    prefix = f"{where}." if where else ""
    hints = typing.get_type_hints(kind)
    for key in value:
        if key not in hints:
            raise ConfigError(unknown_key(f"{prefix}{key}", key, hints))
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in value:
            raise ConfigError(f"{prefix}{field.name}: is missing")
    arguments = {key: read_value(hints[key], item, f"{prefix}{key}") for key, item in value.items()}
    try:
        return kind(**arguments)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from error


def unknown_key(where: str, key: Any, known: Collection[str]) -> str:
    """The message for a key that is not known, naming the closest one that is."""
    close = difflib.get_close_matches(str(key), known, n=1)
    hint = f", did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
    return f"{where}: unknown key{hint}"
