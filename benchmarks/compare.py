"""Compare two source trees of this package: `python -m benchmarks.compare OLD_TREE [--rounds 5] [--output FILE]`.

OLD_TREE is another checkout, for example of `git worktree add ../old some-commit`; the new tree is the one that holds
this file. Both run `benchmarks/measure_tree.py` of the new tree, on the same files:

    read N, W workers     sequences of N tokens in random order, in micro-batches of 8, warm page cache
    cold N, W workers     the same past an empty page cache (NANOSET_REF_DIRECT=1), read ahead by a thread or 2 workers
    bucket N              the same from a server that answers 20 ms late, read ahead by a thread
    megatron rows N       the same over a .bin/.idx corpus of documents of 550 tokens on average
    megatron index        open a corpus of 10^6 documents and build its indexes
    preprocess            16 MB of JSON lines to a token file
    stateless lookup N    200,000 random positions at once, in an order over N sources
    nanotron lookup N     the same; nanotron build N: an epoch of 10^7 samples

1. Every round starts a fresh process in each tree.
2. Measurement after measurement the two take turns. Which one starts and goes first alternates, so that noise meets
   both. Comparing a tree with itself shows how much noise is left.
3. The result is the median over the rounds of the ratio within a round: 1.10 means the new tree is 10% faster. On a
   busy machine the ratio by processor time says more than the one by the wall clock.

Each tree keeps what numba compiled in its own __pycache__, and compiles again when a source of a kernel changes (trees
before 2026-12 do not notice a change in a function that another file inlines: remove `*.nbi` and `*.nbc` there).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure_tree import Measurement, Sizes, measurements
from benchmarks.record import bucket, command, machine, save

HERE = Path(__file__).resolve()
SIDES = ("old", "new")
LATENCY = 20  # milliseconds of the bucket's server

# clock ("wall", "cpu") -> units per second in each round
Rates = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old_tree", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.7,
        help="the least that one measurement takes",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="the sizes of the work, as a share of the usual ones",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="measurements whose names contain one of these words",
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    trees = dict(zip(SIDES, (options.old_tree.resolve(), HERE.parents[1]), strict=True))
    sizes = Sizes.scaled(options.scale)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, sizes)
        known = measurements(folder, sizes)
        chosen = [name for name in known if any(word in name for word in options.only)]
        arguments = [name, str(options.scale), str(options.seconds)]
        with bucket(folder, LATENCY) as address:
            (folder / "address").write_text(address)
            rates, failures = measure(trees, arguments, chosen, options.rounds)
    rows = {
        name: summary(known[name], rates[name])
        for name in chosen
        if name not in failures
    }
    report(rows)
    save(
        {
            "command": command("compare"),
            "machine": machine(),
            "rows": rows,
            "failures": failures,
        },
        options.output,
    )
    if failures:
        sys.exit("\n".join(f"{name} fails: {why}" for name, why in failures.items()))


def write_inputs(folder: Path, sizes: Sizes) -> None:
    """A token file, two .bin/.idx corpora, a tokenizer and text."""
    from nanoset_ref.chunks.corpus import prepare_corpus

    random = np.random.default_rng(0)
    random.integers(0, 50_000, sizes.tokens, dtype=np.uint16).tofile(
        folder / "tokens_input_ids.npy"
    )
    write_documents(folder / "rows", sizes.tokens // 550, 550)
    write_documents(folder / "documents", sizes.documents, 64)
    lines = b"".join(
        path.read_bytes() for path in prepare_corpus(folder / "corpus").domains.values()
    )
    (folder / "text.jsonl").write_bytes(
        lines * math.ceil(sizes.megabytes * 1e6 / len(lines))
    )


def write_documents(prefix: Path, documents: int, mean: float) -> None:
    """Heavy-tailed document lengths, `mean` tokens on average."""
    from nanoset_ref.megatron import MMapIndexedDatasetBuilder

    random = np.random.default_rng(1)
    lengths = np.ceil(random.lognormal(math.log(mean) - 0.5, 1.0, documents)).astype(
        np.int32
    )
    with MMapIndexedDatasetBuilder(f"{prefix}.bin", np.uint16) as builder:
        builder.write(
            random.integers(4, 50_000, lengths.sum(), dtype=np.uint16), lengths
        )


def measure(
    trees: dict[str, Path], arguments: list[str], names: list[str], rounds: int
) -> tuple[dict[str, dict[str, Rates]], dict[str, str]]:
    """Measurement -> side -> rates, and why a measurement failed; what failed once is not tried again."""
    found: dict[str, dict[str, Rates]] = {
        name: {side: {} for side in SIDES} for name in names
    }
    failures: dict[str, str] = {}
    for number in range(rounds):
        with contextlib.ExitStack() as stack:
            order = SIDES if number % 2 else SIDES[::-1]
            processes = {
                side: stack.enter_context(start(trees[side], arguments))
                for side in order
            }
            for turn, name in enumerate(names, number):
                for side in SIDES if turn % 2 else reversed(SIDES):
                    if name in failures:
                        continue
                    answer = ask(processes[side], name)
                    if "error" in answer:
                        failures[name] = f"{side} tree, {answer['error']}"
                        continue
                    for clock, rate in answer.items():
                        found[name][side].setdefault(clock, []).append(rate)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found, failures


def start(tree: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """The measuring process of a tree; it ends when its standard input is closed."""
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    script = [
        sys.executable,
        "-P",
        str(HERE.with_name("measure_tree.py")),
        str(tree),
        *arguments,
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        script,
        stdin=pipe,
        stdout=pipe,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def ask(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert process.stdin and process.stdout
    print(name, file=process.stdin, flush=True)
    line = process.stdout.readline()
    return json.loads(line) if line else {"error": "the process ended"}


def summary(measurement: Measurement, rates: dict[str, Rates]) -> dict[str, Any]:
    """Figures by the wall clock, in the measurement's unit, one per round, and the ratios of the speeds."""
    inverse = measurement.unit.startswith(
        "ns"
    )  # time per position, not positions per time
    return {
        "unit": measurement.unit,
        **{
            side: [
                float(f"{1 / rate if inverse else rate:.4g}")
                for rate in rates[side]["wall"]
            ]
            for side in SIDES
        },
        "times_as_fast": {
            clock: ratios(rates["old"][clock], rates["new"][clock])
            for clock in rates["old"]
        },
    }


def ratios(old: list[float], new: list[float]) -> dict[str, float]:
    values = sorted(after / before for before, after in zip(old, new, strict=True))
    named = {
        "median": statistics.median(values),
        "least": values[0],
        "most": values[-1],
    }
    return {name: round(value, 3) for name, value in named.items()}


def report(rows: dict[str, dict[str, Any]]) -> None:
    """A table: medians of both trees, and how many times as fast the new one is."""
    print(
        f"{'':24}{'old':>10}{'new':>10} {'unit':20}{'times as fast':>13}{'least - most':>16}{'by CPU time':>13}"
    )
    for name, row in rows.items():
        old, new = (statistics.median(row[side]) for side in SIDES)
        wall, cpu = row["times_as_fast"]["wall"], row["times_as_fast"].get("cpu")
        spread = f"{wall['least']:.3f} - {wall['most']:.3f}"
        line = f"{name:24}{old:10.4g}{new:10.4g} {row['unit']:20}{wall['median']:13.3f}{spread:>16}"
        print(line + (f"{cpu['median']:13.3f}" if cpu else f"{'-':>13}"))


if __name__ == "__main__":
    main()
