"""A right loader under all laws, many times with another seed of the search: no finding is an alarm that is false.

    python -m benchmarks.laws.false_alarms --runs 1000

It goes on where benchmarks/results/laws.json ends, and begins with the planted faults where that has none of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nanoset_ref.laws import check

HERE = Path(__file__).parent.parent
sys.path.insert(0, str(HERE.parent / "tests"))

from laws.mutants import FAULTS, adapter_of  # noqa: E402

RESULTS = HERE / "results" / "laws.json"
RIGHT = [{"tail": "drop"}, {"most_ranks": 7}, {"most_batch": 9}, {"most_rows": 70}]


def faults() -> dict[str, Any]:
    found = {}
    for fault, law in FAULTS.items():
        started = time.perf_counter()
        limit = 2.0 if "hangs" in fault else 20.0
        report = check(adapter_of(fault, limit=limit), laws=[law], budget=60)
        outcome = report.outcomes[law]
        seconds = round(time.perf_counter() - started, 1)
        found[fault] = {"law": law, "found": bool(report.broken), "seconds": seconds}
        found[fault] |= {"words": str(outcome.finding), "case": str(outcome.case)}
        print(fault, found[fault], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results.setdefault("runs", 0)
    results.setdefault("cases", 0)
    results.setdefault("false alarms", [])
    if "faults" not in results:
        results["faults"] = faults()
    results["hypothesis"] = version("hypothesis")
    results["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
    results["month"] = time.strftime("%Y-%m")
    while results["runs"] < options.runs:
        seed = results["runs"]
        adapter = adapter_of(largest=65, **RIGHT[seed % len(RIGHT)])
        report = check(adapter, seed=seed, examples=2, budget=120)
        results["cases"] += sum(outcome.cases for outcome in report.outcomes.values())
        results["false alarms"] += [f"{seed}: {report.line(law)}" for law in report.broken]
        results["runs"] += 1
        if seed % 20 == 19:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(results["runs"], results["cases"], results["false alarms"])


if __name__ == "__main__":
    main()
