"""The metrics of a run: one JSON line per step, on request with the samples of each rank.

The file has one line per step. A run that continues after step s first removes the lines of later
steps, which it repeats, and an incomplete last line. Each line is flushed but not synced: a power
failure can lose only lines after the last checkpoint, and those steps are repeated.
"""

import json
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
import xxhash

from nanoset_ref.io.files import write_text
from nanoset_ref.io.paths import PathLike, file_size
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.train.parallel import World
from nanoset_ref.train.staged_loader import Step

LINE_START = '{"step": '  # of every line that a run writes


def continue_metrics(path: PathLike, step: int) -> TextIO:
    """Remove the lines of an earlier run beyond `step`; open the metrics file for appending.

    Raises:
        ValueError: a line to be removed is not of this package; see also `read_metrics`.
    """
    path = Path(path).resolve()  # a link stays one
    lines = []
    if path.exists():
        lines = read_metrics(path)
    if any(line["step"] > step and "data_wait" not in line for line in lines):
        raise ValueError(
            f"{path} has lines of another program, which this run would remove; move the file"
        )
    kept = [json.dumps(line) + "\n" for line in lines if line["step"] <= step]
    write_text(path, "".join(kept))
    return open(path, "a", encoding="utf-8", buffering=1)


def read_metrics(path: PathLike) -> list[Json]:
    """Read the lines of a metrics file; an incomplete last line of a run is left out.

    Raises:
        ValueError: a line is not JSON, has no step, or has a loss that is not a number.
    """
    metrics = []
    try:
        file_size(path)  # refuses pipes, folders and devices
        with open(path, encoding="utf-8") as file:
            for text in file:
                beginning = text[: len(LINE_START)]
                if text[-1] not in "}\n" and LINE_START.startswith(beginning):
                    break  # of a run that was stopped
                line = json.loads(text)
                line["step"] = int(line["step"])
                float(line.get("loss") or 0)  # raises
                metrics.append(line)
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the metrics.jsonl of a run; name another file, or move it away"
        ) from error
    return metrics


def delivered_samples(step: Step, world: World) -> list[list[tuple[int, str]]] | None:
    """Gather the samples of every data-parallel rank in a step; all processes call this together.

    Returns:
        [dp_rank][row of the step] -> (position in the stage's order, `ids_hash` of the input ids).
        None in processes without inputs.
    """
    inputs = [batch["input_ids"] for batch in step.batches]
    if not all(isinstance(ids, torch.Tensor) for ids in inputs):
        return None
    positions = torch.from_numpy(step.positions).reshape(-1, 1)
    numbered = torch.cat([positions, torch.cat(inputs)], dim=1)  # int64 [rows, 1 + S]
    samples = []
    for rows in world.gather_dp(numbered):
        samples.append([(int(row[0]), ids_hash(row[1:])) for row in rows.numpy()])
    return samples


def ids_hash(ids: Int64Array) -> str:
    """A hash (xxh3_64) of ids as int32: 16 hexadecimal digits."""
    return xxhash.xxh3_64_hexdigest(ids.astype(np.int32).tobytes())
