"""The steps of one rank across all data stages of a run.

Each step delivers this rank's part of the next global batch. A stage and the files of any stage
that it continues are opened at its first step. A resume needs one count per stage that has begun
(law 3 of docs/laws.md). So a run continues exactly inside a stage or at its end, on any number of
ranks, even if an earlier part had another batch size (chunks keep theirs; Megatron's data need
`num_samples`, because their order depends on it). Stages may be added, moved or removed after the
last step done.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.load.collator import Batch, DataCollatorForCLM
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders.plans import Plan
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader
from nanoset_ref.train.config import Config
from nanoset_ref.train.data_config import ChunksConfig, DataConfig, TokenFilesConfig
from nanoset_ref.train.parallel import ParallelLayout
from nanoset_ref.train.stage_rows import (
    StageRecord,
    check_stage_plan,
    new_record,
    recorded_stages,
    rows_of_stage,
)
from nanoset_ref.train.stages import Stage, stages_of
from nanoset_ref.train.strict_yaml import ConfigError


class Step(NamedTuple):
    """One optimizer step of one rank.

    Attributes:
        number: the step's number, from 1.
        stage: its stage's name.
        positions: int64 [accumulation, micro_batch_size], in the stage's order.
        batches: one batch of DataCollatorForCLM per forward pass.
    """

    number: int
    stage: str
    positions: Int64Array
    batches: list[Batch]


class StagedLoader:
    """The steps of a run for one rank; iterating yields each remaining `Step`.

    Args:
        config: the run's configuration.
        layout: this process's ranks.

    Attributes:
        step: the last step delivered, 0 before the first.
        records: a StageRecord for every stage that has begun.
        schedules: a Schedule for each part of the run with other ranks or another batch size.

    Raises:
        ConfigError: a stage is configured to continue an earlier one, but cannot.
    """

    def __init__(self, config: Config, layout: ParallelLayout) -> None:
        self.config = config
        self.layout = layout
        self.stages = stages_of(config)
        self.step = 0
        self.records: list[StageRecord] = []
        self.schedules = [config.batch_schedule()]
        self._loader: Any = None
        # None: opened at the next step, also after an interrupted one
        self._batches: Iterator[Batch] | None = None

    @property
    def consumed_train_samples(self) -> int:
        """Samples delivered over all ranks and stages."""
        return sum(record.consumed_train_samples for record in self.records)

    @property
    def current_stage(self) -> Stage:
        """The last stage that has begun."""
        return self.stages[len(self.records) - 1]

    def __iter__(self) -> Iterator[Step]:
        while self.step < self.config.tokens.train_steps:
            yield self.next_step()

    def next_step(self) -> Step:
        """Deliver the next step; begin a new stage if this is its first step.

        Raises:
            IndexError: the run has no more steps.
        """
        number = self.step + 1
        if number > self.config.tokens.train_steps:
            raise IndexError(f"the run has {self.step} steps, and all of them are done")
        if len(self._stages_begun_by(number)) > len(self.records):
            self._begin_next_stage()
        remaining = self._batches or self._open_current_loader()
        self._batches = None
        record = self.records[-1]
        schedule = self.config.batch_schedule()
        accumulation = schedule.batch_accumulation_per_replica
        rank = self.layout.dp_rank
        positions = schedule.rank_batches(record.position, rank, accumulation)
        batches = [next(remaining) for _ in range(accumulation)]
        consumed = record.consumed_train_samples + schedule.global_batch_size
        cursors = getattr(self._loader, "cursors", {})
        counted = {"consumed_train_samples": consumed, "cursors": cursors}
        advanced = record.model_copy(update=counted)
        step = Step(number, record.name, positions, batches)
        # CPython (3.11) handles signals at calls: Ctrl-C falls before all three lines or after them
        self.records[-1] = advanced
        self.step = number
        self._batches = remaining
        return step

    def state_dict(self) -> Json:
        """The state of all ranks: {"step", "consumed_train_samples", "schedules", "stages"}."""
        self._record_plan()
        return {
            "step": self.step,
            "consumed_train_samples": self.consumed_train_samples,
            "schedules": [dataclasses.asdict(schedule) for schedule in self.schedules],
            "stages": [record.model_dump() for record in self.records],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the step of `state`.

        The number of ranks, the micro-batch size and the later stages may have changed.

        Raises:
            ConfigError: `state` is invalid, or the stages of the steps already done differ from the
                config's.
            PlanMismatch: a stage that has begun now reads other data; the message lists the
                differences.
            FileNotFoundError: a file of a stage is gone; those of finished stages must stay.
        """
        step, schedules, records = recorded_stages(state)
        last = self.config.tokens.train_steps
        if step > last:
            raise ConfigError(
                f"the saved run has done {step} steps, but tokens.train_steps is {last}"
            )
        done = [(record.name, record.start_training_step) for record in records]
        begun = self._stages_begun_by(step)
        if done != begun:
            raise ConfigError(
                f"the saved run did its {step} steps in the stages (name, start_training_step) "
                f"{done}, but now they would be {begun}: stages may be added, moved and removed "
                f"after step {step}, not before"
            )
        if records:
            self._check_chunk(step, records[-1], self.stages[len(records) - 1])
        self._check_finished(records[:-1])
        self.step = step
        self.records = records
        self.schedules = self._with_current_schedule(schedules)
        self._loader = self._batches = None
        if step < last and begun == self._stages_begun_by(step + 1):
            # at once, so that another plan is refused early
            self._batches = self._open_current_loader()

    def _check_finished(self, records: Sequence[StageRecord]) -> None:
        """Raise PlanMismatch if a finished stage of token files has another plan."""
        for record, stage in zip(records, self.stages, strict=False):
            if isinstance(stage.data.dataset, TokenFilesConfig):
                rows = rows_of_stage(stage, record, record.position)
                check_stage_plan(record.name, record.plan, rows.plan)

    def _with_current_schedule(self, schedules: list[Schedule]) -> list[Schedule]:
        """The saved schedules, and the config's if it differs from the last of them."""
        first_step = self.step + 1
        schedule = self.config.batch_schedule(first_step=first_step)
        last = dataclasses.replace(schedules[-1], first_step=first_step)
        return schedules if schedule == last else [*schedules, schedule]

    def _check_chunk(self, step: int, record: StageRecord, stage: Stage) -> None:
        """Raise ConfigError if global batches of another size would repeat or lose rows of a chunk.

        The chunk has as many steps as it fills with batches of the config's size.
        """
        if not isinstance(stage.data.dataset, ChunksConfig):
            return
        _, rows, _ = next(stage.data.dataset.each_chunk())
        size = self.config.global_batch_size
        is_filled = rows - len(stage.steps) * size < size
        steps_left = stage.steps.stop - 1 - step
        rows_left = rows - record.position - steps_left * size
        if rows_left < 0 or (is_filled and rows_left >= size):
            raise ConfigError(
                f"stage {stage.name!r} has read {record.position} of {rows} samples, and would "
                f"read {steps_left} more global batches of {size}: keep the global batch size "
                "within a chunk; ranks, micro_batch_size and accumulation may change"
            )

    def _stages_begun_by(self, step: int) -> list[tuple[str, int]]:
        """List (name, start_training_step) of the stages that have begun at a step."""
        return [
            (stage.name, stage.steps.start)
            for stage in self.stages
            if stage.steps.start <= step
        ]

    def _begin_next_stage(self) -> None:
        """Begin a stage at position 0, or after the stage that it continues.

        The plan of the continued stage must not have changed.
        """
        self._record_plan()
        stage = self.stages[len(self.records)]
        predecessor_rows = None
        if stage.predecessor:
            record = self.records[stage.predecessor.number]
            predecessor_rows = rows_of_stage(stage.predecessor, record, record.position)
            self._check_plan(record, predecessor_rows.plan)
        self._loader = self._batches = None
        self.records.append(new_record(stage, predecessor_rows))

    def _record_plan(self) -> None:
        """Record the plan of the current stage; this is deferred, because it reads the files."""
        if self._loader is not None and self.records[-1].plan is None:
            self.records[-1].plan = self._loader.plan

    def _check_plan(self, record: StageRecord, plan: Plan) -> None:
        """Raise PlanMismatch if a stage began with another plan."""
        check_stage_plan(record.name, record.plan, plan)
        record.plan = plan

    def _open_current_loader(self) -> Iterator[Batch]:
        """Open the loader of the current stage, from its next position to its last step."""
        stage = self.current_stage
        record = self.records[-1]
        if stage.data.dataset.streams_text:
            loader: Any = text_loader(self.config, stage.data, self.layout)
            loader.seek(record.position, record.cursors)
        else:
            loader = self._rows_loader(stage, record)
        if record.plan is not None:
            self._check_plan(record, loader.plan)
        self._loader = loader
        return iter(loader)

    def _rows_loader(self, stage: Stage, record: StageRecord) -> Any:
        """Make the loader of a stage that reads rows, from its next position on."""
        schedule = self.config.batch_schedule(record.position, self.step + 1)
        layout = self.layout
        return build_nanoset_dataloader(
            rows_of_stage(stage, record, schedule.positions(stage.steps[-1]).stop),
            micro_batch_size=schedule.micro_batch_size,
            dp_rank=layout.dp_rank,
            dp_size=layout.dp_size,
            output_pp_rank=layout.output_pp_rank,
            current_pp_rank=layout.pp_rank,
            consumed_train_samples=record.position,
            num_loading_workers=stage.data.num_loading_workers,
            read_ahead=stage.data.read_ahead,
            seed=self.config.general.seed,
            pin_memory=torch.cuda.is_available(),
        )


def text_loader(
    config: Config, data: DataConfig, layout: ParallelLayout
) -> TokenStreamDataLoader:
    """Make the endless loader of one rank, which tokenizes text while the model trains.

    Its batches match DataCollatorForCLM. Pipeline ranks between the first and the last do not need
    data; they get the batches of the first. One rank's cursor serves all ranks, because every rank
    reads the whole text.
    """
    section: Any = data.dataset
    tokenizer: Any = config.tokenizer  # required in a Config with text
    length = config.tokens.sequence_length
    stream = TokenStream(
        section.source(),
        tokenizer.tokenizer_name_or_path,
        length,
        dp_rank=layout.dp_rank,
        dp_size=layout.dp_size,
        micro_batch_size=config.tokens.micro_batch_size,
        repeat=True,
        seed=data.seed,
        append_eod=section.append_eod,
        add_special_tokens=section.add_special_tokens,
        special_tokens=section.special_tokens,
        shuffle_buffer=section.shuffle_buffer,
    )
    last = layout.output_pp_rank
    current = last if layout.pp_rank == last else 0
    return TokenStreamDataLoader(
        stream,
        DataCollatorForCLM(length, 0, last, current),
        num_workers=data.num_loading_workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(config.general.seed),
    )
