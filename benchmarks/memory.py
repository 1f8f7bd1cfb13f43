"""What reading a huge file does to a process's memory: `python -m benchmarks.memory --gigabytes 4`.

Random rows of 2,048 tokens are read for `--seconds`, by each way in a process of its own, and the resident memory is
noted as the kernel splits it: anonymous (the process's own, which counts against it) and file-backed (pages of the
file's cache that are mapped; clean, shared, and taken back when memory is short).

    a kept map                          the file mapped once
    a kept map without read-ahead       the same after MADV_RANDOM: a missing page brings no others with it
    rebuilt                             Nanotron's way: the file mapped anew for every sample
    preadv                              a system call per row into one buffer, widened in one go
    nanoset_ref                         its loader; a file larger than memory it reads past the page cache
    nanoset_ref through the page cache  pread at the first visit of a place, a mapping that is kept at the next ones

The file is sparse: it takes no disk, so nothing is waited for and rows per second of the processor compare the ways on
a busy machine too. But its pages take page cache as any other's, and the kernel reads ahead in it: `--read-ahead-kb`
sets how far for the run (root). To see the process read a file larger than what may stay resident,
give less memory to the process: `systemd-run --user --scope -p MemoryMax=1G python -m benchmarks.memory --gigabytes 8`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cold import read_ahead
from benchmarks.record import allowed_mib, command, machine, save

SEQUENCE_LENGTH = 2048
BATCH = 8
WARM_UP = 65  # batches; nanoset_ref reads its first 512 rows without a compiled kernel


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gigabytes", type=float, default=4, help="size of the file (GiB)"
    )
    parser.add_argument("--seconds", type=float, default=20, help="per way of reading")
    parser.add_argument(
        "--read-ahead-kb", type=int, help="of the device (default: as it is)"
    )
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
        "machine": machine(),
        "load_average_before": round(os.getloadavg()[0], 1),
        "file_mib": round(options.gigabytes * 1024),
        "allowed_mib": allowed_mib(),
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "sparse_input_ids.npy"
        with open(path, "wb") as file:
            file.truncate(round(options.gigabytes * 2**30))
        with read_ahead(Path(folder), options.read_ahead_kb) as kilobytes:
            result["read_ahead_kb"] = kilobytes
            result["ways"] = {way: in_child(way, path, options.seconds) for way in WAYS}
    save(result, options.output)


def in_child(way: str, path: Path, seconds: float) -> list[dict[str, float]]:
    """`read` in a process of its own, which begins with none of the file in memory."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    child = [sys.executable, "-m", "benchmarks.memory", "--seconds", str(seconds)]
    output = subprocess.run(
        [*child, "--child", way, str(path)], check=True, capture_output=True, text=True
    )
    points: list[dict[str, float]] = json.loads(output.stdout)
    last = points[-1]
    print(
        f"{way:35} {last['rows']:10,} rows, {last['rows'] / last['cpu_seconds']:9,.0f} a second of the processor; "
        f"anonymous {points[0]['anonymous_mib']:.0f} -> {last['anonymous_mib']:.0f} MiB, "
        f"file-backed {points[0]['file_mib']:.0f} -> {max(p['file_mib'] for p in points):.0f} MiB at most",
        flush=True,
    )
    return points


def read(way: str, path: Path, seconds: float) -> list[dict[str, float]]:
    """What is resident (MiB) after so many rows and seconds, by the clock and of the processor."""
    pull = WAYS[way](path)
    for _ in range(WARM_UP):
        pull()
    rows, points = 0, [{"rows": 0, "seconds": 0.0, "cpu_seconds": 0.0, **resident()}]
    begin, begin_cpu = time.perf_counter(), time.process_time()
    while points[-1]["seconds"] < seconds:
        until = time.perf_counter() + seconds / 40
        while time.perf_counter() < until:
            pull()
            rows += BATCH
        spent = {
            "seconds": round(time.perf_counter() - begin, 2),
            "cpu_seconds": round(time.process_time() - begin_cpu, 2),
        }
        points.append({"rows": rows, **spent, **resident()})
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


def ours_through_the_page_cache(path: Path) -> Callable[[], Any]:
    os.environ["NANOSET_REF_DIRECT"] = "0"
    return ours(path)


def samples_of(path: Path) -> Iterator[int]:
    """All samples of a file in random order, again and again."""
    samples = (path.stat().st_size // 2 - 1) // SEQUENCE_LENGTH
    return itertools.cycle(np.random.default_rng(0).permutation(samples).tolist())


def kept(path: Path, advice: int = mmap.MADV_NORMAL) -> Callable[[], Any]:
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapping.madvise(advice)
    ids, at = np.frombuffer(mapping, dtype=np.uint16), samples_of(path)

    def pull() -> Any:
        starts = [next(at) * SEQUENCE_LENGTH for _ in range(BATCH)]
        rows = [ids[start : start + SEQUENCE_LENGTH + 1] for start in starts]
        return np.stack([row.astype(np.int32) for row in rows])

    return pull


def kept_without_read_ahead(path: Path) -> Callable[[], Any]:
    return kept(path, mmap.MADV_RANDOM)


def rebuilt(path: Path) -> Callable[[], Any]:
    from benchmarks.peers import Restated, RestatedCollator

    samples = (path.stat().st_size // 2 - 1) // SEQUENCE_LENGTH
    order = np.random.default_rng(0).permutation(samples)
    dataset, collate = Restated(path, SEQUENCE_LENGTH, order), RestatedCollator()
    at = iter(range(10**12))
    return lambda: collate([dataset[next(at) % samples] for _ in range(BATCH)])


def preadv(path: Path) -> Callable[[], Any]:
    descriptor, at = os.open(path, os.O_RDONLY), samples_of(path)
    narrow = np.empty((BATCH, SEQUENCE_LENGTH + 1), dtype=np.uint16)

    def pull() -> Any:
        for row in narrow:
            os.preadv(descriptor, [row], next(at) * SEQUENCE_LENGTH * 2)
        return narrow.astype(np.int32)

    return pull


WAYS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "a kept map": kept,
    "a kept map without read-ahead": kept_without_read_ahead,
    "rebuilt": rebuilt,
    "preadv": preadv,
    "nanoset_ref": ours,
    "nanoset_ref through the page cache": ours_through_the_page_cache,
}

if __name__ == "__main__":
    main()
