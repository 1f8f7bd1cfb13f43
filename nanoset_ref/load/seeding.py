"""Seeds of DataLoader workers: from the run's seed, a different one for each worker and rank."""

import random

import numpy as np
import torch

from nanoset_ref.orders.permutation import derive


def seed_worker(seed: int, dp_rank: int, worker_id: int) -> None:
    """Seed Python, NumPy and torch in a DataLoader worker; see `worker_seed`."""
    value = worker_seed(seed, dp_rank, worker_id)
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def worker_seed(seed: int, dp_rank: int, worker_id: int) -> int:
    """A 32-bit seed for a DataLoader worker.

    The pair (dp_rank, worker_id), both below 2**16, is added to a hash of the run's seed. So no two
    workers of a run share a seed, and different run seeds give different worker seeds.
    """
    if not (0 <= dp_rank < 2**16 and 0 <= worker_id < 2**16):
        raise ValueError(
            f"dp_rank and worker_id must be in [0, 65536), got {dp_rank} and {worker_id}"
        )
    base = int(derive(np.uint64(seed % 2**64), 0))
    return (base + (dp_rank << 16) + worker_id) % 2**32
