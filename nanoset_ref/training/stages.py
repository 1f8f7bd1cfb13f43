"""Data stages: which data a run reads from which step on, and where in its order each stage begins.

Steps count from 1. A stage lasts from its start_training_step to the step before the next stage's. Each stage has its
own order. `reuse` says how it begins if an earlier stage read the same files:

    restart    at position 0, as Nanotron originally did: the earlier samples are read again
    continue   "nanotron": at the position where the earlier stage stopped, if it is the very same blend
               "stateless": each file where it was left, in any blend; the earlier stages' counts are its `Ledger`

Opening a stage also opens the files of the earlier stages that it continues. A run opens a stage when its first step
comes, so stages that are days away may still change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Ledger, Order, StatelessOrder
from nanoset_ref.schedule import Schedule
from nanoset_ref.tokens import TokenFile
from nanoset_ref.training.config import Config, DataConfig, DataStage
from nanoset_ref.training.strict_yaml import ConfigError


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
        earlier = self.before.files if self.before else {}
        return earlier | dict.fromkeys(self.data.dataset.dataset_path, self.data.dataset.token_dtype)

    def open(self, num_samples: int, start: Ledger) -> Nanoset:
        """The rows of this stage: the one place that knows what a `data` section can name.

        Args:
            num_samples: their number, counted from position 0.
            start: where in its order the stage begins.
        """
        own, length, seed = self.data.dataset.dataset_path, self.sequence_length, self.data.seed
        files = [TokenFile(path, token_dtype) for path, token_dtype in self.files.items()]
        lengths = [file.num_samples(length) for file in files]
        weights = None
        given = [own.get(path, 0.0) for path in self.files]  # files of earlier stages have weight 0
        if set(given) != {None}:
            weights = [float(size if weight is None else weight) for size, weight in zip(lengths, given, strict=True)]
        order: str | Order = self.data.dataset.order
        if order == "stateless" and start.position:
            # as many counts as files: check_plan reports files that were exchanged since the stage began
            reads = (*start.reads, *[0] * len(files))[: len(files)]
            order = StatelessOrder(lengths, weights, num_samples, seed, start=Ledger(start.position, reads))
        return Nanoset(files, weights, length, num_samples, seed, order=order)

    def start_after(self, continued: Nanoset | None) -> Ledger:
        """Where this stage begins, after the last sample of `continued`, the rows of `before`."""
        if continued is None:
            return Ledger(0, ())
        reads = continued.order.counts(len(continued)).tolist()
        return Ledger(len(continued), (*reads, *[0] * (len(self.files) - len(reads))))


def stages_of(config: Config) -> list[Stage]:
    """The stages in the order in which they run.

    Raises:
        ConfigError: a stage is to continue an earlier one and cannot.
    """
    given = sorted(config.data_stages, key=lambda stage: stage.start_training_step)
    stops = [stage.start_training_step for stage in given[1:]] + [config.tokens.train_steps + 1]
    stages: list[Stage] = []
    for number, (it, stop) in enumerate(zip(given, stops, strict=True)):
        steps, before = range(it.start_training_step, stop), _continued(it, stages)
        stages.append(Stage(number, it.name, it.data, steps, config.tokens.sequence_length, before))
    return stages


def _continued(stage: DataStage, earlier: Sequence[Stage]) -> Stage | None:
    """The earlier stage that a stage continues.

    Under "nanotron" it is the last one that read one of its files. Under "stateless" it is the last one with that order
    and seed, whatever its files: all of them share one numbering of files and one count of positions.
    """
    if not stage.data.dataset.continues:
        return None
    alike = [other for other in earlier if _order_of(other.data) == _order_of(stage.data)]
    paths = stage.data.dataset.dataset_path.keys()
    sharing = [other for other in earlier if paths & other.data.dataset.dataset_path.keys()]
    if sharing and sharing[-1] not in alike:
        raise ConfigError(
            f"stage {stage.name!r} shares files with stage {sharing[-1].name!r}, but cannot continue it: order and "
            "seed must be the same (for nanotron's, dataset_path too); or set reuse: restart"
        )
    return alike[-1] if alike else None  # of nanotron's order, what is alike shares files


def _order_of(data: DataConfig) -> tuple[Any, ...]:
    """What two stages must have in common for one to continue the other."""
    blend = list(data.dataset.dataset_path.items()) if data.dataset.order == "nanotron" else None
    return data.dataset.order, data.seed, blend


def planned_stages(config: Config) -> Iterator[tuple[Stage, Schedule, Nanoset]]:
    """Every stage with its schedule and rows, if the whole run has the layout of `config`."""
    opened: list[Nanoset] = []
    for stage in stages_of(config):
        start = stage.start_after(opened[stage.before.number] if stage.before else None)
        schedule = config.schedule(start.position, stage.steps.start)
        opened.append(stage.open(schedule.positions(stage.steps[-1]).stop, start))
        yield stage, schedule, opened[-1]
