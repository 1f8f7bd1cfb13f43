"""This process's place among the ranks that torchrun started, from the environment."""

import os

from nanoset_ref.io.settings import integer_setting


def world_size() -> int:
    """The number of ranks; 1 without torchrun."""
    return integer_setting("WORLD_SIZE", 1, 1)


def under_torchrun() -> bool:
    """Whether this process is one of several ranks."""
    return world_size() > 1 and "RANK" in os.environ


def is_main_rank() -> bool:
    """Whether this process is rank 0, or not a rank."""
    return integer_setting("RANK", 0) == 0
