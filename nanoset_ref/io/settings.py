"""Whole numbers in environment variables. This file imports no NumPy: commands begin with it."""

import os


def integer_setting(variable: str, default: int, minimum: int = 0) -> int:
    """Read a whole number of at least `minimum` and below 2**31.

    Raises:
        ValueError: the variable holds something else.
    """
    setting = os.environ.get(variable) or str(default)
    if setting.isdecimal() and minimum <= int(setting) < 2**31:
        return int(setting)
    raise ValueError(
        f"the environment variable {variable} must be an integer of at least {minimum}, got "
        f"{setting!r}"
    )
