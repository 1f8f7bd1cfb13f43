"""Data stages: which data a run reads from which step on, and the steps of one rank across all of them.

Steps count from 1. A stage lasts from its start_training_step to the step before the next stage's. Each stage has its
own order. `reuse` says how it begins if an earlier stage read the same files:

    restart    at position 0, as Nanotron originally did: the earlier samples are read again
    continue   "nanotron": at the position where the earlier stage stopped, if it is the very same blend
               "stateless": each file where it was left, in any blend; the earlier stages' counts are its `Ledger`

Within a stage, step after step delivers the next global batch of the stage's order. All a resume needs is a count per
stage that has begun (law 3), so a run goes on exactly inside a stage, on a boundary, with stages added, moved or
removed after the last step done, and on any number of ranks, even if a part of it had another batch size. A stage is
opened when its first step comes, together with the files of the stages that it continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra
from nanoset_ref.load.collator import Batch, DataCollatorForCLM
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import Ledger, Order, StatelessOrder
from nanoset_ref.orders.plans import PlanMismatch, check_plan
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader
from nanoset_ref.tokens import open_tokens
from nanoset_ref.train.config import Config
from nanoset_ref.train.data_section import ChunksSection, DataConfig, DatasetConfig, TextSection
from nanoset_ref.train.parallel import ParallelLayout
from nanoset_ref.train.strict_yaml import ConfigError, one_line

with extra("train", "a training run"):
    from pydantic import BaseModel, Field

Samples = Annotated[int, Field(ge=0, lt=2**62)]


class StageRecord(BaseModel, strict=True):
    """What the state keeps of a stage that has begun.

    Attributes:
        name, start_training_step: of the stage.
        first_position, first_reads: where in its order it began: the position, and the samples that each of its files
            had given before.
        consumed_train_samples: samples delivered in this stage, over all ranks.
        plan: of its rows.
        cursors: of a text that is streamed: where it stands in the text (see `streaming.TokenStream`).
    """

    name: str
    start_training_step: int
    first_position: Samples
    first_reads: list[Samples]
    consumed_train_samples: Samples = 0
    plan: dict[str, Any] | None = None
    cursors: dict[str, dict[str, int]] = {}

    @property
    def start(self) -> Ledger:
        return Ledger(self.first_position, tuple(self.first_reads))

    @property
    def position(self) -> int:
        """Where in its order it is."""
        return self.first_position + self.consumed_train_samples


class Stage(NamedTuple):
    """A stage in its place among the others.

    Attributes:
        number: its place in the run, from 0.
        name, data: from the config.
        steps: its optimizer steps. Starts 1, 15, 25 of 30 steps give 1-14, 15-24, 25-30.
        sequence_length: in tokens.
        before: the earlier stage at whose end this one continues; None if it begins its order at 0.
    """

    number: int
    name: str
    data: DataConfig
    steps: range
    sequence_length: int
    before: Stage | None

    @property
    def files(self) -> dict[str, str | None]:
        """{path: token_dtype} of the files that its order numbers: those of the stages it continues, then its own."""
        dataset: Any = self.data.dataset
        return (self.before.files if self.before else {}) | dict.fromkeys(
            dataset.dataset_path, dataset.token_dtype
        )

    def open(self, num_samples: int, record: StageRecord) -> Rows:
        """The rows of this stage, which began as `record` says; their number counts from position 0."""
        dataset, length, seed = self.data.dataset, self.sequence_length, self.data.seed
        if not isinstance(dataset, DatasetConfig):
            return dataset.open(length, num_samples, seed)
        if dataset.names_folders:
            from nanoset_ref.load import DatatroveNanoset

            shares = [weight for weight in dataset.dataset_path.values() if weight is not None]
            return DatatroveNanoset(
                list(dataset.dataset_path), shares or None, length, num_samples, seed
            )
        files = [open_tokens(path, token_dtype) for path, token_dtype in self.files.items()]
        lengths = [file.num_samples(length) for file in files]
        weights = None
        given = [
            dataset.dataset_path.get(path, 0.0) for path in self.files
        ]  # files of earlier stages have weight 0
        if set(given) != {None}:
            weights = [
                float(size if weight is None else weight)
                for size, weight in zip(lengths, given, strict=True)
            ]
        order: str | Order = dataset.order
        if order == "stateless" and record.first_position:
            # check_plan reports files that were exchanged since the stage began
            start = Ledger(record.first_position, self._counts(record.first_reads))
            order = StatelessOrder(lengths, weights, num_samples, seed, start=start)
        return Nanoset(files, weights, length, num_samples, seed, order=order)

    def begin(self, continued: Any) -> StageRecord:
        """Its record before its first step: after the last sample of `continued`, the Nanoset of `before`, or at 0."""
        return StageRecord(
            name=self.name,
            start_training_step=self.steps.start,
            first_position=len(continued or ()),
            first_reads=self._counts(continued.order.counts(len(continued)).tolist())
            if continued
            else [],
        )

    def _counts(self, reads: list[int]) -> list[int]:
        """As many counts as files; those of new files are 0."""
        return [*reads, *[0] * len(self.files)][: len(self.files)]


def stages_of(config: Config) -> list[Stage]:
    """The stages in the order in which they run; a folder of chunks is a stage for each chunk.

    Raises:
        ConfigError: a stage is to continue an earlier one and cannot; the chunks are too few for the steps.
    """
    stages: list[Stage] = []
    for name, data, steps in _stretches(config):
        before = _continued(name, data, stages)
        stages.append(Stage(len(stages), name, data, steps, config.tokens.sequence_length, before))
    return stages


def _stretches(config: Config) -> Iterator[tuple[str, DataConfig, range]]:
    """What is read in which steps; of chunks, the whole steps of each.

    Stages that begin after the last step are left out.
    """
    last, batch = config.tokens.train_steps, config.global_batch_size
    reached = [stage for stage in config.data_stages if stage.start_training_step <= last]
    given = sorted(reached, key=lambda stage: stage.start_training_step)
    stops = [stage.start_training_step for stage in given[1:]] + [last + 1]
    for stage, stop in zip(given, stops, strict=True):
        dataset, first = stage.data.dataset, stage.start_training_step
        if not isinstance(dataset, ChunksSection):
            yield stage.name, stage.data, range(first, stop)
            continue
        for name, samples, section in dataset.each():
            if samples < batch and first < stop:
                raise ConfigError(
                    f"stage {stage.name!r}: the chunk {name} of {dataset.chunks} holds {samples} "
                    f"samples, fewer than a global batch of {batch}: give larger chunks or a smaller batch"
                )
            end = min(first + samples // batch, stop)
            if first < end:
                yield (
                    f"{stage.name}, {name}",
                    stage.data.model_copy(update={"dataset": section}),
                    range(first, end),
                )
                first = end
        if first < stop:
            raise ConfigError(
                f"stage {stage.name!r}: the chunks of {dataset.chunks} fill {first - stage.start_training_step} steps "
                f"of {batch} samples, {stop - stage.start_training_step} are asked for"
            )


def _continued(name: str, data: DataConfig, earlier: Sequence[Stage]) -> Stage | None:
    """The earlier stage that a stage continues.

    Under "nanotron" it is the last one that read one of its files. Under "stateless" it is the last one with that order
    and seed, whatever its files: all of them share one numbering of files and one count of positions.
    """
    if not isinstance(data.dataset, DatasetConfig) or not data.dataset.continues:
        return None
    readers: list[Any] = [
        other for other in earlier if isinstance(other.data.dataset, DatasetConfig)
    ]
    alike = [other for other in readers if _order_of(other.data) == _order_of(data)]
    sharing = [
        other
        for other in readers
        if data.dataset.dataset_path.keys() & other.data.dataset.dataset_path
    ]
    if sharing and sharing[-1] not in alike:
        raise ConfigError(
            f"stage {name!r} shares files with stage {sharing[-1].name!r}, but cannot continue it: order and "
            "seed must be the same (for nanotron's, dataset_path too); or set reuse: restart"
        )
    return alike[-1] if alike else None  # of nanotron's order, what is alike shares files


def _order_of(data: DataConfig) -> tuple[Any, ...]:
    """What two stages must have in common for one to continue the other."""
    dataset: Any = data.dataset
    blend = list(dataset.dataset_path.items()) if dataset.order == "nanotron" else None
    return dataset.order, data.seed, blend


def planned_stages(config: Config) -> Iterator[tuple[Stage, Schedule, Rows]]:
    """Every stage with its schedule and rows, if the whole run has the layout of `config`; text has no rows."""
    opened: list[Rows] = []
    for stage in stages_of(config):
        record = stage.begin(opened[stage.before.number] if stage.before else None)
        schedule = config.schedule(record.position, stage.steps.start)
        opened.append(stage.open(schedule.positions(stage.steps[-1]).stop, record))
        yield stage, schedule, opened[-1]


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
    batches: list[Batch]


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
        self._loader: Any = None
        self._batches: Iterator[Batch] = iter(())

    @property
    def consumed_train_samples(self) -> int:
        """Samples delivered over all ranks and stages."""
        return sum(record.consumed_train_samples for record in self.records)

    def __iter__(self) -> Iterator[Step]:
        while self.step < self.config.tokens.train_steps:
            yield self.next_step()

    def next_step(self) -> Step:
        """Deliver the next step, from a new stage if one begins with it."""
        number = self.step + 1
        if len(self._begun(number)) > len(self.records):
            self._begin(self.stages[len(self.records)])
        record, schedule = self.records[-1], self.config.schedule()
        accumulation = schedule.batch_accumulation_per_replica
        positions = schedule.rows(record.position, self.layout.dp_rank, accumulation)
        batches = [next(self._batches) for _ in range(accumulation)]
        record.consumed_train_samples += schedule.global_batch_size
        record.cursors = getattr(self._loader, "cursors", {})
        self.step = number
        return Step(number, record.name, positions, batches)

    def state_dict(self) -> dict[str, Any]:
        """{"step", "consumed_train_samples", "stages": a StageRecord each}: JSON-serialisable, good on all ranks."""
        self._write_plan()
        stages = [record.model_dump() for record in self.records]
        return {
            "step": self.step,
            "consumed_train_samples": self.consumed_train_samples,
            "stages": stages,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the step of `state`, with any number of ranks, any micro-batch and any later stages.

        Raises:
            ConfigError: not a state; or the stages of the steps already done are not those of the config.
            PlanMismatch: the stage to continue reads other data now; the message lists what differs.
        """
        try:
            step, records = (
                int(state["step"]),
                [StageRecord(**record) for record in state["stages"]],
            )
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
        self.step, self.records = step, records
        if step < last and begun == self._begun(step + 1):
            self._batches = self._open()  # now, so that another plan is refused at once

    def _begun(self, step: int) -> list[tuple[str, int]]:
        """(name, start_training_step) of the stages that have begun at a step."""
        return [
            (stage.name, stage.steps.start) for stage in self.stages if stage.steps.start <= step
        ]

    def _begin(self, stage: Stage) -> None:
        """A stage begins at 0, or after the stage it continues, whose files and weights must be as they were."""
        self._write_plan()
        continued = None
        if stage.before:
            record = self.records[stage.before.number]
            continued = stage.before.open(record.position, record)
            self._agree(record, continued.plan)
        self.records.append(stage.begin(continued))
        self._batches = self._open()

    def _write_plan(self) -> None:
        """Let the record of the stage under way hold its plan: the first state asks for it, or else the next stage."""
        if self._loader is not None and self.records[-1].plan is None:
            self.records[-1].plan = self._loader.plan

    def _agree(self, record: StageRecord, plan: dict[str, Any]) -> None:
        """PlanMismatch if a stage began with another plan."""
        try:
            check_plan(record.plan, plan)
        except PlanMismatch as error:
            raise PlanMismatch(f"stage {record.name!r}: {error}") from error
        record.plan = plan

    def _open(self) -> Iterator[Batch]:
        """Read on in the last stage that has begun, to its last step."""
        stage, record, layout = self.stages[len(self.records) - 1], self.records[-1], self.layout
        schedule = self.config.schedule(record.position, self.step + 1)
        if isinstance(stage.data.dataset, TextSection):
            loader: Any = stream_loader(self.config, stage.data, layout)
            loader.seek(record.position, record.cursors)
        else:
            loader = build_nanoset_dataloader(
                stage.open(schedule.positions(stage.steps[-1]).stop, record),
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
        if record.plan is not None:
            self._agree(record, loader.plan)
        self._loader = loader
        return iter(loader)


def stream_loader(
    config: Config, data: DataConfig, layout: ParallelLayout
) -> TokenStreamDataLoader:
    """The batches of one rank, tokenised while they are read, without end, as DataCollatorForCLM makes them.

    Pipeline ranks between the first and the last, which need no data, are given those of the first. The cursor in the
    state of one rank serves all, as every rank reads through the whole text.
    """
    section: Any = data.dataset
    tokens, tokenizer, last = config.tokens, config.tokenizer, layout.output_pp_rank
    stream = TokenStream(
        section.source(),
        tokenizer.tokenizer_name_or_path if tokenizer else None,  # a Config with text has one
        tokens.sequence_length,
        dp_rank=layout.dp_rank,
        dp_size=layout.dp_size,
        micro_batch_size=tokens.micro_batch_size,
        repeat=True,
        seed=data.seed,
        **section.model_dump(
            include={"append_eod", "add_special_tokens", "special_tokens", "shuffle_buffer"}
        ),
    )
    return TokenStreamDataLoader(
        stream,
        DataCollatorForCLM(tokens.sequence_length, 0, last, last if layout.pp_rank == last else 0),
        num_workers=data.num_loading_workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(config.general.seed),
    )
