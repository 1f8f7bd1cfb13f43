"""The first batch after a kill at 90 % of an epoch, when 2 ranks become 3: `python -m benchmarks.elastic`.

For each loader a process reads 90 % of an epoch of 48,000 samples as 2 ranks, in batches of 8, keeps the state that the
loader gives, and ends. Another process gives that state to 3 ranks and reads on to the end. Reported are the seconds
from the building of a loader to its first batch (imports and opening of the corpus excluded; the slowest rank), and
how many samples of the epoch are lost or read twice.

    nanoset_ref      a Nanoset and its DataLoader; the state is one number
    datasets         an IterableDataset of 12 shards, split by node; each rank has a state, so rank r loads that of rank
                     r, and the third rank begins anew: we know of no other way (datasets 5.2, 2026-11)
    torchtitan       its ParallelAwareDataloader over the same dataset; rank 0's state
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import machine, save

SAMPLES = 48_000
LENGTH = 16
BATCH = 8
ROOT = Path(__file__).parent.parent
# (folder, rank, world, state or None) -> (the numbers of the samples of each batch, what gives the state)
Reader = Callable[[Path, int, int, Any], tuple[Iterator[list[int]], Callable[[], Any]]]


def nanoset_ref(folder: Path, rank: int, world: int, state: Any) -> Any:
    from nanoset_ref import Nanoset, build_nanoset_dataloader

    path = folder / "a.npy"
    if not path.exists():
        np.arange(SAMPLES * LENGTH + 1, dtype="<i4").tofile(path)
    data = Nanoset(path, None, LENGTH, SAMPLES, token_dtype=np.int32)
    consumed = {"consumed_train_samples": state} if state else {}
    options = {"micro_batch_size": BATCH, "dp_rank": rank, "dp_size": world}
    loader = build_nanoset_dataloader(data, **options, **consumed)
    batches = ((batch["input_ids"][:, 0] // LENGTH).tolist() for batch in loader)
    return batches, lambda: SAMPLES * 9 // 10


def _iterable(rank: int, world: int) -> Any:
    from datasets import Dataset
    from datasets.distributed import split_dataset_by_node

    data = Dataset.from_dict({"id": range(SAMPLES)}).to_iterable_dataset(num_shards=12)
    return split_dataset_by_node(data.shuffle(seed=0, buffer_size=1), rank, world)


def datasets(folder: Path, rank: int, world: int, state: Any) -> Any:
    data = _iterable(rank, world)
    if state and rank < len(state):
        data.load_state_dict(state[rank])
    return (batch["id"] for batch in data.iter(BATCH)), data.state_dict


def torchtitan(folder: Path, rank: int, world: int, state: Any) -> Any:
    from torchtitan.components.dataloader import ParallelAwareDataloader

    def numbers(rows: list[dict[str, int]]) -> list[int]:
        return [row["id"] for row in rows]

    options = {"batch_size": BATCH, "collate_fn": numbers}
    loader = ParallelAwareDataloader(_iterable(rank, world), rank, world, **options)
    if state:
        loader.load_state_dict(state[0])
    return iter(loader), loader.state_dict


READERS: dict[str, Any] = {
    "nanoset_ref": nanoset_ref,
    "datasets": datasets,
    "torchtitan": torchtitan,
}


def child(name: str, folder: Path, part: str) -> None:
    """Read as 2 ranks up to 90 %, or as 3 ranks from there on; print what was read as JSON."""
    reader = READERS[name]
    reader(folder, 0, 1, None)  # imports, and the corpus
    seen: list[int] = []
    states = []
    seconds = []
    kept = folder / "state.pt"
    if part == "begin":
        for rank in range(2):
            batches, state = reader(folder, rank, 2, None)
            for _ in range(SAMPLES * 9 // 10 // 2 // BATCH):
                seen += next(batches)
            states.append(state())
        import torch

        torch.save(states, kept)
    else:
        import torch

        state = torch.load(kept, weights_only=False)
        if name == "nanoset_ref":
            state = state[0]
        for rank in range(3):
            begun = time.perf_counter()
            batches, _ = reader(folder, rank, 3, state)
            first = next(batches)
            seconds.append(time.perf_counter() - begun)
            seen += first
            for batch in batches:
                seen += batch
    print(json.dumps({"seen": seen, "seconds": max(seconds, default=0)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, folder, part = options.child
        child(name, Path(folder), part)
        return
    rows: dict[str, Any] = {}
    for name in READERS:
        found = [measured(name) for _ in range(options.rounds)]
        refused = [one for one in found if isinstance(one, str)]
        if refused:
            rows[name] = {"refused": refused[0]}
        else:
            rows[name] = {key: statistics.median(one[key] for one in found) for key in found[0]}
        print(name, rows[name])
    versions = {name: version(name) for name in ("datasets", "torchtitan", "torchdata")}
    save({"machine": machine(), "versions": versions, "rows": rows}, options.output)


def measured(name: str) -> Any:
    """The figures of one round, or the error of the loader that is to go on."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for part in ("begin", "go on"):
            words = [sys.executable, "-m", "benchmarks.elastic", "--child", name, folder, part]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                return done.stderr.strip().splitlines()[-1]
            found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    count = Counter(found[0]["seen"] + found[1]["seen"])
    return {
        "seconds_to_first_batch": found[1]["seconds"],
        "samples_lost": SAMPLES - len(count),
        "samples_read_twice": sum(times - 1 for times in count.values()),
    }


if __name__ == "__main__":
    main()
