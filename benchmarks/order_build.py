"""What an order costs to build and to ask: `python -m benchmarks.order_build [--samples 1e7] [--rounds 5]`.

One interleaved run per size: Nanotron's method (its greedy loop, two shuffles by RandomState, concatenation of the
epochs, restated here from its documentation), this package's "nanotron" order, which gives the same sequence, and
"stateless". Medians and the spread (smallest to largest); memory is what numpy allocated, at the peak and after. Then
nanoseconds per position, in bulk, at neighbouring and at random positions: the median, and the smallest in brackets;
the file has the smallest, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from benchmarks.record import command, machine, save
from nanoset_ref.orders import NanotronOrder, StatelessOrder

EPOCHS = 2
BULK = 10_000  # positions per lookup


@njit
def upstream_helper(n_samples, weights, dataset_sizes):
    """The documented rule as upstream writes it: an array of errors per step, 64 bits for each index."""
    dataset_index = np.empty((n_samples,), dtype=np.uint64)
    dataset_sample_index = np.empty((n_samples,), dtype=np.int64)
    taken = np.zeros((len(weights),), dtype=np.int64)
    for t in range(n_samples):
        errors = weights * max(t, 1.0) - taken
        furthest = np.argmax(errors)
        dataset_index[t] = furthest
        dataset_sample_index[t] = taken[furthest] % dataset_sizes[furthest]
        taken[furthest] += 1
    return dataset_index, dataset_sample_index


def upstream(
    lengths: np.ndarray, weights: np.ndarray, num_samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Helper, two shuffles, concatenation, cut: what Nanotron's Nanoset keeps."""
    datasets, samples = upstream_helper(
        int(lengths.sum()), weights / weights.sum(), lengths
    )
    np.random.RandomState(1234).shuffle(datasets)
    np.random.RandomState(1234).shuffle(samples)
    epochs = num_samples // int(lengths.sum()) + 1
    return np.concatenate([datasets] * epochs)[:num_samples], np.concatenate(
        [samples] * epochs
    )[:num_samples]


def measured(build: Callable[[], Any]) -> tuple[float, int, int]:
    """(seconds, bytes kept, bytes at the peak)."""
    gc.collect()
    tracemalloc.start()
    start = time.perf_counter()
    kept = build()
    seconds = time.perf_counter() - start
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return seconds, now, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--samples",
        type=float,
        nargs="+",
        default=[1e5, 1e6, 1e7],
        help="samples in an epoch",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    for size in map(int, options.samples):
        building(size, options.rounds)
    print(f"ns per position, {BULK:,} at once")
    least = {
        sources: lookups(sources, options.rounds * 20)
        for sources in (1, 2, 8, 32, 128, 1000)
    }
    head = {"command": command("order_build"), "machine": machine()}
    save({**head, "nanoseconds": least}, options.output)


def building(size: int, rounds: int) -> None:
    """Print what each way takes to build an order of `size` samples per epoch."""
    shares, weights = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.4, 0.3, 0.2, 0.1])
    lengths = (shares * size).astype(np.int64)
    num_samples = EPOCHS * int(lengths.sum()) - 1
    builds: dict[str, Callable[[], Any]] = {
        "nanotron's method": lambda: upstream(lengths, weights, num_samples),
        "order='nanotron'": lambda: NanotronOrder(lengths, weights, num_samples, 1234),
        "order='stateless'": lambda: StatelessOrder(
            lengths, weights, num_samples, 1234
        ),
    }
    check_equal(
        builds["order='nanotron'"](), builds["nanotron's method"]()
    )  # compiles as well
    found: dict[str, list[tuple[float, int, int]]] = {name: [] for name in builds}
    for _ in range(rounds):
        for name, build in builds.items():
            found[name].append(measured(build))
    base = statistics.median(seconds for seconds, _, _ in found["nanotron's method"])
    print(f"{size:,} samples per epoch, {EPOCHS} epochs")
    for name, results in found.items():
        seconds = sorted(result[0] for result in results)
        middle = statistics.median(seconds)
        kept, peak = results[0][1] / num_samples, results[0][2] / num_samples
        print(
            f"  {name:<20} {middle:10.4f} s ({seconds[0]:.4f} - {seconds[-1]:.4f})  {base / middle:10.1f} x"
            f"  {kept:6.2f} / {peak:6.2f} bytes per position kept / at the peak"
        )


def check_equal(ours: NanotronOrder, theirs: tuple[np.ndarray, np.ndarray]) -> None:
    for a, b in zip(ours[:], theirs, strict=True):
        np.testing.assert_array_equal(a, b.astype(np.int64))


def lookups(sources: int, repeats: int) -> dict[str, dict[str, int]]:
    """Print the nanoseconds per position of both orders over so many sources; the smallest, by order and places."""
    weights, random = list(range(1, sources + 1)), np.random.default_rng(0)
    orders = {
        "nanotron": NanotronOrder([10**7 // sources] * sources, weights, 10**7),
        "stateless": StatelessOrder([10**9] * sources, weights, 10**12),
    }
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, order in orders.items():
            places = {
                "neighbouring": np.arange(BULK),
                "random": random.integers(0, len(order), BULK),
            }
            for kind, positions in places.items():
                start = time.perf_counter()
                order[positions]
                times.setdefault((name, kind), []).append(
                    (time.perf_counter() - start) / BULK * 1e9
                )
    for (name, kind), found in times.items():
        print(
            f"  {name:<10} {sources:>3} sources, {kind:<12} {statistics.median(found):6.0f} ns ({min(found):.0f})"
        )
    least: dict[str, dict[str, int]] = {name: {} for name in orders}
    for (name, kind), found in times.items():
        least[name][kind] = round(min(found))
    return least


if __name__ == "__main__":
    main()
