"""The laws of loading, one function each: a `Bench` runs the loader, and the function says what is wrong.

A law that a loader does not claim is not judged. `docs/laws_of_loading.md` explains each, with a famous bug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.laws.corpora import Corpus, write_corpus
from nanoset_ref.laws.findings import Finding, by_step, difference, miscounted, places, rows_of
from nanoset_ref.laws.players import Batches, Players, Run, Trace

DISTINCT = 20  # rows from which on two shuffles never agree by chance: 1 / 20!
SIGMAS = 6  # from which on a deviation is no chance
GROWTH = 2**16  # rows of the large corpus of `growth`; the small one has 2**10


@dataclass(frozen=True)
class Case:
    """The numbers that hypothesis draws and shrinks.

    `other` is a second number of ranks or workers, or the distance of two seeds.
    """

    rows: int = 1
    world_size: int = 1
    batch_size: int = 1
    workers: int = 0
    seed: int = 0
    epoch: int = 0
    other: int = 1
    stops: tuple[int, ...] = (0,)

    @property
    def together(self) -> int:
        """Rows that all ranks read at a step."""
        return self.world_size * self.batch_size


class Broken(Exception):
    """A loader crashed or hung."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


class Refused(Exception):
    """A loader does not take a case, and says so before it delivers anything."""


class Bench:
    """Runs a loader in the case that is judged."""

    def __init__(self, players: Players, folder: Path, case: Case) -> None:
        self.players = players
        self.adapter = players.adapter
        self.folder = folder
        self.case = case
        self.epoch = Run(
            data=self.data(case.rows),
            world_size=case.world_size,
            batch_size=case.batch_size,
            workers=case.workers,
            seed=case.seed,
            epoch=case.epoch,
            steps=2 * (case.rows // case.together) + 3,
        )

    def data(self, rows: int) -> Any:
        if self.adapter.format == "rows":
            return rows
        return self.corpus([rows])

    def corpus(self, rows: list[int], weights: list[float] | None = None) -> Corpus:
        folder = self.folder / f"{rows} {weights}"
        return write_corpus(folder, self.adapter.format, rows, weights)

    def run(self, *, kill: bool = False, **changes: Any) -> Trace:
        """An epoch in this case, with changes.

        Raises:
            Refused: a loader that begins afresh refuses the case, or fails where the data do not fill a step.
            Broken: it crashed or hung.
        """
        run = replace(self.epoch, **changes)
        trace = self.players.play(run, kill=kill)
        if not trace.error:
            return trace
        small = trace.kind == "crash" and self.case.rows < self.case.together
        if not run.states and (trace.refused or small):
            raise Refused(trace.error)
        when = "after a resume, " if run.states else ""
        raise Broken(Finding(trace.kind, f"{when}{trace.error}", trace.batches))

    @property
    def whole(self) -> int:
        """Steps of an epoch that are full on every rank."""
        return self.case.rows // self.case.together

    def miscounted(self, batches: Batches) -> Finding | None:
        """Whether rows are lost or doubled, beyond what the declared tail may leave out or repeat."""
        left = self.case.rows - self.whole * self.case.together
        spare = left if self.adapter.tail == "drop" else 0
        again = -left % self.case.together if self.adapter.tail == "pad" else 0
        return miscounted(batches, self.case.rows, spare=spare, again=again)


def once(bench: Bench) -> Finding | None:
    """Every row is read exactly once an epoch, by all ranks together."""
    return bench.miscounted(bench.run().batches)


def ranks(bench: Bench) -> Finding | None:
    """Ranks read different rows, and equally many batches of equal size, so that none waits for ever."""
    batches = bench.run().batches
    counts = [len(steps) for steps in batches]
    if len(set(counts)) > 1:
        words = f"the ranks have {counts} batches: the others wait for ever at step {min(counts)}"
        return Finding("hang", words, batches)
    for rank, step, _ in places(batches):
        size = len(batches[rank][step])
        if step < bench.whole and size != bench.case.batch_size:
            words = f"the batch of rank {rank} at step {step} has {size} rows"
            return Finding("lost", f"{words} and should have {bench.case.batch_size}", batches)
    owners = {(row, rank) for rank, _, row in places(batches)}
    shared = len(owners) > len({*rows_of(batches)})
    return bench.miscounted(batches) if shared else None


def order(bench: Bench) -> Finding | None:
    """All ranks together read the same rows at the same step, whatever their number (the global batch is kept)."""
    case = bench.case
    world_size = _another_size(case)
    batch_size = case.together // world_size
    wanted = by_step(bench.run().batches)
    found = by_step(bench.run(world_size=world_size, batch_size=batch_size).batches)
    when = f"with {world_size} ranks instead of {case.world_size}"
    return difference([wanted[0][: bench.whole]], [found[0][: bench.whole]], when)


def workers(bench: Bench) -> Finding | None:
    """Every rank reads the same batches, whatever the number of workers and what they prefetch."""
    if bench.adapter.most_workers == 0:
        raise Refused("most_workers is 0")
    number = 1 + bench.case.other % bench.adapter.most_workers
    wanted = bench.run(workers=0).batches
    found = bench.run(workers=number).batches
    return difference(wanted, found, f"with {number} workers instead of none")


def repeat(bench: Bench) -> Finding | None:
    """The same call in another process gives the same batches."""
    wanted = bench.run().batches
    return difference(wanted, bench.run().batches, "in another process with the same arguments")


def seed(bench: Bench) -> Finding | None:
    """Another seed is another order of the same rows."""
    here = bench.run().batches
    there = bench.run(seed=bench.case.seed + bench.case.other).batches
    pair = f"seeds {bench.case.seed} and {bench.case.seed + bench.case.other}"
    return _reordered(bench, here, there, pair)


def epochs(bench: Bench) -> Finding | None:
    """A new epoch reads all rows again, in a new order (or the same, if that is declared)."""
    here = bench.run().batches
    there = bench.run(epoch=bench.case.epoch + 1).batches
    if bench.adapter.same_epochs:
        return difference(here, there, "in the next epoch")
    pair = f"epochs {bench.case.epoch} and {bench.case.epoch + 1}"
    return _reordered(bench, here, there, pair)


def resume(bench: Bench) -> Finding | None:
    """A run that stops and resumes, once or several times, reads what it would have read."""
    return _continued(bench, kill=False)


def killed(bench: Bench) -> Finding | None:
    """It does so after SIGKILL, too."""
    return _continued(bench, kill=True)


def elastic(bench: Bench) -> Finding | None:
    """A stopped run goes on with another number of ranks, and nothing is lost or read twice."""
    case = bench.case
    stop = case.stops[0] % (bench.whole + 1)
    size = _another_size(case)
    before = bench.run(steps=stop, state=True)
    if stop * case.together >= case.rows - case.rows % case.together:
        return None  # what comes next is the next epoch
    after = bench.run(states=before.states, world_size=size, batch_size=case.together // size)
    read = by_step(before.batches)[0] + by_step(after.batches)[0]
    if "order" not in bench.adapter.claims.split():
        return bench.miscounted([read])
    wanted = by_step(bench.run().batches)[0]
    when = f"stopped after {stop} steps and resumed with {size} ranks"
    return difference([wanted[: bench.whole]], [read[: bench.whole]], when)


def weights(bench: Bench) -> Finding | None:
    """Every source has its share, in every prefix of the order, and none is left out."""
    rows = bench.case.rows
    sources = [rows, 1 + rows // 2, 1 + rows // 3]
    parts = np.array([bench.case.other, 2, 1])
    shares = parts / parts.sum()
    data = bench.corpus(sources, shares.tolist())
    batches = bench.run(data=data, steps=2 * sum(sources)).batches
    bounds = np.cumsum(sources)
    drawn = np.searchsorted(bounds, rows_of(batches), side="right")
    taken = np.cumsum(drawn[:, None] == np.arange(len(sources)), axis=0)
    count = np.arange(1, len(drawn) + 1)[:, None]
    chance = SIGMAS * np.sqrt(count * shares * (1 - shares)) + 2
    step, source = np.unravel_index(np.argmax(abs(taken - count * shares) - chance), taken.shape)
    read, due = taken[step, source], (count * shares)[step, source]
    if abs(read - due) <= chance[step, source]:
        return None
    words = (
        f"of the first {step + 1} rows {read} came from source {source}, and {due:.1f} should have"
    )
    return Finding("lost" if read < due else "doubled", words, batches)


def spread(bench: Bench) -> Finding | None:
    """The order is well mixed: neighbors in the file are parted, and no end of the file comes first."""
    batches = bench.run().batches
    read = np.array(rows_of(batches), dtype=float)
    if len(read) < 10 * DISTINCT:
        raise Refused("too few rows to judge how they are mixed")
    together = int((np.diff(read) == 1).sum())
    if together > 12:  # about 1 by chance
        words = f"{together} times a row was followed by its neighbor in the file"
        return Finding("out of order", words, batches)
    places_of = np.arange(len(read))
    drift = abs(np.corrcoef(read, places_of)[0, 1]) * np.sqrt(len(read) - 1)
    if drift > SIGMAS:
        words = f"rows come early that stand early in the file ({drift:.0f} standard deviations)"
        return Finding("out of order", words, batches)
    return None


def owned(bench: Bench) -> Finding | None:
    """A batch belongs to its receiver: it never changes, and writing into it changes nothing else."""
    trace = bench.run()
    if trace.changed:
        return Finding("other data", trace.changed, trace.batches)
    found = bench.run(spoil=True).batches
    return difference(trace.batches, found, "when every batch is overwritten by its receiver")


def data(bench: Bench) -> Finding | None:
    """The loader delivers the rows of the files, whole, and nothing else."""
    trace = bench.run()
    for rank, step, row in places(trace.batches):
        if not isinstance(row, int) or not 0 <= row < bench.case.rows:
            words = f"rank {rank} read {row!r} at step {step}, which is no row of the data"
            return Finding("other data", words, trace.batches, rows=(row,))
    return None


def refuses(bench: Bench) -> Finding | None:
    """A state is refused where the data has changed since."""
    before = bench.run(steps=1, state=True)
    try:
        after = bench.run(data=bench.data(bench.case.rows + 1), states=before.states)
    except Broken as end:
        return end.finding if end.finding.kind == "hang" else None
    words = f"a state of {bench.case.rows} rows was taken up on {bench.case.rows + 1} rows"
    return Finding("other data", words, after.batches)


def length(bench: Bench) -> Finding | None:
    """len(loader) is the number of batches that come."""
    trace = bench.run()
    for rank, declared in enumerate(trace.lengths):
        came = len(trace.batches[rank])
        if declared != came:
            words = f"rank {rank} declared {declared} batches, and {came} came"
            return Finding("lost", words, trace.batches)
    return None


def masks(bench: Bench) -> Finding | None:
    """A mask is true at every token and false at padding."""
    trace = bench.run()
    return Finding("other data", trace.mask, trace.batches) if trace.mask else None


def growth(bench: Bench) -> Finding | None:
    """The start of a loader takes no more time and memory when the corpus is larger."""
    small = [bench.run(data=bench.data(2**10), steps=1, measure=True) for _ in range(3)]
    large = [bench.run(data=bench.data(GROWTH), steps=1, measure=True) for _ in range(3)]
    for name, floor, unit in (("seconds", 0.05, "s"), ("memory", 2**20, "bytes")):
        before = min(getattr(trace, name) for trace in small)
        after = min(getattr(trace, name) for trace in large)
        if after > 8 * before + floor:
            words = (
                f"{after:,.3g} {unit} to the first batch of {GROWTH:,} rows, {before:,.3g} of 1,024"
            )
            return Finding("slow growth", words)
    return None


def _another_size(case: Case) -> int:
    """Another number of ranks that divides the global batch."""
    sizes = [size for size in range(1, case.together + 1) if case.together % size == 0]
    sizes.remove(case.world_size)
    if not sizes:
        raise Refused("a global batch of one row has no other number of ranks")
    return sizes[case.other % len(sizes)]


def _reordered(bench: Bench, here: Batches, there: Batches, pair: str) -> Finding | None:
    if len({*rows_of(here)}) >= DISTINCT and rows_of(here) == rows_of(there):
        return Finding("out of order", f"{pair} have the same order", there)
    claimed = "once" in bench.adapter.claims.split()
    return bench.miscounted(there) if claimed else None


def _continued(bench: Bench, *, kill: bool) -> Finding | None:
    """Stop and resume, at each of the stops, and compare with the run that never stopped."""
    wanted = bench.run().batches
    left = max(map(len, wanted))
    read: Batches = [[] for _ in wanted]
    states: tuple[bytes, ...] = ()
    stops = []
    for drawn in bench.case.stops:
        stop = drawn % (left + 1)
        left -= stop
        stops.append(stop)
        part = bench.run(steps=stop, state=True, states=states, kill=kill)
        read = _joined(read, part.batches)
        states = part.states
    last = bench.run(states=states)
    endless = len(wanted[0]) == bench.epoch.steps
    if left == 0 and not endless:
        return _at_the_end(bench, wanted, read, last.batches)
    how = "killed" if kill else "stopped"
    when = f"{how} after {' and '.join(map(str, stops))} steps and resumed"
    read = _joined(read, last.batches)
    if endless:
        read = [steps[: bench.epoch.steps] for steps in read]
    return difference(wanted, read, when)


def _at_the_end(bench: Bench, wanted: Batches, read: Batches, after: Batches) -> Finding | None:
    """A run that stopped at the end of an epoch has nothing left, or goes on with the next one."""
    if read == wanted and rows_of(after):
        following = bench.run(epoch=bench.case.epoch + 1).batches
        return difference(following, after, "resumed at the end of an epoch")
    return difference(wanted, read, "stopped at the end of an epoch")


def _joined(before: Batches, after: Batches) -> Batches:
    return [old + new for old, new in zip(before, after, strict=True)]


SIZES = "rows world_size batch_size seed"
# law: its function, and the fields of a case that it draws
LAWS: dict[str, tuple[Callable[[Bench], Finding | None], str]] = {
    "once": (once, f"{SIZES} workers epoch"),
    "ranks": (ranks, f"{SIZES} epoch"),
    "order": (order, f"{SIZES} other"),
    "workers": (workers, f"{SIZES} other"),
    "repeat": (repeat, f"{SIZES} workers"),
    "seed": (seed, f"{SIZES} other"),
    "epochs": (epochs, f"{SIZES} epoch"),
    "resume": (resume, f"{SIZES} workers epoch stops"),
    "killed": (killed, f"{SIZES} workers stops"),
    "elastic": (elastic, f"{SIZES} other stops"),
    "weights": (weights, "rows batch_size seed other"),
    "spread": (spread, "rows batch_size seed epoch"),
    "owned": (owned, f"{SIZES} workers"),
    "data": (data, f"{SIZES} workers"),
    "refuses": (refuses, SIZES),
    "length": (length, f"{SIZES} workers"),
    "masks": (masks, f"{SIZES} workers"),
    "growth": (growth, "batch_size"),
}


def judge_with(players: Players, folder: Path, law: str, case: Case) -> Finding | None:
    """Judge one case by one law.

    Raises:
        Refused: the loader does not take this case.
    """
    judged, _ = LAWS[law]
    try:
        return judged(Bench(players, folder, case))
    except Broken as end:
        return end.finding
