"""Which rank reads which position, and in which step.

From the global count c at which a schedule begins, D data-parallel ranks share positions c, c + 1,
c + 2, ... in micro-batches of B samples per rank. One step is A micro-batches (gradient
accumulation), D * A * B positions:

    D = 2, B = 2, A = 2         micro-batch 0    micro-batch 1    (the next step)
    strided      rank 0         c+0  c+2         c+4  c+6         c+8  c+10
                 rank 1         c+1  c+3         c+5  c+7         c+9  c+11
    contiguous   rank 0         c+0  c+1         c+4  c+5         c+8  c+9
                 rank 1         c+2  c+3         c+6  c+7         c+10 c+11

torch's DistributedSampler and Nanotron are strided, Megatron's pretraining sampler is contiguous.
Both layouts read the same set of positions in every micro-batch. Everything here is arithmetic:
nothing is stored, and every answer costs the same at position 10 and at position 10^12. Tensor- and
pipeline-parallel ranks of one data-parallel rank read the same positions.
"""

import dataclasses
import operator
from typing import Any, Literal, get_args

import numpy as np

from nanoset_ref.io.checks import refuses_unknown, whole_number
from nanoset_ref.io.types import Int64Array

Layout = Literal["strided", "contiguous"]


@dataclasses.dataclass(frozen=True)
class Slot:
    """Where a run reads a position. Steps count from 1; micro-batches, ranks and rows from 0."""

    position: int
    step: int
    micro_batch: int
    dp_rank: int
    row: int


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """The assignment of positions to ranks and optimizer steps, from a first position on.

    Args:
        dp_size: D, number of data-parallel ranks.
        micro_batch_size: B, samples per rank and micro-batch.
        batch_accumulation_per_replica: A, micro-batches per optimizer step.
        layout: how ranks share a micro-batch. "strided": neighboring positions go to different
            ranks; "contiguous": to the same rank.
        consumed_train_samples: c, the global count at which this schedule begins, in samples.
        first_step: the number of its first step; steps count from 1.

    Raises:
        ValueError: an argument is not an integer or too small; an unknown layout.
    """

    dp_size: int = 1
    micro_batch_size: int = 1
    batch_accumulation_per_replica: int = 1
    layout: Layout = "strided"
    consumed_train_samples: int = 0
    first_step: int = 1

    def __post_init__(self) -> None:
        numbers = dataclasses.asdict(self)
        if numbers.pop("layout") not in get_args(Layout):
            raise ValueError(
                f"layout must be one of {get_args(Layout)}, got {self.layout!r}"
            )
        for name, value in numbers.items():
            minimum = 0 if name == "consumed_train_samples" else 1
            object.__setattr__(self, name, whole_number(value, name, minimum))

    @property
    def samples_per_micro_step(self) -> int:
        """Samples of a micro-step, which is one micro-batch on every rank: D * B."""
        return self.dp_size * self.micro_batch_size

    @property
    def samples_per_rank_and_step(self) -> int:
        """Samples of one rank per optimizer step: B * A."""
        return self.micro_batch_size * self.batch_accumulation_per_replica

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step, over all ranks and micro-batches: D * B * A."""
        return self.samples_per_micro_step * self.batch_accumulation_per_replica

    def positions(self, step: int) -> range:
        """All ranks, one step: the positions that they read together, counted over the whole run.

        Raises:
            IndexError: the step came before this schedule.
        """
        if step < self.first_step:
            raise IndexError(
                f"this schedule begins at step {self.first_step}; step {step} came before it"
            )
        start = self.first_position(operator.index(step))
        return range(start, start + self.global_batch_size)

    def first_position(self, step: Any) -> Any:
        """The first position of a step, or of each step of an array; steps are not checked."""
        if not isinstance(step, int):
            step = np.int64(step)  # a product of small integers would wrap around
        steps = step - self.first_step
        return self.consumed_train_samples + steps * self.global_batch_size

    def slot(self, position: Any) -> Slot:
        """Which rank reads a position, and in which step, micro-batch and row.

        For an array of positions, the fields are int64 arrays. Every micro-batch counts as full; a
        sampler's `tail` may leave out, shorten or fill the last one of an epoch.

        Raises:
            IndexError: the position was read before this schedule began.
            TypeError: not an integer, nor an array of them.
        """
        if np.asarray(position).dtype.kind not in "iu":
            raise TypeError(f"positions must be integers, got {position!r:.200}")
        if not isinstance(position, int):
            position = np.int64(position)
        offset = position - self.consumed_train_samples
        if np.any(offset < 0):
            raise IndexError(
                f"this schedule begins at position {self.consumed_train_samples}; "
                f"{position} came before it"
            )
        steps, offset_in_step = divmod(offset, self.global_batch_size)
        micro_batch, offset_in_micro_batch = divmod(
            offset_in_step, self.samples_per_micro_step
        )
        if self.layout == "strided":
            row, dp_rank = divmod(offset_in_micro_batch, self.dp_size)
        else:
            dp_rank, row = divmod(offset_in_micro_batch, self.micro_batch_size)
        return Slot(position, self.first_step + steps, micro_batch, dp_rank, row)

    def rank_positions(self, start: int, size: int, dp_rank: int) -> range:
        """One rank, one micro-batch: its positions among those of all ranks, [start, start + size).

        Args:
            start: the first position of the micro-batch, counted from the beginning of the epoch;
                `consumed_train_samples` is not added.
            size: positions that all ranks share, D * B; fewer in the last micro-batch of an epoch.
            dp_rank: the rank.
        """
        if self.layout == "strided":
            return range(start + dp_rank, start + size, self.dp_size)
        rows = size // self.dp_size
        first = start + dp_rank * rows
        return range(first, first + rows)

    def rank_batches(self, start: int, dp_rank: int, num_batches: int) -> Int64Array:
        """One rank, many micro-batches: its positions from `start` on, int64 [num_batches, B]."""
        samples = self.dp_size * self.micro_batch_size
        rows = np.arange(dp_rank, samples, self.dp_size)
        if self.layout == "contiguous":
            rows = dp_rank * self.micro_batch_size + np.arange(self.micro_batch_size)
        batches = np.arange(start, start + num_batches * samples, samples)
        return batches[:, None] + rows
