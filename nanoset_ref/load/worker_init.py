"""DataLoader workers: their options, their seeds, and their end when the trainer ends."""

import functools
import multiprocessing
import os
import random
import threading
from typing import Any

import numpy as np
import torch

from nanoset_ref.orders.permutation import derive

# torch refuses these without workers
OPTIONS_OF_WORKERS = "prefetch_factor", "persistent_workers", "multiprocessing_context"


def set_worker_options(
    options: dict[str, Any], num_workers: int, has_data: bool, seed: int, dp_rank: int
) -> None:
    """Set how many workers a DataLoader has, and how they begin unless the caller says that.

    A rank without data has none.
    """
    if has_data:
        options["num_workers"] = num_workers
        worker_init_fn = functools.partial(init_worker, seed, dp_rank)
        options.setdefault("worker_init_fn", worker_init_fn)
        return
    for name in OPTIONS_OF_WORKERS:
        options.pop(name, None)


def init_worker(seed: int, dp_rank: int, worker_id: int) -> None:
    """Seed Python, NumPy and torch in a DataLoader worker (see `worker_seed`).

    A worker of a fork server also gets a thread that ends it with the trainer. torch's workers end
    when their parent does, but their parent is the fork server, which waits for them if the trainer
    is killed. (torch 2.13; the fork server is Python 3.14's default on Linux.)
    """
    value = worker_seed(seed, dp_rank, worker_id)
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
    trainer = multiprocessing.parent_process()
    if trainer is not None and trainer.pid != os.getppid():
        threading.Thread(target=_exit_after, args=(trainer,), daemon=True).start()


def _exit_after(trainer: Any) -> None:
    """End this process when the trainer has ended."""
    trainer.join()
    os._exit(1)


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
