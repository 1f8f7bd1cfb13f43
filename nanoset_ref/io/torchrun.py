"""This process's place among the ranks that torchrun started, from the environment."""

import os


def under_torchrun() -> bool:
    """Whether this process is one of several ranks."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    return "RANK" in os.environ and world_size > 1


def is_main_rank() -> bool:
    """Whether this process is rank 0, or not a rank."""
    return int(os.environ.get("RANK", "0")) == 0
