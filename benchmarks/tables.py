"""README's tables of speeds, from `benchmarks/results`: `python -m benchmarks.tables` writes them into README.

A table stands between `<!-- benchmarks: name -->` and the next `<!-- end -->`; a test holds README to it.
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
    "memcpy": "*the limit: copying memory*",
    "device": "*the limit: the disk, by fio*",
    "the limit": "*the limit: obstore alone*",
}
LIMITS = ("memcpy", "device", "the limit")
WORKERS = ", 2 workers"


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The median over the rounds of the ratios within a round."""
    return statistics.median(value / other for value, other in zip(values, others, strict=False))


def two_columns(
    by_length: Mapping[str, Mapping[str, Sequence[float]]], unit: str, digits: int
) -> str:
    """Rates without workers and with 2 of them, at each sequence length, as multiples of `unit` without workers.

    Args:
        by_length: sequence length -> candidate -> its rate in each round.
        unit: the candidate that is 1; one of `LIMITS` in all columns, another in its own half.
        digits: behind the point.
    """

    def cell(candidates: Mapping[str, Sequence[float]], name: str, workers: str) -> str:
        measured = candidates.get(name + workers)
        one = candidates[unit if unit in LIMITS else unit + workers]
        return "" if measured is None else f"{ratio(measured, one):.{digits}f}"

    lengths = [f"{int(length):,}" for length in by_length]
    first = next(iter(by_length.values()))
    names = [name for name in first if not name.endswith(WORKERS)]
    names.sort(
        key=lambda n: (
            n not in LIMITS,
            not n.startswith("nanoset_ref"),
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
    without = ("nanoset_ref, stateless order", "nanoset_ref, two files", "gather alone")
    rates = {
        length: {name: clocks["wall"] for name, clocks in candidates.items() if name not in without}
        for length, candidates in result["million_tokens_per_second"].items()
    }
    return two_columns(rates, "nanotron", 1)


def cold(result: Mapping[str, Any]) -> str:
    by_length = next(iter(result["by_read_ahead_kb"].values()))
    rates = {
        length: {name: found["samples_per_second"] for name, found in candidates.items()}
        for length, candidates in by_length.items()
    }
    return two_columns(rates, "device", 3)


def bucket(result: Mapping[str, Any]) -> str:
    latencies = result["by_latency"]
    lengths = list(next(iter(latencies.values())))
    heads = [f"{latency}, {int(length):,}" for latency in latencies for length in lengths]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in ("the limit", "nanoset_ref"):
        found = [latencies[latency][length][name] for latency in latencies for length in lengths]
        rates = [f"{figures['million_tokens_per_second']:.1f}" for figures in found]
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
        "spread (163: global shuffle)",
        "seconds to the first batch at 0, 50, 90%",
        "exact there",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, found in result["streamers"].items():
        if "error" in found:
            lines.append(f"| {NAMES.get(name, name)} | did not run |{' |' * (len(heads) - 2)}")
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
            ", ".join(f"{found[f'seconds_to_first_batch_at_{share}']:.2f}" for share in shares)
        )
        cells.append(", ".join("yes" if found[f"exact_at_{share}"] else "no" for share in shares))
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

    return re.sub(r"(<!-- benchmarks: (\w+) -->)\n.*?<!-- end -->", table, text, flags=re.S)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
