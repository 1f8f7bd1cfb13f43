"""The steps of a run for one rank, across all its data stages, from any state on.

Within a stage, step after step delivers the next global batch of the stage's order. All a resume needs is a count per
stage that has begun (law 3), so a run goes on exactly inside a stage, on a boundary, with stages added, moved or
removed after the last step done, and on any number of ranks, even if a part of it had another batch size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, NonNegativeInt

from nanoset_ref.dataloader import PlanMismatch, build_nanoset_dataloader, check_plan
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Ledger
from nanoset_ref.training.config import Config
from nanoset_ref.training.parallel import ParallelLayout
from nanoset_ref.training.stages import Stage, stages_of
from nanoset_ref.training.strict_yaml import ConfigError, one_line


class StageRecord(BaseModel, strict=True):
    """What the state keeps of a stage that has begun.

    Attributes:
        name, start_training_step: of the stage.
        first_position, first_reads: where in its order it began: the position, and the samples that each of its files
            had given before.
        consumed_train_samples: samples delivered in this stage, over all ranks.
        plan: of its rows.
    """

    name: str
    start_training_step: int
    first_position: NonNegativeInt
    first_reads: list[NonNegativeInt]
    consumed_train_samples: NonNegativeInt = 0
    plan: dict[str, Any] | None = None

    @property
    def start(self) -> Ledger:
        return Ledger(self.first_position, tuple(self.first_reads))

    @property
    def position(self) -> int:
        """Where in its order it is."""
        return self.first_position + self.consumed_train_samples


class Step(NamedTuple):
    """One optimizer step of one rank.

    Attributes:
        number: of the step, from 1.
        stage: name of its stage.
        positions: int64 [accumulation, micro_batch_size], in the order of the stage.
        batches: one per forward pass, as DataCollatorForCLM makes them.
    """

    number: int
    stage: str
    positions: NDArray[np.int64]
    batches: list[dict[str, Any]]


class StagedLoader:
    """The steps of a run for one rank.

    Args:
        config: of the run.
        layout: this rank.

    Iterating yields a Step for every step that is left.

    Attributes:
        step: the last step delivered, 0 before the first.
        records: a StageRecord for every stage that has begun.

    Raises:
        ConfigError: a stage is to continue an earlier one and cannot.
    """

    def __init__(self, config: Config, layout: ParallelLayout) -> None:
        self.config, self.layout = config, layout
        self.stages = stages_of(config)
        self.step = 0
        self.records: list[StageRecord] = []
        self._batches: Iterator[dict[str, Any]] | None = None

    @property
    def consumed_train_samples(self) -> int:
        """Samples delivered over all ranks and stages."""
        return sum(record.consumed_train_samples for record in self.records)

    def __iter__(self) -> Iterator[Step]:
        while self.step < self.config.tokens.train_steps:
            yield self.next_step()

    def next_step(self) -> Step:
        """Deliver the next step, from a new stage if one begins with it.

        Raises:
            IndexError: all steps have been delivered.
        """
        last, number = self.config.tokens.train_steps, self.step + 1
        if number > last:
            raise IndexError(f"all {last} steps have been delivered; a longer run needs more train_steps")
        if len(self._begun(number)) > len(self.records):
            self._begin(self.stages[len(self.records)])
        if self._batches is None:
            self._batches = self._open()
        record, schedule = self.records[-1], self.config.schedule()
        accumulation = schedule.batch_accumulation_per_replica
        positions = schedule.rows(record.position, self.layout.dp_rank, accumulation)
        batches = [next(self._batches) for _ in range(accumulation)]
        record.consumed_train_samples += schedule.global_batch_size
        self.step = number
        return Step(number, record.name, positions, batches)

    def state_dict(self) -> dict[str, Any]:
        """{"step", "consumed_train_samples", "stages": a StageRecord each}: JSON-serialisable, equal on all ranks."""
        stages = [record.model_dump() for record in self.records]
        return {"step": self.step, "consumed_train_samples": self.consumed_train_samples, "stages": stages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the step of `state`, with any number of ranks, any micro-batch and any later stages.

        Raises:
            ConfigError: not a state; or the stages of the steps already done are not those of the config.
            PlanMismatch: the stage to continue reads other data now; the message lists what differs.
        """
        try:
            step, records = int(state["step"]), [StageRecord(**record) for record in state["stages"]]
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"this is no state of a StagedLoader: {one_line(error)}") from error
        last, begun = self.config.tokens.train_steps, self._begun(step)
        if step > last:
            raise ConfigError(f"the saved run has done {step} steps, tokens.train_steps is {last}")
        done = [(record.name, record.start_training_step) for record in records]
        if done != begun:
            raise ConfigError(
                f"the saved run did its {step} steps in the stages (name, start_training_step) {done}, now they would "
                f"be {begun}: stages may be added, moved and removed after step {step}, not before"
            )
        self.step, self.records, self._batches = step, records, None
        if 0 < step < last and begun == self._begun(step + 1):
            self._batches = self._open()  # now, so that another plan is refused at once

    def _begun(self, step: int) -> list[tuple[str, int]]:
        """(name, start_training_step) of the stages that have begun at a step."""
        return [(stage.name, stage.steps.start) for stage in self.stages if stage.steps.start <= step]

    def _begin(self, stage: Stage) -> None:
        """A stage begins at 0, or after the stage it continues, whose files and weights must be as they were."""
        before = stage.before
        start = stage.start_after(self._rows(before, self.records[before.number].position) if before else None)
        record = StageRecord(
            name=stage.name,
            start_training_step=stage.steps.start,
            first_position=start.position,
            first_reads=list(start.reads),
        )
        self.records.append(record)
        self._batches = None

    def _rows(self, stage: Stage, stop: int) -> Nanoset:
        """The rows of a stage that has begun, up to a position; PlanMismatch if it began with others."""
        record = self.records[stage.number]
        rows = stage.open(stop, record.start)
        try:
            check_plan(record.plan, rows.plan)
        except PlanMismatch as error:
            raise PlanMismatch(f"stage {stage.name!r}: {error}") from error
        return rows

    def _open(self) -> Iterator[dict[str, Any]]:
        """Read on in the last stage that has begun, to its last step."""
        stage, record, layout = self.stages[len(self.records) - 1], self.records[-1], self.layout
        schedule = self.config.schedule(record.position, self.step + 1)
        rows = self._rows(stage, schedule.positions(stage.steps[-1]).stop)
        record.plan = rows.plan
        loader = build_nanoset_dataloader(
            rows,
            micro_batch_size=schedule.micro_batch_size,
            dp_rank=layout.dp_rank,
            dp_size=layout.dp_size,
            output_pp_rank=layout.output_pp_rank,
            current_pp_rank=layout.pp_rank,
            consumed_train_samples=record.position,
            num_loading_workers=stage.data.num_loading_workers,
            seed=self.config.general.seed,
            pin_memory=torch.cuda.is_available(),
        )
        return iter(loader)
