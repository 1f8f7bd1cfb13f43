"""Checks of options that a user gave: whole numbers, unknown names, and what pydantic found."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import operator
import reprlib
from collections.abc import Collection
from typing import Any, TypeVar

import numpy as np

Kind = TypeVar("Kind", bound=Any)


def whole_number(value: Any, name: str, least: int | None = None) -> int:
    """`value` as an int: any integer, also NumPy's, but no bool.

    Raises:
        ValueError: `value` is something else, or below `least`; the message calls it `name`.
    """
    rule = "a whole number" if least is None else f"an integer of at least {least}"
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be {rule}, got {value!r:.200}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def refuses_unknown(options: Kind) -> Kind:
    """Class decorator for a dataclass of options, with or without pydantic, that words its errors as we do.

    The class then raises:
        TypeError: an unknown option, with the closest known one.
        ValueError: all values that are refused, each by its name.
    """
    known = [field.name for field in dataclasses.fields(options)]
    given_init = options.__init__

    @functools.wraps(given_init)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise TypeError(f"{options.__name__}: {name}: {unknown_key(name, known)}")
        try:
            given_init(self, *arguments, **named)
        except ValueError as error:
            if not hasattr(error, "errors"):  # pydantic's have it
                raise
            raise ValueError("; ".join(problems_of(error, known))) from None

    options.__init__ = init
    return options


def problems_of(error: Any, keys: Collection[str] = ()) -> list[str]:
    """Everything pydantic found, one line each: "data_stages[1].data.seed: input should be a valid integer, got '7'".

    Args:
        error: pydantic's ValidationError. ValueErrors that a model's own validator raises name the path in each line;
            those of its sections do not.
        keys: the known keys, for the suggestion after a misspelled one.
    """
    problems = []
    for found in error.errors(include_url=False):
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]]
        if found["type"] == "extra_forbidden":
            message = unknown_key(str(found["loc"][-1]), keys)
        elif found["type"] == "missing":
            message = "is missing"
        elif found["type"] == "value_error":
            message = str(found["ctx"]["error"])
            if len(parts) == 1:
                parts = []
        else:
            rule = found["msg"].replace("Input should", "should")
            message = f"{rule}, got {reprlib.repr(found['input'])}"
        place = "".join(parts).removeprefix(".")
        for line in message.splitlines():
            problems.append(f"{place}: {line}" if place else line)
    return problems


def unknown_key(key: str, known: Collection[str]) -> str:
    """The message for an unknown key, with the closest known one."""
    if key in known:
        return "does not belong here"
    close = difflib.get_close_matches(key, known, n=1)
    return f"unknown key, did you mean {close[0]!r}?" if close else "unknown key"
