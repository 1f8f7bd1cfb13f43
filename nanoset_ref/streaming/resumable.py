"""The base of streaming datasets: ranks and workers share elements; an epoch can be resumed.

Each iteration of a `Resumable` (or of a DataLoader of it) is one epoch. Its *progress* is a dict of
JSON values that the subclass updates while it reads. A state is the progress and the plan.
`checked_copy` validates the states of datasets and of loaders.

Each worker process has its own progress; torchdata's StatefulDataLoader saves and restores them.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import distributed
from torch.utils.data import get_worker_info

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Json
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders.plans import PLAN_VERSION, check_plan

MAX_WORKERS = 1024
# a count outside of this range shows that a state is damaged
VALID_COUNTS = range(10**18)
State = Json


class Resumable(torch.utils.data.IterableDataset[Any]):
    """Counts the epochs of every worker, and resumes an epoch from a state.

    For every epoch a DataLoader starts new workers with a copy of the main process's dataset, which
    is never iterated itself. A plain counter would always be 0 in each worker, so shared memory has
    the next epoch of each worker, in one cell per worker id.

    Args:
        micro_batch_size: elements per batch of one rank; a DataLoader must use the same number.
        dp_rank, dp_size, trainer: see `dp_rank_and_size`.

    Attributes:
        schedule: the `Schedule` that assigns elements to ranks.
    """

    def __init__(
        self,
        micro_batch_size: int,
        dp_rank: int | None = None,
        dp_size: int | None = None,
        trainer: Any = None,
    ) -> None:
        self.micro_batch_size = micro_batch_size
        self.dp_rank, self.dp_size = dp_rank_and_size(dp_rank, dp_size, trainer)
        self.schedule = Schedule(
            dp_size=self.dp_size, micro_batch_size=micro_batch_size
        )
        self.restart(0)

    @property
    def plan(self) -> State:
        """The plan that a state must match, without the layout.

        A subclass adds the settings that determine its elements.
        """
        return {"version": PLAN_VERSION}

    def restart(self, epoch: int) -> None:
        """Make `epoch` the next one of every worker."""
        # new cells, which a copy of this dataset does not share
        epochs = torch.full((MAX_WORKERS,), epoch, dtype=torch.int64, device="cpu")
        self._epochs = epochs.share_memory_()
        self._progress: State = {}  # of the current iteration
        self._resume_from: State = {}  # where the next iteration begins

    def first_progress(self, epoch: int) -> State:
        """The progress of this worker at the beginning of an epoch."""
        raise NotImplementedError

    def read(self, progress: State) -> Iterator[Any]:
        """Yield the elements that come after `progress`, and update it after each."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        # not a generator, so the epoch begins at this call and not at its first element
        self._progress = self._resume_from or self._next_progress()
        self._resume_from = {}
        worker, _ = worker_and_num_workers()
        self._epochs[worker] = self._progress["epoch"] + 1
        return self.read(self._progress)

    @property
    def progress(self) -> State:
        """The progress of this process; in a DataLoader worker, of this worker."""
        return dict(self._resume_from or self._progress or self._next_progress())

    def state_dict(self) -> State:
        """The progress and the plan; JSON-serializable. Any rank's state resumes every rank,
        unless the plan names the rank.
        """
        _, workers = worker_and_num_workers()
        ranks = {
            "dp_size": self.dp_size,
            "num_workers": workers,
            "micro_batch_size": self.micro_batch_size,
        }
        return {**self.progress, "plan": self.plan | ranks}

    def load_state_dict(self, state: State) -> None:
        """Let the next iteration continue from a `state_dict`.

        The numbers of ranks and workers and the micro-batch size must be the same. With other
        numbers a TokenStream resumes from a count (see `TokenStream.seek`).

        Raises:
            PlanMismatch: the state belongs to another plan or layout.
            ValueError: `state` is not the state of such a dataset.
        """
        expected = {**self._next_progress(), "plan": self.state_dict()["plan"]}
        self._resume_from = checked_copy(state, expected)
        del self._resume_from["plan"]

    def _next_progress(self) -> State:
        """The progress of this worker at the beginning of its next epoch."""
        worker, _ = worker_and_num_workers()
        epoch = int(self._epochs[worker])
        return {"epoch": epoch, **self.first_progress(epoch)}


def checked_copy(state: Any, expected: State) -> State:
    """Copy a state that has the names, types and plan of `expected`, and valid counts.

    Raises:
        PlanMismatch: the state belongs to another plan.
        ValueError: the names, types or counts are wrong.
    """
    own = dict(state) if isinstance(state, dict) else {}
    if _types(own) != _types(expected) or not _are_counts(own | {"plan": {}}):
        raise ValueError(
            f"not a state of this kind, which has {list(expected)}; got {state!r:.200}"
        )
    check_plan(own.get("plan"), expected.get("plan"))
    return own


def _types(state: State) -> dict[str, type]:
    """The names in a state, and the types of their values."""
    return {name: type(value) for name, value in state.items()}


def _are_counts(value: Any) -> bool:
    """Whether all integers in nested dicts are VALID_COUNTS."""
    if isinstance(value, dict):
        return all(map(_are_counts, value.values()))
    return not isinstance(value, int) or value in VALID_COUNTS


def required_count(hparams: Any, name: str) -> int:
    """Read the attribute `name` of `hparams`.

    Raises:
        ValueError: the attribute is missing, or is not an integer of at least 1.
    """
    return whole_number(getattr(hparams, name, None), f"hparams.{name}", 1)


def dp_rank_and_size(
    dp_rank: int | None, dp_size: int | None, trainer: Any = None
) -> tuple[int, int]:
    """This process's data-parallel rank, and the number of ranks.

    They are the arguments, else the trainer's, else torch.distributed's, else (0, 1). Build a
    dataset after the process group has started: it stores both numbers for its DataLoader workers,
    which do not have a process group.

    Raises:
        ValueError: only one of dp_rank and dp_size is given, or dp_rank is outside [0, dp_size).
    """
    if dp_rank is None and dp_size is None:
        if trainer is not None:
            return trainer.global_rank, trainer.world_size
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if dp_rank is None or dp_size is None or not 0 <= dp_rank < dp_size:
        raise ValueError(
            f"dp_rank and dp_size go together, 0 <= dp_rank < dp_size; got {dp_rank} and {dp_size}"
        )
    return whole_number(dp_rank, "dp_rank"), whole_number(dp_size, "dp_size")


def worker_and_num_workers() -> tuple[int, int]:
    """This DataLoader worker's id, and the number of workers; (0, 1) in any other process."""
    info = get_worker_info()
    if info is None:
        return 0, 1
    return info.id, info.num_workers


def position_at(schedule: Schedule, start: int, dp_rank: int, item: int) -> int:
    """The position of a rank's `item`-th sample, from 0, after global count `start`."""
    batch, row = divmod(item, schedule.micro_batch_size)
    first = start + batch * schedule.samples_per_micro_step
    return schedule.rank_positions(first, schedule.samples_per_micro_step, dp_rank)[row]


def rank_item(item: int, worker: int, num_workers: int, batch_size: int) -> int:
    """The number, within its rank, of a DataLoader worker's `item`-th sample.

    torch hands out whole batches to the workers in turn: with 2 workers and batches of 2, worker 0
    makes samples 0 1, 4 5, 8 9 and worker 1 makes 2 3, 6 7, 10 11. All counts begin at 0.
    """
    batch, row = divmod(item, batch_size)
    return (worker + num_workers * batch) * batch_size + row
