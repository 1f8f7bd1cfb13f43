"""What streaming datasets share: who reads, which numbers are allowed, and the only judge of saved states."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

from torch import distributed
from torch.utils.data import get_worker_info

from nanoset_ref.dataloader import check_plan

NO_COUNT = re.compile(r"-|\d{19}")  # below 0, or beyond what a run can read
State = dict[str, Any]


def check_state(state: Any, expected: State) -> State:
    """A copy of a state with the names, the types and the plan of `expected`.

    Raises:
        PlanMismatch: it belongs to another plan.
        ValueError: it is something else.
    """
    own = state if isinstance(state, dict) else {}
    kinds = [{name: type(value) for name, value in tree.items()} for tree in (own, expected)]
    if kinds[0] != kinds[1] or NO_COUNT.search(repr(own | {"plan": None})):
        raise ValueError(f"not a state of this kind, which holds {list(expected)}; got {state!r:.200}")
    check_plan(own.get("plan"), expected.get("plan"))
    return dict(own)


def required(hparams: Any, name: str) -> int:
    """The attribute `name` of `hparams`, an integer of at least 1; ValueError if it is missing or something else."""
    return at_least(1, f"hparams.{name}", getattr(hparams, name, None))


def at_least(least: int, name: str, value: Any) -> int:
    """`value`, an integer of at least `least`; the ValueError for anything else calls it `name`."""
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def dp_rank_and_size(dp_rank: int | None, dp_size: int | None, trainer: Any = None) -> tuple[int, int]:
    """Which data-parallel rank this is: as given, as the trainer says, as torch.distributed says, or 0 of 1.

    Build a dataset after the process group has started. The answer is kept, so that DataLoader workers, which have no
    process group, know it too.

    Raises:
        ValueError: only one of the two given, or dp_rank outside [0, dp_size).
    """
    if dp_rank is None and dp_size is None:
        if trainer is not None:
            return trainer.global_rank, trainer.world_size
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if dp_rank is None or dp_size is None or not 0 <= dp_rank < dp_size:
        raise ValueError(f"dp_rank and dp_size go together, 0 <= dp_rank < dp_size; got {dp_rank} and {dp_size}")
    return dp_rank, dp_size


def worker_and_workers() -> tuple[int, int]:
    """(id, number) of DataLoader workers; (0, 1) in a process that is not a worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
