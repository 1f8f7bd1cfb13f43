"""What a user waits for, from the outside: `python -m benchmarks.waiting`.

Every row is a process of its own, beside one that imports torch, in interleaved rounds: medians of its user and system
time, which other processes disturb less than the clock, of the clock, and of the first as a multiple of `import torch`
in the same round.

    commands        inspect, verify, where, when, audit and estimate, on two files of 2,000 documents
    first batch     from the import of torch and nanoset_ref to the first batch, and 200 batches more; with the kernels
                    that numba has cached, and with an empty cache
    many files      600 files under `ulimit -n 1024`, and 2,000 files: opened, and a batch of 64 rows read

`--tree` measures another working tree, such as one of before; `--output` keeps the result as JSON.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.record import command, machine, save, timed_process
from nanoset_ref.tokens import TokenFileWriter

TORCH = "import torch"
RUN = "--data a.npy b.npy --sequence-length 512 --micro-batch-size 4 --order"
COMMANDS = {
    "inspect": "inspect a.npy",
    "verify": "verify a.npy",
    "where, stateless": f"where --step 5 {RUN} stateless",
    "when, stateless": f"when --document 7 {RUN} stateless",
    "audit, stateless": f"audit {RUN} stateless",
    "where, nanotron": f"where --step 5 {RUN} nanotron",
    "audit, nanotron": f"audit {RUN} nanotron",
    "estimate": "estimate --data a.npy b.npy --sequence-length 512 --tokens-per-second 1e6",
}
BATCH = """
import torch
from nanoset_ref import Nanoset, build_nanoset_dataloader
data = Nanoset(["large.npy", "a.npy"], None, 2048, None, order={order!r})
batches = iter(build_nanoset_dataloader(data, micro_batch_size=8))
for _ in range({batches}):
    next(batches)
"""
MANY = """
import resource
import numpy as np
from nanoset_ref import Nanoset
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
data = Nanoset([f"many/{{n}}.npy" for n in range({files})], None, 128, None, order="stateless")
data.read(np.arange(64))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        rows = measured(folder, options.tree.resolve(), options.rounds)
    save(
        {
            "command": command("waiting"),
            "machine": machine(),
            "rounds": options.rounds,
            "rows": rows,
        },
        options.output,
    )


def write_files(folder: Path) -> None:
    """Two files of 2,000 documents, one of 400 MB that takes no room, 2,000 small ones."""
    generator = np.random.default_rng(0)
    for name in ("a.npy", "b.npy"):
        lengths = generator.integers(10, 900, 2000)
        ids = generator.integers(1, 50_000, lengths.sum()).astype(np.uint16)
        ids[np.cumsum(lengths) - 1] = 0
        with TokenFileWriter(
            folder / name, dtype=np.uint16, vocab_size=50_257, eos_token_id=0
        ) as writer:
            writer.write(ids, lengths)
    with open(folder / "large.npy", "wb") as file:
        file.truncate(400 << 20)
    (folder / "many").mkdir()
    for number in range(2000):
        np.arange(1000, dtype="<u2").tofile(folder / "many" / f"{number}.npy")


def measured(folder: Path, tree: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Row -> its medians."""
    python = [sys.executable, "-c"]
    commands = {
        name: [sys.executable, "-m", "nanoset_ref.cli", *line.split()]
        for name, line in COMMANDS.items()
    }
    for order in ("stateless", "nanotron"):
        for batches in (1, 201):
            program = BATCH.format(order=order, batches=batches)
            for cache in ("cached", "empty cache"):
                commands[f"first batch + {batches - 1}, {order}, {cache}"] = [
                    *python,
                    program,
                ]
    commands["600 files, ulimit -n 1024"] = [
        *python,
        MANY.format(files=600, limit=1024),
    ]
    commands["2,000 files"] = [*python, MANY.format(files=2000, limit=1024)]
    found: dict[str, list[tuple[float, float, float]]] = {
        name: [] for name in [TORCH, *commands]
    }
    for number in range(-1, rounds):  # the first round fills the caches
        torch, clock = taken([*python, TORCH], folder, tree, "cached")
        found[TORCH].append((torch, clock, 1.0))
        for name, words in commands.items():
            user, clock = taken(words, folder, tree, name)
            found[name].append((user, clock, user / torch))
            print(
                f"round {number}: {name}: {user:.2f} s, {user / torch:.2f} x import torch"
            )
    keys = "cpu_seconds", "clock_seconds", "of_import_torch"
    rows = {}
    for name, runs in found.items():
        medians = [
            round(statistics.median(values), 3)
            for values in zip(*runs[1:], strict=True)
        ]
        rows[name] = dict(zip(keys, medians, strict=True))
    return rows


def taken(words: list[str], folder: Path, tree: Path, name: str) -> tuple[float, float]:
    """User and system time of a process, and its time by the clock, in seconds; NaN if it fails."""
    cache = folder / "cache"
    if "empty" in name:
        cache = folder / "empty"
        shutil.rmtree(cache, ignore_errors=True)
    environment = os.environ | {"PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(cache)}
    _, clock, cpu = timed_process(words, folder, environment)
    return cpu, clock


if __name__ == "__main__":
    main()
