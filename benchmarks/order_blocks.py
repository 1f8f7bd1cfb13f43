"""What blocks of one source cost at two widths: `python -m benchmarks.order_blocks --real FOLDER`.

1. The arms of `order_arms.blocks` are trained at two widths, as in `benchmarks.order_matters`: with ten new seeds on
   each text. What they should show is written there.
2. File order in 1, 10 and 100 rounds is compared with the shuffle, ten rounds with one, and a hundred with ten.
3. A comparison has the two tests of `benchmarks.order_statistics`. Holm's correction is over all twenty: five at each
   of two widths on each of two texts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.order_arms import IN_MORE_ROUNDS, IN_ROUNDS
from benchmarks.order_matters import prepared, save
from benchmarks.order_pieces import Run, train_all
from benchmarks.order_questions import Question
from benchmarks.order_statistics import Finding, answers, corrected, rows_of, table
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import REAL

SEEDS = range(30, 40)
TEXTS = ("corpus", "real")
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


def wanted(size: str, text: str) -> list[Run]:
    """Every arm, seed by seed."""
    arms = (*WAYS, "shuffled")
    return [Run(size, text, "blocks", arm, it) for it in SEEDS for arm in arms]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("data/order_blocks"))
    options = parser.parse_args(arguments)
    again = command("order_blocks").replace(str(options.real), "FOLDER")
    for size, path in RESULTS.items():
        texts, documents, results = {}, {}, []
        for text in TEXTS:
            facts = prepared(options.folder, size, text, options.real)
            texts[text], documents[text] = facts
            runs = wanted(size, text)
            results += train_all(options.folder, runs)
        head = {
            "command": again,
            "machine": machine(),
            "sizes": {size: vars(SIZES[size])},
        }
        head |= {"real_text": REAL, "vocabulary": VOCABULARY, "texts": texts}
        save({**head, "runs": results}, documents, path)
    for size, found in outcomes().items():
        print(f"\n{size}\n{table(found)}")


if __name__ == "__main__":
    main()
