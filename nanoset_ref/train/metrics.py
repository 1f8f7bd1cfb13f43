"""What a run reports: one JSON line per step, and on demand the samples that every rank was given.

The file holds each step once: a run that continues after step s first cuts off what comes after s, as those steps are
done again, and a last line that a kill cut short. Lines are flushed one by one, not synced: a power cut costs only
lines after the last checkpoint, which are written again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import xxhash

from nanoset_ref.io.files import PathLike, atomic_write, require_regular
from nanoset_ref.train.parallel import World
from nanoset_ref.train.stages import Step


def continue_metrics(path: PathLike, step: int) -> TextIO:
    """A file of JSON lines to write to, without the lines of an earlier run after `step`; each has a "step"."""
    kept = (
        [line for line in read_metrics(path) if line["step"] <= step] if Path(path).exists() else []
    )
    with atomic_write(path, "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in kept)
    return open(path, "a", encoding="utf-8", buffering=1)


def read_metrics(path: PathLike) -> list[dict[str, Any]]:
    """The lines of a file of metrics, without a last one that is incomplete.

    Raises:
        ValueError: they are not lines of metrics.
    """
    try:
        require_regular(path)
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if line.endswith("\n")]
        return [line | {"step": int(line["step"])} for line in map(json.loads, lines)]
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of metrics; move it away") from error


def delivered_samples(step: Step, world: World) -> list[list[tuple[int, str]]] | None:
    """What every data-parallel rank was given in a step; all processes call this together.

    Returns:
        [dp_rank][row of the step] -> [position, digest]: the position in the stage's order as the loader counts it, and
        xxh3_64 of the input ids that were delivered, in 16 hexadecimal digits. None in processes without inputs.
    """
    if not all(isinstance(batch["input_ids"], torch.Tensor) for batch in step.batches):
        return None
    ids = torch.cat([batch["input_ids"] for batch in step.batches])
    numbered = torch.cat([torch.from_numpy(step.positions).reshape(-1, 1), ids], dim=1)  # int64
    return [
        [
            (int(row[0]), xxhash.xxh3_64_hexdigest(row[1:].astype(np.int32).tobytes()))
            for row in rows.numpy()
        ]
        for rows in world.gather_dp(numbered)
    ]
