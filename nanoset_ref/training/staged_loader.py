"""The steps of a run for one rank, across all its data stages, from any state on.

Within a stage, step after step delivers the next global batch of the stage's order. What a resume needs is a count per
stage that has begun (law 3): so a run goes on exactly inside a stage, on a boundary, with stages added, moved or taken
away after the last step done, and on any number of ranks. The alternative it rejects, to work out from steps and batch
size what a stage has read, is wrong once a part of the run had another batch size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.dataloader import NanosetDataLoader, PlanMismatch, build_nanoset_dataloader, check_plan
from nanoset_ref.orders import Ledger
from nanoset_ref.training.config import Config
from nanoset_ref.training.parallel import ParallelLayout
from nanoset_ref.training.stages import StageError, continued_stage, open_stage, stage_spans, start_after


@dataclasses.dataclass(kw_only=True)
class StageRecord:
    """What the state keeps of a stage that has begun.

    Attributes:
        name, start_training_step: of the stage.
        first_position, first_reads: where in its order it began: the position, and under the stateless order the
            samples that each of its files had given before.
        consumed_train_samples: samples delivered in this stage, over all ranks.
        plan: of its Nanoset.
    """

    name: str
    start_training_step: int
    first_position: int
    first_reads: list[int]
    consumed_train_samples: int
    plan: dict[str, Any]

    @property
    def start(self) -> Ledger:
        return Ledger(self.first_position, tuple(self.first_reads))

    @property
    def position(self) -> int:
        """Where in its order it is."""
        return self.first_position + self.consumed_train_samples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What one rank reads in one step.

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
        pin_memory: for copies to a GPU that do not block.

    Iterating yields a Step for every step that is left.

    Attributes:
        step: the last step delivered, 0 before the first.
        records: a StageRecord for every stage that has begun.

    Raises:
        StageError: a stage is to continue an earlier one and cannot.
    """

    def __init__(self, config: Config, layout: ParallelLayout, *, pin_memory: bool = False) -> None:
        self.config, self.layout, self.pin_memory = config, layout, pin_memory
        self.spans = stage_spans(config.data_stages, config.tokens.train_steps)
        self._continued = [continued_stage(self.spans, index) for index in range(len(self.spans))]
        self.step = 0
        self.records: list[StageRecord] = []
        self._loader: NanosetDataLoader | None = None
        self._batches: Iterator[dict[str, Any]] = iter(())

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
        tokens, layout = self.config.tokens, self.layout
        if self.step >= tokens.train_steps:
            raise IndexError(f"all {tokens.train_steps} steps have been delivered; a longer run needs more train_steps")
        index = self._index(self.step + 1)
        if self._loader is None or self.spans[index].first_step == self.step + 1:
            self._open(index)
        record = self.records[index]
        shape = (tokens.batch_accumulation_per_replica, tokens.micro_batch_size)
        places = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
        positions = record.position + layout.dp_rank + layout.dp_size * places
        batches = [next(self._batches) for _ in range(tokens.batch_accumulation_per_replica)]
        record.consumed_train_samples += self.config.global_batch_size
        self.step += 1
        return Step(number=self.step, stage=record.name, positions=positions, batches=batches)

    # ---- the state

    def state_dict(self) -> dict[str, Any]:
        """{"step", "consumed_train_samples", "stages": a StageRecord each}: JSON-serialisable, equal on all ranks."""
        return {
            "step": self.step,
            "consumed_train_samples": self.consumed_train_samples,
            "stages": [dataclasses.asdict(record) for record in self.records],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the step of `state`, with any number of ranks, any micro-batch and any later stages.

        Raises:
            StageError: the stages of the steps already done are not those of the config.
            PlanMismatch: the stage to continue reads other data now; the message lists what differs.
        """
        step, last = state["step"], self.config.tokens.train_steps
        if step > last:
            raise StageError(f"the saved run has done {step} steps, tokens.train_steps is {last}")
        records = [StageRecord(**record) for record in state["stages"]]
        done = [(record.name, record.start_training_step) for record in records]
        begun = [(span.stage.name, span.first_step) for span in self.spans if span.first_step <= step]
        if done != begun:
            raise StageError(
                f"the saved run did its {step} steps in the stages (name, start_training_step) {done}, now they would "
                f"be {begun}: stages may be added, moved and removed after step {step}, not before"
            )
        self.step, self.records, self._loader = step, records, None
        if 0 < step < last and self._index(step + 1) < len(records):
            self._open(self._index(step + 1))  # now, so that another plan is refused at once

    # ---- opening a stage

    def _index(self, step: int) -> int:
        return sum(span.first_step <= step for span in self.spans) - 1

    def _open(self, index: int) -> None:
        """Read on in a stage.

        1. a new stage gets a record: it begins at 0, or after the stage it continues
        2. its Nanoset is as long as its last step needs: where it is, and the steps left x the global batch
        3. its plan must be that of the record
        """
        span = self.spans[index]
        resumed = index < len(self.records)
        if not resumed:
            self.records.append(self._begin(index))
        record = self.records[index]
        left = (span.last_step - self.step) * self.config.global_batch_size
        nanoset = open_stage(self.config, span.stage, record.position + left, record.start)
        if resumed:
            self._check_plan(record, nanoset.plan)
        record.plan = nanoset.plan
        self._loader = build_nanoset_dataloader(
            nanoset,
            micro_batch_size=self.config.tokens.micro_batch_size,
            dp_rank=self.layout.dp_rank,
            dp_size=self.layout.dp_size,
            input_pp_rank=self.layout.input_pp_rank,
            output_pp_rank=self.layout.output_pp_rank,
            current_pp_rank=self.layout.pp_rank,
            consumed_train_samples=record.position,
            num_loading_workers=span.stage.data.num_loading_workers,
            seed=self.config.general.seed,
            pin_memory=self.pin_memory,
        )
        self._batches = iter(self._loader)

    @staticmethod
    def _check_plan(record: StageRecord, plan: dict[str, Any]) -> None:
        try:
            check_plan(record.plan, plan)
        except PlanMismatch as error:
            raise PlanMismatch(f"stage {record.name!r}: {error}") from error

    def _begin(self, index: int) -> StageRecord:
        before = self._continued[index]
        start = Ledger(0, ())
        if before is not None:
            record = self.records[before]
            done = open_stage(self.config, self.spans[before].stage, record.position, record.start)
            self._check_plan(record, done.plan)  # its files and weights decide where this stage goes on
            start = start_after(self.config, self.spans, index, record.start, record.position)
        return StageRecord(
            name=self.spans[index].stage.name,
            start_training_step=self.spans[index].first_step,
            first_position=start.position,
            first_reads=list(start.reads),
            consumed_train_samples=0,
            plan={},
        )
