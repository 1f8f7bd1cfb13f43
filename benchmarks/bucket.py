"""Random samples out of a bucket whose answers come late: `python -m benchmarks.bucket`.

A server of its own process (tests/bucket_server.py) holds one token file of `--tokens` ids and answers every request
`latency` milliseconds late. Each candidate reads batches of 8 samples in random order for `--seconds`, in a process of
its own:

    nanoset_ref     build_nanoset_dataloader with read_ahead=2, over the stateless order
    the limit       obstore alone: ranges as long, 2,048 at a time by 64 threads of get_ranges, and no more

For each: million tokens per second; bytes sent per byte of token ids delivered; CPU seconds per million tokens; MiB of
resident memory before the first batch and at the end. And for nanoset_ref the seconds from the opening to the first
batch, in a run that begins, and in one that goes on after 0, 50 and 90% of an epoch. `--output` keeps it as JSON.

And a run of `nanoset_ref.train` (a small Llama, batches of 8 x 128 tokens, `--steps` of them), fed from the bucket with
read_ahead=2 and, beside it, from the disk: the share of its time that it waits for data after the first step, and
milliseconds per step.

Server and candidate share the machine: with two cores, the server takes about as much of them as the candidate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.record import bucket, bytes_sent, command, machine, save

BATCH, AT_ONCE, THREADS = 8, 2048, 64
WARM = 600  # batches: the first blocks are short
CANDIDATES = ("nanoset_ref", "the limit")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--latencies", type=int, nargs="+", default=[0, 20, 50], help="milliseconds"
    )
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=[512, 2048, 8192],
        help="tokens per sample",
    )
    parser.add_argument(
        "--tokens", type=float, default=5e8, help="ids in the file, two bytes each"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=6,
        help="of reading, of each candidate in each round",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=300, help="of the training run; 0: none"
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, url, length = options.child
        print(json.dumps(measure(name, url, int(length), options.seconds)))
        return
    result: dict[str, Any] = {
        "command": command("bucket"),
        "machine": machine(),
        "by_latency": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder, "a.npy"), "wb") as file:
            for _ in range(int(options.tokens) // 1_000_000):
                file.write(
                    np.random.default_rng(0)
                    .integers(0, 50_000, 1_000_000, dtype=np.uint16)
                    .tobytes()
                )
        np.random.default_rng(0).integers(0, 4096, 20_000_000, dtype=np.uint16).tofile(
            Path(folder, "b.npy")
        )
        for latency in options.latencies:
            with bucket(Path(folder), latency) as url:
                found = {
                    length: rounds_of(f"{url}/a.npy", length, options)
                    for length in options.lengths
                }
                result["by_latency"][f"{latency} ms"] = found
                if options.steps:
                    places = {"bucket": f"{url}/b.npy", "disk": f"{folder}/b.npy"}
                    runs = {
                        name: training(place, options.steps)
                        for name, place in places.items()
                    }
                    result.setdefault("training", {})[f"{latency} ms"] = runs
                    print(f"training, {latency} ms", json.dumps(runs))
    save(result, options.output)


def rounds_of(url: str, length: int, options: argparse.Namespace) -> dict[str, Any]:
    """Candidate -> figure -> its median over the rounds, in which candidates take turns."""
    taken: dict[str, list[Any]] = {name: [] for name in CANDIDATES}
    for _ in range(options.rounds):
        for name in CANDIDATES:
            child = [
                sys.executable,
                "-m",
                "benchmarks.bucket",
                "--child",
                name,
                url,
                str(length),
            ]
            said = subprocess.run(
                [*child, "--seconds", str(options.seconds)],
                stdout=subprocess.PIPE,
                check=True,
            )
            taken[name].append(json.loads(said.stdout))
    found = {
        name: {
            key: round(statistics.median(run[key] for run in runs), 4)
            for key in runs[0]
        }
        for name, runs in taken.items()
    }
    print(url, length, json.dumps(found, indent=1))
    return found


def measure(name: str, url: str, length: int, seconds: float) -> dict[str, float]:
    """The figures of one candidate."""
    root, _, _ = url.rpartition("/")
    firsts, batches = ours(url, length) if name == "nanoset_ref" else limit(url, length)
    for _ in range(WARM):
        next(batches)
    process, count = psutil.Process(), 0
    before, busy, begun = (
        process.memory_info().rss,
        time.process_time(),
        time.perf_counter(),
    )
    sent = bytes_sent(root)
    while (passed := time.perf_counter() - begun) < seconds:
        count += len(next(batches))
    tokens = count * length
    return {
        "million_tokens_per_second": tokens / passed / 1e6,
        "cpu_seconds_per_million_tokens": (time.process_time() - busy) / tokens * 1e6,
        "bytes_sent_per_byte": (bytes_sent(root) - sent) / (2 * count * (length + 1)),
        "mib_before": before / 2**20,
        "mib_after": process.memory_info().rss / 2**20,
        **firsts,
    }


def training(tokens: str, steps: int) -> dict[str, float]:
    """What a training run's own metrics say of its time."""
    model = {
        "model_type": "llama",
        "vocab_size": 4096,
        "hidden_size": 64,
        "intermediate_size": 128,
    }
    model |= {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "tie_word_embeddings": False,
    }
    dataset = {"dataset_path": tokens, "order": "stateless"}
    with tempfile.TemporaryDirectory() as folder:
        run = {
            "data_stages": [
                {
                    "name": "a",
                    "start_training_step": 1,
                    "data": {"dataset": dataset, "read_ahead": 2},
                }
            ],
            "tokens": {
                "sequence_length": 128,
                "train_steps": steps,
                "micro_batch_size": 8,
            },
            "model": {"model_config": model},
            "checkpoints": {
                "checkpoints_path": f"{folder}/run",
                "checkpoint_interval": steps,
            },
            "optimizer": {
                "learning_rate_scheduler": {
                    "learning_rate": 0.001,
                    "lr_warmup_steps": 5,
                }
            },
        }
        (config := Path(folder, "run.yaml")).write_text(json.dumps(run))
        subprocess.run(
            [sys.executable, "-m", "nanoset_ref.train", "--config", str(config)],
            check=True,
        )
        lines = [
            json.loads(line)
            for line in Path(folder, "run/metrics.jsonl").read_text().splitlines()
        ]
    seconds = [8 * 128 / line["tokens_per_second"] for line in lines[1:]]
    waited = sum(
        line["data_wait"] * taken
        for line, taken in zip(lines[1:], seconds, strict=True)
    )
    return {
        "share_waiting": round(waited / sum(seconds), 5),
        "ms_per_step": round(1e3 * statistics.median(seconds), 2),
    }


def ours(url: str, length: int) -> tuple[dict[str, float], Any]:
    from nanoset_ref import Nanoset, build_nanoset_dataloader

    def loader(consumed: int) -> Any:
        rows = Nanoset(url, None, length, 10**9, order="stateless")
        return build_nanoset_dataloader(
            rows, micro_batch_size=BATCH, consumed_train_samples=consumed, read_ahead=2
        )

    epoch, firsts = loader(0).dataset.order.samples_per_epoch, {}
    next(iter(loader(0)))  # compiles
    for share in (0, 50, 90):
        begun = time.perf_counter()
        batches = iter(loader(epoch * share // 100 // BATCH * BATCH))
        next(batches)
        firsts[f"seconds_to_first_batch_at_{share}_percent"] = (
            time.perf_counter() - begun
        )
        batches.close()
    return firsts, (batch["input_ids"] for batch in loader(0))


def limit(url: str, length: int) -> tuple[dict[str, float], Any]:
    import obstore
    from obstore.store import from_url

    root, _, key = url.rpartition("/")
    store = from_url(root, client_options={"allow_http": True})
    size, random = obstore.head(store, key)["size"], np.random.default_rng(0)

    def some(starts: list[int]) -> list[Any]:
        ends = [start + 2 * (length + 1) for start in starts]
        return list(
            obstore.get_ranges(store, key, starts=starts, ends=ends, coalesce=0)
        )

    def batches() -> Any:
        with ThreadPoolExecutor(THREADS) as threads:
            while True:
                starts = np.sort(
                    random.integers(0, size // (2 * length) - 1, AT_ONCE) * 2 * length
                )
                yield from threads.map(some, starts.reshape(-1, BATCH).tolist())

    return {}, batches()


if __name__ == "__main__":
    main()
