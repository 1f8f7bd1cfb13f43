"""Segments of a run: audits, bulk queries and `replay` take a list of them."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from nanoset_ref import train  # loads nothing yet: only a YAML config needs pydantic
from nanoset_ref.io.types import Array, Json
from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class RunSegment:
    """A part of a run with one dataset and one schedule: a stage, or the steps after a resume on
    other ranks.

    Args:
        name: its name in reports.
        dataset: the rows it reads.
        schedule: its ranks and steps; consumed_train_samples is the segment's first position.
        num_steps: optimizer steps.
        num_workers: DataLoader workers per rank.
    """

    name: str
    dataset: Rows
    schedule: Schedule
    num_steps: int
    num_workers: int = 0

    @property
    def steps(self) -> range:
        """The numbers of its steps; a run counts them from 1."""
        first = self.schedule.first_step
        return range(first, first + self.num_steps)

    @property
    def stop(self) -> int:
        """The position after the last one."""
        return self.schedule.positions(self.steps.stop).start

    def require_cut_rows(self) -> Nanoset:
        """The dataset; ValueError if it does not cut its rows from its files at fixed distances."""
        rows = self.dataset
        if not isinstance(rows, Nanoset) or isinstance(rows, PackedNanoset):
            raise ValueError(
                f"{self.name}: cards and bulk queries compute rows that are cut from token files "
                f"one after another, not rows of {type(rows).__name__}"
            )
        return rows


def segments_of_config(
    config: "train.Config", state: Json | None = None
) -> list[RunSegment]:
    """Make a segment of each stage of a run, or of each part of it: see `train.planned_stages`."""
    return [
        RunSegment(
            stage.name, rows, schedule, len(stage.steps), stage.data.num_loading_workers
        )
        for stage, schedule, rows in train.planned_stages(config, state)
    ]


def replay(segments: Sequence[RunSegment], step: int) -> Iterator[Array]:
    """Read the rows of each step from `step` on, to train on them again.

    Yields:
        integers [rows of the step, row_length], ordered by position, as in `where`; a
        `Schedule` computes which rank reads which.
    """
    for segment in segments:
        for number in range(max(step, segment.steps.start), segment.steps.stop):
            yield segment.dataset.read(np.array(segment.schedule.positions(number)))
