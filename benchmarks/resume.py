"""How long a resume takes to find its place: `python -m benchmarks.resume`.

For each number of consumed samples, one round runs, one after the other: our sampler to its first batch; our DataLoader
over a token file (stateless order) to its first delivered batch; and torch's DistributedSampler in a BatchSampler, the
first batches of which are drawn and dropped, as Nanotron's resume does. The dataset of the last is a bare length: only
the walk counts. Medians over the rounds, of one rank of eight. Ratios carry over to other machines, milliseconds do
not. At 10^8 samples the walk holds about 4 GB of Python integers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.record import interleaved
from benchmarks.startup import BATCH, LEFT, RANK, RANKS, first, resume_ways
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler

GOAL = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--consumed", nargs="+", type=float, default=[1e4, 1e5, 1e6, 1e7, 1e8]
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        np.arange(60_000, dtype="<u2").tofile(path := Path(folder) / "a_input_ids.npy")
        known = resume_ways(path)
        ways = {
            "our sampler": sampler,
            "our loader": known["nanoset_ref"],
            "the walk": known["a walk"],
        }
        print(
            f"{'consumed':>12}"
            + "".join(
                f"{title:>15}" for title in (*ways, "walk / sampler", "walk / loader")
            )
        )
        for consumed in map(int, options.consumed):
            consumed -= consumed % (RANKS * BATCH)
            runs = {name: partial(way, consumed) for name, way in ways.items()}
            if consumed < 10**7:
                interleaved(runs, 1)  # warms up where that is cheap
            ours, delivered, walked = map(
                statistics.median, interleaved(runs, options.rounds).values()
            )
            print(
                f"{consumed:12,}{ours * 1e3:12.3f} ms{delivered * 1e3:12.3f} ms{walked * 1e3:12.1f} ms"
                f"{walked / ours:15,.0f}{walked / delivered:15,.0f}"
            )
    if consumed >= 10**8:
        reached = (
            "reached" if min(walked / ours, walked / delivered) >= GOAL else "MISSED"
        )
        print(f"goal: {GOAL:,} times as fast as the walk at 10^8 samples, {reached}")


def sampler(consumed: int) -> None:
    first(ResumableBatchSampler(consumed + LEFT, BATCH, RANK, RANKS, consumed))


if __name__ == "__main__":
    main()
