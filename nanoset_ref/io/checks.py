"""Checks of a user's values: whole numbers, positions and unknown names."""

import dataclasses
import difflib
import functools
import operator
from collections.abc import Collection
from typing import Any, TypeVar

import numpy as np

from nanoset_ref.io.types import Int64Array

OptionClass = TypeVar("OptionClass", bound=Any)


def whole_number(
    value: Any, name: str, minimum: int | None = None, bits: int | None = None
) -> int:
    """Convert any integer, including NumPy's, to an int; a bool is refused.

    Raises:
        ValueError: `value` is not an integer, below `minimum`, or not below 2**bits; the message
            calls it `name`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        expected = "an integer"
        if minimum is not None:
            expected = f"an integer of at least {minimum}"
        raise ValueError(f"{name} must be {expected}, got {value!r:.200}")
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if bits is not None and number >= 2**bits:
        raise ValueError(f"{name} must be below 2**{bits}, got {number}")
    return number


def normalize_indices(positions: Any, length: int, what: str = "samples") -> Int64Array:
    """Positions in [-length, length), int64 of their shape, the negative ones counted from the end.

    Raises:
        IndexError: a position outside.
        TypeError: not integers.
    """
    values = np.asarray(positions)
    # integers beyond 64 bits are objects; NumPy takes [] for floats
    if values.dtype.kind not in "iu" and not all(type(k) is int for k in values.flat):
        raise TypeError(f"positions must be integers, got {positions!r:.200}")
    is_outside = (values < -length) | (values >= length)
    outside = values[is_outside]
    if outside.size:
        raise IndexError(
            f"position {outside[0]} is outside a sequence of {length} {what}"
        )
    inside = values.astype(np.int64)
    return inside + length * (inside < 0)


def check_index(index: int, count: int, what: str) -> int:
    """`index` as an int, if it is in [0, count); otherwise an IndexError."""
    number = operator.index(index)
    if not 0 <= number < count:
        raise IndexError(
            f"there is no {what} {index}: there are {count}, counted from 0"
        )
    return number


def refuses_unknown(options: OptionClass) -> OptionClass:
    """Class decorator: an unknown option of a dataclass raises TypeError with the closest name."""
    known = [field.name for field in dataclasses.fields(options)]
    original_init = options.__init__

    @functools.wraps(original_init)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise TypeError(
                    f"{options.__name__}: {name}: {unknown_key_problem(name, known)}"
                )
        original_init(self, *arguments, **named)

    options.__init__ = init
    return options


def unknown_key_problem(key: str, known: Collection[str], what: str = "key") -> str:
    """The message for an unknown key, with the closest known one."""
    if key in known:
        return "does not belong here"
    close = difflib.get_close_matches(key, known, n=1)
    return f"unknown {what}, did you mean {close[0]!r}?" if close else f"unknown {what}"
