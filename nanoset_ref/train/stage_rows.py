"""The rows of stages: opened, cut where the ranks or the batch size change, recorded in a state."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.error_text import shorten
from nanoset_ref.io.extras import extra
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import Ledger, Order, StatelessOrder
from nanoset_ref.orders.plans import Plan, PlanMismatch, check_plan
from nanoset_ref.tokens import open_tokens
from nanoset_ref.train.config import Config
from nanoset_ref.train.stages import Stage, stages_of
from nanoset_ref.train.strict_yaml import ConfigError

with extra("train", "a training run"):
    from pydantic import BaseModel, Field

# far below the end of int64: sums fit, too
SampleCount = Annotated[int, Field(ge=0, lt=2**62)]


class StageRecord(BaseModel, strict=True):
    """The state of a stage that has begun.

    Attributes:
        name: the stage's name.
        start_training_step: the stage's first step.
        first_position: the position in the stage's order at which it began.
        first_reads: for each of its files, how many samples earlier stages had read.
        consumed_train_samples: samples delivered in this stage, over all ranks.
        plan: the plan of the stage's rows.
        cursors: for streamed text, the place in the text (see `streaming.TokenStream`).
    """

    name: str
    start_training_step: int
    first_position: SampleCount
    first_reads: list[SampleCount]
    consumed_train_samples: SampleCount = 0
    plan: Plan | None = None
    cursors: dict[str, dict[str, int]] = {}

    @property
    def position(self) -> int:
        """The next position in the stage's order."""
        return self.first_position + self.consumed_train_samples


def new_record(stage: Stage, predecessor_rows: Any) -> StageRecord:
    """Make the record of a stage that begins.

    Args:
        stage: the stage.
        predecessor_rows: the Nanoset of `stage.predecessor`, up to the last sample delivered. With
            None the stage begins at position 0.
    """
    first_position = 0
    first_reads = []
    if predecessor_rows is not None:
        # they were opened up to the last position read
        first_position = len(predecessor_rows)
        first_reads = predecessor_rows.order.counts().tolist()
        first_reads += [0] * (len(stage.files) - len(first_reads))  # of new files
    return StageRecord(
        name=stage.name,
        start_training_step=stage.steps.start,
        first_position=first_position,
        first_reads=first_reads,
    )


def rows_of_stage(stage: Stage, record: StageRecord, num_samples: int) -> Rows:
    """Open the rows of a stage, up to position `num_samples` of its order."""
    dataset: Any = stage.data.dataset
    length = stage.sequence_length
    seed = stage.data.seed
    if not dataset.names_token_files or dataset.names_folders:
        return dataset.open(length, num_samples, seed)
    files = [open_tokens(path, dtype) for path, dtype in stage.files.items()]
    sizes = [file.num_samples(length) for file in files]
    weights = None
    # 0.0: a file that only earlier stages read
    configured = [dataset.dataset_path.get(path, 0.0) for path in stage.files]
    if set(configured) != {None}:
        weights = [
            float(size if weight is None else weight)
            for size, weight in zip(sizes, configured, strict=True)
        ]
    order: str | Order = dataset.order
    if order == "stateless" and record.first_position:
        saved = {"number of files": len(record.first_reads)}
        check_stage_plan(record.name, saved, {"number of files": len(files)})
        ledger = Ledger(record.first_position, record.first_reads)
        order = StatelessOrder(sizes, weights, num_samples, seed, start=ledger)
    return Nanoset(files, weights, length, num_samples, seed, order=order)


def check_stage_plan(name: str, saved: Plan | None, current: Plan) -> None:
    """Like `check_plan`; a PlanMismatch names the stage."""
    try:
        check_plan(saved, current)
    except PlanMismatch as error:
        raise PlanMismatch(f"stage {name!r}: {error}") from error


def planned_stages(
    config: Config, state: Mapping[str, Any] | None = None
) -> Iterator[tuple[Stage, Schedule, Rows]]:
    """Open all stages: yield each with its rows, and its schedule for the ranks of `config`.

    Args:
        config: of the whole run.
        state: of a StagedLoader. A stage in which the ranks or the batch size changed is
            then yielded in parts, and must read what it read when it began.

    Raises:
        ConfigError: a stage streams text, which has no rows.
        PlanMismatch: a stage would now read other data; the message lists the differences.
    """
    opened: list[Rows] = []
    schedules = [config.batch_schedule()]
    begun: list[StageRecord] = []
    if state:
        _, schedules, begun = recorded_stages(state)
    for stage in stages_of(config):
        if stage.data.dataset.streams_text:
            raise ConfigError(
                f"stage {stage.name!r} streams text and has no rows to inspect: preprocess the "
                "text, or leave the stage out"
            )
        earlier = stage.predecessor
        predecessor_rows = opened[earlier.number] if earlier else None
        record = new_record(stage, predecessor_rows)
        parts = list(parts_of_stage(stage, record.position, schedules))
        _, last = parts[-1]
        rows = rows_of_stage(stage, record, last.positions(stage.steps[-1]).stop)
        if stage.number < len(begun):
            check_stage_plan(stage.name, begun[stage.number].plan, rows.plan)
        opened.append(rows)
        for part, schedule in parts:
            yield part, schedule, rows


def parts_of_stage(
    stage: Stage, position: int, schedules: Sequence[Schedule]
) -> Iterator[tuple[Stage, Schedule]]:
    """Cut a stage, which begins at a position, at the first steps of the run's schedules."""
    for schedule, later in itertools.zip_longest(schedules, schedules[1:]):
        stop = later.first_step if later else stage.steps.stop
        steps = range(
            max(stage.steps.start, schedule.first_step), min(stage.steps.stop, stop)
        )
        if steps:
            is_first = steps.start == stage.steps.start
            name = stage.name if is_first else f"{stage.name}, from step {steps.start}"
            begun = {"consumed_train_samples": position, "first_step": steps.start}
            yield (
                stage._replace(name=name, steps=steps),
                dataclasses.replace(schedule, **begun),
            )
            position += len(steps) * schedule.global_batch_size


def recorded_stages(
    state: Mapping[str, Any],
) -> tuple[int, list[Schedule], list[StageRecord]]:
    """The last step of a run, its schedules and its stages, from the state of a StagedLoader.

    Raises:
        ConfigError: it is not such a state.
    """
    try:
        step = whole_number(state["step"], "step", 0)
        schedules = [Schedule(**schedule) for schedule in state["schedules"]]
        if schedules[0].first_step != 1:
            raise ValueError("its schedules begin after step 1")
        return step, schedules, [StageRecord(**record) for record in state["stages"]]
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"this is not the state of a StagedLoader: {shorten(error)}"
        ) from error
