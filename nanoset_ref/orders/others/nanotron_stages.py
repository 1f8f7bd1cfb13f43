"""The stages of a config of Nanotron's main branch.

Each begins where Nanotron's counts of the earlier stages end.

Source: huggingface/nanotron 2411b022 (April 2026), `run_train.py` and `trainer.py`.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from nanoset_ref.io.paths import as_list
from nanoset_ref.io.types import Json
from nanoset_ref.orders.others.nanotron_main import NanotronMainOrder

NOT_REPRODUCED = "dataset_max_tokens", "use_old_brrr_dataloader"


def nanotron_stages(
    config: Mapping[str, Any],
    rows: Mapping[str, Sequence[int]],
) -> list[NanotronMainOrder]:
    """The orders of the stages of a run.

    1. a stage reads until the next one starts, the last one until train_steps; stages that start
       after train_steps are left out
    2. in each folder it skips the rows that Nanotron counted as read in earlier stages
    3. Nanotron counts with the run's step numbers, although the stage's blend starts at 0 (see
       `NanotronMainOrder.rows_counted_by_nanotron`); of a folder that is listed twice it keeps the
       last count

    Args:
        config: Nanotron's YAML, parsed. The global batch size is the same in all stages.
        rows: for each dataset_folder the rows of S + 1 tokens in its .ds files, in the order of
            `datatrove_files(folder, recursive=False)`; with shuffle_files also
            `shuffle=True, seed=...`.

    Returns:
        An order for each stage, in the order of their first steps.

    Raises:
        KeyError: the config or `rows` lacks something.
        ValueError: see `NanotronMainOrder`; the config sets dataset_max_tokens or
            use_old_brrr_dataloader.
    """
    tokens = config["tokens"]
    global_batch_size = (
        tokens["micro_batch_size"]
        * tokens["batch_accumulation_per_replica"]
        * config["parallelism"]["dp"]
    )
    orders = []
    consumed: dict[str, int] = {}
    # 1. which steps the stage has
    for stage, steps in stages_reached(config):
        dataset = stage["data"]["dataset"]
        stage_name = stage["name"]
        for option in NOT_REPRODUCED:
            if dataset.get(option):
                raise ValueError(
                    f"stage {stage_name!r} sets {option}, which is not reproduced"
                )
        # 2. where it begins in each folder
        names = as_list(dataset["dataset_folder"])
        files = [rows[name] for name in names]
        order = NanotronMainOrder(
            list(itertools.chain.from_iterable(files)),
            dataset.get("dataset_weights"),
            len(steps) * global_batch_size,
            folders=[len(folder) for folder in files],
            offsets=[consumed.get(name, 0) for name in names],
        )
        orders.append(order)
        # 3. how many rows Nanotron counts
        counted = order.rows_counted_by_nanotron(
            steps.start, steps.stop - 1, global_batch_size
        )
        last_counts = dict(zip(names, counted, strict=True))
        for name, count in last_counts.items():
            consumed[name] = consumed.get(name, 0) + count
    return orders


def stages_reached(config: Mapping[str, Any]) -> list[tuple[Json, range]]:
    """The stages that begin before the run ends, each with its steps, which count from 1."""
    stop = config["tokens"]["train_steps"] + 1
    stages = sorted(config["data_stages"], key=_first_step)
    reached = [stage for stage in stages if _first_step(stage) < stop]
    starts = [*map(_first_step, reached), stop]
    steps = itertools.starmap(range, itertools.pairwise(starts))
    return list(zip(reached, steps, strict=True))


def _first_step(stage: Mapping[str, Any]) -> int:
    """The first step of a stage of the config."""
    return int(stage["start_training_step"])
