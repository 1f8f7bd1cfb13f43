"""What a run says of itself: one JSON line per step, and on demand the samples that every rank was given.

The file holds each step once: a run that continues after step s first cuts off what comes after s, as those steps are
done again, and a last line that a kill cut short. Lines are flushed one by one, not synced: what a power cut costs lies
after the last checkpoint and is written again. The alternative it rejects, to append for ever, leaves two lines for a
repeated step.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from nanoset_ref.files import atomic_write
from nanoset_ref.training.parallel import World
from nanoset_ref.training.staged_loader import Step


class Metrics:
    """Append to a file of JSON lines, each with a "step".

    Args:
        path: the file; its folder must exist.
        step: the last step done; later lines of an earlier run are removed.
    """

    def __init__(self, path: str | os.PathLike[str], step: int) -> None:
        kept = [line for line in read_metrics(path) if line["step"] <= step] if Path(path).exists() else []
        with atomic_write(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of a file of metrics, without a last one that is incomplete."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def delivered_samples(step: Step, world: World) -> list[list[list[Any]]] | None:
    """What every data-parallel rank was given in a step; all processes call this together.

    Returns:
        [dp_rank][row of the step] -> [position, digest]: the position in the stage's order as the loader counts it, and
        xxh3_64 of the input ids that really came, in 16 hexadecimal digits. None in processes without inputs.
    """
    rows = [batch["input_ids"] for batch in step.batches]
    if not isinstance(rows[0], Tensor):
        return None
    digests = [xxhash.xxh3_64_intdigest(row.tobytes()) for row in torch.cat(rows).numpy()]
    mine = np.stack([step.positions.ravel(), np.array(digests, dtype=np.uint64).view(np.int64)], axis=1)
    ranks = world.gather_dp(torch.from_numpy(mine))
    return [[[position, f"{digest % 2**64:016x}"] for position, digest in rank.tolist()] for rank in ranks]
