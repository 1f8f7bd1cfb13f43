"""Million tokens per second, delivered by public DataLoaders, ours and others': `python -m benchmarks.reading`.

One process and its workers, one thread of torch, all files locked in the page cache. In every round every candidate
delivers batches for `--seconds`, one after the other, so that whatever else the machine does meets all of them; a ratio
is the median over the rounds of the ratios within a round. Two clocks: the wall's, and the processor time of this
process, which says on a busy machine what the wall would say on an idle one, but sees nothing of what worker processes
do. Candidates:

    nanoset_ref             build_nanoset_dataloader, no workers; every place of the file has been visited before
    ..., stateless order    the same without an index
    ..., two files          a weighted blend of the two halves of the tokens
    ..., first touch        nearly every place is visited for the first time (though it is in the page cache)
    ..., a thread           read_ahead=2
    ..., 2 workers          num_loading_workers=2
    nanotron and the other peers, see benchmarks.peers, each without workers and with 2 of its own
    gather alone            no loader: the kernel, into two buffers in turn
    memcpy                  no loader: the bytes delivered, copied from where they lie ready as int32

Beside the rates, the result holds what the steps of a batch cost (microseconds of the process). `--output` keeps it as
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import mmap
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import PEERS, Tokens, endless, nanotron_is_its_own
from benchmarks.pulls import (
    BATCH,
    CLOCKS,
    RUN,
    Pull,
    first_touch,
    from_iterator,
    gather_alone,
    memcpy,
    visit,
)
from benchmarks.record import command, machine, save
from benchmarks.steps import steps
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset

# candidate -> clock -> million tokens per second in each round
Rates = dict[str, dict[str, list[float]]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sequence-lengths", type=int, nargs="+", default=[512, 2048, 8192]
    )
    parser.add_argument(
        "--megabytes", type=int, default=1024, help="size of the token file"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="per candidate and round"
    )
    parser.add_argument(
        "--only", nargs="+", help="candidates that contain one of these words"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keeps the token file and the peers' copies (default: temporary)",
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        (options.folder or Path(folder)).mkdir(parents=True, exist_ok=True)
        tokens = Tokens(options.folder or Path(folder), options.megabytes << 19)
        result: dict[str, Any] = {
            "command": command("reading"),
            "machine": machine(),
            "batch_size": BATCH,
            "megabytes": options.megabytes,
            "nanotron": "its own classes" if nanotron_is_its_own() else "restated",
            "million_tokens_per_second": {},
            "microseconds_per_batch": {},
        }
        for sequence_length in options.sequence_lengths:
            rates = measure(
                tokens, sequence_length, options.rounds, options.seconds, options.only
            )
            report(sequence_length, rates)
            result["million_tokens_per_second"][sequence_length] = rates
            result["microseconds_per_batch"][sequence_length] = steps(
                tokens, sequence_length
            )
    save(result, options.output)


def measure(
    tokens: Tokens,
    sequence_length: int,
    rounds: int,
    seconds: float,
    only: list[str] | None,
) -> Rates:
    """Every candidate that is installed, every round in another order."""
    pulls: dict[str, Pull] = {}
    visited: list[Nanoset] = []
    for name, make in candidates(tokens, sequence_length, visited).items():
        if only and not any(word in name for word in only):
            continue
        try:
            pulls[name] = make()
            pulls[name](100)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    rates: Rates = {name: {clock: [] for clock in CLOCKS} for name in pulls}
    with page_cache(tokens.folder, sequence_length):
        for nanoset in visited:
            visit(nanoset)
        batches = {name: enough(pull, seconds) for name, pull in pulls.items()}
        for number in range(rounds):
            for name in np.random.default_rng(number).permutation(list(pulls)).tolist():
                for clock, taken in pulls[name](batches[name]).items():
                    rates[name][clock].append(
                        round(batches[name] * BATCH * sequence_length / taken / 1e6, 1)
                    )
    return rates


@contextlib.contextmanager
def page_cache(folder: Path, sequence_length: int) -> Iterator[None]:
    """All files of the folder, but for other sequence lengths, are in the page cache and stay there.

    Locked where that is allowed (`ulimit -l`): some systems give pages back that were not used for some seconds.
    """
    system, mappings = ctypes.CDLL(None), []
    for path in folder.rglob("*"):
        of = path.parent.name.rpartition("-")[2]
        if (
            path.is_file()
            and path.stat().st_size
            and (not of.isdigit() or int(of) == sequence_length)
        ):
            with open(path, "rb") as file:
                while file.read(1 << 22):
                    pass
                mappings.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            address = np.frombuffer(mappings[-1], np.uint8).ctypes.data
            system.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mappings[-1])))
    yield
    for mapping in mappings:
        mapping.close()


def enough(pull: Pull, seconds: float) -> int:
    """How many batches take the candidate about so long."""
    batches = 100
    while (taken := pull(batches)["wall"]) < seconds / 2:
        batches *= 2
    return max(1, round(batches * seconds / taken))


def candidates(
    tokens: Tokens, sequence_length: int, visited: list[Nanoset]
) -> dict[str, Callable[[], Pull]]:
    """Name -> something that opens the candidate; a Nanoset that has to be visited before is put into `visited`."""

    def ours(nanoset: Nanoset, **options: Any) -> Pull:
        visited.append(nanoset)
        return from_iterator(
            endless(
                build_nanoset_dataloader(nanoset, micro_batch_size=BATCH, **options)
            )
        )

    def plain(order: str = "nanotron") -> Nanoset:
        return Nanoset(tokens.path, None, sequence_length, RUN, order=order)

    def two_files() -> Nanoset:
        paths = [
            tokens.folder / f"{half}_input_ids.npy" for half in ("first", "second")
        ]
        for path, ids in zip(paths, np.array_split(tokens.ids(), 2), strict=True):
            if not path.exists():
                ids.tofile(path)
        return Nanoset(paths, [0.7, 0.3], sequence_length, RUN)

    def peer(name: str, num_workers: int = 0) -> Pull:
        return from_iterator(
            endless(PEERS[name](tokens, sequence_length, BATCH, num_workers))
        )

    return {
        "nanoset_ref": lambda: ours(plain()),
        "nanoset_ref, stateless order": lambda: ours(plain("stateless")),
        "nanoset_ref, two files": lambda: ours(two_files()),
        "nanoset_ref, first touch": lambda: first_touch(plain()),
        "nanoset_ref, a thread": lambda: ours(plain(), read_ahead=2),
        "nanoset_ref, 2 workers": lambda: ours(plain(), num_loading_workers=2),
        **{name: lambda name=name: peer(name) for name in PEERS},  # type: ignore[misc]
        **{f"{name}, 2 workers": lambda name=name: peer(name, 2) for name in PEERS},  # type: ignore[misc]
        "gather alone": lambda: gather_alone(plain(), visited),
        "memcpy": lambda: memcpy(tokens, sequence_length),
    }


def report(sequence_length: int, rates: Rates) -> None:
    """A table: median, spread, and ratios within rounds to Nanotron and to the best other peer, by both clocks."""
    others = [name for name in PEERS if name in rates and name != "nanotron"]
    best = max(
        others, key=lambda name: statistics.median(rates[name]["wall"]), default=""
    )
    rivals = [name for name in ("nanotron", best) if name in rates]
    print(
        f"\nsequence length {sequence_length}, batch {BATCH}: million tokens per second"
    )
    heads = "".join(f"{'x ' + name:>12}" for name in rivals)
    print(f"{'':30}{'wall':>6} {'quartiles':>11}{heads}{'process':>11}{heads}")
    for name, clocks in sorted(
        rates.items(), key=lambda item: -statistics.median(item[1]["wall"])
    ):
        low, middle, high = np.percentile(clocks["wall"], [25, 50, 75])
        line = f"{name:30}{middle:6.0f} {low:5.0f}-{high:5.0f}"
        line += "".join(
            f"{ratio(clocks['wall'], rates[rival]['wall']):12.1f}" for rival in rivals
        )
        if "workers" not in name:
            line += f"{statistics.median(clocks['process']):11.0f}"
            line += "".join(
                f"{ratio(clocks['process'], rates[rival]['process']):12.1f}"
                for rival in rivals
            )
        print(line, flush=True)


def ratio(values: list[float], others: list[float]) -> float:
    return statistics.median(
        value / other for value, other in zip(values, others, strict=True)
    )


if __name__ == "__main__":
    main()
