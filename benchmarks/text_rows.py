"""What rows tokenized when they are read would cost.

    python -m benchmarks.text_rows --text FOLDER --tokenizer FOLDER

No such format is built. For documents of about 500 bytes, 10 kB, 100 kB and 1 MB (the text's lines, joined), and for
both backends, on all cores, in interleaved rounds, the median, the least and the most of:

    index          one pass over the text: the first byte and the number of tokens of each document; seconds per GB, and
                   bytes per document
    micro-batch    8 rows of 2,049 tokens at random positions of a global order: the documents of each row are found in
                   that index, read, parsed and encoded, and the row is cut out; milliseconds, the median and the 99th
                   percentile of many, without anything read ahead. A row within a long document needs that document
                   from its beginning. Every row is compared with the token file that was written.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import machine, medians, save
from nanoset_ref import TokenFile
from nanoset_ref.preprocess import Encoder, open_tokenizer, preprocess
from nanoset_ref.preprocess.backends import num_threads
from nanoset_ref.preprocess.json_lines import texts_of_lines
from nanoset_ref.preprocess.text import open_text

ROWS = 8
LENGTH = 2048
SECONDS = 5  # of micro-batches, at least 20 of them
SIZES = {"500 B": 1, "10 kB": 19, "100 kB": 190, "1 MB": 1900}  # texts that are joined


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a folder of .jsonl")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--backends", nargs="+", default=["gigatoken", "hf"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    texts = [
        document.text
        for document in open_text(str(options.text / "*.jsonl")).documents()
    ]
    load = round(os.getloadavg()[0], 1)
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        for number in range(options.rounds):
            for size, joined in SIZES.items():
                write(path, texts, joined)
                for backend in options.backends:
                    figures = measured(path, options.tokenizer, backend)
                    found.setdefault(f"{size}, {backend}", []).append(figures)
                    print(f"round {number}: {size}, {backend}: {figures}", flush=True)
    result = {
        "command": "python -m benchmarks.text_rows",
        "machine": machine(),
        "load_before": load,
        "rounds": options.rounds,
        "rows": {name: medians(rounds) for name, rounds in found.items()},
    }
    save(result, options.output)


def write(path: Path, texts: list[str], joined: int) -> None:
    """Documents of so many texts each, 8 MB in all."""
    documents = [" ".join(texts[k : k + joined]) for k in range(0, len(texts), joined)]
    with open(path, "w") as file:
        while file.tell() < 8 << 20:
            file.writelines(json.dumps({"text": text}) + "\n" for text in documents)


def measured(path: Path, tokenizer: Path, backend: Any) -> dict[str, float]:
    target = path.with_name("a")
    options = {
        "append_eod": True,
        "backend": backend,
        "overwrite": True,
        "progress": False,
    }
    counts = preprocess(path, target, tokenizer, **options)
    file = TokenFile(f"{target}_input_ids.npy")
    ends = np.cumsum(
        [len(line) for line in path.read_bytes().splitlines(keepends=True)]
    )
    starts = np.append(0, ends)  # of the lines, in bytes
    encoder = Encoder(open_tokenizer(tokenizer), backend=backend, append_eod=True)
    generator = np.random.default_rng(0)
    samples = (file.num_tokens - 1) // LENGTH
    took = []
    with ThreadPoolExecutor(num_threads()) as pool, open(path, "rb") as text:
        handle = text.fileno()

        def row(first: int) -> NDArray[np.uint16]:
            return row_at(first, handle, starts, file.document_offsets, encoder)

        until = time.monotonic() + SECONDS
        while time.monotonic() < until or len(took) < 20:
            firsts = generator.integers(0, samples, ROWS) * LENGTH
            begun = time.perf_counter()
            block = np.stack(list(pool.map(row, firsts.tolist())))
            took.append(time.perf_counter() - begun)
            for first, ids in zip(firsts, block, strict=True):
                assert np.array_equal(ids, file.tokens[first : first + LENGTH + 1])
    milliseconds = 1000 * np.array(took[2:])
    return {
        "index_seconds_per_gb": round(counts.seconds / path.stat().st_size * 1e9, 2),
        "index_bytes_per_document": 16,
        "batches": len(took) - 2,
        "milliseconds": round(float(np.median(milliseconds)), 2),
        "milliseconds_99": round(float(np.quantile(milliseconds, 0.99)), 2),
    }


def row_at(
    first: int, text: int, starts: NDArray[Any], offsets: NDArray[Any], encoder: Encoder
) -> NDArray[np.uint16]:
    """LENGTH + 1 tokens from `first` on."""
    begin = int(np.searchsorted(offsets, first, "right")) - 1
    end = int(np.searchsorted(offsets, first + LENGTH + 1, "left"))
    lines = os.pread(text, int(starts[end] - starts[begin]), int(starts[begin]))
    texts = texts_of_lines(lines, ("text",))
    assert texts
    ids, _, _ = encoder.encode_texts(texts, str)
    skipped = first - int(offsets[begin])
    return ids[skipped : skipped + LENGTH + 1]


if __name__ == "__main__":
    main()
