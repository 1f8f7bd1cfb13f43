"""The tables of docs/speed.md, from `benchmarks/results`: `python -m benchmarks.tables` writes them into it.

A table stands between `<!-- benchmarks: name -->` and the next `<!-- end -->`; a test holds the page to it.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NAMES = {
    "nanoset_ref": "**nanoset_ref**",
    "nanoset_ref, a thread": "nanoset_ref, read ahead by a thread",
    "nanoset_ref, first touch": "nanoset_ref, every place for the first time",
    "olmo": "OLMo-core",
    "nanotron": "Nanotron",
    "megatron": "Megatron-Core",
    "mosaicml": "mosaicml-streaming",
    "mosaicml, 2 workers": "mosaicml-streaming, 2 workers",
    "memcpy": "*a yardstick: memcpy of the delivered bytes*",
    "gather alone": "nanoset_ref, its gather without a loader",
    "device": "*a yardstick: fio's random reads of the disk*",
    "the limit": "*the limit: obstore alone*",
}
LIMITS = ("memcpy", "device", "the limit")
WORKERS = ", 2 workers"


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The median over the rounds of the ratios within a round."""
    return statistics.median(
        value / other for value, other in zip(values, others, strict=False)
    )


def two_digits(value: float) -> str:
    """A rate or a ratio as its rounds can bear it: 573.3 is 570, 4.72 is 4.7."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:#.2g}"


def machine(result: Mapping[str, Any], rates: Sequence[Sequence[float]]) -> str:
    """The line below a table: where and how it was measured, and how far the rounds lie apart."""
    spreads = []
    for rounds in rates:
        low, middle, high = statistics.quantiles(rounds, n=4, method="inclusive")
        spreads.append((high - low) / middle)
    cpu = result["machine"]["cpu"].replace("(R)", "")
    cores = result["machine"]["cores"]
    return (
        f"\nMeasured on {cpu}, {cores} cores, in {max(map(len, rates))} interleaved rounds; the middle half of the "
        f"rounds spans {statistics.median(spreads):.0%} of the median (the median of all cells; at most "
        f"{max(spreads):.0%})."
    )


def two_columns(
    by_length: Mapping[str, Mapping[str, Sequence[float]]], unit: str
) -> str:
    """Rates without workers and with 2 of them, at each sequence length, as multiples of `unit` without workers.

    Args:
        by_length: sequence length -> candidate -> its rate in each round.
        unit: the candidate that is 1; one of `LIMITS` in all columns, another in its own half.
    """

    def cell(candidates: Mapping[str, Sequence[float]], name: str, workers: str) -> str:
        measured = candidates.get(name + workers)
        one = candidates[unit if unit in LIMITS else unit + workers]
        return "" if measured is None else two_digits(ratio(measured, one))

    lengths = [f"{int(length):,}" for length in by_length]
    first = next(iter(by_length.values()))
    names = [name for name in first if not name.endswith(WORKERS)]
    names.sort(
        key=lambda n: (
            n not in LIMITS,
            n != "gather alone" and not n.startswith("nanoset_ref"),
            -statistics.median(first[n]),
        )
    )
    heads = [
        f"sequence length {lengths[0]}",
        *lengths[1:],
        f"2 workers: {lengths[0]}",
        *lengths[1:],
    ]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        cells = [
            cell(by_length[length], name, workers)
            for workers in ("", WORKERS)
            for length in by_length
        ]
        lines.append(f"| {NAMES.get(name, name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reading(result: Mapping[str, Any]) -> str:
    without = ("nanoset_ref, stateless order", "nanoset_ref, two files")
    rates = {
        length: {
            name: clocks["wall"]
            for name, clocks in candidates.items()
            if name not in without
        }
        for length, candidates in result["million_tokens_per_second"].items()
    }
    rounds = [
        measured for candidates in rates.values() for measured in candidates.values()
    ]
    return two_columns(rates, "nanotron") + "\n" + machine(result, rounds)


def cold(result: Mapping[str, Any]) -> str:
    by_length = next(iter(result["by_read_ahead_kb"].values()))
    rates = {
        length: {
            name: found["samples_per_second"] for name, found in candidates.items()
        }
        for length, candidates in by_length.items()
    }
    rounds = [
        measured for candidates in rates.values() for measured in candidates.values()
    ]
    return two_columns(rates, "device") + "\n" + machine(result, rounds)


def bucket(result: Mapping[str, Any]) -> str:
    latencies = result["by_latency"]
    lengths = list(next(iter(latencies.values())))
    heads = [
        f"{latency}, {int(length):,}" for latency in latencies for length in lengths
    ]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in ("the limit", "nanoset_ref"):
        found = [
            latencies[latency][length][name]
            for latency in latencies
            for length in lengths
        ]
        rates = [two_digits(figures["million_tokens_per_second"]) for figures in found]
        lines.append(f"| {NAMES[name]} | {' | '.join(rates)} |")
    return "\n".join(lines)


def streamers(result: Mapping[str, Any]) -> str:
    """A row per candidate that ran, a line for each that did not."""
    shares = (0, 50, 90)
    heads = [
        "",
        "million tokens/s",
        "bytes fetched per byte, first 256 batches",
        "in an epoch",
        "MiB on the disk",
    ]
    heads += [
        "parts of 256 in the first 256 rows (162: global shuffle)",
        "seconds to the first batch at 0, 50, 90%",
        "exact there",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, found in result["streamers"].items():
        if "error" in found:
            lines.append(
                f"| {NAMES.get(name, name)} | did not run |{' |' * (len(heads) - 2)}"
            )
            continue
        fetched = (
            f"{found[f'fetched_per_byte_{when}']:.1f}"
            for when in ("first_256_batches", "of_the_epoch")
        )
        cells = [
            f"{found['million_tokens_per_second']:.1f}",
            *fetched,
            f"{found['disk_mib']:,.0f}",
            f"{found['places']}",
        ]
        cells.append(
            ", ".join(
                f"{found[f'seconds_to_first_batch_at_{share}']:.2f}" for share in shares
            )
        )
        cells.append(
            ", ".join("yes" if found[f"exact_at_{share}"] else "no" for share in shares)
        )
        lines.append(f"| {NAMES.get(name, name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "reading": reading,
    "cold": cold,
    "bucket": bucket,
    "streamers": streamers,
}


def filled(text: str) -> str:
    """The text with every table as its committed result has it; empty where there is none."""

    def table(found: re.Match[str]) -> str:
        path = RESULTS / f"{found[2]}.json"
        lines = (
            [found[1], TABLES[found[2]](json.loads(path.read_text()))]
            if path.exists()
            else [found[1]]
        )
        return "\n".join([*lines, "<!-- end -->"])

    return re.sub(
        r"(<!-- benchmarks: (\w+) -->)\n.*?<!-- end -->", table, text, flags=re.S
    )


if __name__ == "__main__":
    page = ROOT / "docs" / "speed.md"
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
