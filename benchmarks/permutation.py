"""Is the computed shuffle as good as NumPy's? `python -m benchmarks.permutation [--keys 400000]`.

A battery of statistical tests for permutations p of range(n), n from 2 to 4,096. It draws one for
each key, by `permute_each`, and as many by NumPy's PCG64 (`Generator.permuted`), the control:

    kept d     how many x have p[x + d] = p[x] + d: numbers d apart that still are; of all d as well
    steps      the sum of |p[x + 1] - p[x]|; neighbors: the sum of p[x] p[x + 1]
    ascents    how many x have p[x + 1] > p[x]
    turns      how many p[x] are above both neighbors, or below both
    fixed      how many x have p[x] = x
    cycles     how many cycles there are; even: whether n - cycles is even
    values     the sum of x p[x], and its squared distance from the mean: do high x go high?
    joint x y  the pair of places of x and y, in at most 16 x 16 bins
    all        the whole permutation, up to n = 6

Every expectation is exact. A z-test compares means, with the error that the sample shows; a
chi-square test compares distributions. Holm's correction counts all tests of all n together: of 100
good shuffles, 99 have no p-value below 0.01 after it. The result depends on the seed, not on the
machine.
"""

from __future__ import annotations

import argparse
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.record import command, save
from nanoset_ref.io.njit import njit
from nanoset_ref.orders.permutation import derive, permute_each

SIZES = (
    2,
    3,
    4,
    5,
    6,
    8,
    13,
    20,
    31,
    48,
    64,
    65,
    100,
    128,
    256,
    500,
    1000,
    1024,
    2047,
    4096,
)
DISTANCES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64)
ALL_DISTANCES = (
    256  # the largest n of which all distances are counted, in n**2 / 2 steps
)
ALL = 6  # the largest n of which whole permutations are counted
BINS = 16
RARE = 10  # bins in which fewer are expected are counted as one
BLOCK = 2**20  # numbers that are drawn at once

Permutations = NDArray[np.int64]  # [permutations, n]
Counts = NDArray[np.int64]
Chances = NDArray[np.float64]
Draw = Callable[[int, int, int], Iterator[Permutations]]  # (n, keys, seed) -> blocks


def ours(n: int, keys: int, seed: int) -> Iterator[Permutations]:
    """Permutations by `permute_each`, with keys as the stateless order derives them."""
    family = np.uint64(derive(np.uint64(seed), n))
    size = max(BLOCK // n, 1)
    for first in range(0, keys, size):
        count = min(size, keys - first)
        drawn = keys_of(family, first, count)
        xs = np.tile(np.arange(n), count)
        places = permute_each(xs, np.full(count * n, n), np.repeat(drawn, n))
        yield places.reshape(count, n)


@njit
def keys_of(family, first, count):
    """Members first, first + 1, ... of a family of keys: uint64 [count]."""
    keys = np.empty(count, dtype=np.uint64)
    for i in range(count):
        keys[i] = derive(family, first + i)
    return keys


def numpys(n: int, keys: int, seed: int) -> Iterator[Permutations]:
    """Permutations by NumPy's PCG64."""
    random = np.random.Generator(np.random.PCG64([seed, n]))
    size = max(BLOCK // n, 1)
    for first in range(0, keys, size):
        count = min(size, keys - first)
        yield random.permuted(np.tile(np.arange(n), (count, 1)), axis=1)


@njit
def measure(block, distances, all_distances):
    """What is counted in each permutation: int64 [permutations, 9 + distances].

    Args:
        block: int64 [permutations, n].
        distances: int64 [distances], each below n.
        all_distances: whether column 8 is counted; else it is 0.

    Returns:
        A column for each name in `expected_means`, in its order.
    """
    count, n = block.shape
    found = np.zeros((count, 9 + len(distances)), dtype=np.int64)
    seen = np.empty(n, dtype=np.bool_)
    for i in range(count):
        places, row = block[i], found[i]
        seen[:] = False
        for x in range(n):
            row[1] += places[x] == x
            row[6] += x * places[x]
            if not seen[x]:
                row[0] += 1
            while not seen[x]:
                seen[x] = True
                x = places[x]
        for x in range(n - 1):
            row[2] += places[x + 1] > places[x]
            row[4] += abs(places[x + 1] - places[x])
            row[5] += places[x] * places[x + 1]
        for x in range(1, n - 1):
            row[3] += (places[x] > places[x - 1]) == (places[x] > places[x + 1])
        row[7] = (n - row[0]) % 2 == 0
        if all_distances:
            for x in range(n):
                for y in range(x + 1, n):
                    row[8] += places[y] - places[x] == y - x
        for number, distance in enumerate(distances):
            for x in range(n - distance):
                row[9 + number] += places[x + distance] - places[x] == distance
    return found


def expected_means(n: int) -> dict[str, float]:
    """The mean of each column of `measure` over all n! permutations, in the same order."""
    pairs = n * (n - 1)
    values = pairs // 2  # the sum of range(n)
    squares = pairs * (2 * n - 1) // 6  # and of its squares
    means = {
        "cycles": math.fsum(1 / k for k in range(1, n + 1)),
        "fixed": 1.0,
        "ascents": (n - 1) / 2,
        "turns": 2 * (n - 2) / 3,
        "steps": (n - 1) * (n + 1) / 3,
        "neighbors": (n - 1) * (values**2 - squares) / pairs,
        "values": n * ((n - 1) / 2) ** 2,
        "even": 0.5,
        "kept all": sum((n - d) ** 2 for d in range(1, n)) / pairs,
    }
    return means | {f"kept {d}": (n - d) ** 2 / pairs for d in distances_of(n)}


def distances_of(n: int) -> list[int]:
    return [distance for distance in DISTANCES if distance < n]


def cycle_chances(n: int) -> Chances:
    """The chance of k cycles, k = 0 .. n: put in one by one, x is alone with chance 1 / (x + 1)."""
    chances = np.zeros(n + 1)
    chances[0] = 1
    for x in range(n):
        chances[1:] = chances[1:] * (x / (x + 1)) + chances[:-1] / (x + 1)
        chances[0] *= x / (x + 1)
    return chances


def ascent_chances(n: int) -> Chances:
    """The chance of k ascents, k = 0 .. n - 1: Euler's numbers over n!.

    The next largest number is put in somewhere, at an ascent or at the front: no ascent more.
    """
    chances = np.zeros(n)
    chances[0] = 1
    ascents = np.arange(n)
    for size in range(2, n + 1):
        kept = chances * (ascents + 1) / size
        chances = kept + np.append(0, (chances * (size - 1 - ascents))[:-1]) / size
    return chances


def fixed_chances(n: int) -> Chances:
    """The chance of k fixed points, k = 0 .. n; beyond 30 they are below 10**-30 and left out."""
    chances = []
    for k in range(min(n, 30) + 1):
        others = math.fsum(
            (-1) ** j / math.factorial(j) for j in range(min(n - k, 30) + 1)
        )
        chances.append(others / math.factorial(k))
    return np.array(chances)


def z_test(total: float, squares: float, count: int) -> float | None:
    """The p-value, two-sided, that the mean of `count` deviations is 0; None where all are 0.

    Args:
        total, squares: the sums of the deviations and of their squares.
    """
    deviation = total / count
    variance = squares / count - deviation**2
    if variance < 1e-9:
        return None if abs(deviation) < 1e-9 else 0.0
    z = deviation / math.sqrt(variance / count)
    return math.erfc(abs(z) / math.sqrt(2))


def chi_square(tally: Counts, chances: Chances) -> float | None:
    """The p-value of a tally [bins] of things with these chances [bins]; None for a single bin."""
    expected = chances * tally.sum()
    rare = expected < RARE
    if rare.any():
        tally = np.append(tally[~rare], tally[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if (
            expected[-1] < RARE and len(expected) > 1
        ):  # they join the smallest of the others
            other = int(np.argmin(expected[:-1]))
            tally[other] += tally[-1]
            expected[other] += expected[-1]
            tally, expected = tally[:-1], expected[:-1]
    if len(expected) < 2:
        return None
    deviation = float(((tally - expected) ** 2 / expected).sum())
    half = torch.tensor([(len(expected) - 1) / 2, deviation / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


class Joint:
    """The places of two numbers: a tally of pairs of bins, equally wide but for rounding."""

    def __init__(self, n: int, x: int, y: int) -> None:
        self.x = x
        self.y = y
        self.bins = min(n, BINS)
        self.bin_of = np.arange(n) * self.bins // n
        width = np.bincount(self.bin_of)
        ways = np.outer(width, width) - np.diag(width)  # pairs of different places
        self.chances = ways.ravel() / (n * (n - 1))
        self.tally = np.zeros(self.bins**2, dtype=np.int64)

    def add(self, block: Permutations) -> None:
        pairs = (
            self.bin_of[block[:, self.x]] * self.bins + self.bin_of[block[:, self.y]]
        )
        self.tally += np.bincount(pairs, minlength=len(self.tally))

    def p_value(self) -> float | None:
        possible = self.chances > 0
        return chi_square(self.tally[possible], self.chances[possible])


class Sample:
    """Permutations of range(n), counted block by block."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.count = 0
        self.means = expected_means(n)
        self.sums = np.zeros(
            (3, len(self.means))
        )  # of deviations, their squares and 4th powers
        self.chances = {
            "cycles": cycle_chances(n),
            "fixed": fixed_chances(n),
            "ascents": ascent_chances(n),
        }
        self.tallies = {name: np.zeros(n + 1, dtype=np.int64) for name in self.chances}
        self.joints = [
            Joint(n, x, y) for x, y in sorted({(0, 1), (0, n // 2), (n - 2, n - 1)})
        ]
        self.whole = np.zeros(n**n if n <= ALL else 0, dtype=np.int64)

    def add(self, block: Permutations) -> None:
        n = self.n
        found = measure(block, np.array(distances_of(n)), n <= ALL_DISTANCES)
        deviations = found - np.array(list(self.means.values()))
        self.count += len(block)
        self.sums += [(deviations**power).sum(axis=0) for power in (1, 2, 4)]
        for name, tally in self.tallies.items():
            column = list(self.means).index(name)
            tally += np.bincount(found[:, column], minlength=n + 1)
        for joint in self.joints:
            joint.add(block)
        if n <= ALL:
            self.whole += np.bincount(block @ n ** np.arange(n), minlength=n**n)

    def p_values(self) -> dict[str, float]:
        """The p-value of each test that can fail."""
        results = self.p_values_of_means()
        for name, tally in self.tallies.items():
            chances = self.chances[name]
            results[f"{name}, distribution"] = chi_square(
                tally[: len(chances)], chances
            )
        for joint in self.joints:
            results[f"joint {joint.x} {joint.y}"] = joint.p_value()
        if self.n <= ALL:
            every = math.factorial(self.n)
            drawn = self.whole[self.whole > 0]
            tally = np.append(drawn, np.zeros(every - len(drawn), dtype=np.int64))
            results["all"] = chi_square(tally, np.full(every, 1 / every))
        return {name: p for name, p in results.items() if p is not None}

    def p_values_of_means(self) -> dict[str, float | None]:
        results: dict[str, float | None] = {}
        for column, name in enumerate(self.means):
            if name != "kept all" or self.n <= ALL_DISTANCES:
                results[name] = z_test(
                    self.sums[0, column], self.sums[1, column], self.count
                )
        _, squares, fourth = self.sums[:, list(self.means).index("values")]
        variance = (self.n * (self.n**2 - 1) / 12) ** 2 / (
            self.n - 1
        )  # of the sum of x p[x]
        total = squares / variance - self.count
        total_squares = fourth / variance**2 - 2 * squares / variance + self.count
        results["values, squared"] = z_test(total, total_squares, self.count)
        return results


def after_holm(values: Sequence[float]) -> list[float]:
    """Holm's correction: the k-th smallest of m p-values, k from 0, counts m - k times."""
    order = np.argsort(values)
    corrected = np.empty(len(values))
    largest = 0.0
    for rank, number in enumerate(order):
        own = min(1.0, values[number] * (len(values) - rank))
        largest = max(largest, own)
        corrected[number] = largest
    return corrected.tolist()


def battery(
    draw: Draw, sizes: Sequence[int], keys: int, seed: int
) -> dict[tuple[int, str], float]:
    """The p-value after Holm of each (n, test)."""
    raw: dict[tuple[int, str], float] = {}
    for n in sizes:
        sample = Sample(n)
        for block in draw(n, keys, seed):
            sample.add(block)
        for name, p in sample.p_values().items():
            raw[n, name] = p
    return dict(zip(raw, after_holm(list(raw.values())), strict=True))


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument(
        "--keys", type=int, default=400_000, help="permutations of each size"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    versions = {name: version(name) for name in ("numpy", "numba", "torch")}
    result = {
        "command": command("permutation"),
        "versions": {"python": platform.python_version()} | versions,
        "keys": options.keys,
        "seed": options.seed,
    }
    for name, draw in {"permute": ours, "PCG64": numpys}.items():
        found = battery(draw, options.sizes, options.keys, options.seed)
        result[name] = summary(found)
        low = sum(p < 0.01 for p in found.values())
        print(f"{name}: {len(found)} tests, {low} below 0.01 after Holm", flush=True)
    save(result, options.output)


def summary(found: dict[tuple[int, str], float]) -> dict[str, Any]:
    """The number of tests, the smallest p-value after Holm, and all of them by n."""
    sizes: dict[int, dict[str, float]] = {}
    for (n, test), p in found.items():
        sizes.setdefault(n, {})[test] = float(f"{p:.3g}")
    return {"tests": len(found), "smallest": min(found.values()), "p_after_holm": sizes}


if __name__ == "__main__":
    main()
