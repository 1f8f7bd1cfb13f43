"""The headline orders on a larger model, one run at a time: `python -m benchmarks.order_pieces [--pieces N]`.

Five orders of `benchmarks.order_matters` (its experiment "buffers"), five seeds: 25 runs. With `--size medium` a model
of 0.56M parameters reads 11.2M tokens, 20 per parameter, once, in samples of 256 tokens of generated text.

1. Every finished run is a file in FOLDER/pieces, complete or absent.
2. A call trains at most N runs that have no file yet, so a stopped call loses one run.
3. When all are there, `--output` writes them as `benchmarks.order_matters` does, for `benchmarks.order_statistics`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.order_matters import Run, finish, report, save
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import documents_of, prepare_text

ARMS = (
    "shuffled",
    "in file order",
    "buffer 1,000",
    "one after another, each shuffled",
    "blended, each in file order",
)


def pieces_of(size: str, text: str, seeds: int) -> list[Run]:
    """All runs, seed by seed, so that a part of them can be compared already."""
    return [
        Run(size, text, "buffers", arm, seed) for seed in range(seeds) for arm in ARMS
    ]


def path_of(folder: Path, run: Run) -> Path:
    """Where the result of a run lies."""
    name = f"{run.size}-{run.text}-{ARMS.index(run.arm)}-{run.seed}.json"
    return folder / "pieces" / name


def train_pieces(folder: Path, runs: Sequence[Run], most: int) -> int:
    """Train runs that have no result yet, at most so many; how many were trained."""
    (folder / "pieces").mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not path_of(folder, run).exists()]
    for run in missing[:most]:
        result = finish(folder, run)
        path = path_of(folder, run)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(result))
        os.replace(partial, path)
        print(f"{list(run)}, {result['cpu_seconds']} s", flush=True)
    return len(missing[:most])


def results_of(folder: Path, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The results that are there, in the order of the runs."""
    paths = [path_of(folder, run) for run in runs]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--text", choices=("corpus", "generated"), default="generated")
    parser.add_argument(
        "--pieces", type=int, default=10**9, help="train at most so many runs now"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("data/order_matters"))
    parser.add_argument("--output", type=Path, help="write all results here, as JSON")
    options = parser.parse_args(arguments)
    folder = options.folder / options.size / options.text
    if not (folder / "facts.json").exists():
        documents = documents_of(options.text, options.folder, None)
        prepare_text(documents, folder, SIZES[options.size])
    runs = pieces_of(options.size, options.text, options.seeds)
    train_pieces(options.folder, runs, options.pieces)
    results = results_of(options.folder, runs)
    print(f"{len(results)} of {len(runs)} runs are finished")
    if len(results) < len(runs):
        return
    print(report(results))
    if options.output:
        texts = {options.text: json.loads((folder / "facts.json").read_text())}
        facts = {"command": command("order_pieces"), "machine": machine()}
        facts |= {
            "size": vars(SIZES[options.size]),
            "vocabulary": VOCABULARY,
            "texts": texts,
        }
        save({**facts, "runs": results}, options.output)


if __name__ == "__main__":
    main()
