"""Whole numbers in environment variables, such as this process's rank among those of torchrun.

This file imports no NumPy: commands begin with it.
"""

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


def world_size() -> int:
    """The number of ranks; 1 without torchrun."""
    return integer_setting("WORLD_SIZE", 1, 1)


def under_torchrun() -> bool:
    """Whether this process is one of several ranks."""
    return world_size() > 1 and "RANK" in os.environ


def is_main_rank() -> bool:
    """Whether this process is rank 0, or not a rank."""
    return integer_setting("RANK", 0) == 0
