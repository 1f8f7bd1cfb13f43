"""The long form of tests/test_combinations.py: thousands of whole runs, drawn from all options at once.

    python -m benchmarks.combinations --draws 10000 --seed 26

A draw depends on its number and the seed alone. Each draw leaves a line in build/combinations.jsonl, so a run
that was stopped goes on from there, and a process that crashes or hangs is one failure. At the end the counts and the
failures, each with the call that reproduces it, are written to benchmarks/results/combinations.json.

    python -m benchmarks.combinations --seed 26 --only 1234     one draw again; if it fails, its simplest form
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CHUNK = 200  # draws of one process
SECONDS = 180  # of one draw, before it counts as hanging
sys.path[:0] = [str(ROOT / "tests")]


def work(numbers: list[int], seed: int, share: float) -> None:
    """Hold some draws and print a line of JSON for each."""
    from combined.axes import drawn
    from combined.corpora import Corpora
    from combined.runs import hold, told

    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "This DataLoader will create")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        corpora = Corpora(Path(folder))
        for number in numbers:
            draw = drawn(number, seed, share)
            signal.alarm(SECONDS)
            begun = time.monotonic()
            try:
                outcome, why = hold(draw, corpora), None
            except AssertionError as error:
                outcome, why = "failed", f"{told(draw)}: {error}"
            signal.alarm(0)
            seconds = round(time.monotonic() - begun, 3)
            line = {
                "number": number,
                "outcome": outcome,
                "why": why,
                "seconds": seconds,
            }
            print(json.dumps(line), flush=True)


def chunk(numbers: list[int], options: argparse.Namespace, progress: Path) -> None:
    """Have some draws done by a process of their own, and by the next one what is left when it crashes."""
    words = [
        "--seed",
        str(options.seed),
        "--share-with-workers",
        str(options.share_with_workers),
    ]
    while numbers:
        command = [
            sys.executable,
            "-m",
            "benchmarks.combinations",
            *words,
            "--numbers",
            *map(str, numbers),
        ]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        lines = [
            line for line in ended.stdout.splitlines() if line.startswith('{"number"')
        ]
        done = {json.loads(line)["number"] for line in lines}
        numbers = [number for number in numbers if number not in done]
        if numbers:
            why = f"the process ended with {ended.returncode}: {ended.stderr[-500:]}"
            number = numbers.pop(0)
            line = {"number": number, "outcome": "crashed", "why": why, "seconds": 0.0}
            lines.append(json.dumps(line))
        with progress.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


def summary(options: argparse.Namespace, found: list[dict[str, Any]]) -> dict[str, Any]:
    outcomes = Counter(line["outcome"] for line in found)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {
        "seed": options.seed,
        "draws": len(found),
        "share_with_workers": options.share_with_workers,
        "commit": commit.stdout.strip(),
        "seconds": round(sum(line["seconds"] for line in found)),  # of all processes
        "held": outcomes.pop("held", 0),
        "failures": outcomes.pop("failed", 0) + outcomes.pop("crashed", 0),
        "refused": sum(outcomes.values()),
        "refused_by": dict(outcomes.most_common()),
        "why": [line for line in found if line["outcome"] in ("failed", "crashed")][
            :100
        ],
    }


def only(number: int, options: argparse.Namespace) -> None:
    from combined.axes import drawn
    from combined.corpora import Corpora
    from combined.runs import hold, simplified, told

    with tempfile.TemporaryDirectory() as folder:
        corpora = Corpora(Path(folder))
        draw = drawn(number, options.seed, options.share_with_workers)
        try:
            print(f"{told(draw)}: {hold(draw, corpora)}")
        except AssertionError:
            simple = simplified(draw, corpora)
            print(told(simple))
            hold(simple, corpora)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--share-with-workers", type=float, default=0.03)
    parser.add_argument(
        "--progress", type=Path, default=ROOT / "build" / "combinations.jsonl"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "benchmarks" / "results" / "combinations.json",
    )
    parser.add_argument("--only", type=int, help="the number of one draw")
    parser.add_argument("--numbers", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.numbers is not None:
        work(options.numbers, options.seed, options.share_with_workers)
        return
    if options.only is not None:
        only(options.only, options)
        return
    options.progress.parent.mkdir(parents=True, exist_ok=True)
    options.progress.touch()
    done = {
        json.loads(line)["number"] for line in options.progress.read_text().splitlines()
    }
    left = [number for number in range(options.draws) if number not in done]
    chunks = [left[first : first + CHUNK] for first in range(0, len(left), CHUNK)]
    with ThreadPoolExecutor(options.processes) as threads:
        list(
            threads.map(
                lambda numbers: chunk(numbers, options, options.progress), chunks
            )
        )
    found = sorted(
        map(json.loads, options.progress.read_text().splitlines()),
        key=lambda line: line["number"],
    )
    result = summary(options, found)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result | {"why": len(result["why"])}, indent=1))


if __name__ == "__main__":
    main()
