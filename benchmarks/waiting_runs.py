"""Where a run waits: `python -m benchmarks.waiting_runs`.

Every row is a process of its own, in interleaved rounds; medians, and the least and the most.

    many files    the first batch of a run of 10^10 samples of 2,048 tokens over 2,000 and over 100,000 files, which
                  take no room on the disk, under `ulimit -n 1024`: seconds after the imports, and resident MiB
    forgotten     the same where the system has forgotten the files: the kernel's caches are dropped before each round
                  (root; other users' too), inodes, folders and pages
    nanotron      the first batch of 10^6 samples in the order nanotron, which is built at the start, over 2,000 and
                  over 100,000 files
    beside others the first batch of 10^6 samples over 2,000 files, when an earlier start has left its caches: .npy and
                  .bin/.idx here, Megatron-Core with its fast cache over the same pairs, OLMo-core over the same .npy
    questions     `where` on two such files of 500 GB; `where` and `when` on a card of 146 million rows, and on one of
                  10^10 rows of 20 files in the stateless order; `--help` beside them
    beyond        the same in a process that has answered the same question about other rows: the seconds of the answer
                  alone, without the start of Python and its imports
    bulk          `when --bulk`: a million byte ranges of that card, seconds of the process
    steps         the share of its time that a training loop waits for data, at 8 x 4,096 tokens and steps of 20 ms (a
                  sleep): read in this process, by a thread, by two workers, past an empty page cache, and from a
                  bucket that answers after 20 ms; and what even a loop without a loader waits after each sleep: a call
                  that returns a number; four views of tensors that it keeps, cut at each step, or for 64 steps at once
                  as the collator does. The share is of all steps; the median is of a step, in microseconds, and as a
                  share of that step

10^10 samples are not asked of other loaders: Megatron-Core would keep 220 GB of indexes, 12 bytes a sample of a file
and 10 of a blend, and OLMo-core numbers instances in 32 bits (`benchmarks.startup` has both up to 10^8 samples). A
peer that is not installed has no row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import bucket, machine, save, timed_process
from benchmarks.waiting_programs import (
    ANSWER,
    CUT,
    CUT_AT_ONCE,
    FIRST_BATCH,
    LOADER,
    MANY,
    MEGATRON,
    NOTHING,
    OLMO,
    OURS,
    STEPS,
    TENSORS,
)
from nanoset_ref.tokens.bin_idx import HEADER, MAGIC

ROOT = Path(__file__).parent.parent
FILES = (2_000, 100_000)
TERABYTE = "--data big0.npy big1.npy --sequence-length 2048 --micro-batch-size 8 --order stateless"
QUESTIONS = {
    "--help": "--help",
    "where, a terabyte": f"where --step 41007 {TERABYTE}",
    "where --run pythia-1.4b": "where --run pythia-1.4b 41007",
    "when --run pythia-1.4b": "when --run pythia-1.4b --sample 41990144",
    "where --run, 10^10 rows": "where --run card.json 2441406",
    "when --run, 10^10 rows": "when --run card.json --sample 123456789",
    "when --bulk, a million": "when --run pythia-1.4b --bulk ranges.txt",
}
SMALL = TERABYTE.replace("big", "beside/000")
# row -> a question first, so that all is imported, and the question that is timed
BEYOND = {
    "beyond the start: where, a terabyte": (
        f"where --step 5 {SMALL}",
        f"where --step 41007 {TERABYTE}",
    ),
    "beyond the start: where --run": (
        "where --run pythia-2.8b 5",
        "where --run pythia-1.4b 41007",
    ),
    "beyond the start: when --run": (
        "when --run pythia-2.8b --sample 5",
        "when --run pythia-1.4b --sample 41990144",
    ),
    "beyond the start: where --run, 10^10 rows": (
        "where --run pythia-2.8b 5",
        "where --run card.json 2441406",
    ),
    "beyond the start: when --run, 10^10 rows": (
        "when --run pythia-2.8b --sample 5",
        "when --run card.json --sample 123456789",
    ),
}
# row -> folder, samples, order
STARTS = {
    "2,000 files": ("2000", 10**10, "stateless"),
    "100,000 files": ("100000", 10**10, "stateless"),
    "2,000 files, forgotten": ("2000", 10**10, "stateless"),
    "100,000 files, forgotten": ("100000", 10**10, "stateless"),
    "10^6 of 2,000 files: nanotron": ("medium", 10**6, "nanotron"),
    "10^6 of 100,000 files: nanotron": ("small", 10**6, "nanotron"),
}
BESIDE: dict[str, tuple[tuple[str, str], str]] = {
    "10^6 of 2,000 files: nanoset_ref, .npy": (OURS, ".npy"),
    "10^6 of 2,000 files: nanoset_ref, .bin/.idx": (OURS, ".bin"),
    "10^6 of 2,000 files: Megatron-Core, fast cache": (MEGATRON, ".bin"),
    "10^6 of 2,000 files: OLMo-core": (OLMO, ".npy"),
}
CONTROLS = {
    "nothing": NOTHING,
    "four views of tensors in memory": TENSORS + CUT,
    "four views, cut for 64 batches at once": TENSORS + CUT_AT_ONCE,
}
PLACES: dict[str, dict[str, Any]] = {
    "in this process": {},
    "thread": {"read_ahead": 2},
    "2 workers": {"num_loading_workers": 2},
    "in this process, cold": {"cold": True},
    "thread, cold": {"read_ahead": 2, "cold": True},
    "thread, bucket": {"read_ahead": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="rows with one of these words; OUTPUT keeps its others",
    )
    parser.add_argument(
        "--folder", type=Path, help="for the files, on the disk to be measured"
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_files(folder)
        with bucket(folder / "bucket", 20) as url:
            # the first round fills the caches; what drops them is measured after all else
            rounds = [(number, False) for number in range(-1, options.rounds)]
            rounds += [(number, True) for number in range(options.rounds)]
            for number, forgotten in rounds:
                rows = a_round(folder, url, options.only, forgotten)
                for row, figures in rows.items():
                    if number >= 0:
                        found.setdefault(row, []).append(figures)
                    print(f"round {number}: {row}: {figures}", flush=True)
    kept: dict[str, Any] = {}
    if options.only != [""] and options.output and options.output.exists():
        kept = json.loads(options.output.read_text())["rows"]
    for name, runs in found.items():
        facts = {"rounds": len(runs), "load_before": round(load, 1)}
        # of each row, as OUTPUT may hold rows of another machine
        kept[name] = spread(runs) | facts | {"machine": machine()}
    save({"rows": kept}, options.output)


def write_files(folder: Path) -> None:
    """Files without a byte on the disk, 2 GB of random ids, and a million ranges of Pythia's file."""
    for count in FILES:
        write_empty(folder / f"{count}", count, 10**10 * 4096 // count)
    write_empty(folder / "small", 100_000, 10 * 4096 + 2)
    write_empty(folder / "medium", 2_000, 500 * 4096 + 2)
    write_pairs(folder / "beside")
    for number in range(2):
        with open(folder / f"big{number}.npy", "wb") as file:
            file.truncate(500 * 10**9)
    ids = np.random.default_rng(0).integers(0, 50_000, 10**7, dtype=np.uint16).tobytes()
    (folder / "bucket").mkdir()
    with open(folder / "bucket" / "steps.npy", "wb") as file:
        for _ in range(100):
            file.write(ids)
        os.fsync(file.fileno())
    draw = random.Random(0)
    firsts = [2 * draw.randrange(146_432_000 * 2048) for _ in range(10**6)]
    lines = "".join(f"{first}-{first + 2000}\n" for first in firsts)
    (folder / "ranges.txt").write_text(lines)
    write_card(folder / "card.json")


def write_card(path: Path) -> None:
    """The card of a run of 10^10 rows of 2,048 tokens, from 20 files, in steps of 2,048 rows."""
    files = 20
    order = {
        "name": "stateless",
        "seed": 1,
        "samples": 10**10,
        "weights": None,
        "sources": [*range(files)],
        "probes": {},
    }
    stage = {
        "name": "all",
        "first_step": 1,
        "steps": 10**10 // 2048,
        "order": 0,
        "first_position": 0,
        "batch_size": 2048,
        "layout": "strided",
        "dp_size": 1,
        "micro_batch_size": 8,
    }
    names = [f"{number}.npy" for number in range(files)]
    size = 10**10 // files * 4096 + 2
    card = {
        "card": 1,
        "name": "ten-billion-rows",
        "date": "2026-11",
        "links": [],
        "loader": {"name": "nanoset_ref", "version": None},
        "tokenizer": {"name": None, "hash": None},
        "dtype": "uint16",
        "window": {"row_length": 2049, "stride": 2048},
        "sources": [{"name": name, "bytes": size} for name in names],
        "orders": [order],
        "stages": [stage],
        "known": [],
        "inferred": [],
        "unknown": [],
    }
    path.write_text(json.dumps(card))


def write_empty(folder: Path, count: int, size: int) -> None:
    """So many files of so many bytes, which are holes."""
    folder.mkdir()
    for number in range(count):
        with open(folder / f"{number:06}.npy", "wb") as file:
            file.truncate(size)


def write_pairs(folder: Path, samples: int = 500) -> None:
    """2,000 .bin/.idx pairs of so many documents of 2,048 tokens, and .npy files of the same ids."""
    folder.mkdir()
    lengths = np.full(samples + 1, 2048, dtype=np.int32)
    pointers = np.arange(samples + 1, dtype=np.int64) * 4096
    documents = np.arange(samples + 2, dtype=np.int64)
    head = HEADER.pack(MAGIC, 1, 8, samples + 1, samples + 2)
    index = b"".join([head, lengths.tobytes(), pointers.tobytes(), documents.tobytes()])
    for number in range(FILES[0]):
        (folder / f"{number:04}.idx").write_bytes(index)
        for suffix in (".bin", ".npy"):
            with open(folder / f"{number:04}{suffix}", "wb") as file:
                file.truncate((samples + 1) * 4096)


def a_round(
    folder: Path, url: str, only: list[str], forgotten: bool
) -> dict[str, dict[str, float]]:
    """Row -> its figures; of the rows that drop the kernel's caches first, or of the others."""

    def chosen(name: str) -> bool:
        in_turn = ("forgotten" in name) == forgotten
        return in_turn and any(word in name for word in only)

    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": str(folder / "cache"),
    }
    environment["NANOSET_REF_ALLOW_UNVERSIONED"] = "1"
    rows = {}
    for name, start in STARTS.items():
        if not chosen(name):
            continue
        if "forgotten" in name:
            forget_files()
        words = [sys.executable, "-c", MANY, *map(str, start)]
        said, _, _ = timed_process(words, folder, environment)
        rows[name] = json.loads(said)
    for name, ((imports, program), suffix) in filter(
        lambda row: chosen(row[0]), BESIDE.items()
    ):
        text = FIRST_BATCH.format(imports=imports, program=program)
        words = [sys.executable, "-c", text, "beside", suffix]
        said, _, _ = timed_process(words, folder, environment)
        if said:
            rows[name] = json.loads(said.splitlines()[-1])
    for name, line in filter(lambda row: chosen(row[0]), QUESTIONS.items()):
        words = [sys.executable, "-m", "nanoset_ref.cli", *line.split()]
        _, clock, cpu = timed_process(words, folder, environment)
        rows[name] = {"seconds": clock, "cpu_seconds": cpu}
    for name, questions in filter(lambda row: chosen(row[0]), BEYOND.items()):
        words = [sys.executable, "-c", ANSWER, *questions]
        said, _, _ = timed_process(words, folder, environment)
        rows[name] = json.loads(said)
    for name, program in filter(lambda row: chosen(row[0]), CONTROLS.items()):
        words = [sys.executable, "-c", program + STEPS]
        said, _, _ = timed_process(words, folder, environment)
        rows[name] = json.loads(said)
    for name, options in filter(lambda row: chosen(row[0]), PLACES.items()):
        path = f"{url if 'bucket' in name else 'bucket'}/steps.npy"
        words = [sys.executable, "-c", LOADER + STEPS, path, json.dumps(options)]
        said, _, _ = timed_process(words, folder, environment)
        rows[name] = json.loads(said)
    return rows


def forget_files() -> None:
    """Drop the kernel's caches: the inodes and folders it knows, and the pages of files."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def spread(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Figure -> its median, least and most over the rounds."""
    found: dict[str, Any] = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        found[key] = [
            float(f"{it:.4g}")
            for it in (statistics.median(values), min(values), max(values))
        ]
    return found


if __name__ == "__main__":
    main()
