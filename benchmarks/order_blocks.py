"""What blocks of one source cost at two widths: `python -m benchmarks.order_blocks` prints the comparisons.

The runs are those of `order_arms.blocks`, ten seeds of two models, which two commands train:

    python -m benchmarks.order_matters --experiments blocks --real FOLDER --first-seed 30
    python -m benchmarks.order_matters --experiments blocks --real FOLDER --first-seed 30 --size "small, wide"

1. File order in 1, 10 and 100 rounds is compared with the shuffle, ten rounds with one, and a hundred with ten.
2. A comparison has the two tests of `benchmarks.order_statistics`. Holm's correction is over all twenty: five at each
   of two widths on each of two texts.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from benchmarks.order_arms import IN_MORE_ROUNDS, IN_ROUNDS
from benchmarks.order_questions import Question
from benchmarks.order_statistics import Finding, answers, corrected, rows_of, table

FOLDER = Path(__file__).with_name("results")
RESULTS = {  # by size
    "small": FOLDER / "order_blocks.json",
    "small, wide": FOLDER / "order_blocks_wide.json",
}
WAYS = ("in file order", IN_ROUNDS, IN_MORE_ROUNDS)


def asked() -> list[Question]:
    costs = [Question(way, "blocks", way, "shuffled") for way in WAYS]
    steps = [
        Question(f"{fewer} less {longer}", "blocks", fewer, longer)
        for longer, fewer in pairwise(WAYS)
    ]
    return costs + steps


def outcomes() -> dict[str, list[Finding]]:
    """By size, what its runs say of the comparisons on each text; corrected together."""
    found, sizes = [], []
    for size, path in RESULTS.items():
        result = json.loads(path.read_text())
        for text, rows in rows_of(path, result["texts"]).items():
            runs = [run for run in result["runs"] if run["run"][1] == text]
            found += answers(runs, text, rows, asked())
            sizes += [size] * len(asked())
    together = zip(sizes, corrected(found), strict=True)
    by_size: dict[str, list[Finding]] = {size: [] for size in RESULTS}
    for size, finding in together:
        by_size[size].append(finding)
    return by_size


if __name__ == "__main__":
    for size, found in outcomes().items():
        print(f"\n{size}\n{table(found)}")
