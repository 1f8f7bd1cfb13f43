"""Streaming against a token file, and the memory of a compressed dataset: `python -m benchmarks.streaming`.

Throughput: one round runs, one after the other on the same text, sequence length and batch size: preprocessing alone,
batches of a Nanoset read from the resulting token file, and batches of a TokenStream; each with both backends of the
tokenizer, all without workers. Medians over the rounds. "A token file pays after p passes" over the text: from then on
it took less time to preprocess once and read the file than to stream the text every time.

Memory: every variant is built in a process of its own, and every element is touched; what counts is the anonymous
memory that this adds (the file's own pages are the page cache's, shared by all workers, given back under pressure).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.record import command, machine, save
from nanoset_ref.chunks.corpus import prepare_corpus
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.preprocess import preprocess
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.streaming import (
    CompressedDataset,
    CompressedDictionary,
    JSONLinesAdapter,
    MapDataset,
    TokenStream,
    TokenStreamDataLoader,
)

COMPRESSIONS = ("bz2", "xz", "gzip")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--input", nargs="+", help="JSON-lines files (default: the embedded corpus)"
    )
    parser.add_argument(
        "--tokenizer", help="name or folder (default: the embedded one)"
    )
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument(
        "--megabytes",
        type=float,
        default=16,
        help="for throughput the input is repeated up to this",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    parser.add_argument(
        "--child",
        nargs=3,
        metavar=("VARIANT", "LINES", "DICTIONARY"),
        help=argparse.SUPPRESS,
    )
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child)))
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare_corpus(Path(folder) / "corpus")
        inputs = options.input or [str(path) for path in corpus.domains.values()]
        repeats = max(
            1, round(options.megabytes / (sum(map(os.path.getsize, inputs)) / 1e6))
        )
        rates = throughput(
            inputs * repeats,
            options.tokenizer or str(corpus.tokenizer),
            Path(folder),
            options,
        )
        head = {"command": command("streaming"), "machine": machine()}
        head |= {
            "gigatoken": version("gigatoken"),
            "load": round(os.getloadavg()[0], 1),
        }
        save({**head, "tokens_per_core_second": rates}, options.output)
        memory(inputs, Path(folder))


def throughput(
    inputs: list[str], tokenizer: str, folder: Path, options: argparse.Namespace
) -> dict[str, int]:
    """Print tokens per second of a token file and of a stream, and what preprocessing costs.

    Returns, by loader, tokens per second that one core works for it: other work on the machine counts little there.
    """
    length, batch = options.sequence_length, options.micro_batch_size
    backends = ("hf", "gigatoken")
    rows = {"micro_batch_size": batch, "append_eod": True}
    streams = {
        name: TokenStream(inputs, tokenizer, length, backend=name, **rows)
        for name in backends
    }
    seconds: dict[str, list[float]] = {}
    core: dict[str, list[float]] = {}
    tokens = 0
    for round_ in range(options.rounds + 1):  # the first one warms up
        took = {}
        for name in backends:
            counts = preprocess(
                inputs,
                folder / name,
                tokenizer,
                backend=name,
                append_eod=True,
                overwrite=True,
                progress=False,
            )
            took[f"preprocess, {name}"] = counts.seconds
        nanoset = Nanoset(folder / "hf_input_ids.npy", None, length, 1)
        nanoset = Nanoset(nanoset.files, None, length, nanoset.dataset_lengths[0])
        loaders = {
            "token file": build_nanoset_dataloader(nanoset, micro_batch_size=batch)
        }
        loaders |= {
            f"stream, {name}": TokenStreamDataLoader(stream)
            for name, stream in streams.items()
        }
        for name, loader in loaders.items():
            start, worked = time.perf_counter(), time.process_time()
            batches = sum(1 for _ in loader)
            took[name] = time.perf_counter() - start
            if round_:
                core.setdefault(name, []).append(time.process_time() - worked)
        tokens = batches * batch * length
        for name, value in took.items() if round_ else ():
            seconds.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(
        f"{tokens} tokens in rows of {length + 1}, batches of {batch}; medians of {options.rounds} rounds"
    )
    for name, value in medians.items():
        print(f"  {name:24} {tokens / value / 1e6:8.2f} million tokens/s")
    for name in backends:
        preprocessing, stream, file = (
            medians[f"preprocess, {name}"],
            medians[f"stream, {name}"],
            medians["token file"],
        )
        print(
            f"  {name}: the token file is read {stream / file:.1f} times as fast as the text is streamed;",
            end=" ",
        )
        print(
            f"a stream takes {stream / preprocessing:.2f} of the time of preprocessing;",
            end=" ",
        )
        print(f"a token file pays after {preprocessing / (stream - file):.2f} passes")
    rates = {name: round(tokens / statistics.median(it)) for name, it in core.items()}
    for name, rate in rates.items():
        print(f"  {name:24} {rate / 1e6:8.2f} million tokens per second of one core")
    return rates


def memory(inputs: list[str], folder: Path) -> None:
    """Print the anonymous memory of the same documents in each kind of dataset."""
    lines = folder / "all.jsonl"
    with open(lines, "w") as out:
        for document in open_text(inputs).documents():
            print(json.dumps({"text": document.text}), file=out)
    elements = [json.loads(line) for line in lines.read_text().splitlines()]
    print(
        f"{len(elements)} documents, {lines.stat().st_size / 1e6:.2f} MB of JSON lines"
    )
    variants = [
        ("list of dicts", ""),
        ("MapDataset", ""),
        ("MapDataset, not in memory", ""),
    ]
    for compression in COMPRESSIONS:
        dictionary = CompressedDictionary(compression)
        dictionary.update(enumerate(elements))
        path = folder / f"{compression}.cd"
        dictionary.dump(path)
        variants += [
            ("CompressedDictionary", str(path)),
            ("CompressedDataset", str(path)),
        ]
    base = None
    for variant, path in variants:
        command = [
            sys.executable,
            "-m",
            "benchmarks.streaming",
            "--child",
            variant,
            str(lines),
            path or "-",
        ]
        kib, us = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        base = base or kib
        file = (
            f"({Path(path).stem}, {Path(path).stat().st_size / lines.stat().st_size:.2f} of the text)"
            if path
            else ""
        )
        factor = f"{base / kib:8.1f} times less" if kib else " nothing measurable"
        print(f"  {variant:26} {kib:8} KiB {factor}; {us:7.1f} us per element {file}")


def measure(variant: str, lines: str, dictionary: str) -> tuple[int, float]:
    """(KiB of anonymous memory that the dataset adds once every element was touched, microseconds per element)."""
    warm = CompressedDictionary()
    warm[0] = 0
    if dictionary != "-":
        len(CompressedDataset(None, dictionary))  # compiled code is not the dataset's
    else:
        len(JSONLinesAdapter(None, lines))
    before = anonymous_kib()
    if variant == "list of dicts":
        with open(lines) as file:
            dataset = [json.loads(line) for line in file]
    elif variant.startswith("MapDataset"):
        dataset = MapDataset(
            None, JSONLinesAdapter(None, lines), keep_in_memory=variant == "MapDataset"
        )
    elif variant == "CompressedDictionary":
        dataset = CompressedDictionary.load(dictionary)
    else:
        dataset = CompressedDataset(None, dictionary)
    start = time.perf_counter()
    for place in range(len(dataset)):
        dataset[place]["text"]
    seconds = time.perf_counter() - start
    return max(0, anonymous_kib() - before), seconds / len(dataset) * 1e6


def anonymous_kib() -> int:
    fields = [
        line.split()
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
    ]
    return next(int(field[1]) for field in fields if field[0] == "Anonymous:")


if __name__ == "__main__":
    main()
