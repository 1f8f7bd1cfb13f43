"""What several benchmarks need: interleaved rounds, and what a committed result says besides its figures."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any


def interleaved(
    candidates: dict[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Seconds that each candidate takes in each round. They take turns, so that noise meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def timed_process(
    words: list[str], folder: Path, environment: dict[str, str], code: int = 0
) -> tuple[str, float, float]:
    """Run a process: its output, its time by the clock, and its user and system time, in seconds.

    The times of a process that ends with another exit code are NaN, and the last line of its errors is printed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True
    )
    clock = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        print(f"{words} fails: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return "", float("nan"), float("nan")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return done.stdout, clock, cpu


def medians(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure, and the least and the most of those that are not the same in every round."""
    row: dict[str, Any] = {}
    for name in rounds[0]:
        values = [figures[name] for figures in rounds]
        row[name] = statistics.median(values)
        if min(values) < max(values):
            row[f"{name}_least_most"] = [min(values), max(values)]
    return row


def command(benchmark: str) -> str:
    """How to measure again; where the files were is nobody's affair."""
    words = sys.argv[1:]
    for option in ("--folder", "--output", "--most"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    return f"python -m benchmarks.{benchmark} {shlex.join(words)}".rstrip()


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = next(
        (
            line
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        ":unknown",
    )
    versions = {
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }
    return {"cpu": cpu.split(":")[1].strip(), "cores": os.cpu_count(), **versions}


def allowed_mib() -> int:
    """The memory that this process may use: the machine's, or less where its control group has a limit."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        folder = Path("/sys/fs/cgroup") / controllers / group.lstrip("/")
        for file in (
            folder / "memory.max",
            folder / "memory.limit_in_bytes",
        ):  # cgroup 2, cgroup 1
            if file.exists() and (limit := file.read_text().strip()).isdigit():
                limits.append(int(limit))
    return min(limits) >> 20


@contextlib.contextmanager
def bucket(folder: Path, latency: int) -> Iterator[str]:
    """The address of a server (tests/bucket_server.py) of a folder's files that answers so many milliseconds late."""
    server = Path(__file__).parent.parent / "tests" / "bucket_server.py"
    words = [sys.executable, str(server), str(folder), str(latency / 1000)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def bytes_sent(url: str) -> int:
    """By that server in answers to GET, those included that are on their way."""
    with urllib.request.urlopen(f"{url}/sent") as answer:
        return int(answer.read())


def save(result: dict[str, Any], path: Path | None) -> None:
    """As JSON, if there is a path."""
    if path:
        path.write_text(json.dumps(result, indent=1) + "\n")
