"""What a streaming dataset must know about the process it runs in: hparams, ranks, workers, and which epoch it is."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.utils.data import get_worker_info

MAX_WORKERS = 1024


def required(hparams: Any, name: str) -> int:
    """The attribute `name` of `hparams`, an integer of at least 1.

    Raises:
        ValueError: a missing name, a value below 1.
        TypeError: a value that is no integer.
    """
    if not hasattr(hparams, name):
        raise ValueError(f"hparams lacks {name!r}; this dataset needs [{name!r}], {hparams!r} was given")
    return at_least(1, f"hparams.{name}", getattr(hparams, name))


def at_least(least: int, name: str, value: Any) -> int:
    """`value`, an integer of at least `least`; errors call it `name`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def rank_and_world_size(rank: int | None, world_size: int | None, trainer: Any = None) -> tuple[int, int]:
    """Who this process is among the data-parallel ones: as given, else as the trainer, else as torch.distributed says.

    Build a dataset after the processes have started: the answer is kept, so that workers, which have no process group,
    know it too.

    Raises:
        ValueError: only one of the two given, or rank outside [0, world_size).
    """
    if (rank is None) != (world_size is None):
        raise ValueError(f"rank and world_size go together, got rank={rank}, world_size={world_size}")
    if rank is None or world_size is None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if trainer is not None:
            rank, world_size = trainer.global_rank, trainer.world_size
        elif distributed:
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            rank, world_size = 0, 1
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in [0, world_size), got rank={rank}, world_size={world_size}")
    return rank, world_size


def worker_and_workers() -> tuple[int, int]:
    """(id, number) of DataLoader workers; (0, 1) in a process that is no worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class EpochCounter:
    """How many epochs every worker has begun.

    A DataLoader starts its workers anew in every epoch from the dataset in the main process, which never iterates: a
    plain attribute would be 0 in each of them forever. The counts live in shared memory, one cell per worker id.
    """

    def __init__(self, first: int = 0) -> None:
        self._cells = torch.full((MAX_WORKERS,), first, dtype=torch.int64).share_memory_()

    def begin(self, worker: int) -> int:
        """The epoch that this worker begins now."""
        self._cells[worker] += 1
        return int(self._cells[worker]) - 1

    def restart(self, first: int) -> None:
        """All workers begin `first` next."""
        self._cells.fill_(first)

    def resume(self, worker: int, epoch: int) -> None:
        """This worker is in the middle of `epoch`; its next one is the one after."""
        self._cells[worker] = epoch + 1
