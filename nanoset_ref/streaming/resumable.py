"""What streaming datasets share: which rank and worker this process is, and one way to save and continue an epoch.

Each `for` over a `Resumable` (or over a DataLoader of it) is one epoch. Where an epoch stands is a *place*, a dict of
JSON values that the subclass moves along while it reads. A state is that place with the layout and the plan it belongs
to, and `load_state_dict` accepts it under the same layout and plan only.

With workers, each worker process has a place of its own; torchdata's StatefulDataLoader saves and restores all of them.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import get_worker_info

from nanoset_ref.dataloader import check_plan

MAX_WORKERS = 1024
State = dict[str, Any]


class Resumable(torch.utils.data.IterableDataset[Any]):
    """Counts the epochs of every worker, and continues one of them from a state.

    A DataLoader starts its workers anew in every epoch from the dataset in the main process, which never iterates
    itself: a plain counter would be 0 in each of them forever. The epoch that each worker begins next is therefore kept
    in shared memory, one cell per worker id.

    Args:
        micro_batch_size: elements per batch of one rank; a DataLoader must use the same.
        rank, world_size, trainer: see `rank_and_world_size`.
    """

    def __init__(
        self,
        micro_batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        trainer: Any = None,
    ) -> None:
        self.micro_batch_size = micro_batch_size
        self.rank, self.world_size = rank_and_world_size(rank, world_size, trainer)
        self.plan: State = {}  # what a state must agree with
        self._epochs = torch.zeros(MAX_WORKERS, dtype=torch.int64).share_memory_()
        self._place: State = {}  # where the present `for` stands
        self._loaded: State = {}  # where the next `for` continues

    def restart(self, epoch: int) -> None:
        """Let every worker begin `epoch` next."""
        self._epochs.fill_(epoch)
        self._place, self._loaded = {}, {}

    def first_place(self, epoch: int, worker: int, workers: int) -> State:
        """Where one of `workers` workers begins an epoch."""
        raise NotImplementedError

    def read(self, place: State) -> Iterator[Any]:
        """The elements from a place on; moves the place along."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        # not a generator: an epoch begins here, not at its first element
        self._place = self._loaded or self._next_place()
        self._loaded = {}
        worker, _ = worker_and_workers()
        self._epochs[worker] = self._place["epoch"] + 1
        return self.read(self._place)

    def state_dict(self) -> State:
        """Where this process stands (with workers: this worker); JSON-serialisable, and the same on every rank."""
        place = self._loaded or self._place or self._next_place()
        return {name: copy.copy(value) for name, value in place.items()}

    def load_state_dict(self, state: State) -> None:
        """Let the next `for` continue at a `state_dict`.

        Raises:
            PlanMismatch: the state belongs to another plan.
            ValueError: not a state of such a dataset, or one of another layout.
        """
        now = self._next_place()
        check_state(state, now)
        if state["layout"] != now["layout"]:
            raise ValueError(
                f"the state was saved with {state['layout']}, now there is {now['layout']}; continue with the same "
                "layout, or from a count: TokenStreamDataLoader, TokenStream.seek, IterableDataset(start_from_step=...)"
            )
        self._loaded = dict(state)

    def _next_place(self) -> State:
        worker, workers = worker_and_workers()
        epoch = int(self._epochs[worker])
        layout = {
            "world_size": self.world_size,
            "num_workers": workers,
            "micro_batch_size": self.micro_batch_size,
        }
        return {"epoch": epoch, **self.first_place(epoch, worker, workers), "layout": layout, "plan": self.plan}


def check_state(state: State, expected: State) -> None:
    """Raise ValueError for a state without the names of `expected`, PlanMismatch for one of another plan."""
    if not isinstance(state, dict) or state.keys() != expected.keys():
        raise ValueError(f"not a state of this dataset: it must hold {list(expected)}, got {state!r:.200}")
    check_plan(state["plan"], expected["plan"])


def required(hparams: Any, name: str) -> int:
    """The attribute `name` of `hparams`, an integer of at least 1.

    Raises:
        ValueError: a missing name, a value below 1.
        TypeError: a value that is not an integer.
    """
    if not hasattr(hparams, name):
        raise ValueError(f"hparams lacks {name!r}; this dataset needs [{name!r}], {hparams!r} was given")
    return at_least(1, f"hparams.{name}", getattr(hparams, name))


def at_least(least: int, name: str, value: Any) -> int:
    """`value`, an integer of at least `least`; errors call it `name`."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return operator.index(value)


def rank_and_world_size(rank: int | None, world_size: int | None, trainer: Any = None) -> tuple[int, int]:
    """Which data-parallel rank this is: as given, as the trainer says, as torch.distributed says, or 0 of 1.

    Build a dataset after the process group has started. The answer is kept, so that DataLoader workers, which have no
    process group, know it too.

    Raises:
        ValueError: only one of the two given, or rank outside [0, world_size).
    """
    if (rank is None) != (world_size is None):
        raise ValueError(f"rank and world_size go together, got rank={rank}, world_size={world_size}")
    if rank is None or world_size is None:
        rank, world_size = 0, 1
        if trainer is not None:
            rank, world_size = trainer.global_rank, trainer.world_size
        elif torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in [0, world_size), got rank={rank}, world_size={world_size}")
    return rank, world_size


def worker_and_workers() -> tuple[int, int]:
    """(id, number) of DataLoader workers; (0, 1) in a process that is not a worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
