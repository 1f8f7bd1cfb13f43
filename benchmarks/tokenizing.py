"""From text to a closed token file: `python -m benchmarks.tokenizing --text TEXTS --tokenizer FOLDER`.

Every candidate is a process of its own, in interleaved rounds, with its input dropped from the page cache before it.
A process says how long its work took, from the first byte read to the last byte synced, without its imports and
without loading the tokenizer. Reported are the medians of that, of the process by the clock and of its user and system
time; spreads; and ratios within each round, which other work on the machine disturbs least.

    encode_files        gigatoken alone: encode_files, the ids cast to uint16, ids and boundaries of documents written,
                        and synced; no EOS, no checksum, no check of the JSON
    nanoset_ref         the whole way, with EOS, checks, checksum and manifest; with one process, with two, and with two
                        ranks of torchrun, whose process begins with torchrun's own
    zst, Parquet        the same out of such files
    a sixteenth         the text that slower tools are measured on: `encode_batch_fast` of tokenizers with the texts in
                        memory and the ids thrown away, nanoset_ref with that backend, datatrove's DocumentTokenizer,
                        datasets.map with two processes, Megatron-LM's preprocess_data.py with two workers

Before the rounds, the files of one and two workers and ranks, of every kind of input and of both backends are compared
with each other and with gigatoken's ids. `--kinds` measures some kinds of input; OUTPUT keeps its other rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.record import machine, save, timed_process

ROOT = Path(__file__).parent.parent
MEGABYTES = 311
TORCH = "import torch"
TIMED = """
import json, os, sys, time
import numpy as np
tokenizer, source, target = sys.argv[1:4]
def synced(path, array):
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(array).data)
        file.flush()
        os.fsync(file.fileno())
def say(seconds):
    print(json.dumps({"seconds": seconds}))
"""
ENCODE_FILES = (
    TIMED
    + """
import awkward, gigatoken
loaded = gigatoken.Tokenizer(tokenizer + "/tokenizer.json")
kind = gigatoken.ParquetFileSource if source.endswith("parquet") else gigatoken.JsonlFileSource
begun = time.perf_counter()
layout = loaded.encode_files(kind([source])).layout
synced(target + "_input_ids.npy", np.asarray(layout.content.data).astype(np.uint16))
synced(target + ".offsets", np.asarray(layout.offsets.data))
say(time.perf_counter() - begun)
"""
)
OURS = (
    TIMED
    + """
from nanoset_ref.preprocess import preprocess
options = json.loads(sys.argv[4])
counts = preprocess(source, target, tokenizer, overwrite=True, progress=False, **options)
if counts:  # in rank 0
    say(counts.seconds)
"""
)
BATCH_FAST = (
    TIMED
    + """
from tokenizers import Tokenizer
loaded = Tokenizer.from_file(tokenizer + "/tokenizer.json")
texts = [json.loads(line)["text"] for line in open(source)]
begun = time.perf_counter()
for start in range(0, len(texts), 10_000):
    loaded.encode_batch_fast(texts[start : start + 10_000], add_special_tokens=False)
say(time.perf_counter() - begun)
"""
)
DATATROVE = (
    TIMED
    + """
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
name = tokenizer + "/tokenizer.json"
steps = [
    JsonlReader(os.path.dirname(source), glob_pattern=os.path.basename(source)),
    DocumentTokenizer(target, tokenizer_name_or_path=name, eos_token="<|endoftext|>"),
]
begun = time.perf_counter()
LocalPipelineExecutor(steps, logging_dir=target + "-logs").run()
say(time.perf_counter() - begun)
"""
)
DATASETS = (
    TIMED
    + """
import datasets
from transformers import AutoTokenizer
loaded = AutoTokenizer.from_pretrained(tokenizer)
begun = time.perf_counter()
data = datasets.load_dataset("json", data_files=source, split="train", cache_dir=target)
encode = lambda rows: {"input_ids": loaded(rows["text"])["input_ids"]}
data = data.map(encode, batched=True, num_proc=2, remove_columns=data.column_names)
data.save_to_disk(target + "-saved")
say(time.perf_counter() - begun)
"""
)
MEGATRON = (
    TIMED
    + """
import runpy
begun = time.perf_counter()
words = "--append-eod --workers 2 --tokenizer-type HuggingFaceTokenizer --log-interval 1000000"
sys.argv = ["preprocess_data.py", *words.split(), "--input", source, "--output-prefix", target]
sys.argv += ["--tokenizer-model", tokenizer]
runpy.run_path(os.environ["MEGATRON"] + "/tools/preprocess_data.py", run_name="__main__")
say(time.perf_counter() - begun)  # its imports are part of this
"""
)
LIMIT = "encode_files + writing"
# kind -> (what the names of its rows have, its file)
KINDS = {
    "lines": ("", "big.jsonl"),
    "zst": (", zst", "big.jsonl.zst"),
    "Parquet": (", Parquet", "big.parquet"),
}
SMALL = "a sixteenth"
PROCESSES = ("", ", 2 workers", ", 2 ranks")
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2 --no-python"
LIMITS = {f"{SMALL}: nanoset_ref, hf": f"{SMALL}: encode_batch_fast alone"}
for _kind, _ in KINDS.values():
    for _processes in PROCESSES:
        LIMITS[f"nanoset_ref{_kind}{_processes}"] = f"{LIMIT}{_kind}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--text", type=Path, required=True, help="a folder of .jsonl, repeated"
    )
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument(
        "--megatron", type=Path, help="a checkout of Megatron-LM at core_v0.16.1"
    )
    parser.add_argument("--rounds", type=int, default=3)
    every = [*KINDS, SMALL]
    parser.add_argument("--kinds", nargs="+", choices=every, default=every)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = write_inputs(folder, options.text)
        tokenizer = options.tokenizer.resolve()
        words, missing = candidates(folder, tokenizer, options.megatron, options.kinds)
        result = {
            "command": "python -m benchmarks.tokenizing",
            "machine": machine(),
            "versions": versions(),
            "text": facts,
            "same_bytes": compared(folder, tokenizer, options.kinds),
            "not_measured": missing,
            "rounds": options.rounds,
            "rows": measured(words, folder, options.rounds),
        }
    if options.output and options.output.exists():
        kept = json.loads(options.output.read_text())
        for part in ("same_bytes", "not_measured", "rows"):
            result[part] = kept[part] | result[part]
    save(result, options.output)


def measured(words: dict[str, list[str]], folder: Path, rounds: int) -> dict[str, Any]:
    """The figures of each row, and the load before each of its rounds."""
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in words}
    load = []
    for number in range(rounds):
        load.append(round(os.getloadavg()[0], 1))
        for name, line in words.items():
            found = run(line, folder)
            runs[name].append(found)
            said = (f"{value:.2f}" for value in found)
            print(f"round {number}: {name}:", *said, flush=True)
    rows = figures(runs)
    return {name: row | {"load_of_one_minute": load} for name, row in rows.items()}


def versions() -> dict[str, str]:
    found = {}
    for name in (
        "gigatoken",
        "tokenizers",
        "datatrove",
        "datasets",
        "transformers",
        "msgspec",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def write_inputs(folder: Path, texts: Path) -> dict[str, int]:
    """big.jsonl, .zst and .parquet, and small.jsonl; their sizes."""
    import pyarrow as pa
    import zstandard
    from pyarrow import json as arrow_json
    from pyarrow import parquet

    once = b"".join(path.read_bytes() for path in sorted(texts.glob("*.jsonl")))
    repeats = -(-MEGABYTES * 10**6 // len(once))
    with open(folder / "big.jsonl", "wb") as file:
        for _ in range(repeats):
            file.write(once)
    with open(folder / "small.jsonl", "wb") as file:
        for _ in range(max(1, repeats // 16)):
            file.write(once)
    with (
        open(folder / "big.jsonl", "rb") as file,
        open(folder / "big.jsonl.zst", "wb") as packed,
    ):
        zstandard.ZstdCompressor().copy_stream(file, packed)
    (folder / "once.jsonl").write_bytes(once)
    table = arrow_json.read_json(folder / "once.jsonl")
    with parquet.ParquetWriter(folder / "big.parquet", table.schema) as writer:
        whole = pa.concat_tables([table] * repeats)
        writer.write_table(whole, row_group_size=100_000)
    documents = once.count(b"\n") * repeats
    small = (folder / "small.jsonl").stat().st_size
    return {"bytes": len(once) * repeats, "documents": documents, "small_bytes": small}


def candidates(
    folder: Path, tokenizer: Path, megatron: Path | None, kinds: list[str]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Name -> command line; name -> why it is not measured."""
    missing = {}

    def words(program: str, source: str, **options: Any) -> list[str]:
        target = str(folder / "out")
        given = [
            sys.executable,
            "-c",
            program,
            str(tokenizer),
            str(folder / source),
            target,
        ]
        return [*given, json.dumps(options)]

    found = {TORCH: [sys.executable, "-c", TORCH]}
    for kind, source in (KINDS[kind] for kind in kinds if kind in KINDS):
        found[f"{LIMIT}{kind}"] = words(ENCODE_FILES, source)
        options = {"append_eod": True, "backend": "gigatoken"}
        one = words(OURS, source, **options)
        found[f"nanoset_ref{kind}"] = one
        found[f"nanoset_ref{kind}, 2 workers"] = words(
            OURS, source, num_workers=2, **options
        )
        found[f"nanoset_ref{kind}, 2 ranks"] = in_two_ranks(one)
    if SMALL not in kinds:
        return found, missing
    small = f"{SMALL}: "
    found[f"{small}encode_batch_fast alone"] = words(BATCH_FAST, "small.jsonl")
    found[f"{small}nanoset_ref"] = words(OURS, "small.jsonl", append_eod=True)
    found[f"{small}nanoset_ref, hf"] = words(
        OURS, "small.jsonl", append_eod=True, backend="hf"
    )
    found[f"{small}datatrove DocumentTokenizer"] = words(DATATROVE, "small.jsonl")
    found[f"{small}datasets.map, 2 processes"] = words(DATASETS, "small.jsonl")
    name = f"{small}Megatron preprocess_data, 2 workers, its imports included"
    if megatron:
        found[name] = words(MEGATRON, "small.jsonl")
        os.environ["MEGATRON"] = str(megatron.resolve())
    else:
        missing[name] = "it is no part of the wheel; --megatron names a checkout"
    return found, missing


def in_two_ranks(line: list[str]) -> list[str]:
    return [sys.executable, *TORCHRUN.split(), *line]


def compared(folder: Path, tokenizer: Path, kinds: list[str]) -> dict[str, bool]:
    """Whether the files of each pair hold the same bytes."""

    def digest(
        source: str, program: str = OURS, ranks: bool = False, **options: Any
    ) -> str:
        words = [sys.executable, "-c", program, str(tokenizer), str(folder / source)]
        words += [str(folder / "out"), json.dumps(options)]
        done, *_ = run(in_two_ranks(words) if ranks else words, folder)
        assert done
        with open(folder / "out_input_ids.npy", "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    eod = {"append_eod": True}
    one = digest("big.jsonl", **eod)
    same = {}
    for kind, (_, source) in KINDS.items():
        if kind in kinds:
            same[f"{kind}, 1 process"] = one == digest(source, **eod)
            same[f"{kind}, 2 workers"] = one == digest(source, num_workers=2, **eod)
            same[f"{kind}, 2 ranks"] = one == digest(source, ranks=True, **eod)
    if "lines" in kinds:
        ids = digest("big.jsonl", ENCODE_FILES)
        same["encode_files and nanoset_ref without EOS"] = digest("big.jsonl") == ids
    if SMALL in kinds:
        hf = digest("small.jsonl", backend="hf", **eod)
        same["gigatoken and hf"] = digest("small.jsonl", **eod) == hf
    return same


def figures(runs: dict[str, list[tuple[float, float, float]]]) -> dict[str, Any]:
    """Name -> medians and rounds of its work, its process, and its ratios to what limits it."""
    rows: dict[str, Any] = {}
    for name, found in runs.items():
        work, clock, cpu = zip(*found, strict=True)
        row = {"work_seconds": work, "process_seconds": clock, "cpu_seconds": cpu}
        rows[name] = {kind: summary(values) for kind, values in row.items()}
        limit = LIMITS.get(name)
        if limit:
            limits = [seconds for seconds, *_ in runs[limit]]
            ratios = [theirs / ours for theirs, ours in zip(limits, work, strict=True)]
            rows[name]["speed_of_limit"] = summary(ratios)
        if limit and "sixteenth" not in name:
            torch = [seconds for _, seconds, _ in runs[TORCH]]
            over = [(a - b) / c for a, b, c in zip(clock, limits, torch, strict=True)]
            rows[name]["process_beyond_limit_in_imports_of_torch"] = summary(over)
    return rows


def summary(values: Any) -> dict[str, Any]:
    """The median, and all rounds."""
    return {
        "median": round(statistics.median(values), 3),
        "rounds": [round(value, 3) for value in values],
    }


def run(words: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds of the work, of the process, and of its user and system time; NaN if it fails."""
    for path in folder.iterdir():
        if path.name.startswith("out"):
            subprocess.run(["rm", "-r", str(path)], check=True)
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    more = [str(ROOT), environment.get("PYTHONPATH", "")]
    if "MEGATRON" in environment and words[2] == MEGATRON:
        more.insert(0, environment["MEGATRON"])
    environment["PYTHONPATH"] = os.pathsep.join(more)
    output, clock, cpu = timed_process(words, folder, environment)
    work = clock
    if output.strip():
        work = json.loads(output.strip().splitlines()[-1])["seconds"]
    return work, clock, cpu


if __name__ == "__main__":
    main()
