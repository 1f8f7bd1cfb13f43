"""The runs of `benchmarks.order_matters`, kept one by one, so that a stopped series goes on.

1. A run trains one model on the samples of a text, in the order of one arm.
2. Its result is a file in FOLDER/pieces, complete or absent. Delete that folder after a change of the code.
3. Runs without a result are trained seed by seed, so that a part of them can be compared already.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.order_arms import (
    EXPERIMENTS,
    EXTREMES,
    HEADLINE,
    Arm,
    Numbers,
    batches,
    buffers,
)
from benchmarks.small_model import SIZES, train
from benchmarks.small_text import held_out_rows, training_documents
from nanoset_ref import Nanoset

CLEAN = "clean_"  # before the name of a source: rows that share nothing with it
UNREAD = "unread_"  # before that of a text of which no run reads anything


class Run(NamedTuple):
    """One model to be trained: what it is called, and where its text lies."""

    size: str
    text: str
    experiment: str
    arm: str
    seed: int


@cache
def lengths_of(folder: Path, text: str, size: str) -> dict[str, int]:
    facts = json.loads((folder / size / text / "facts.json").read_text())
    return {name: fact["training_samples"] for name, fact in facts.items()}


def training_files(folder: Path, text: str, size: str) -> list[Path]:
    sources = lengths_of(folder, text, size)
    return [folder / size / text / f"{it}_train_input_ids.npy" for it in sources]


@cache
def documents_of_samples(folder: Path, text: str, size: str) -> Numbers:
    return training_documents(training_files(folder, text, size), SIZES[size])


def arms_of(
    folder: Path, text: str, experiment: str, size: str, seed: int
) -> dict[str, Arm]:
    lengths = list(lengths_of(folder, text, size).values())
    if experiment in ("buffers", "batches"):
        documents = documents_of_samples(folder, text, size)
        make = buffers if experiment == "buffers" else batches
        arms = make(lengths, SIZES[size], seed, documents)
    else:
        arms = EXPERIMENTS[experiment](lengths, SIZES[size], seed)
    if size in ("smallest", "small") or experiment in ("rounds", "steady", "blocks"):
        return arms
    chosen = HEADLINE if size == "medium" else EXTREMES
    return {name: arm for name, arm in arms.items() if name in chosen}


def documents_read(folder: Path, text: str, size: str) -> dict[str, int]:
    """By arm of `few`, in how many documents its samples of the last source begin."""
    documents = documents_of_samples(folder, text, size)
    last = len(documents) - [*lengths_of(folder, text, size).values()][-1]
    return {
        name: len(np.unique(documents[arm.numbers[arm.numbers >= last]]))
        for name, arm in arms_of(folder, text, "few", size, 0).items()
    }


def runs_of(
    folder: Path,
    sizes: Sequence[str],
    texts: Sequence[str],
    experiments: Sequence[str],
    seeds: Iterable[int],
) -> list[Run]:
    """Every arm of these experiments, seed by seed."""
    return [
        Run(size, text, experiment, arm, seed)
        for seed in seeds
        for size in sizes
        for text in texts
        for experiment in experiments
        for arm in arms_of(folder, text, experiment, size, seed)
    ]


# ---- one run


def in_order(
    files: Sequence[Path], numbers: Numbers, sequence_length: int, path: Path
) -> Nanoset:
    """The samples of some token files in the order of these instance numbers, which are written to a path."""
    np.save(path, numbers)
    logger = logging.getLogger("nanoset_ref.orders.published")
    logger.addFilter(_leave_out)
    try:
        return Nanoset(
            list(files), None, sequence_length, len(numbers), order=str(path)
        )
    finally:
        logger.removeFilter(_leave_out)


def _leave_out(record: logging.LogRecord) -> bool:
    """A logger's filter: orders here leave samples out on purpose, which it would warn of."""
    return record.levelno >= logging.ERROR


def nanoset_of(folder: Path, run: Run) -> tuple[Nanoset, dict[str, NDArray[Any]], Arm]:
    """The samples of a run in its order, the held-out rows of each source, and the arm.

    Where `benchmarks.order_clean` wrote clean rows, or `benchmarks.order_unread` unread ones, they are measured, too.
    """
    size, sources = SIZES[run.size], list(lengths_of(folder, run.text, run.size))
    arm = arms_of(folder, run.text, run.experiment, run.size, run.seed)[run.arm]
    place = folder / run.size / run.text
    data = in_order(
        training_files(folder, run.text, run.size),
        arm.numbers,
        size.sequence_length,
        place / f"order_{os.getpid()}.npy",
    )
    held_out = {
        name: held_out_rows(place / f"{name}_held_out_input_ids.npy", size)
        for name in sources
    }
    clean = {f"{CLEAN}{name}": place / f"{CLEAN}{name}.npy" for name in sources}
    held_out |= {name: np.load(it) for name, it in clean.items() if it.exists()}
    unread = sorted(place.glob(f"{UNREAD}*.npy"))
    held_out |= {path.stem: np.load(path) for path in unread}
    return data, held_out, arm


def finish(folder: Path, run: Run) -> dict[str, Any]:
    """Train one model; its result."""
    begun = time.process_time()
    data, held_out, arm = nanoset_of(folder, run)
    size = SIZES[run.size]
    if arm.batch:
        size = replace(size, batch=arm.batch)
    if run.experiment not in ("buffers", "few"):  # only these are shown on their way
        size = replace(size, evaluations=1)
    result = train(data, held_out, size, run.seed, arm.schedule, arm.peak)
    seconds = round(time.process_time() - begun, 1)
    return {"run": list(run), **result, "cpu_seconds": seconds}


# ---- many runs


def kept(folder: Path) -> dict[Run, dict[str, Any]]:
    """The results that are there, by run."""
    results = [
        json.loads(path.read_text()) for path in (folder / "pieces").glob("*.json")
    ]
    return {Run(*result["run"]): result for result in results}


def keep(folder: Path, run: Run) -> dict[str, Any]:
    """Train one model and write its result."""
    result = finish(folder, run)
    name = re.sub("[^a-z0-9]+", "-", "-".join(map(str, run)).lower())
    path = folder / "pieces" / f"{name}.json"
    partial_path = path.with_suffix(f".{os.getpid()}")
    partial_path.write_text(json.dumps(result))
    os.replace(partial_path, path)
    return result


def train_missing(
    folder: Path, runs: Sequence[Run], processes: int, most: int | None
) -> Iterator[dict[str, Any]]:
    """The results of the runs that had none, at most so many, as they are trained."""
    (folder / "pieces").mkdir(parents=True, exist_ok=True)
    there = kept(folder)
    missing = [run for run in runs if run not in there][:most]
    if processes == 1:
        yield from map(partial(keep, folder), missing)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(keep, folder), missing)


def train_all(folder: Path, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The results of all runs; those that had none are trained, and printed as they end."""
    for result in train_missing(folder, runs, processes=1, most=None):
        print(f"{result['run']}, {result['cpu_seconds']} s", flush=True)
    return complete_seeds(folder, runs)


def complete_seeds(folder: Path, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The results of those seeds of which no run is missing, in the order of the runs."""
    there = kept(folder)
    lacking = {run.seed for run in runs if run not in there}
    return [there[run] for run in runs if run.seed not in lacking]
