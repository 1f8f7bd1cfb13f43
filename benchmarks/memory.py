"""What reading a huge file does to a process's memory: `python -m benchmarks.memory --gigabytes 4`.

Random rows of 2,048 tokens are read for `--seconds`, by each way in a process of its own, and the resident memory is
noted as the kernel splits it: anonymous (the process's own, which counts against it) and file-backed (pages of the
file's cache that are mapped; clean, shared, and taken back when memory is short).

    nanoset_ref     its loader: pread at the first visit of a place, a mapping that is kept at the next ones
    rebuilt         Nanotron's way: the file mapped anew for every sample
    preadv          a system call per row into one buffer, widened in one go

The file is sparse: it takes no disk, but its pages take page cache as any other's. To see the process read a file
larger than what may stay resident, give less memory to the process: `systemd-run --user --scope -p MemoryMax=1G python
-m benchmarks.memory --gigabytes 8`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import allowed_mib, command, save

SEQUENCE_LENGTH = 2048
BATCH = 8
WAYS = ("nanoset_ref", "rebuilt", "preadv")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gigabytes", type=float, default=4, help="size of the file (GiB)"
    )
    parser.add_argument("--seconds", type=float, default=20, help="per way of reading")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the file is made, and removed again (default: temporary)",
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    parser.add_argument(
        "--child", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.child:
        print(
            json.dumps(read(options.child[0], Path(options.child[1]), options.seconds))
        )
        return
    result: dict[str, Any] = {
        "command": command("memory"),
        "file_mib": round(options.gigabytes * 1024),
        "allowed_mib": allowed_mib(),
        "ways": {},
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "sparse_input_ids.npy"
        with open(path, "wb") as file:
            file.truncate(round(options.gigabytes * 2**30))
        for way in WAYS:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(
                descriptor, 0, 0, os.POSIX_FADV_DONTNEED
            )  # every way begins with an empty cache
            os.close(descriptor)
            child = [
                sys.executable,
                "-m",
                "benchmarks.memory",
                "--seconds",
                str(options.seconds),
            ]
            output = subprocess.run(
                [*child, "--child", way, str(path)],
                check=True,
                capture_output=True,
                text=True,
            )
            points = result["ways"][way] = json.loads(output.stdout)
            last = points[-1]
            print(
                f"{way:12} {last['rows']:10,} rows, {last['rows'] / last['seconds']:9,.0f} a second; "
                f"anonymous {points[0]['anonymous_mib']:.0f} -> {last['anonymous_mib']:.0f} MiB, "
                f"file-backed {points[0]['file_mib']:.0f} -> {max(p['file_mib'] for p in points):.0f} MiB at most",
                flush=True,
            )
    save(result, options.output)


def read(way: str, path: Path, seconds: float) -> list[dict[str, float]]:
    """What is resident (MiB) after so many rows and seconds."""
    pull = {"nanoset_ref": ours, "rebuilt": rebuilt, "preadv": preadv}[way](path)
    pull()
    rows, points = 0, [{"rows": 0, "seconds": 0.0, **resident()}]
    begin = time.perf_counter()
    while points[-1]["seconds"] < seconds:
        until = time.perf_counter() + seconds / 40
        while time.perf_counter() < until:
            pull()
            rows += BATCH
        points.append(
            {
                "rows": rows,
                "seconds": round(time.perf_counter() - begin, 2),
                **resident(),
            }
        )
    return points


def resident() -> dict[str, float]:
    lines = dict(
        line.split(":")
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":" in line
    )
    return {
        name: round(int(lines[field].split()[0]) / 1024, 1)
        for name, field in (("anonymous_mib", "RssAnon"), ("file_mib", "RssFile"))
    }


def ours(path: Path) -> Callable[[], Any]:
    from nanoset_ref.load.dataloader import build_nanoset_dataloader
    from nanoset_ref.load.nanoset import Nanoset

    nanoset = Nanoset(path, None, SEQUENCE_LENGTH, 10**9, order="stateless")
    batches = iter(build_nanoset_dataloader(nanoset, micro_batch_size=BATCH))
    return lambda: next(batches)


def rebuilt(path: Path) -> Callable[[], Any]:
    from benchmarks.peers import Restated, RestatedCollator

    samples = (path.stat().st_size // 2 - 1) // SEQUENCE_LENGTH
    order = np.random.default_rng(0).permutation(samples)
    dataset, collate = Restated(path, SEQUENCE_LENGTH, order), RestatedCollator()
    at = iter(range(10**12))
    return lambda: collate([dataset[next(at) % samples] for _ in range(BATCH)])


def preadv(path: Path) -> Callable[[], Any]:
    samples = (path.stat().st_size // 2 - 1) // SEQUENCE_LENGTH
    order = np.random.default_rng(0).permutation(samples).tolist()
    descriptor = os.open(path, os.O_RDONLY)
    narrow = np.empty((BATCH, SEQUENCE_LENGTH + 1), dtype=np.uint16)
    at = iter(range(10**12))

    def pull() -> Any:
        for row in narrow:
            os.preadv(
                descriptor, [row], order[next(at) % samples] * SEQUENCE_LENGTH * 2
            )
        return narrow.astype(np.int32)

    return pull


if __name__ == "__main__":
    main()
