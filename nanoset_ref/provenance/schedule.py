"""Positions and the run: which optimizer step, rank and row reads position k, and the other way round.

The sampler's arithmetic, seen from outside and for all ranks at once: a division each way, nothing stored. It answers
for a layout (ranks, micro-batch, accumulation) from the position at which that layout began; a run that was resumed on
another number of ranks is a list of these.
"""

from __future__ import annotations

import dataclasses
from typing import get_args

from nanoset_ref.samplers import Layout


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """How positions become optimizer steps, from the point where this layout began.

    Args:
        dp_size: data-parallel ranks.
        micro_batch_size: samples per rank and micro-batch.
        batch_accumulation_per_replica: micro-batches per optimizer step.
        layout: "strided" or "contiguous", see `nanoset_ref.samplers`.
        consumed_train_samples: the global count at which this layout began (0 in a fresh run).
        first_step: the number of the step that began there; steps count from 1.

    Raises:
        ValueError: an argument below its least value.
    """

    dp_size: int = 1
    micro_batch_size: int = 1
    batch_accumulation_per_replica: int = 1
    layout: Layout = "strided"
    consumed_train_samples: int = 0
    first_step: int = 1

    def __post_init__(self) -> None:
        for name in ("dp_size", "micro_batch_size", "batch_accumulation_per_replica", "first_step"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {get_args(Layout)}, got {self.layout!r}")
        if self.consumed_train_samples < 0:
            raise ValueError(f"consumed_train_samples must not be negative, got {self.consumed_train_samples}")

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step, over all ranks and micro-batches."""
        return self.dp_size * self.micro_batch_size * self.batch_accumulation_per_replica

    def positions(self, step: int) -> range:
        """The positions of a step."""
        if step < self.first_step:
            raise IndexError(f"this layout began at step {self.first_step}; step {step} was before it")
        first = self.consumed_train_samples + (step - self.first_step) * self.global_batch_size
        return range(first, first + self.global_batch_size)

    def slot(self, position: int) -> Slot:
        """Who reads a position, and when: the inverse of `positions` and of the sampler's arithmetic."""
        offset = position - self.consumed_train_samples
        if offset < 0:
            raise IndexError(
                f"this layout began at position {self.consumed_train_samples}; {position} was read before it"
            )
        steps, offset = divmod(offset, self.global_batch_size)
        micro_step, offset = divmod(offset, self.dp_size * self.micro_batch_size)
        if self.layout == "strided":
            row, dp_rank = divmod(offset, self.dp_size)
        else:
            dp_rank, row = divmod(offset, self.micro_batch_size)
        return Slot(position=position, step=self.first_step + steps, micro_step=micro_step, dp_rank=dp_rank, row=row)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slot:
    """A place in the run: `step` counts from 1, `micro_step`, `dp_rank` and `row` (in the micro-batch) from 0."""

    position: int
    step: int
    micro_step: int
    dp_rank: int
    row: int
