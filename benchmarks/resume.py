"""How long a resume takes to find its place: `python -m benchmarks.resume`.

For each number of consumed samples, one round runs, one after the other: our sampler to its first batch; our DataLoader
over a token file (stateless order) to its first delivered batch; and torch's DistributedSampler in a BatchSampler, the
first batches of which are drawn and dropped, as Nanotron's resume does. The dataset of the last is a bare length: only
the walk counts. Medians over the rounds, of one rank of eight. Ratios carry over to other machines, milliseconds do
not. At 10^8 samples the walk holds about 4 GB of Python integers.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch.utils.data import BatchSampler, Dataset, DistributedSampler

from nanoset_ref.dataloader import build_nanoset_dataloader
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.samplers import ResumableBatchSampler

DP_SIZE = 8
MICRO_BATCH_SIZE = 4
LEFT = 10_000  # samples of the run behind the one it resumes at
GOAL = 1000


class Length(Dataset[None]):
    """A dataset of which only the length is asked."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consumed", nargs="+", type=float, default=[1e4, 1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a_input_ids.npy"
        np.arange(60_000, dtype="<u2").tofile(path)
        titles = ("our sampler", "our loader", "the walk", "walk / sampler", "walk / loader")
        print(f"{'consumed':>12}" + "".join(f"{title:>15}" for title in titles))
        for consumed in map(int, options.consumed):
            consumed -= consumed % (DP_SIZE * MICRO_BATCH_SIZE)
            ways: list[Callable[[], None]] = [
                lambda consumed=consumed: sampler(consumed),
                lambda consumed=consumed: loader(path, consumed),
                lambda consumed=consumed: walk(consumed),
            ]
            seconds: list[list[float]] = [[], [], []]
            for _ in range(options.rounds + (consumed < 10**7)):  # the first one warms up where that is cheap
                for taken, way in zip(seconds, ways, strict=True):
                    start = time.perf_counter()
                    way()
                    taken.append(time.perf_counter() - start)
            ours, delivered, walked = (statistics.median(taken) for taken in seconds)
            print(
                f"{consumed:12,}{ours * 1e3:12.3f} ms{delivered * 1e3:12.3f} ms{walked * 1e3:12.1f} ms"
                f"{walked / ours:15,.0f}{walked / delivered:15,.0f}"
            )
    if consumed >= 10**8:
        reached = "reached" if min(walked / ours, walked / delivered) >= GOAL else "MISSED"
        print(f"goal: {GOAL:,} times as fast as the walk at 10^8 samples, {reached}")


def sampler(consumed: int) -> None:
    next(iter(ResumableBatchSampler(consumed + LEFT, MICRO_BATCH_SIZE, 3, DP_SIZE, consumed)))


def loader(path: Path, consumed: int) -> None:
    nanoset = Nanoset(path, None, 32, consumed + LEFT, order="stateless")
    loader = build_nanoset_dataloader(
        nanoset, micro_batch_size=MICRO_BATCH_SIZE, dp_rank=3, dp_size=DP_SIZE, consumed_train_samples=consumed
    )
    next(iter(loader))


def walk(consumed: int) -> None:
    positions = DistributedSampler(Length(consumed + LEFT), num_replicas=DP_SIZE, rank=3, shuffle=False)
    batches = BatchSampler(positions, MICRO_BATCH_SIZE, drop_last=True)
    next(itertools.islice(batches, consumed // (DP_SIZE * MICRO_BATCH_SIZE), None))


if __name__ == "__main__":
    main()
