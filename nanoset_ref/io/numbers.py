"""Checks of numbers that a caller gives: the one error for a count, a rank or a seed that is none."""

import operator
from typing import Any

import numpy as np


def whole_number(value: Any, name: str, least: int | None = None) -> int:
    """`value` as an int: any integer, NumPy's too, but no bool.

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
