"""A loader that is right, and small faults that can be planted into it: each is a bug that a real loader has had.

`Loader(..., fault="...")` has one fault. `FAULTS` names for each the law that must find it, and what the loader claims.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoset_ref.laws import LAWS, Adapter, Corpus

PREFETCH = 2  # batches that each worker makes ahead
ALL = " ".join(law for law in LAWS if law != "masks")


class Loader:
    """Batches of row numbers in a shuffled order; the state is the number of rows that all ranks have consumed.

    Workers are imitated: worker w makes the batches w, w + W, ..., and the loader asks each in turn, some ahead.
    """

    def __init__(
        self, rows, rank, world_size, workers, seed, epoch, batch_size, state, fault
    ):
        self.rows, self.rank, self.world_size, self.workers = (
            rows,
            rank,
            world_size,
            workers,
        )
        self.seed, self.epoch, self.batch_size, self.fault = (
            seed,
            epoch,
            batch_size,
            fault,
        )
        self.consumed = 0
        if state is not None:
            self.load_state_dict(state)
        self.resumed = state is not None
        self.reused = np.zeros(batch_size, dtype=np.int64)
        self.drawn = self.permutation() if fault == "index of the corpus" else None
        if fault == "walks from the start":
            time.sleep(rows * 2e-6)

    # ---- the order: a keyed affine map, so that nothing grows with the corpus

    def at(self, position: int) -> int:
        """The row at a position of this epoch."""
        rows, seed, epoch = self.rows, self.seed, self.epoch
        if self.fault == "seed without epoch":
            epoch = 0
        if self.fault == "seed ignored":
            seed = 0
        if self.fault == "seed by rank":
            seed += self.rank
        if self.fault == "seed by worker":
            seed += bool(self.workers)
        if self.fault == "seed by process":
            seed += os.getpid()
        if self.fault == "seed by resume":
            seed += self.resumed
        if self.fault == "no shuffle":
            return position
        if self.fault == "reversed":
            return rows - 1 - position
        if self.fault == "shuffle in blocks":
            block = position // 16 * 16
            size = min(16, rows - block)
            return block + feistel(position - block, size, seed, epoch)
        if self.fault == "draws with replacement":
            return int(np.random.default_rng([seed, epoch, position]).integers(rows))
        if (
            self.fault == "width of the cipher"
            and rows > 64
            and (rows - 1) & (rows - 2) == 0
        ):
            return feistel(position % (rows - 1), rows - 1, seed, epoch)
        if self.fault == "seed changes the rows":
            rows = max(1, rows - seed % 2)
            position %= rows
        return feistel(position, rows, seed, epoch)

    def permutation(self):
        return [float(row) for row in range(self.rows)]

    # ---- ranks

    def batch(self, step: int, start: int) -> list[int]:
        """The positions of this rank at a step, counted from where this loader began."""
        size = self.world_size * self.batch_size
        first = start + step * size
        if self.fault == "ranks overlap":
            offset = first + self.rank * max(1, self.batch_size - 1)
        else:
            offset = first + self.rank * self.batch_size
        left = min(self.batch_size, max(0, self.rows - offset))
        positions = list(range(offset, offset + left))
        if self.fault == "all ranks read the same":
            positions = [
                k for k in range(first, first + self.batch_size) if k < self.rows
            ]
        if self.fault == "rank offset by the size of the world":
            positions = [
                k + self.rank // 2 for k in positions if k + self.rank // 2 < self.rows
            ]
        return positions

    def steps(self) -> int:
        size = self.world_size * self.batch_size
        left = self.rows - self.consumed
        steps = left // size
        if (
            self.fault == "tail rounded up on the last rank"
            and self.rank == self.world_size - 1
        ):
            steps = -(-left // size)
        if self.fault == "one batch less":
            steps -= steps > 3
        if self.fault == "tail of each worker lost" and self.workers:
            steps -= steps % self.workers
        return steps

    def __len__(self) -> int:
        if self.fault == "length ignores the tail":
            return -(
                -(self.rows - self.consumed) // (self.world_size * self.batch_size)
            )
        if self.fault == "length of a resume counts rows of the rank":
            left = self.rows - self.consumed // self.world_size
            return left // (self.world_size * self.batch_size)
        return self.steps()

    def order_of_steps(self) -> Sequence[int]:
        """As the workers deliver them."""
        steps = range(self.steps())
        if self.fault == "first worker that is ready" and self.workers > 1:
            return [k for w in range(self.workers) for k in steps[w :: self.workers]]
        if self.fault == "worker offset" and self.workers:
            return [k + (k % self.workers == 1 and k + 1 < len(steps)) for k in steps]
        if self.fault == "workers all read the same" and self.workers > 1:
            return [k // self.workers for k in steps]
        return steps

    # ---- iteration

    def __iter__(self) -> Iterator[Any]:
        size = self.world_size * self.batch_size
        start = self.consumed
        if (
            self.fault == "hangs where ranks are uneven"
            and self.rows % size
            and self.rank
        ):
            time.sleep(60)
        if self.fault == "dies" and self.rows > 12 and self.workers > 1:
            os._exit(9)
        if self.fault == "raises at the last row" and self.rows % size == 0:
            yield from self.deliver(range(self.steps() - 1), start)
            raise IndexError("list index out of range")
        yield from self.deliver(self.order_of_steps(), start)

    def deliver(self, steps: Sequence[int], start: int) -> Iterator[Any]:
        size = self.world_size * self.batch_size
        ahead = self.workers * PREFETCH
        if self.fault == "prefetch counted" and ahead:
            self.consumed = min(self.rows, start + min(ahead, len(steps)) * size)
        buffer: list[int] = []
        for number, step in enumerate(steps):
            rows = [self.at(position) for position in self.batch(step, start)]
            if self.fault == "state before delivery":
                self.consumed = start + number * size
            else:
                self.consumed = max(self.consumed, start + (number + 1) * size)
            if self.fault == "shuffle buffer dropped on resume":
                buffer.append(rows)
                if len(buffer) < 3 and number + 1 < len(steps):
                    continue
                rows = buffer.pop(0)
            if self.fault == "reads past the end":
                rows = [row + (row == self.rows - 1 and self.rows > 7) for row in rows]
            yield self.handed_out(rows)
        for rows in buffer:
            yield self.handed_out(rows)

    def handed_out(self, rows: list[int]) -> Any:
        if self.fault == "buffer handed out twice":
            self.reused[: len(rows)] = rows
            return self.reused[: len(rows)]
        if self.fault == "view of a cache":
            return (
                cached(self.rows)[rows]
                if len(rows) > 1
                else cached(self.rows)[rows[0] : rows[0] + 1]
            )
        return np.array(rows, dtype=np.int64)

    # ---- state

    def state_dict(self) -> dict[str, int]:
        state = {"consumed": self.consumed, "rows": self.rows}
        if self.fault == "state counts since the resume":
            state["consumed"] -= self.base
        if self.fault == "state in the process":
            MEMORY[self.rank] = self.consumed
            state["consumed"] = 0
        if self.fault == "state counts rows of the rank":
            state["consumed"] //= self.world_size
        return state

    base = 0

    def load_state_dict(self, state: dict[str, int]) -> None:
        fault = self.fault
        if state["rows"] != self.rows and fault != "any state is taken":
            raise ValueError("this is a state of other data")
        self.consumed = state["consumed"]
        self.base = self.consumed if fault == "state counts since the resume" else 0
        size = self.world_size * self.batch_size
        if fault == "state in the process":
            self.consumed = MEMORY.get(self.rank, 0)
        if fault == "state counts rows of the rank":
            self.consumed *= self.world_size
        if fault == "resume one row late" and self.consumed > 2 * size:
            self.consumed += size
        if fault == "resume rounds down to ten":
            self.consumed -= self.consumed % (10 * size)
        if fault == "resume forgets the epoch":
            self.epoch = 0
        if (
            fault == "resume begins again at the end"
            and self.consumed + size > self.rows
        ):
            self.consumed = 0


MEMORY: dict[int, int] = {}


def feistel(position: int, rows: int, seed: int, epoch: int) -> int:
    """A keyed permutation of range(rows), by cycle walking."""
    half = max(1, (max(rows - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = position >> half, position & mask
        for key in keys(seed, epoch):
            mixed = (right * 0x9E3779B1 + key) & 0xFFFFFFFF
            mixed = ((mixed ^ (mixed >> 15)) * 0x85EBCA6B) & 0xFFFFFFFF
            left, right = right, left ^ ((mixed >> 13) & mask)
        position = (left << half) | right
        if position < rows:
            return position


@functools.cache
def keys(seed: int, epoch: int) -> list[int]:
    return np.random.SeedSequence([seed, epoch]).generate_state(6).tolist()


@functools.lru_cache(maxsize=4)
def cached(rows: int):
    return np.arange(rows)


def blend(data: Corpus, seed: int, epoch: int, batch_size: int, fault: str | None):
    """Rows of sources by their weights; each source is read through, in another order each time."""
    sizes = np.array(data.rows)
    firsts = np.cumsum([0, *data.rows])
    total = int(sizes.sum())
    weights = sizes / total if fault == "shares by size" else np.array(data.weights)
    if fault == "sources begin again in each epoch":
        counts = range(total)
    else:
        counts, epoch = range((epoch + 1) * total), 0
    drawn = np.zeros(len(sizes), dtype=int)
    rows = []
    for count in counts:
        source = int(np.argmax(weights * (count + 1) - drawn))
        passes, place = divmod(int(drawn[source]), data.rows[source])
        drawn[source] += 1
        row = feistel(place, data.rows[source], seed, epoch + passes)
        rows.append(int(firsts[source]) + row)
    rows = rows[-total:]
    starts = range(0, total - batch_size + 1, batch_size)
    return [np.array(rows[start : start + batch_size]) for start in starts]


def make_of(fault: str | None = None) -> Any:
    """The function `make` of a loader with this fault."""

    def make(data, *, rank, world_size, workers, seed, epoch, batch_size, state=None):
        if isinstance(data, Corpus):
            return blend(data, seed, epoch, batch_size, fault)
        return Loader(
            data, rank, world_size, workers, seed, epoch, batch_size, state, fault
        )

    return make


def adapter_of(fault: str | None = None, **options: Any) -> Adapter:
    options = {"claims": ALL, "tail": "drop"} | options
    return Adapter(
        make=make_of(fault), state_of=lambda loader: loader.state_dict(), **options
    )


FAULTS = {
    "draws with replacement": "once",
    "one batch less": "once",
    "width of the cipher": "once",
    "raises at the last row": "once",
    "ranks overlap": "ranks",
    "all ranks read the same": "ranks",
    "rank offset by the size of the world": "ranks",
    "tail rounded up on the last rank": "ranks",
    "hangs where ranks are uneven": "ranks",
    "seed by rank": "once",
    "seed by worker": "workers",
    "first worker that is ready": "workers",
    "worker offset": "workers",
    "workers all read the same": "workers",
    "tail of each worker lost": "workers",
    "dies": "workers",
    "seed by process": "repeat",
    "seed ignored": "seed",
    "seed changes the rows": "seed",
    "seed without epoch": "epochs",
    "state before delivery": "resume",
    "prefetch counted": "resume",
    "shuffle buffer dropped on resume": "resume",
    "state counts since the resume": "resume",
    "resume one row late": "resume",
    "resume rounds down to ten": "resume",
    "resume forgets the epoch": "resume",
    "resume begins again at the end": "resume",
    "seed by resume": "resume",
    "state in the process": "killed",
    "state counts rows of the rank": "elastic",
    "shares by size": "weights",
    "sources begin again in each epoch": "complete",
    "no shuffle": "spread",
    "reversed": "spread",
    "shuffle in blocks": "spread",
    "buffer handed out twice": "owned",
    "view of a cache": "owned",
    "reads past the end": "data",
    "any state is taken": "refuses",
    "length ignores the tail": "length",
    "length of a resume counts rows of the rank": "length",
    "index of the corpus": "growth",
    "walks from the start": "growth",
}
