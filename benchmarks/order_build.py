"""What it costs to ask an order: `python -m benchmarks.order_build [--rounds 5]`.

Nanoseconds per position, in bulk, at neighbouring and at random positions, of both orders over 1 to 1,000 sources: the
median, and the smallest in brackets. What an order costs to build is in `benchmarks.startup`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from nanoset_ref.orders import NanotronOrder, StatelessOrder

BULK = 10_000  # positions per lookup


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"ns per position, {BULK:,} at once")
    for sources in (1, 2, 8, 32, 128, 1000):
        lookups(sources, options.rounds * 20)


def lookups(sources: int, repeats: int) -> None:
    """Print the nanoseconds per position of both orders over so many sources."""
    weights, random = list(range(1, sources + 1)), np.random.default_rng(0)
    orders = {
        "nanotron": NanotronOrder([10**7 // sources] * sources, weights, 10**7),
        "stateless": StatelessOrder([10**9] * sources, weights, 10**12),
    }
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, order in orders.items():
            places = {"neighbouring": np.arange(BULK), "random": random.integers(0, len(order), BULK)}
            for kind, positions in places.items():
                start = time.perf_counter()
                order[positions]
                times.setdefault((name, kind), []).append((time.perf_counter() - start) / BULK * 1e9)
    for (name, kind), found in times.items():
        print(f"  {name:<10} {sources:>3} sources, {kind:<12} {statistics.median(found):6.0f} ns ({min(found):.0f})")


if __name__ == "__main__":
    main()
