"""This process's place among the ranks that torchrun started, from the environment."""

import os

from nanoset_ref.io.settings import integer_setting


def under_torchrun() -> bool:
    """Whether this process is one of several ranks."""
    world_size = integer_setting("WORLD_SIZE", 1, 1)
    return "RANK" in os.environ and world_size > 1


def is_main_rank() -> bool:
    """Whether this process is rank 0, or not a rank."""
    return integer_setting("RANK", 0) == 0
