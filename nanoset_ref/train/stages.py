"""Data stages: which data a run reads at each step.

Steps count from 1. A stage lasts from its start_training_step to the step before the next stage's.
Each stage has its own order. If an earlier stage read the same files, `reuse` decides how a stage
begins:

    restart    at position 0, like the Nanosets of 2024: the earlier samples are read again
    continue   "nanotron": at the position where the earlier stage stopped, in the same blend
               "stateless": in each file after its last sample read, in any blend (see
               `orders.Ledger`)

A folder of chunks becomes one stage per chunk. `stage_rows` opens the stages, `staged_loader` reads
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nanoset_ref.io.error_text import redact
from nanoset_ref.train.config import Config, DataStage
from nanoset_ref.train.data_config import (
    ChunksConfig,
    DataConfig,
    TokenFilesConfig,
    without_links,
)
from nanoset_ref.train.strict_yaml import ConfigError

# name, data and steps of a stage of the config, or of one chunk of it
ExpandedStage = tuple[str, DataConfig, range]


class Stage(NamedTuple):
    """A stage of a run.

    Attributes:
        number: the stage's index in the run, from 0.
        name: the name in the config.
        data: the data section of the config.
        steps: its optimizer steps. Starts 1, 15, 25 of 30 steps give 1-14, 15-24, 25-30.
        sequence_length: tokens per sample.
        predecessor: the stage that this one continues; None if it begins its order at 0.
    """

    number: int
    name: str
    data: DataConfig
    steps: range
    sequence_length: int
    predecessor: Stage | None

    @property
    def files(self) -> dict[str, str | None]:
        """{path: token_dtype} of all files in its order, first those of its predecessors."""
        dataset: Any = self.data.dataset
        own = dict.fromkeys(dataset.dataset_path, dataset.token_dtype)
        if self.predecessor is None:
            return own
        return self.predecessor.files | own


def stages_of(config: Config) -> list[Stage]:
    """List the stages in the order in which they run; a folder of chunks gives a stage per chunk.

    Raises:
        ConfigError: a stage is configured to continue an earlier one, but cannot; or the chunks
            have too few samples for the steps.
    """
    length = config.tokens.sequence_length
    stages: list[Stage] = []
    # {a file `without_links`: its name in the first stage that reads it}
    names: dict[Any, str] = {}
    for name, data, steps in _expand_chunks(config):
        dataset: Any = data.dataset
        if dataset.names_token_files:
            by_name = {
                names.setdefault(without_links(path), path): weight
                for path, weight in dataset.dataset_path.items()
            }
            section = dataset.model_copy(update={"dataset_path": by_name})
            data = data.model_copy(update={"dataset": section})
        predecessor = _find_predecessor(name, data, stages)
        stages.append(Stage(len(stages), name, data, steps, length, predecessor))
    return stages


def _expand_chunks(config: Config) -> Iterator[ExpandedStage]:
    """Yield the stages that start within train_steps; a folder of chunks yields one per chunk."""
    end = config.tokens.train_steps + 1
    by_start = {stage.start_training_step: stage for stage in config.data_stages}
    starts = [start for start in sorted(by_start) if start < end]
    for start, stop in itertools.pairwise([*starts, end]):
        stage = by_start[start]
        steps = range(start, stop)
        dataset = stage.data.dataset
        if isinstance(dataset, ChunksConfig):
            yield from _stages_of_chunks(
                stage, dataset, steps, config.global_batch_size
            )
        else:
            yield stage.name, stage.data, steps


def _stages_of_chunks(
    stage: DataStage, chunks: ChunksConfig, steps: range, batch_size: int
) -> Iterator[ExpandedStage]:
    """Yield a stage for each chunk, with as many steps as it fills completely."""
    first = steps.start
    for name, samples, section in chunks.each_chunk():
        if first == steps.stop:
            return
        if samples < batch_size:
            raise ConfigError(
                f"stage {stage.name!r}: the chunk {name} of {chunks.chunks} holds {samples} "
                f"samples, fewer than a global batch of {batch_size}: "
                "give larger chunks or a smaller batch"
            )
        stop = min(first + samples // batch_size, steps.stop)
        data = stage.data.model_copy(update={"dataset": section})
        yield f"{stage.name}, {name}", data, range(first, stop)
        first = stop
    if first < steps.stop:
        raise ConfigError(
            f"stage {stage.name!r}: the chunks of {chunks.chunks} fill {first - steps.start} steps "
            f"of {batch_size} samples, but the stage has {len(steps)}"
        )


def _find_predecessor(
    name: str, data: DataConfig, earlier: Sequence[Stage]
) -> Stage | None:
    """Find the earlier stage that a stage continues.

    Under "nanotron" it is the last stage that read one of its files. Under "stateless" it is the
    last stage with that order and seed, whatever its files: all of them share one numbering of
    files and one count of positions.
    """
    dataset: Any = data.dataset
    if not dataset.continues:
        return None
    key = _continuation_key(data)
    same_order = None
    same_files = None
    read_by: dict[str, str] = {}  # {path: the last stage of this order that read it}
    for stage in earlier:
        other: Any = stage.data.dataset
        if not other.names_token_files:
            continue
        if _continuation_key(stage.data) == key:
            same_order = stage
            read_by |= dict.fromkeys(other.dataset_path, stage.name)
        if not other.files_read.isdisjoint(dataset.files_read):
            same_files = stage
    if same_files and _continuation_key(same_files.data) != key:
        raise ConfigError(
            f"stage {name!r} shares files with stage {same_files.name!r}, but cannot continue it: "
            "order and seed must be the same (for nanotron's, dataset_path too); "
            "or set reuse: restart"
        )
    if same_order is not None:
        _check_same_dtype(name, dataset, same_order)
        for path in dataset.dataset_path:
            if path in read_by and path not in same_order.files:
                raise ConfigError(
                    f"stage {name!r} cannot continue {redact(path)}, which stage "
                    f"{read_by[path]!r} read: a stage between them restarts the order without it, "
                    f"up to {same_order.name!r}; set reuse: restart here, too, or reuse: continue "
                    "there"
                )
    return same_order  # under "nanotron", it has the same files


def _check_same_dtype(name: str, dataset: TokenFilesConfig, predecessor: Stage) -> None:
    """Raise ConfigError if files of the preceding stage would be read as another dtype."""
    for path in dataset.dataset_path:
        if predecessor.files.get(path, dataset.token_dtype) != dataset.token_dtype:
            raise ConfigError(
                f"stage {name!r} continues stage {predecessor.name!r}, but reads {redact(path)} "
                f"with token_dtype={dataset.token_dtype} instead of {predecessor.files[path]}: "
                "give both stages the same token_dtype, or set reuse: restart"
            )


def _continuation_key(data: DataConfig) -> tuple[Any, ...]:
    """The values that two stages must share for one to continue the other."""
    dataset: Any = data.dataset
    if dataset.order == "nanotron":
        return dataset.order, data.seed, list(dataset.dataset_path.items())
    return dataset.order, data.seed
