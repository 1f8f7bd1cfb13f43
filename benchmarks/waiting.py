"""What a user waits for, from the outside: `python -m benchmarks.waiting`.

Every row is a process of its own, beside one that imports torch, in interleaved rounds: medians of its user and system
time, which other processes disturb less than the clock, of the clock, and of the first as a multiple of `import torch`
in the same round.

    commands        of `nanoset-ref`, on two files of 2,000 documents, and on cards of runs; `show` with a tokenizer
                    that the tokenizers library loads, and with one that needs transformers; audit also with an empty
                    cache of numba
    first batch     from the import of torch and nanoset_ref to the first batch, and 200 batches more; with the kernels
                    that numba has cached, and with an empty cache; the first batch of a file of 1 TB, which takes no
                    room. These rows also have the seconds from the end of the imports on, by the clock
    many files      600 files under `ulimit -n 1024`, and 2,000 files: opened, and a batch of 64 rows read

`--tree` measures another working tree, such as one of before; `--output` keeps the result as JSON, and `--only` its
other rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import command, machine, save, timed_process
from nanoset_ref.chunks.corpus import prepare_corpus
from nanoset_ref.tokens import TokenFileWriter

TORCH = "import torch"
RUN = "--data a.npy b.npy --sequence-length 512 --micro-batch-size 4 --order"
SHOW = "show --data shown.npy --sequence-length 512 --position 0 --tokenizer"
COMMANDS = {
    "--help": "--help",
    "a wrong option": "inspect a.npy --wrong",
    "inspect": "inspect a.npy",
    "verify": "verify a.npy",
    "show": f"{SHOW} tokenizer",
    "show, transformers": f"{SHOW} gpt2",
    "where, stateless": f"where --step 5 {RUN} stateless",
    "when, stateless": f"when --document 7 {RUN} stateless",
    "audit, stateless": f"audit {RUN} stateless",
    "audit, stateless, empty cache": f"audit {RUN} stateless",
    "where, nanotron": f"where --step 5 {RUN} nanotron",
    "audit, nanotron": f"audit {RUN} nanotron",
    "estimate": "estimate --data a.npy b.npy --sequence-length 512 --tokens-per-second 1e6",
    "compare": "compare pythia-1.4b pythia-2.8b",
    "where --run": "where --run pythia-1.4b 41007",
    "when --run": "when --run pythia-1.4b --sample 41990144",
    "audit --run": "audit --run pythia-1.4b",
}
IMPORT = "from nanoset_ref import Nanoset"
BATCH = """
import time
import torch
from nanoset_ref import Nanoset, build_nanoset_dataloader
begun = time.perf_counter()
data = Nanoset(["{file}.npy", "a.npy"], None, 2048, None, order={order!r})
batches = iter(build_nanoset_dataloader(data, micro_batch_size=8))
for _ in range({batches}):
    next(batches)
print(time.perf_counter() - begun)
"""
CACHES = ("cached", "empty cache")
MANY_FILES = [("600 files, ulimit -n 1024", 600, 1024), ("2,000 files", 2000, 1024)]
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
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="rows with one of these words; OUTPUT keeps its others",
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        chosen = {
            name: words
            for name, words in processes().items()
            if any(word in name for word in options.only)
        }
        rows = measured(chosen, folder, options.tree.resolve(), options.rounds)
    if options.only != [""] and options.output and options.output.exists():
        rows = json.loads(options.output.read_text())["rows"] | rows
    save(
        {
            "command": command("waiting"),
            "machine": machine(),
            "load_before": load,
            "rounds": options.rounds,
            "rows": rows,
        },
        options.output,
    )


def write_files(folder: Path) -> None:
    """Two files of 2,000 documents, one of 400 MB and one of 1 TB that take no room, 2,000 small ones; tokenizers."""
    generator = np.random.default_rng(0)
    for name in ("a.npy", "b.npy"):
        lengths = generator.integers(10, 900, 2000)
        ids = generator.integers(1, 50_000, lengths.sum()).astype(np.uint16)
        ids[np.cumsum(lengths) - 1] = 0
        with TokenFileWriter(
            folder / name, dtype=np.uint16, vocab_size=50_257, eos_token_id=0
        ) as writer:
            writer.write(ids, lengths)
    for name, size in (("large", 400 << 20), ("terabyte", 10**12)):
        with open(folder / f"{name}.npy", "wb") as file:
            file.truncate(size)
    write_tokenizers(folder)
    (folder / "many").mkdir()
    for number in range(2000):
        np.arange(1000, dtype="<u2").tofile(folder / "many" / f"{number}.npy")


def write_tokenizers(folder: Path) -> None:
    """A file to show; tokenizers of a class that needs no transformers, and of the class of GPT-2's."""
    made = prepare_corpus(folder / "corpus").tokenizer
    with TokenFileWriter(
        folder / "shown.npy", dtype=np.uint16, vocab_size=1000
    ) as writer:
        writer.write(np.arange(10_000, dtype=np.uint16) % 1000, np.array([10_000]))
    for name, kind in (
        ("tokenizer", "PreTrainedTokenizerFast"),
        ("gpt2", "GPT2Tokenizer"),
    ):
        target = folder / name
        target.mkdir()
        shutil.copy(made / "tokenizer.json", target)
        facts = {"tokenizer_class": kind, "eos_token": "<|endoftext|>"}
        (target / "tokenizer_config.json").write_text(json.dumps(facts))


def processes() -> dict[str, list[str]]:
    """Row -> the words of its process."""
    python = [sys.executable, "-c"]
    found = {IMPORT: [*python, IMPORT]}
    for name, line in COMMANDS.items():
        found[name] = [sys.executable, "-m", "nanoset_ref.cli", *line.split()]
    for order in ("stateless", "nanotron"):
        for batches in (1, 201):
            program = BATCH.format(order=order, batches=batches, file="large")
            for cache in CACHES:
                row = f"first batch + {batches - 1}, {order}, {cache}"
                found[row] = [*python, program]
    program = BATCH.format(order="stateless", batches=1, file="terabyte")
    for cache in CACHES:
        found[f"first batch of 1 TB, stateless, {cache}"] = [*python, program]
    for name, files, limit in MANY_FILES:
        found[name] = [*python, MANY.format(files=files, limit=limit)]
    return found


def measured(
    chosen: dict[str, list[str]], folder: Path, tree: Path, rounds: int
) -> dict[str, dict[str, Any]]:
    """Row -> its medians, and the least and the most of its times as multiples of `import torch`."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in [TORCH, *chosen]}
    for number in range(-1, rounds):  # the first round fills the caches
        torch = taken([sys.executable, "-c", TORCH], folder, tree, TORCH)
        found[TORCH].append(torch | {"of_import_torch": 1.0})
        for name, words in chosen.items():
            figures = taken(words, folder, tree, name)
            figures["of_import_torch"] = figures["cpu_seconds"] / torch["cpu_seconds"]
            found[name].append(figures)
            print(f"round {number}: {name}: {figures}", flush=True)
    rows: dict[str, dict[str, Any]] = {}
    for name, runs in found.items():
        figures = {key: [run[key] for run in runs[1:]] for key in runs[0]}
        rows[name] = {
            key: three_digits(statistics.median(values))
            for key, values in figures.items()
        }
        of_import = figures["of_import_torch"]
        rows[name]["of_import_torch_least_most"] = [
            three_digits(min(of_import)),
            three_digits(max(of_import)),
        ]
    return rows


def three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def taken(words: list[str], folder: Path, tree: Path, name: str) -> dict[str, float]:
    """User and system time of a process, its time by the clock, and the seconds that it prints, if it does."""
    cache = folder / "cache"
    if "empty" in name:
        cache = folder / "empty"
        shutil.rmtree(cache, ignore_errors=True)
    environment = os.environ | {"PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(cache)}
    code = 2 if name == "a wrong option" else 0
    said, clock, cpu = timed_process(words, folder, environment, code)
    figures = {"cpu_seconds": cpu, "clock_seconds": clock}
    if "first batch" in name:
        figures["seconds_after_imports"] = float(said or "nan")
    return figures


if __name__ == "__main__":
    main()
