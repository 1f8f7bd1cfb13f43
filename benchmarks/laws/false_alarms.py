"""Right loaders under the laws that they claim, many times with another seed of the search: a finding is a false alarm.

    python -m benchmarks.laws.false_alarms --runs 1000
    python -m benchmarks.laws.false_alarms --faults       # the planted faults again

The loaders of this package are judged in tests/laws. It continues where benchmarks/results/laws.json ends; `--runs`
counts what is recorded there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import machine
from nanoset_ref.laws import Adapter, check

HERE = Path(__file__).parent.parent
sys.path.insert(0, str(HERE.parent / "tests"))

from laws.mutants import FAULTS, adapter_of  # noqa: E402

RESULTS = HERE / "results" / "laws.json"
PASSES = "repeat seed resume killed owned"


class Counted:
    """Batches made from their number; the state is how many were delivered."""

    def __init__(
        self, batch: Callable[[int], Any], count: float, state: int | None
    ) -> None:
        self.batch = batch
        self.count = count
        self.done = state or 0

    def __iter__(self) -> Iterator[Any]:
        while self.done < self.count:
            self.done += 1
            yield self.batch(self.done - 1)


def counted(make: Any, **options: Any) -> Adapter:
    return Adapter(
        make=make, state_of=lambda loader: loader.done, max_workers=0, **options
    )


def crops(
    data: Any, *, rank: int, seed: int, batch_size: int, state: Any, **place: Any
) -> Any:
    """Random crops of a file without end, as nanoGPT reads them."""
    tokens = np.memmap(data.path, dtype=np.uint16, mode="r")

    def batch(step: int) -> Any:
        random = np.random.default_rng([seed, rank, step])
        starts = random.integers(len(tokens) - data.sequence_length, size=batch_size)
        return np.stack(
            [tokens[first : first + data.sequence_length] for first in starts]
        )

    return Counted(batch, math.inf, state)


def padded(
    data: int,
    *,
    rank: int,
    world_size: int,
    seed: int,
    epoch: int,
    batch_size: int,
    state: Any,
    **place: Any,
) -> Any:
    """Shuffled rows; the first ones fill the last step."""
    size = world_size * batch_size
    steps = -(-data // size)
    order = np.resize(
        np.random.default_rng([seed, epoch]).permutation(data), steps * size
    )
    mine = order.reshape(steps, world_size, batch_size)[:, rank]
    return Counted(lambda step: mine[step].copy(), steps, state)


def shards(
    data: Any,
    *,
    rank: int,
    world_size: int,
    seed: int,
    epoch: int,
    batch_size: int,
    state: Any,
    **place: Any,
) -> Any:
    """Whole files in a shuffled order, dealt to the ranks."""
    order = np.random.default_rng([seed, epoch]).permutation(len(data.paths))
    rows = []
    for number in order[rank::world_size]:
        with tarfile.open(data.paths[number]) as archive:
            rows += [archive.extractfile(member).read() for member in archive]  # type: ignore[union-attr]
    batches = [
        rows[first : first + batch_size] for first in range(0, len(rows), batch_size)
    ]
    return Counted(batches.__getitem__, len(batches), state)


def masked(data: Any, *, rank: int, world_size: int, state: Any, **place: Any) -> Any:
    """One row a batch, in the order of the file, with padding at its end."""
    tokens = np.fromfile(data.path, dtype=np.uint16)[:-1].reshape(
        -1, data.sequence_length
    )
    mine = tokens[rank::world_size]

    def batch(step: int) -> Any:
        row = np.append(mine[step], [0] * (step % 3)).astype(np.int64)
        return {"input_ids": row, "attention_mask": row > 0}

    return Counted(batch, len(mine), state)


RIGHT = {
    "a keyed permutation": adapter_of(largest=65),
    "a keyed permutation, up to 7 ranks": adapter_of(largest=65, max_ranks=7),
    "a keyed permutation, up to 9 rows a batch": adapter_of(
        largest=65, max_batch_size=9
    ),
    "a keyed permutation, up to 70 rows": adapter_of(largest=65, max_rows=70),
    "random crops": counted(crops, claims=f"{PASSES} ranks", format="npy"),
    "rows that are padded": counted(
        padded, claims=f"{PASSES} once ranks epochs spread data", tail="pad", largest=65
    ),
    "two shuffled files": counted(
        shards, claims=f"{PASSES} once epochs data", format="tar", files=2
    ),
    "five shuffled files": counted(
        shards, claims=f"{PASSES} once epochs data", format="tar", files=5
    ),
    "rows with a mask": counted(
        masked,
        claims="once repeat resume killed owned data masks",
        format="npy",
        mask="attention_mask",
        max_batch_size=1,
    ),
}


def faults() -> dict[str, Any]:
    found = {}
    for fault, law in FAULTS.items():
        started = time.perf_counter()
        limit = 2.0 if "hangs" in fault else 20.0
        report = check(adapter_of(fault, limit=limit), laws=[law], budget=60)
        outcome = report.outcomes[law]
        seconds = round(time.perf_counter() - started, 1)
        found[fault] = {"law": law, "found": bool(report.broken), "seconds": seconds}
        found[fault] |= {"message": str(outcome.finding), "case": str(outcome.case)}
        print(fault, found[fault], flush=True)
    return found


def add_run(results: dict[str, Any], examples: int) -> None:
    """Put the next right loader under its laws, and count what was found."""
    seed = results["runs"]
    name = list(RIGHT)[seed % len(RIGHT)]
    report = check(RIGHT[name], seed=seed, examples=examples, budget=120)
    cases = sum(outcome.cases for outcome in report.outcomes.values())
    loader = results["loaders"].setdefault(name, {"runs": 0, "cases": 0})
    for counts in (results, loader):
        counts["runs"] += 1
        counts["cases"] += cases
    results["false alarms"] += [
        f"{name}, {seed}: {report.line(law)}" for law in report.broken
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument(
        "--examples", type=int, default=3, help="cases of each law in a run"
    )
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    empty = {"runs": 0, "cases": 0, "false alarms": [], "loaders": {}}
    results = empty | results
    if options.faults or "faults" not in results:
        results["faults"] = faults()
    results["hypothesis"] = version("hypothesis")
    results["machine"] = machine()
    results["date"] = time.strftime("%Y-%m-%d")
    while results["runs"] < options.runs:
        add_run(results, options.examples)
        if results["runs"] % 20 == 0:
            print(
                results["runs"], results["cases"], results["false alarms"], flush=True
            )
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(results["runs"], results["cases"], results["false alarms"])


if __name__ == "__main__":
    main()
