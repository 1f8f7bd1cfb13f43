"""Data stages: which data a run reads from which step on, and where in its order each stage begins.

Steps count from 1. A stage lasts from its start_training_step to the step before the next stage's. Each stage has its
own order. `reuse` says how it begins if an earlier stage read the same files:

    restart    at position 0, as Nanotron originally did: the earlier samples are read again
    continue   "nanotron": at the position where the earlier stage stopped, if it is the very same blend
               "stateless": each file where it was left, in any blend; the earlier stages' counts are its `Ledger`

What it costs: opening the files of the earlier stages that are continued. A stage is opened when its first step comes,
so stages that are days away may still change.
"""

from __future__ import annotations

from typing import Any

from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Ledger, Order, StatelessOrder
from nanoset_ref.tokens import TokenFile
from nanoset_ref.training.config import Config, DataConfig
from nanoset_ref.training.strict_yaml import ConfigError

# In this module, `index` counts config.stages.


def continued_stage(config: Config, index: int) -> int | None:
    """Index of the earlier stage at whose end stage `index` goes on; None if it begins its order at 0.

    Under "nanotron" it is the last one that read one of its files. Under "stateless" it is the last one with that order
    and seed, whatever its files: all of them share one numbering of files and one count of positions.

    Raises:
        ConfigError: the last stage that read one of its files did so in another order.
    """
    stages, data = config.stages, config.stages[index].data
    if not data.dataset.continues:
        return None
    paths = data.dataset.dataset_path.keys()
    alike = [i for i in range(index) if _order_of(stages[i].data) == _order_of(data)]
    sharing = [i for i in range(index) if paths & stages[i].data.dataset.dataset_path.keys()]
    if sharing and sharing[-1] not in alike:
        raise ConfigError(
            f"stage {stages[index].name!r} shares files with stage {stages[sharing[-1]].name!r}, but cannot continue "
            "it: order and seed must be the same (for nanotron's, dataset_path too); or set reuse: restart"
        )
    return max(alike, default=None)  # of nanotron's order, what is alike shares files


def _order_of(data: DataConfig) -> tuple[Any, ...]:
    """What two stages must have in common for one to continue the other."""
    blend = list(data.dataset.dataset_path.items()) if data.dataset.order == "nanotron" else None
    return data.dataset.order, data.seed, blend


def stage_files(config: Config, index: int) -> dict[str, str | None]:
    """The files that the order of a stage numbers: those of the stages it continues, then its own.

    Returns:
        {path: token_dtype}, in the order of their numbers.
    """
    before = continued_stage(config, index)
    files = {} if before is None else stage_files(config, before)
    dataset = config.stages[index].data.dataset
    return files | dict.fromkeys(dataset.dataset_path, dataset.token_dtype)


def open_stage(config: Config, index: int, num_samples: int, start: Ledger) -> Nanoset:
    """The Nanoset of a stage.

    Args:
        num_samples: its length, counted from position 0.
        start: where in its order the stage begins.
    """
    data, length = config.stages[index].data, config.tokens.sequence_length
    own = data.dataset.dataset_path
    files = [TokenFile(path, token_dtype) for path, token_dtype in stage_files(config, index).items()]
    lengths = [file.num_samples(length) for file in files]
    weights = None
    if None not in own.values() or len(own) < len(files):  # files of earlier stages have weight 0
        given = [own.get(str(file.path), 0.0) for file in files]
        weights = [float(size if weight is None else weight) for size, weight in zip(lengths, given, strict=True)]
    order: str | Order = data.dataset.order
    if order == "stateless" and start.position:
        # as many counts as files: that a stage was given others since it began is for its plan to report
        ledger = Ledger(start.position, (*start.reads, *[0] * len(files))[: len(files)])
        order = StatelessOrder(lengths, weights, num_samples, data.seed, start=ledger)
    return Nanoset(files, weights, length, num_samples, data.seed, order=order)


def start_after(config: Config, index: int, continued: Nanoset) -> Ledger:
    """Where a stage begins that goes on after the last sample of `continued`."""
    reads = continued.order.counts(len(continued)).tolist()
    added = len(stage_files(config, index)) - len(reads)
    return Ledger(len(continued), (*reads, *[0] * added))


def planned_start(config: Config, index: int) -> Ledger:
    """Where a stage begins if the whole run has the layout of `config`."""
    before = continued_stage(config, index)
    if before is None:
        return Ledger(0, ())
    start = planned_start(config, before)
    steps = config.stage_steps(before)
    stop = config.schedule(start.position, steps.start).positions(steps[-1]).stop
    return start_after(config, index, open_stage(config, before, stop, start))
