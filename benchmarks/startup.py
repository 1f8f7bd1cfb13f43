"""Seconds until a run of N samples begins, and until one that has consumed N goes on: `python -m benchmarks.startup`.

For every N each way runs `--rounds` times, one after the other; the medians count, and a way that took longer than
`--limit` seconds is not asked for larger N. Start-up is the building of the order:

    stateless, nanotron     this package's orders; the second is Nanotron's, bit for bit
    Nanotron's way          the documented helper, two shuffles by RandomState, concatenation of the epochs; restated
    megatron-core           document index, its C++ sample index and shuffle index, one document per sample
    OLMo-core's way         arange in uint32, shuffled by a Generator; restated
    torch.randperm          torch's RandomSampler
    grain                   MapDataset.range(N).shuffle()

Resume is the time to the first positions or the first batch of rank 3 of 8, micro-batches of 4, after N samples:

    nanoset_ref             build_nanoset_dataloader to its first batch of tokens, over the stateless order
    a range that begins there     Megatron's pretraining sampler; restated
    a walk                  Nanotron's SkipBatchSampler over torch's BatchSampler and DistributedSampler; restated
    skip_first_batches      accelerate's, over the same samplers
    StatefulDataLoader      torchdata's, load_state_dict with a RandomSampler
    grain                   set_state of a MapDataset's iterator

`--output` keeps the result as JSON. Building at 10^8 takes up to 4 GB here.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
)

from benchmarks.order_build import upstream_helper
from benchmarks.record import command, interleaved, machine, save
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders import build_order

RANK, RANKS, BATCH = 3, 8, 4
LEFT = 10_000  # samples behind the place of the resume

Way = Callable[[int], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--samples", type=float, nargs="+", default=[1e3, 1e4, 1e5, 1e6, 1e7, 1e8]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=20, help="seconds")
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        np.arange(60_000, dtype="<u2").tofile(path := Path(folder) / "a_input_ids.npy")
        result: dict[str, Any] = {
            "command": command("startup"),
            "machine": machine(),
            "startup_seconds": curve("start-up", startup_ways(), options),
            "resume_seconds": curve("resume", resume_ways(path), options),
        }
    save(result, options.output)


def curve(
    title: str, ways: dict[str, Way], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Way -> N -> seconds."""
    seconds: dict[str, dict[str, float]] = {name: {} for name in ways}
    for name, way in list(ways.items()):
        try:
            way(1000)  # compiles, imports
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            del ways[name], seconds[name]
    for number in map(int, options.samples):
        quick = {
            name: way
            for name, way in ways.items()
            if max(seconds[name].values(), default=0) < options.limit
        }
        taken = interleaved(
            {name: partial(way, number) for name, way in quick.items()}, options.rounds
        )
        for name, values in taken.items():
            seconds[name][str(number)] = round(statistics.median(values), 7)
        print(
            f"{title}, {number:,}: "
            + ", ".join(f"{name} {seconds[name][str(number)]:.5f} s" for name in taken)
        )
    return seconds


# ---- start-up


def startup_ways() -> dict[str, Way]:
    return {
        "nanoset_ref, stateless": lambda n: build_order("stateless", [n], None, 2 * n),
        "nanoset_ref, nanotron": lambda n: build_order("nanotron", [n], None, 2 * n),
        "Nanotron's way": nanotron,
        "megatron-core": megatron,
        "OLMo-core's way": lambda n: np.random.Generator(np.random.PCG64(0)).shuffle(
            np.arange(n, dtype=np.uint32)
        ),
        "torch.randperm": torch.randperm,
        "grain": grain_startup,
    }


def nanotron(n: int) -> None:
    for index in upstream_helper(n, np.ones(1), np.array([n])):
        np.random.RandomState(1234).shuffle(index)
        np.concatenate([index, index])


def megatron(n: int) -> None:
    from megatron.core.datasets import helpers

    documents, random = np.arange(n, dtype=np.int32), np.random.RandomState(1234)
    random.shuffle(documents)
    sizes = np.full(n, 32, dtype=np.int32)
    helpers.build_sample_idx(sizes, documents, 32, 1, 32 * n, True, True)
    random.shuffle(np.arange(n, dtype=np.uint32))


def grain_startup(n: int) -> None:
    from grain import MapDataset

    MapDataset.range(n).shuffle(seed=0)[0]


# ---- resume


class Length(Dataset[int]):
    """A dataset of which only the length is asked; its samples are their positions."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, k: int) -> int:
        return k


def resume_ways(path: Path) -> dict[str, Way]:
    def ours(consumed: int) -> None:
        nanoset = Nanoset(path, None, 32, consumed + LEFT, order="stateless")
        first(
            build_nanoset_dataloader(
                nanoset,
                micro_batch_size=BATCH,
                dp_rank=RANK,
                dp_size=RANKS,
                consumed_train_samples=consumed,
            )
        )

    return {
        "nanoset_ref": ours,
        "a range that begins there": begin_there,
        "a walk": walk,
        "skip_first_batches": accelerated,
        "StatefulDataLoader": stateful,
        "grain": grain_resume,
    }


def first(batches: Any) -> None:
    next(iter(batches))


def begin_there(consumed: int) -> None:
    def batches() -> Iterator[list[int]]:
        batch: list[int] = []
        for position in range(consumed, consumed + LEFT):
            batch.append(position)
            if len(batch) == RANKS * BATCH:
                yield batch[RANK * BATCH : (RANK + 1) * BATCH]
                batch = []

    first(batches())


def batches_of_rank(consumed: int) -> BatchSampler:
    positions = DistributedSampler(
        Length(consumed + LEFT), num_replicas=RANKS, rank=RANK, shuffle=False
    )
    return BatchSampler(positions, BATCH, drop_last=True)


def walk(consumed: int) -> None:
    first(
        itertools.islice(batches_of_rank(consumed), consumed // (RANKS * BATCH), None)
    )


def accelerated(consumed: int) -> None:
    from accelerate import skip_first_batches

    loader = DataLoader(
        Length(consumed + LEFT), batch_sampler=batches_of_rank(consumed)
    )
    first(skip_first_batches(loader, consumed // (RANKS * BATCH)))


def stateful(consumed: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        dataset = Length((consumed + LEFT) // RANKS)
        return StatefulDataLoader(
            dataset, batch_size=BATCH, sampler=RandomSampler(dataset), drop_last=True
        )

    first(begun := loader())
    state = begun.state_dict()
    yielded = consumed // RANKS // BATCH
    state["_sampler_iter_yielded"] = state["_num_yielded"] = yielded
    sampler = state.get("_sampler_iter_state")
    if sampler and "samples_yielded" in sampler:
        sampler["samples_yielded"] = yielded * BATCH
    resumed = loader()
    resumed.load_state_dict(state)
    first(resumed)


def grain_resume(consumed: int) -> None:
    from grain import MapDataset

    def iterator() -> Any:
        return iter(
            MapDataset.range(consumed + LEFT)
            .shuffle(seed=0)[RANK::RANKS]
            .batch(BATCH, drop_remainder=True)
        )

    state = iterator().get_state()
    state["next_index"] = consumed // RANKS // BATCH
    resumed = iterator()
    resumed.set_state(state)
    next(resumed)


if __name__ == "__main__":
    main()
