"""Streaming against a token file: `python -m benchmarks.streaming`.

One round runs, one after the other on the same text, sequence length and batch size: preprocessing alone,
batches of a Nanoset read from the resulting token file, and batches of a TokenStream; each with both backends of the
tokenizer, all without workers. Medians over the rounds. "A token file pays after p passes" over the text: from then on
it took less time to preprocess once and read the file than to stream the text every time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from nanoset_ref.corpus import prepare_corpus
from nanoset_ref.dataloader import build_nanoset_dataloader
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.preprocess import preprocess
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", help="JSON-lines files (default: the embedded corpus)")
    parser.add_argument("--tokenizer", help="name or folder (default: the embedded one)")
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--megabytes", type=float, default=16, help="the input is repeated up to this")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare_corpus(Path(folder) / "corpus")
        inputs = options.input or [str(path) for path in corpus.domains.values()]
        repeats = max(1, round(options.megabytes / (sum(map(os.path.getsize, inputs)) / 1e6)))
        throughput(inputs * repeats, options.tokenizer or str(corpus.tokenizer), Path(folder), options)


def throughput(inputs: list[str], tokenizer: str, folder: Path, options: argparse.Namespace) -> None:
    """Print tokens per second of a token file and of a stream, and what preprocessing costs."""
    length, batch = options.sequence_length, options.micro_batch_size
    backends = ("hf", "gigatoken")
    rows = {"micro_batch_size": batch, "append_eod": True}
    streams = {name: TokenStream(inputs, tokenizer, length, backend=name, **rows) for name in backends}
    seconds: dict[str, list[float]] = {}
    tokens = 0
    for round_ in range(options.rounds + 1):  # the first one warms up
        took = {}
        for name in backends:
            counts = preprocess(
                inputs, folder / name, tokenizer, backend=name, append_eod=True, overwrite=True, progress=False
            )
            took[f"preprocess, {name}"] = counts.seconds
        nanoset = Nanoset(folder / "hf_input_ids.npy", None, length, 1)
        nanoset = Nanoset(nanoset.files, None, length, nanoset.dataset_lengths[0])
        loaders = {"token file": build_nanoset_dataloader(nanoset, micro_batch_size=batch)}
        loaders |= {f"stream, {name}": TokenStreamDataLoader(stream) for name, stream in streams.items()}
        for name, loader in loaders.items():
            start = time.perf_counter()
            batches = sum(1 for _ in loader)
            took[name] = time.perf_counter() - start
        tokens = batches * batch * length
        for name, value in took.items() if round_ else ():
            seconds.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{tokens} tokens in rows of {length + 1}, batches of {batch}; medians of {options.rounds} rounds")
    for name, value in medians.items():
        print(f"  {name:24} {tokens / value / 1e6:8.2f} million tokens/s")
    for name in backends:
        preprocessing, stream, file = medians[f"preprocess, {name}"], medians[f"stream, {name}"], medians["token file"]
        print(f"  {name}: the token file is read {stream / file:.1f} times as fast as the text is streamed;", end=" ")
        print(f"a stream takes {stream / preprocessing:.2f} of the time of preprocessing;", end=" ")
        print(f"a token file pays after {preprocessing / (stream - file):.2f} passes")


if __name__ == "__main__":
    main()
