"""How `benchmarks.reading` times batches: a Pull delivers so many and says how long it took, by two clocks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.peers import Tokens, endless
from nanoset_ref.load.blocks import batches_per_block
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.gather import PageCacheGatherer
from nanoset_ref.load.gather_kernel import REGION_BYTES
from nanoset_ref.load.nanoset import Nanoset

BATCH = 8
RUN = 10**9  # samples: no run ends

CLOCKS = {"wall": time.perf_counter, "process": time.process_time}

Seconds = dict[str, float]  # by clock
Pull = Callable[[int], Seconds]  # deliver so many batches and say how long it took


@contextlib.contextmanager
def timed(seconds: Seconds) -> Iterator[None]:
    """Adds what the block takes."""
    begun = {clock: now() for clock, now in CLOCKS.items()}
    yield
    for clock, now in CLOCKS.items():
        seconds[clock] = seconds.get(clock, 0.0) + now() - begun[clock]


def from_iterator(batches: Iterator[Any]) -> Pull:
    def pull(count: int) -> Seconds:
        with timed(seconds := {}):
            for _ in range(count):
                next(batches)
        return seconds

    return pull


def visit(nanoset: Nanoset) -> None:
    """Visit every window of the files twice, so that all are mapped."""
    for number, file in enumerate(nanoset.files):
        starts = np.arange(0, file.num_tokens - 8, REGION_BYTES // 4)
        for _ in range(2):
            nanoset._gather(
                np.full(len(starts), number),
                starts,
                np.empty((len(starts), 8), dtype=np.int32),
            )


def first_touch(nanoset: Nanoset) -> Pull:
    """The files opened anew, so that nothing was visited, as soon as an eighth of their windows might have been."""
    row_bytes, file_bytes = (
        2 * nanoset.row_length,
        sum(2 * file.num_tokens for file in nanoset.files),
    )
    at_once = file_bytes // (row_bytes + REGION_BYTES) // 8 // BATCH
    batches = endless(build_nanoset_dataloader(nanoset, micro_batch_size=BATCH))

    def pull(count: int) -> Seconds:
        seconds: Seconds = {}
        for done in range(0, count, at_once):
            nanoset._gather = PageCacheGatherer(nanoset.files)
            with timed(seconds):
                for _ in range(min(count - done, at_once)):
                    next(batches)
        return seconds

    return pull


def gather_alone(nanoset: Nanoset, visited: list[Nanoset]) -> Pull:
    rows = BATCH * batches_per_block(BATCH * 4 * nanoset.row_length, 3)
    visited.append(nanoset)
    buffers = [np.zeros((rows, nanoset.row_length), dtype=np.int32) for _ in range(2)]
    random = np.random.default_rng(0)
    files = np.zeros(rows, dtype=np.int64)

    def pull(count: int) -> Seconds:
        blocks = -(-count * BATCH // rows)
        starts = (
            random.integers(0, nanoset.dataset_lengths[0], (blocks, rows))
            * nanoset.sequence_length
        )
        with timed(seconds := {}):
            for block in range(blocks):
                nanoset._gather(files, starts[block], buffers[block % 2])
        return {
            clock: taken * count * BATCH / (blocks * rows)
            for clock, taken in seconds.items()
        }

    return pull


def memcpy(tokens: Tokens, sequence_length: int) -> Pull:
    ids = tokens.ids()[: tokens.num_tokens // 2].astype(np.int32)
    rows = ids[: len(ids) // sequence_length * sequence_length].reshape(
        -1, sequence_length
    )
    out = np.zeros((BATCH, sequence_length), dtype=np.int32)
    random = np.random.default_rng(0)

    def pull(count: int) -> Seconds:
        starts = random.integers(0, len(rows) - BATCH, count).tolist()
        with timed(seconds := {}):
            for start in starts:
                np.copyto(out, rows[start : start + BATCH])
        return seconds

    return pull
