"""The first batch after a kill at 90 % of an epoch, when 2 ranks become 3: `python -m benchmarks.elastic`.

Two processes, the ranks, read 90 % of an epoch of 48,000 samples in batches of 8, keep the states that the loader
gives, and end. Then three processes load them and read on to the end of the epoch. Reported are the seconds from the
building of a loader to its first batch (imports and the writing of the corpus excluded; the slowest rank), and how
many samples of the epoch are lost or read twice: the median, the least and the most of rounds in which the loaders take
turns. A loader whose ranks want to meet (mosaicml-streaming) finds the others running. `--only` measures some of them,
such as one whose libraries need an environment of their own; OUTPUT keeps its other rows.

    nanoset_ref      a Nanoset and its DataLoader; the state is one number
    datasets         an IterableDataset of 12 shards, split by node; each rank has a state, so rank r loads that of rank
                     r, and the third rank begins anew: we know of no other way (datasets 5.2, 2026-11)
    torchtitan       its ParallelAwareDataloader over the same dataset; rank 0's state
    grain            its DataLoader, an IndexSampler with shuffle, ShardOptions of the rank; states as for datasets
    mosaicml         a StreamingDataset (py1e) and its StreamingDataLoader; rank 0's state, which holds for any ranks
    litdata          a StreamingDataset and its StreamingDataLoader; states as for datasets
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from benchmarks.record import machine, medians, save

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
    if (
        find_spec("triton") is None
    ):  # torch for CPUs brings none; torchtitan imports kernels all the same
        sys.modules["torchtitan.models.moe.kernels"] = MagicMock()
    from torchtitan.components.dataloader import ParallelAwareDataloader

    def numbers(rows: list[dict[str, int]]) -> list[int]:
        return [row["id"] for row in rows]

    options = {"batch_size": BATCH, "collate_fn": numbers}
    loader = ParallelAwareDataloader(_iterable(rank, world), rank, world, **options)
    if state:
        loader.load_state_dict(state[0])
    return iter(loader), loader.state_dict


def grain(folder: Path, rank: int, world: int, state: Any) -> Any:
    from grain import python as grain

    options = grain.ShardOptions(
        shard_index=rank, shard_count=world, drop_remainder=False
    )
    sampler = grain.IndexSampler(
        SAMPLES, shard_options=options, shuffle=True, num_epochs=1, seed=0
    )
    loader = grain.DataLoader(
        data_source=range(SAMPLES), sampler=sampler, operations=[grain.Batch(BATCH)]
    )
    batches = iter(loader)
    if state and rank < len(state):
        batches.set_state(state[rank])
    return (batch.tolist() for batch in batches), batches.get_state


def mosaicml(folder: Path, rank: int, world: int, state: Any) -> Any:
    if find_spec("torchvision") is None:  # imported for datasets of images alone
        for name in ("", ".transforms", ".transforms.functional", ".datasets"):
            module = MagicMock(__spec__=ModuleSpec(f"torchvision{name}", None))
            sys.modules[f"torchvision{name}"] = module
        sys.modules["torchvision.datasets"].VisionDataset = type("Images", (), {})  # type: ignore[attr-defined]
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    if not (folder / "mds").exists():
        with MDSWriter(out=str(folder / "mds"), columns={"id": "int"}) as writer:
            for number in range(SAMPLES):
                writer.write({"id": number})
    if not os.environ.get("WORLD_SIZE"):
        return iter([]), dict
    data = StreamingDataset(local=str(folder / "mds"), shuffle=True, batch_size=BATCH)
    loader = StreamingDataLoader(data, batch_size=BATCH)
    if state:
        loader.load_state_dict(state[0])
    return (batch["id"].tolist() for batch in loader), loader.state_dict


def litdata(folder: Path, rank: int, world: int, state: Any) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.writer import BinaryWriter

    if not (folder / "chunks").exists():
        writer = BinaryWriter(str(folder / "chunks"), chunk_bytes="64KB")
        for number in range(SAMPLES):
            writer[number] = {"id": number}
        writer.done()
        writer.merge()
    data = StreamingDataset(str(folder / "chunks"), shuffle=True)
    data.distributed_env.world_size = world
    data.distributed_env.global_rank = rank
    loader = StreamingDataLoader(data, batch_size=BATCH)
    if state:
        loader.load_state_dict(state[min(rank, len(state) - 1)])
    return (batch["id"].tolist() for batch in loader), loader.state_dict


READERS: dict[str, Reader] = {
    "nanoset_ref": nanoset_ref,
    "datasets": datasets,
    "torchtitan": torchtitan,
    "grain": grain,
    "mosaicml": mosaicml,
    "litdata": litdata,
}
PACKAGES = {"mosaicml": "mosaicml-streaming"}


def child(name: str, folder: Path, rank: int, world: int) -> None:
    """Read as a rank of 2 up to 90 %, or of 3 from there on; print what was read as JSON."""
    reader = READERS[name]
    saved = sorted(folder.glob("*.state"))
    state = [torch_load(path) for path in saved] if world == 3 else None
    if name == "nanoset_ref" and state:
        state = state[0]
    begun = time.perf_counter()
    batches, state_of = reader(folder, rank, world, state)
    seen = next(batches)
    seconds = time.perf_counter() - begun
    if world == 2:
        for _ in range(SAMPLES * 9 // 10 // 2 // BATCH - 1):
            seen += next(batches)
        torch_save(state_of(), folder / f"{rank}.state")
    else:
        for batch in batches:
            seen += batch
    print(json.dumps({"seen": seen, "seconds": seconds}), flush=True)
    os._exit(0)  # without waiting for threads that read ahead


def torch_load(path: Path) -> Any:
    import torch

    return torch.load(path, weights_only=False)


def torch_save(state: Any, path: Path) -> None:
    import torch

    torch.save(state, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=READERS, default=[*READERS])
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, folder, rank, world = options.child
        READERS[name](Path(folder), 0, 1, None)  # imports, and the corpus
        child(name, Path(folder), int(rank), int(world))
    load = round(os.getloadavg()[0], 1)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.only}
    rows: dict[str, Any] = {}
    for number in range(options.rounds):
        for name in options.only:
            try:
                found[name].append(measured(name))
            except ValueError as error:
                rows[name] = {"refused": str(error)}
            print(f"round {number}: {name}:", found[name] or rows[name], flush=True)
    for name, rounds in found.items():
        rows[name] = rows.get(name) or medians(rounds)
        rows[name] |= {"rounds": options.rounds, "load_before": load}
    result = {"machine": machine(), "versions": versions(), "rows": rows}
    if options.output and options.output.exists():
        kept = json.loads(options.output.read_text())
        if kept["machine"] != result["machine"]:  # another environment
            for row in rows.values():
                row["machine"] = result["machine"]
            result["machine"] = kept["machine"]
        for part in ("versions", "rows"):
            result[part] = kept[part] | result[part]
    save(result, options.output)


def versions() -> dict[str, str]:
    """Of the libraries that are installed here."""
    found = {}
    for name in ("datasets", "torchtitan", "torchdata", "grain", "mosaicml", "litdata"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(PACKAGES.get(name, name))
    return found


def measured(name: str) -> dict[str, float]:
    """The figures of one round.

    Raises:
        ValueError: the loader ended with an error; its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        begun = together(name, folder, 2)
        ended = together(name, folder, 3)
    count = Counter(number for rank in begun + ended for number in rank["seen"])
    return {
        "seconds_to_first_batch": max(rank["seconds"] for rank in ended),
        "samples_lost": SAMPLES - len(count),
        "samples_read_twice": sum(times - 1 for times in count.values()),
    }


def together(name: str, folder: str, world: int) -> list[dict[str, Any]]:
    """Run the ranks side by side; what each printed."""
    processes = []
    words = [sys.executable, "-m", "benchmarks.elastic", "--child", name, folder]
    if world == 2:
        READERS[name](Path(folder), 0, 1, None)  # writes the corpus
    for rank in range(world):
        ranks = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world,
        }
        environment = os.environ | {key: str(value) for key, value in ranks.items()}
        if (
            name != "mosaicml"
        ):  # torch's launcher sets these; other loaders here are told
            environment = dict(os.environ)
        process = subprocess.Popen(
            [*words, str(rank), str(world)],
            cwd=ROOT,
            env=environment | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
    said = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, said, strict=True):
        if process.returncode:
            raise ValueError(
                next(
                    line for line in reversed(errors.splitlines()) if "Error: " in line
                )
            )
    return [json.loads(output.strip().splitlines()[-1]) for output, _ in said]


if __name__ == "__main__":
    main()
