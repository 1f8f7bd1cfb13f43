"""Put other people's loaders to the laws, and record what was found.

    python -m benchmarks.laws.record --only grain litData          # in an environment that has them
    MAXTEXT=../maxtext python -m benchmarks.laws.record --only MaxText         # see `checkouts`

The results are merged into benchmarks/results/laws_peers.json: loader, versions, machine, month, the laws, and for each
that is broken the smallest case. The search is the same for a seed, unless the budget ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.laws.checkouts import CHECKOUTS, commit
from benchmarks.laws.peers import PEERS
from nanoset_ref.laws import check

RESULTS = Path(__file__).parent.parent / "results" / "laws_peers.json"
ADAPTERS = "https://github.com/nanoset-ref/nanoset_ref/blob/main/benchmarks/laws"  # their files
SHOWN = [  # in the short table
    "HF datasets, streaming (datasets 5.2.0)",
    "MaxText OLMo loader, several hosts (MaxText e591f30cbb)",
    "Megatron-LM cyclic sampler, --no-data-sharding (Megatron-LM d98e8a64dd)",
    "Nanotron 2024 Nanoset, three sources with weights (Nanotron 2024 395a4dbbd9)",
    "accelerate skip_first_batches (accelerate 1.15.0)",
    "grain MapDataset.shuffle (grain 0.2.18)",
]
PACKAGES = {
    "torch D": "torch",
    "torchdata": "torchdata torch",
    "HF": "datasets",
    "accelerate": "accelerate torch",
    "grain": "grain",
    "litData": "litdata torch",
    "OLMo-core": "ai2-olmo-core torch",
    "mosaicml": "mosaicml-streaming torch",
}


def versions(name: str) -> dict[str, str]:
    for system in CHECKOUTS:
        if name.startswith(system):
            return {system: commit(system)}
    found = {}
    for prefix, packages in PACKAGES.items():
        for package in packages.split() if name.startswith(prefix) else ():
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "unknown"
    return found


def judged() -> list[tuple[str, dict[str, Any]]]:
    """(key, record) of each loader, those that broke a law first."""
    results = json.loads(RESULTS.read_text())
    # keeps the order of the names
    return sorted(results.items(), key=lambda item: not broken(item[1]))


def named(key: str) -> str:
    """The first two cells of a row: the loader, with a link to its adapter, and its version."""
    loader, _, package = key.rpartition(" (")
    file = "checkouts" if loader.startswith(tuple(CHECKOUTS)) else "peers"
    loader = loader.replace("--no-data-sharding", "`--no-data-sharding`")
    return f"[{loader}]({ADAPTERS}/{file}.py) | {package[:-1]}"


def broken(record: dict[str, Any]) -> list[str]:
    laws = record["laws"].items()
    return [law for law, outcome in laws if outcome["status"] == "broken"]


def smallest_case(record: dict[str, Any]) -> str:
    """The first broken law and its smallest case."""
    law = broken(record)[0]
    return f"`{law}`: {record['laws'][law]['finding']['message']}"


def table() -> str:
    """The results as a table of Markdown."""
    lines = [
        "| loader | version | broken law: the smallest case found | laws held |",
        "|---|---|---|---|",
    ]
    for key, record in judged():
        laws = record["laws"]
        held = [
            f"`{law}`" + (f" ({outcome['cases']} cases)" if outcome["late"] else "")
            for law, outcome in laws.items()
            if outcome["status"] == "holds"
        ]
        case = smallest_case(record) if broken(record) else "-"
        others = broken(record)[1:]
        if others:
            case += f"; and `{'` `'.join(others)}`"
        lines.append(f"| {named(key)} | {case} | {' '.join(held)} |")
    return "\n".join(lines)


def short_table() -> str:
    """A broken law of each of `SHOWN`."""
    lines = [
        "| loader | version | tested | broken law: the smallest case found |",
        "|---|---|---|---|",
    ]
    for key, record in judged():
        if key in SHOWN:
            month, case = record["month"], smallest_case(record)
            lines.append(f"| {named(key)} | {month} | {case} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument(
        "--laws",
        nargs="+",
        help="judge these only, and keep what is known of the others",
    )
    parser.add_argument(
        "--table", action="store_true", help="print what is recorded, and judge nothing"
    )
    options = parser.parse_args()
    if options.table:
        print(f"{table()}\n\n{short_table()}")
        return
    chosen = [name for name in PEERS if any(part in name for part in options.only)]
    for name in chosen:
        report = check(
            PEERS[name],
            laws=options.laws,
            budget=options.budget,
            examples=options.examples,
            limit=180.0,
        )
        record = {
            "versions": versions(name)
            | {"numpy": version("numpy"), "hypothesis": version("hypothesis")},
            "month": time.strftime("%Y-%m"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "laws": json.loads(report.to_json())["laws"],
        }
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        key = f"{name} ({', '.join(f'{a} {b}' for a, b in list(record['versions'].items())[:1])})"
        if options.laws and key in results:
            judged = {law: record["laws"][law] for law in options.laws}
            record["laws"] = results[key]["laws"] | judged
        results[key] = record
        RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
        print(f"== {name}\n{report}\n", flush=True)


if __name__ == "__main__":
    main()
