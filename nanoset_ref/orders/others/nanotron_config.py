"""The stages of a config of Nanotron's main branch, each from the ledger of those before.

Source: huggingface/nanotron 2411b022 (April 2026), `run_train.py` and `trainer.py`.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from nanoset_ref.io.paths import as_list
from nanoset_ref.orders.others.nanotron_main import NanotronMainOrder

NOT_REPRODUCED = "dataset_max_tokens", "use_old_brrr_dataloader"


def nanotron_stages(
    config: Mapping[str, Any],
    rows: Mapping[str, Sequence[int]],
) -> list[NanotronMainOrder]:
    """The orders of the stages of a run.

    1. a stage reads until the next one starts, the last one until train_steps
    2. it begins in each folder behind all rows that Nanotron has counted of it in earlier stages
    3. Nanotron counts the places of the stage's blend that have the numbers of the run, see
       `NanotronMainOrder.counted`; of a folder that is listed twice it keeps the last count

    Args:
        config: Nanotron's YAML, parsed. Its global batch size holds for all stages.
        rows: for each dataset_folder the rows of S + 1 tokens in its .ds files, in the order of
            ``datatrove_files(folder, recursive=False)``; with shuffle_files also
            ``shuffle=True, seed=...``.

    Raises:
        KeyError: the config or `rows` lacks something.
        ValueError: see `NanotronMainOrder`; the config sets dataset_max_tokens or
            use_old_brrr_dataloader.
    """
    tokens = config["tokens"]
    batch = tokens["micro_batch_size"]
    batch *= tokens["batch_accumulation_per_replica"]
    batch *= config["parallelism"]["dp"]
    stages = sorted(
        config["data_stages"],
        key=lambda stage: stage["start_training_step"],
    )
    orders = []
    consumed: dict[str, int] = {}
    for number, stage in enumerate(stages):
        dataset = stage["data"]["dataset"]
        for option in NOT_REPRODUCED:
            if dataset.get(option):
                raise ValueError(f"stage {stage['name']!r} sets {option}, which is not reproduced")
        # 1.
        first = stage["start_training_step"]
        last = tokens["train_steps"]
        if number + 1 < len(stages):
            last = stages[number + 1]["start_training_step"] - 1
        # 2.
        names = as_list(dataset["dataset_folder"])
        files = [rows[name] for name in names]
        order = NanotronMainOrder(
            [*itertools.chain(*files)],
            dataset.get("dataset_weights"),
            (last - first + 1) * batch,
            folders=[len(folder) for folder in files],
            offsets=[consumed.get(name, 0) for name in names],
        )
        orders.append(order)
        # 3.
        counted = order.counted(first, last, batch)
        for name, count in dict(zip(names, counted, strict=True)).items():
            consumed[name] = consumed.get(name, 0) + count
    return orders
