"""Data stages: what each step of a run reads, when the data change on the way.

Steps count from 1. A stage lasts from its start_training_step to the step before the next stage's; the change is made
before that step runs. Within a stage, step after step reads the next global batch of the stage's own order. What a
resume needs is one count per stage that has begun (law 3): so a run continues exactly inside a stage, on a boundary,
with stages added or moved behind the last step done, and on any number of ranks. The alternative it rejects, to work
out what a stage has read from its steps and the batch size, is wrong once a part of the run had another batch size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.config import Config, DataConfig, DataStage
from nanoset_ref.dataloader import NanosetDataLoader, PlanMismatch, build_nanoset_dataloader, check_plan
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.parallel import ParallelLayout


class StageError(ValueError):
    """The stages of a config contradict each other, or the steps that a saved run has done."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSpan:
    """A stage and its steps, from first_step to last_step, both included."""

    stage: DataStage
    first_step: int
    last_step: int


def stage_spans(stages: Sequence[DataStage], train_steps: int) -> list[StageSpan]:
    """The steps of each stage, in order: starts 1, 15, 25 of 30 steps give 1-14, 15-24, 25-30."""
    stages = sorted(stages, key=lambda stage: stage.start_training_step)
    ends = [stage.start_training_step - 1 for stage in stages[1:]] + [train_steps]
    return [
        StageSpan(stage=stage, first_step=stage.start_training_step, last_step=end)
        for stage, end in zip(stages, ends, strict=True)
    ]


def continued_stage(spans: Sequence[StageSpan], index: int) -> int | None:
    """Index of the stage whose order stage `index` reads on in: the last before it with a file in common.

    Returns:
        None for a stage that begins its order: no earlier one read its files, or it says `reuse: restart`.

    Raises:
        StageError: it is to continue an order that is not its own.
    """
    data = spans[index].stage.data
    if data.dataset.reuse == "restart":
        return None
    for before in reversed(range(index)):
        other = spans[before].stage.data
        if not set(data.dataset.paths) & set(other.dataset.paths):
            continue
        if _identity(data) != _identity(other):
            raise StageError(
                f"stage {spans[index].stage.name!r} shares files with stage {spans[before].stage.name!r}, but cannot "
                "continue it: order, seed and dataset_path must be the same; or set reuse: restart"
            )
        return before
    return None


def _identity(data: DataConfig) -> tuple[Any, ...]:
    """What two stages must have in common for one to continue the order of the other."""
    path = data.dataset.dataset_path
    return data.dataset.order, data.seed, list(path.items()) if isinstance(path, Mapping) else data.dataset.paths


def open_stage(config: Config, stage: DataStage, num_samples: int) -> Nanoset:
    """The Nanoset of a stage, `num_samples` long."""
    return Nanoset.from_config(
        stage.data.dataset.dataset_path,
        config.tokens.sequence_length,
        num_samples,
        stage.data.seed,
        token_dtype=stage.data.dataset.token_dtype,
        order=stage.data.dataset.order,
    )


@dataclasses.dataclass(kw_only=True)
class StageRecord:
    """What the state keeps of a stage that has begun.

    Attributes:
        name, start_training_step: of the stage.
        first_position: where in its order it began: 0, or where the stage stopped that it continues.
        consumed_train_samples: samples delivered in this stage, over all ranks.
        plan: of its Nanoset.
    """

    name: str
    start_training_step: int
    first_position: int
    consumed_train_samples: int
    plan: dict[str, Any]


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
    """The steps of a run for one rank, from any state on.

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
        self.step = 0
        self.records: list[StageRecord] = []
        self._continued = [continued_stage(self.spans, index) for index in range(len(self.spans))]
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
        """Deliver the next step, from a new stage if one starts with it.

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
        begin = record.first_position + record.consumed_train_samples + layout.dp_rank
        shape = (tokens.batch_accumulation_per_replica, tokens.micro_batch_size)
        positions = begin + layout.dp_size * np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
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
        """Continue behind the step of `state`, with any number of ranks, any micro-batch and any later stages.

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
                f"be {begun}: stages may be added, moved and removed behind step {step}, not before"
            )
        self.step, self.records, self._loader = step, records, None
        if 0 < step < last and self._index(step + 1) < len(records):
            self._open(self._index(step + 1))  # now, so that another plan is refused at once

    # ---- opening a stage

    def _index(self, step: int) -> int:
        return sum(span.first_step <= step for span in self.spans) - 1

    def _open(self, index: int) -> None:
        """Read on in a stage.

        1. it begins where the stage stopped that it continues, or at 0; a resumed one where its record says
        2. its Nanoset is as long as its last step needs: what is done, and the steps left x the global batch
        3. its plan must be the record's
        """
        span = self.spans[index]
        resumed = index < len(self.records)
        if resumed:
            first, consumed = self.records[index].first_position, self.records[index].consumed_train_samples
        else:
            before = self._continued[index]
            first = 0 if before is None else self._position(before)
            consumed = 0
        left = (span.last_step - self.step) * self.config.global_batch_size
        nanoset = open_stage(self.config, span.stage, first + consumed + left)
        if resumed:
            try:
                check_plan(self.records[index].plan, nanoset.plan)
            except PlanMismatch as error:
                raise PlanMismatch(f"stage {span.stage.name!r}: {error}") from error
        else:
            record = StageRecord(
                name=span.stage.name,
                start_training_step=span.first_step,
                first_position=first,
                consumed_train_samples=0,
                plan=nanoset.plan,
            )
            self.records.append(record)
        self._loader = build_nanoset_dataloader(
            nanoset,
            micro_batch_size=self.config.tokens.micro_batch_size,
            consumed_train_samples=first + consumed,
            num_loading_workers=span.stage.data.num_loading_workers,
            seed=self.config.general.seed,
            pin_memory=self.pin_memory,
            dp_rank=self.layout.dp_rank,
            dp_size=self.layout.dp_size,
            input_pp_rank=self.layout.input_pp_rank,
            output_pp_rank=self.layout.output_pp_rank,
            current_pp_rank=self.layout.pp_rank,
        )
        self._batches = iter(self._loader)

    def _position(self, index: int) -> int:
        return self.records[index].first_position + self.records[index].consumed_train_samples
