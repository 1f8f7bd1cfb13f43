"""Data stages: which data a run reads from which step on, and where in their order each stage begins.

Steps count from 1. A stage lasts from its start_training_step to the step before the next stage's; the change is made
before that step runs. Each stage has an order of its own. With files that an earlier stage read, `reuse` says how it
begins:

    restart    at position 0, as Nanotron originally did: the earlier samples are read again
    continue   "nanotron": at the position where the earlier stage stopped, if it is the very same blend
               "stateless": each file where it was left, in any blend; the earlier stages' counts are its `Ledger`

What it costs: opening the files of the earlier stages that are continued. The alternative it rejects, one dataset that
knows all stages, would build the orders of stages that are days away, and could not be changed after the present step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders.stateless import Ledger, StatelessOrder
from nanoset_ref.tokens import TokenFile
from nanoset_ref.training.config import Config, DataConfig, DataStage


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
    """Index of the earlier stage at whose end stage `index` goes on; None if it begins its order at 0.

    Under "nanotron" it is the last one that read one of its files. Under "stateless" it is the last one with that order
    and seed, whatever its files: all of them share one numbering of files and one count of positions.

    Raises:
        StageError: the last stage that read one of its files did so in another order.
    """
    data = spans[index].stage.data
    if data.dataset.reuse == "restart":
        return None
    before = range(index - 1, -1, -1)
    files = set(data.dataset.paths)
    shared = next((i for i in before if files & set(spans[i].stage.data.dataset.paths)), None)
    if shared is not None and _order_of(spans[shared].stage.data) != _order_of(data):
        raise StageError(
            f"stage {spans[index].stage.name!r} shares files with stage {spans[shared].stage.name!r}, but cannot "
            "continue it: order and seed must be the same (for nanotron's, dataset_path too); or set reuse: restart"
        )
    if data.dataset.order == "nanotron":
        return shared
    return next((i for i in before if _order_of(spans[i].stage.data) == _order_of(data)), None)


def _order_of(data: DataConfig) -> tuple[Any, ...]:
    """What two stages must have in common for one to continue the other."""
    if data.dataset.order == "stateless":
        return "stateless", data.seed
    path = data.dataset.dataset_path
    return "nanotron", data.seed, list(path.items()) if isinstance(path, Mapping) else data.dataset.paths


def open_stage(config: Config, stage: DataStage, num_samples: int, start: Ledger | None = None) -> Nanoset:
    """The Nanoset of a stage.

    Args:
        config: of the run.
        stage: one of its stages.
        num_samples: its length, counted from position 0.
        start: where in its order the stage begins; None: where it will if the run goes from step 1 to there with the
            global batch of `config`.
    """
    spans = stage_spans(config.data_stages, config.tokens.train_steps)
    index = [span.stage.name for span in spans].index(stage.name)
    dataset, length = stage.data.dataset, config.tokens.sequence_length
    if dataset.order == "nanotron":
        return Nanoset.from_config(
            dataset.dataset_path, length, num_samples, stage.data.seed, token_dtype=dataset.token_dtype
        )
    files = stage_files(spans, index)
    if start is None:
        start = _planned_start(config, spans, index)
    opened = [TokenFile(path, token_dtype) for path, token_dtype in files.items()]
    lengths = [file.num_samples(length) for file in opened]
    weights: list[float] | None = None
    if isinstance(dataset.dataset_path, Mapping):
        weights = [float(dataset.dataset_path.get(path, 0)) for path in files]
    elif len(dataset.paths) < len(files):
        weights = [float(size) * (path in dataset.paths) for path, size in zip(files, lengths, strict=True)]
    ledger = None
    if start.position:
        # as many counts as files: that a stage was given others since it began is for its plan to tell
        ledger = Ledger(start.position, (*start.reads, *[0] * len(files))[: len(files)])
    order = StatelessOrder(lengths, weights, num_samples, stage.data.seed, start=ledger)
    return Nanoset(opened, weights, length, num_samples, stage.data.seed, order=order)


def stage_files(spans: Sequence[StageSpan], index: int) -> dict[str, str | None]:
    """The files that the stateless order of a stage numbers: those of the stages it continues, then its own.

    Returns:
        {path: token_dtype}, in the order of their numbers.
    """
    before = continued_stage(spans, index)
    files = {} if before is None else stage_files(spans, before)
    dataset = spans[index].stage.data.dataset
    return files | dict.fromkeys(dataset.paths, dataset.token_dtype)


def start_after(config: Config, spans: Sequence[StageSpan], index: int, start: Ledger, stop: int) -> Ledger:
    """Where a stage begins that continues another.

    Args:
        index: of the stage that begins.
        start, stop: where in its order the continued one began, and the position at which it stopped.
    """
    before = continued_stage(spans, index)
    if before is None or spans[index].stage.data.dataset.order == "nanotron":
        return Ledger(stop, ())
    order = open_stage(config, spans[before].stage, stop, start).order
    added = len(stage_files(spans, index)) - len(stage_files(spans, before))
    return Ledger(stop, (*order.counts(stop).tolist(), *[0] * added))


def _planned_start(config: Config, spans: Sequence[StageSpan], index: int) -> Ledger:
    before = continued_stage(spans, index)
    if before is None:
        return Ledger(0, ())
    start = _planned_start(config, spans, before)
    steps = spans[before].last_step - spans[before].first_step + 1
    return start_after(config, spans, index, start, start.position + steps * config.global_batch_size)
