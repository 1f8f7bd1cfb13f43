"""A run as a list of stretches, each with one dataset and one layout of ranks."""

from __future__ import annotations

import dataclasses

from nanoset_ref.rows import Rows
from nanoset_ref.schedule import Schedule
from nanoset_ref.training.config import Config
from nanoset_ref.training.stages import continued_stage, open_stage, stage_spans


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of a run with one dataset and one layout: a stage, or what follows a resume on other ranks.

    Args:
        name: what reports call it.
        dataset: the rows it reads.
        schedule: the layout; its consumed_train_samples is where in the dataset this stretch begins.
        num_steps: optimizer steps.
        num_workers: DataLoader workers per rank.
    """

    name: str
    dataset: Rows
    schedule: Schedule
    num_steps: int
    num_workers: int = 0

    @property
    def stop(self) -> int:
        """The position after the last one."""
        return self.schedule.consumed_train_samples + self.num_steps * self.schedule.global_batch_size


def stretches_of_config(config: Config) -> list[Stretch]:
    """The stages of a run that begins at step 1, each as a stretch."""
    spans = stage_spans(config.data_stages, config.tokens.train_steps)
    stretches: list[Stretch] = []
    for index, span in enumerate(spans):
        before = continued_stage(spans, index)
        schedule = Schedule(
            dp_size=config.parallelism.dp,
            micro_batch_size=config.tokens.micro_batch_size,
            batch_accumulation_per_replica=config.tokens.batch_accumulation_per_replica,
            consumed_train_samples=0 if before is None else stretches[before].stop,
            first_step=span.first_step,
        )
        num_steps = span.last_step - span.first_step + 1
        stop = schedule.consumed_train_samples + num_steps * schedule.global_batch_size
        stretches.append(
            Stretch(
                name=span.stage.name,
                dataset=open_stage(config, span.stage, stop),
                schedule=schedule,
                num_steps=num_steps,
                num_workers=span.stage.data.num_loading_workers,
            )
        )
    return stretches
