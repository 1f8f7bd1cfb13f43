"""Random samples from a disk, the page cache dropped before each measurement: `python -m benchmarks.cold`.

A corpus is larger than memory. What a run sees then is not the page cache but the disk, so here every candidate begins
with none of its files in memory, and nanoset_ref is told to read as from such a corpus (NANOSET_REF_DIRECT=1; it is 0
for "through the page cache"): a process of its own, forked from one that has imported and compiled everything, opens
them, says how long the first batch took, and reads batches of 8 samples at random places for `--seconds`. Rounds are
interleaved. For each candidate:

    samples_per_second
    first           seconds from the opening of the files to the first batch
    amplification   bytes fetched from the device per byte of token ids delivered
    device          what fio reads at random, past the page cache, in blocks of the pages that an unaligned row touches,
                    by the better of two depths: the limit (needs fio)

Candidates: nanoset_ref without workers, with `read_ahead=2`, with 2 workers, and these through the page cache; the
peers of `benchmarks.peers`; a memory map that is kept open; 64 threads of pread. `--read-ahead-kb` sets the kernel's
read-ahead of the device for the run (root): all candidates run with the first one, 128 being the usual one, and those
that depend on it with the others, for example 8192 as on machines made for streaming.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.peers import PEERS, Tokens, endless
from benchmarks.record import command, machine, save

BATCH = 8
OURS = {
    "nanoset_ref": {},
    "nanoset_ref, a thread": {"read_ahead": 2},
    "nanoset_ref, 2 workers": {"num_loading_workers": 2},
    "nanoset_ref through the page cache": {},
    "nanoset_ref through the page cache, 2 workers": {"num_loading_workers": 2},
}
OTHERS = ["nanotron", "megatron", "litdata", "datatrove", "grain", "olmo"]
CANDIDATES = [
    *OURS,
    *OTHERS,
    *(f"{name}, 2 workers" for name in OTHERS[:4]),
    "a kept map",
    "64 threads of pread",
]
BY_READ_AHEAD = [
    *OURS,
    "nanotron",
    "a kept map",
    "64 threads of pread",
]  # all that it may concern
PATIENCE = 120  # seconds that a candidate may take


def batches_of(name: str, tokens: Tokens, sequence_length: int) -> Iterator[Any]:
    """Open a candidate."""
    if name in OURS:
        from nanoset_ref import Nanoset, build_nanoset_dataloader

        os.environ["NANOSET_REF_DIRECT"] = "0" if "page cache" in name else "1"
        nanoset = Nanoset(tokens.path, None, sequence_length, 10**9)
        return endless(
            build_nanoset_dataloader(nanoset, micro_batch_size=BATCH, **OURS[name])
        )
    peer, _, workers = name.partition(", ")
    if peer in PEERS:
        return endless(PEERS[peer](tokens, sequence_length, BATCH, 2 if workers else 0))
    return {"a kept map": kept_map, "64 threads of pread": threads_of_pread}[name](
        tokens, sequence_length
    )


def places(tokens: Tokens, sequence_length: int) -> Iterator[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    last = (tokens.num_tokens - 1) // sequence_length
    return (
        random.integers(0, last, BATCH) * sequence_length for _ in itertools.count()
    )


def kept_map(tokens: Tokens, sequence_length: int) -> Iterator[Any]:
    ids = tokens.ids()
    for starts in places(tokens, sequence_length):
        yield np.stack(
            [
                ids[start : start + sequence_length + 1].astype(np.int32)
                for start in starts
            ]
        )


def threads_of_pread(tokens: Tokens, sequence_length: int) -> Iterator[Any]:
    file = os.open(tokens.path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)

    def read(start: int) -> Any:
        return np.frombuffer(
            os.pread(file, 2 * (sequence_length + 1), 2 * start), np.uint16
        ).astype(np.int32)

    with ThreadPoolExecutor(64) as pool:
        starts = itertools.chain.from_iterable(places(tokens, sequence_length))
        waiting = [pool.submit(read, start) for start in itertools.islice(starts, 128)]
        while True:
            yield np.stack([row.result() for row in waiting[:BATCH]])
            waiting = waiting[BATCH:] + [
                pool.submit(read, start) for start in itertools.islice(starts, BATCH)
            ]


def fetched() -> int:
    """Bytes that this process and its workers have had fetched from a device so far."""
    here = psutil.Process()
    return sum(
        process.io_counters().read_bytes
        for process in [here, *here.children(recursive=True)]
    )


def run_one(
    name: str, folder: Path, num_tokens: int, sequence_length: int, seconds: float
) -> dict[str, float]:
    """What the child process does: time to the first batch, then samples for so many seconds."""
    tokens = Tokens(folder, num_tokens)
    begun = time.perf_counter()
    batches = batches_of(name, tokens, sequence_length)
    next(batches)
    first = time.perf_counter() - begun
    for _ in range(16):  # read-ahead of all kinds fills up
        next(batches)
    bytes_before, begun, count = fetched(), time.perf_counter(), 0
    while (taken := time.perf_counter() - begun) < seconds:
        next(batches)
        count += BATCH
    ids = 2 * count * (sequence_length + 1)
    return {
        "samples_per_second": count / taken,
        "first": first,
        "amplification": (fetched() - bytes_before) / ids,
    }


def drop(folder: Path) -> None:
    """Take all files of a folder out of the page cache; nobody else's."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def device_limit(tokens: Tokens, sequence_length: int, seconds: float) -> float | None:
    """Random reads per second of the pages that a row touches, past the page cache."""
    if shutil.which("fio") is None:
        return None
    pages = (
        2 * (sequence_length + 1) + 4095 + 4094
    ) // 4096  # an unaligned row begins anywhere in its first page
    words = f"fio --name=limit --filename={tokens.path} --readonly --rw=randread --bs={4 * pages}k --direct=1"
    words += f" --ioengine=libaio --numjobs=2 --group_reporting --time_based --runtime={seconds} --output-format=json"
    rates = []
    for depth in (32, 128):
        ran = subprocess.run(
            [*words.split(), f"--iodepth={depth}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rates.append(
            float(json.loads(ran[ran.index("{") :])["jobs"][0]["read"]["iops"])
        )
    return max(rates)


@contextlib.contextmanager
def read_ahead(path: Path, kilobytes: int | None) -> Iterator[int]:
    """The kernel's read-ahead of the device below a path, set for a while; yields what it is."""
    number = os.stat(path).st_dev
    setting = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    setting = next(
        folder / "queue" / "read_ahead_kb"
        for folder in (setting, setting.parent)
        if (folder / "queue").is_dir()
    )
    before = setting.read_text()
    if kilobytes is not None:
        setting.write_text(str(kilobytes))
    try:
        yield int(setting.read_text())
    finally:
        if kilobytes is not None:
            setting.write_text(before)


def imported(folder: Path) -> None:
    """Import and compile what the candidates need, so that their processes, forked from this one, need not."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tokens = Tokens(folder, 100_000)
    for name in CANDIDATES:
        with contextlib.suppress(ImportError):
            if "workers" not in name:
                next(batches_of(name, tokens, 32))


def forked(
    name: str, tokens: Tokens, sequence_length: int, seconds: float
) -> dict[str, Any]:
    """`run_one` in a process of its own; or why there is no result."""
    drop(tokens.folder)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(PATIENCE)
        try:
            found: dict[str, Any] = run_one(
                name, tokens.folder, tokens.num_tokens, sequence_length, seconds
            )
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.write(write, json.dumps(found).encode())
        for worker in psutil.Process().children(recursive=True):
            worker.kill()
        os._exit(0)  # threads of others need not be waited for
    os.close(write)
    with open(read) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return dict(json.loads(said or '{"error": "no answer"}'))


def measure(
    names: list[str], tokens: Tokens, sequence_length: int, options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    names = [
        name
        for name in names
        if not options.only or any(word in name for word in options.only)
    ]
    for name in names:
        if name in PEERS:
            with contextlib.suppress(ImportError):
                PEERS[name](
                    tokens, sequence_length, BATCH, 0
                )  # makes its copy of the tokens
    for turn in range(options.rounds):
        limit = device_limit(tokens, sequence_length, options.seconds)
        if limit is not None:
            found.setdefault("device", {}).setdefault("samples_per_second", []).append(
                limit
            )
        for name in np.random.default_rng(turn).permutation(names).tolist():
            values = forked(name, tokens, sequence_length, options.seconds)
            if "error" in values:
                print(f"{name} is left out: {values['error']}", file=sys.stderr)
                names.remove(name)
                continue
            for what, value in values.items():
                found.setdefault(name, {}).setdefault(what, []).append(
                    float(f"{value:.4g}")
                )
    return found


def report(
    kilobytes: int, sequence_length: int, found: dict[str, dict[str, list[float]]]
) -> None:
    def middle(name: str, what: str) -> float:
        return statistics.median(found.get(name, {}).get(what, [float("nan")]))

    print(
        f"\nsequence length {sequence_length}, batch {BATCH}, read-ahead {kilobytes} KiB: samples/s from a cold disk"
    )
    print(
        f"{'':48}{'samples/s':>10}{'x nanotron':>12}{'of device':>11}{'fetched':>9}{'first, s':>10}"
    )
    for name in sorted(found, key=lambda name: -middle(name, "samples_per_second")):
        rate = middle(name, "samples_per_second")
        shares = (
            rate / middle("nanotron", "samples_per_second"),
            rate / middle("device", "samples_per_second"),
        )
        rest = f"{middle(name, 'amplification'):9.1f}{middle(name, 'first'):10.2f}"
        print(
            f"{name:48}{rate:10,.0f}{shares[0]:12.1f}{shares[1]:11.2f}{rest}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sequence-lengths", type=int, nargs="+", default=[512, 2048, 8192]
    )
    parser.add_argument(
        "--megabytes", type=int, default=6144, help="size of the token file"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="per candidate and round"
    )
    parser.add_argument(
        "--only", nargs="+", help="candidates that contain one of these words"
    )
    parser.add_argument(
        "--read-ahead-kb", type=int, nargs="+", help="of the device (default: as it is)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="on the disk to measure; keeps the files (default: temporary)",
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        imported(Path(temporary))
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        tokens = Tokens(folder, options.megabytes << 19)
        result: dict[str, Any] = {
            "command": command("cold"),
            "machine": machine(),
            "batch_size": BATCH,
        }
        result |= {"megabytes": options.megabytes, "by_read_ahead_kb": {}}
        for turn, asked in enumerate(options.read_ahead_kb or [None]):
            with read_ahead(folder, asked) as kilobytes:
                found = result["by_read_ahead_kb"][kilobytes] = {}
                for sequence_length in options.sequence_lengths:
                    names = BY_READ_AHEAD if turn else CANDIDATES
                    found[str(sequence_length)] = measure(
                        names, tokens, sequence_length, options
                    )
                    report(kilobytes, sequence_length, found[str(sequence_length)])
    save(result, options.output)


if __name__ == "__main__":
    main()
