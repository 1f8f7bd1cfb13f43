"""How near the preprocessing comes to the bare tokenizer: `python -m benchmarks.preprocess`.

One round runs, one after the other on the same texts and cores: the tokenizers library alone (`encode_batch_fast`,
texts in memory, ids thrown away), our whole road with the hf backend (JSON lines on disk to a finished token file),
and the same with gigatoken. Medians over the rounds, of the ratios within each round too; start-up (imports, loading
the tokenizer) is left aside. Ratios carry over to other machines, MB/s do not.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nanoset_ref.chunks.corpus import prepare_corpus
from nanoset_ref.preprocess import preprocess
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.tokenizer import load_tokenizer

BACKENDS = ("hf", "gigatoken")


def in_batches(texts: list[str]) -> Iterator[list[str]]:
    """Batches of the size at which the library is quickest: a tenth quicker than at an eighth of it."""
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= 8_000_000:
            yield batch
            batch, size = [], 0
    yield batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", nargs="+", help="text files (default: the embedded corpus)")
    parser.add_argument("--tokenizer", help="name or folder (default: the embedded one)")
    parser.add_argument(
        "--megabytes", type=float, default=16, help="the input is repeated up to this size"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--workers", type=int, default=1, help="local processes for our runs; their start-up counts"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    corpus = prepare_corpus(folder / "corpus")
    inputs = options.input or [str(path) for path in corpus.domains.values()]
    name = options.tokenizer or str(corpus.tokenizer)
    texts = [document.text for document in open_text(inputs).documents()]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    repeats = max(1, round(options.megabytes / megabytes))
    texts, megabytes, inputs = texts * repeats, megabytes * repeats, inputs * repeats

    batches = list(in_batches(texts))
    seconds: dict[str, list[float]] = {
        "encode_batch_fast": [],
        **{backend: [] for backend in BACKENDS},
    }
    for round_ in range(options.rounds + 1):  # the first one warms up
        took = {"encode_batch_fast": bare(name, batches)}
        for backend in BACKENDS:
            took[backend] = ours(inputs, folder / backend, name, backend, options.workers)
        if round_:
            for run, value in took.items():
                seconds[run].append(value)
    same = len({(folder / f"{backend}_input_ids.npy").read_bytes() for backend in BACKENDS}) == 1
    print(
        f"{len(texts):,} documents, {megabytes:.1f} MB, {options.rounds} rounds, {options.workers} worker(s)"
    )
    print(f"the two backends wrote {'the same file' if same else 'DIFFERENT FILES'}")
    for run, values in seconds.items():
        ratios = [
            alone / own for alone, own in zip(seconds["encode_batch_fast"], values, strict=True)
        ]
        rate = megabytes / statistics.median(values)
        print(f"{run:20} {rate:8.1f} MB/s {statistics.median(ratios):8.2f} x encode_batch_fast")


def bare(name: str, batches: list[list[str]]) -> float:
    """Seconds of the tokenizers library alone."""
    tokenizer = load_tokenizer(name).backend_tokenizer  # with its cache of words as empty as ours
    start = time.perf_counter()
    for batch in batches:
        tokenizer.encode_batch_fast(batch, add_special_tokens=False)
    return time.perf_counter() - start


def ours(inputs: list[str], output: Path, name: str, backend: Any, workers: int) -> float:
    """Seconds of our whole road, without its start-up."""
    counts = preprocess(
        inputs,
        output,
        name,
        backend=backend,
        append_eod=True,
        overwrite=True,
        num_workers=workers,
        progress=False,
    )
    assert counts is not None
    return counts.seconds


if __name__ == "__main__":
    main()
