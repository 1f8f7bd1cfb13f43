"""Measure one source tree of this package; `benchmarks.compare` starts this script once in each of two trees.

The script reads names of measurements from standard input, one per line, and answers every line with a line of JSON:
{"wall": units per second, "cpu": units per second of processor time} or {"error": why it failed}. "cpu" is left out
where worker processes take part. The package comes from PYTHONPATH. Only names that both trees have are imported, and
only when they are needed.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BATCH = 8  # samples
WARM_ROWS = 80_000  # read before anything is timed
SEQUENCE_LENGTHS = (512, 2048, 8192)
SOURCES = (1, 2, 8, 32, 128, 1000)
TOKEN_FILE = "tokens_input_ids.npy"
COLD_READERS: tuple[dict[str, int], ...] = (
    {"read_ahead": 2},
    {"num_loading_workers": 2},
)

# does the work once and returns how much that was, in the measurement's unit
Work = Callable[[], float]


class Sizes(NamedTuple):
    """How much work one call is."""

    tokens: (
        int  # in the token file, and about as many in the .bin file whose rows are read
    )
    documents: int  # in the corpus whose index is built
    positions: int  # looked up at once
    samples: int  # in an epoch of the Nanotron order
    megabytes: float  # of text

    @classmethod
    def scaled(cls, scale: float) -> Sizes:
        tokens = max(int(2**26 * scale), 2**18)  # at least a batch of the longest rows
        return cls(
            tokens,
            int(10**6 * scale),
            int(200_000 * scale),
            int(10**7 * scale),
            16 * scale,
        )


class Measurement(NamedTuple):
    """`prepare` opens and builds what `Work` needs. It is not timed."""

    unit: str
    prepare: Callable[[], Work]


def measurements(folder: Path, sizes: Sizes) -> dict[str, Measurement]:
    """Every measurement by name; `folder` holds what `benchmarks.compare.write_inputs` wrote."""
    found: dict[str, Measurement] = {}
    for length, workers in itertools.product(SEQUENCE_LENGTHS, (0, 2)):
        name = f"read {length}, {workers} workers"
        found[name] = Measurement(
            "million tokens/s", partial(read, folder, sizes, length, workers)
        )
    for length, options in itertools.product(SEQUENCE_LENGTHS, COLD_READERS):
        workers = options.get("num_loading_workers", 0)
        found[f"cold {length}, {workers} workers"] = Measurement(
            "million tokens/s", partial(cold, folder, sizes, length, options)
        )
    for length in SEQUENCE_LENGTHS:
        found[f"bucket {length}"] = Measurement(
            "million tokens/s", partial(bucket, folder, sizes, length)
        )
    for length in SEQUENCE_LENGTHS:
        found[f"megatron rows {length}"] = Measurement(
            "million tokens/s", partial(megatron, folder, sizes, length)
        )
    found["megatron index"] = Measurement(
        "million documents/s", partial(index, folder, sizes)
    )
    for backend in ("hf", "gigatoken"):
        found[f"preprocess, {backend}"] = Measurement(
            "MB/s", partial(tokenise, folder, backend)
        )
    for sources in SOURCES:
        prepare = partial(look_up, sizes, "stateless", sources, 10**9, 10**12)
        found[f"stateless lookup {sources}"] = Measurement("ns/position", prepare)
    epoch = sizes.samples // 8
    prepare = partial(look_up, sizes, "nanotron", 8, epoch, sizes.samples)
    found["nanotron lookup 8"] = Measurement("ns/position", prepare)
    found["nanotron build 8"] = Measurement(
        "million samples/s", partial(build, sizes, epoch)
    )
    return found


def read(folder: Path, sizes: Sizes, sequence_length: int, workers: int) -> Work:
    from nanoset_ref import Nanoset

    return deliver(
        Nanoset(folder / TOKEN_FILE, None, sequence_length, 10**9),
        sizes,
        num_loading_workers=workers,
    )


def cold(
    folder: Path, sizes: Sizes, sequence_length: int, options: dict[str, int]
) -> Work:
    """Past the page cache, as files larger than memory are read, and with nothing of the file in it."""
    from nanoset_ref import Nanoset

    os.environ["NANOSET_REF_DIRECT"] = "1"
    try:
        dataset = Nanoset(
            folder / TOKEN_FILE, None, sequence_length, 10**9, order="stateless"
        )
    finally:
        del os.environ["NANOSET_REF_DIRECT"]
    deliver_all = deliver(dataset, sizes, **options)

    def work() -> float:
        descriptor = os.open(folder / TOKEN_FILE, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        return deliver_all()

    return work


def bucket(folder: Path, sizes: Sizes, sequence_length: int) -> Work:
    """From the server whose address `benchmarks.compare` has left, read ahead by a thread."""
    from nanoset_ref import Nanoset

    url = f"{(folder / 'address').read_text()}/{TOKEN_FILE}"
    dataset = Nanoset(url, None, sequence_length, 10**9, order="stateless")
    return deliver(dataset, sizes, read_ahead=2)


def megatron(folder: Path, sizes: Sizes, sequence_length: int) -> Work:
    return deliver(build_megatron(folder / "rows", sequence_length), sizes)


def deliver(dataset: Any, sizes: Sizes, **options: int) -> Work:
    """Batches through the loader, about as many tokens as the file holds.

    The first pass over a file reads its windows, the second faults their pages in. Besides, kernels begin in Python
    (`io/njit.py`), until they have worked for a second. Only what comes later is timed.
    """
    from nanoset_ref import build_nanoset_dataloader

    loader = build_nanoset_dataloader(dataset, micro_batch_size=BATCH, **options)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    batch_tokens = BATCH * dataset.sequence_length
    count = sizes.tokens // batch_tokens

    order = getattr(dataset, "order", None)
    if order is not None:  # its kernel is compiled, also for workers, which are forked
        order[np.arange(2 * WARM_ROWS)]

    def work() -> float:
        for _ in range(count):
            next(batches)
        return count * batch_tokens / 1e6

    for _ in range(
        max(1, WARM_ROWS // (BATCH * count))
    ):  # the first passes; `rates` makes another
        work()
    return work


def index(folder: Path, sizes: Sizes) -> Work:
    def work() -> float:
        build_megatron(folder / "documents", 2048)
        return sizes.documents / 1e6

    return work


def build_megatron(prefix: Path, sequence_length: int) -> Any:
    """All of a corpus as the training split; the corpus is opened and its index built anew."""
    from nanoset_ref.megatron import NanosetBuilder, NanosetConfig

    config = NanosetConfig(
        random_seed=1234,
        sequence_length=sequence_length,
        data_path=str(prefix),
        split="1,0,0",
        pad_id=1,
    )
    return NanosetBuilder(config).build()[0]


def tokenise(folder: Path, backend: Any) -> Work:
    """JSON lines to a token file; loading the tokenizer counts."""
    from nanoset_ref.preprocess import preprocess

    text, output = folder / "text.jsonl", folder / f"{backend}-{os.getpid()}"

    def work() -> float:
        preprocess(
            text,
            output,
            folder / "corpus" / "tokenizer",
            backend=backend,
            append_eod=True,
            overwrite=True,
            progress=False,
        )
        return text.stat().st_size / 1e6

    return work


def look_up(
    sizes: Sizes, name: str, sources: int, length: int, num_samples: int
) -> Work:
    """Random positions in bulk, of sources with `length` samples each and weights 1, 2, 3, ..."""
    from nanoset_ref.orders import build_order

    order = build_order(
        name, [length] * sources, list(range(1, sources + 1)), num_samples
    )
    positions = np.random.default_rng(0).integers(0, num_samples, sizes.positions)

    def work() -> float:
        order[positions]
        return len(positions) / 1e9

    return work


def build(sizes: Sizes, length: int) -> Work:
    from nanoset_ref.orders import build_order

    def work() -> float:
        build_order("nanotron", [length] * 8, list(range(1, 9)), sizes.samples)
        return sizes.samples / 1e6

    return work


def rates(measurement: Measurement, seconds: float) -> dict[str, float]:
    """Units per second, over `seconds` or the first call that ends later, after a call that warms up."""
    work = measurement.prepare()
    work()
    done, taken = 0.0, 0.0
    begun, begun_cpu = time.perf_counter(), time.process_time()
    while taken < seconds:
        done += work()
        taken = time.perf_counter() - begun
    found = {"wall": done / taken}
    if not multiprocessing.active_children():
        found["cpu"] = done / (time.process_time() - begun_cpu)
    return found


def check_origin(tree: str) -> None:
    """Raise ImportError if a module came from elsewhere: an editable install fills in what the tree lacks."""
    for name, module in sys.modules.items():
        if name.partition(".")[0] == "nanoset_ref" and not Path(
            module.__file__ or ""
        ).is_relative_to(tree):
            raise ImportError(
                f"{name} is not in {tree}; it was imported from {module.__file__}"
            )


def main() -> None:
    tree, folder, scale, seconds = sys.argv[1:]
    import torch

    torch.set_num_threads(1)
    known = measurements(Path(folder), Sizes.scaled(float(scale)))
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = rates(known[line.strip()], float(seconds))
            check_origin(tree)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
