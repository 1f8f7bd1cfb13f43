"""A `Trial` runs a loader in one `Case`, with changes."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nanoset_ref.laws.corpora import Corpus, write_corpus
from nanoset_ref.laws.findings import (
    Batches,
    Finding,
    Verdict,
    all_rows,
    difference,
    readers_of,
)
from nanoset_ref.laws.runner import SETTINGS, EpochRequest, EpochTrace, LoaderProcesses


@dataclass(frozen=True, repr=False)
class Case:
    """The numbers that hypothesis draws and shrinks.

    `other` is a second number of ranks or workers, or the difference of two seeds.
    """

    rows: int = 1
    world_size: int = 1
    batch_size: int = 1
    workers: int = 0
    seed: int = 0
    epoch: int = 0
    other: int = 1
    stops: tuple[int, ...] = (0,)

    def __repr__(self) -> str:
        """The number of rows, and what differs from the default."""
        shown = [f"rows={self.rows}"]
        for name, value in vars(self).items():
            if name != "rows" and value != getattr(Case, name):
                shown.append(f"{name}={value}")
        return f"Case({', '.join(shown)})"

    @property
    def global_batch_size(self) -> int:
        """Rows that all ranks together read in a step."""
        return self.world_size * self.batch_size


class LoaderFailed(Exception):
    """A loader crashed or hung."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


class CaseRefused(Exception):
    """A loader refuses a case before it delivers anything, or the format cannot hold its rows."""


class Trial:
    """Runs a loader in one case, with changes."""

    def __init__(self, processes: LoaderProcesses, case: Case) -> None:
        self.processes = processes
        self.adapter = processes.adapter
        self.claims = self.adapter.claims.split()
        self.case = case
        # of a loader without an end; one rank may read everything
        self.steps = (
            case.rows // case.global_batch_size + case.rows // case.batch_size + 3
        )
        settings = {name: getattr(case, name) for name in SETTINGS}
        data = self.data(case.rows)
        self.request = EpochRequest(data=data, steps=self.steps, **settings)

    def data(self, rows: int) -> Any:
        """The `data` of an adapter with this many rows: the number, or files that hold them."""
        if self.adapter.format == "rows":
            return rows
        files = min(self.adapter.files, rows)
        lengths = [len(range(file, rows, files)) for file in range(files)]
        return self.corpus(lengths)

    def corpus(self, rows: list[int], weights: list[float] | None = None) -> Corpus:
        """A corpus with these rows in each source, written once."""
        # plain names: some libraries read a path as a pattern
        parts = ["rows", *rows, "weights", *(weights or [])]
        folder = Path(self.processes.temporary.name, "-".join(map(str, parts)))
        try:
            return write_corpus(folder, self.adapter.format, rows, weights)
        except ValueError as error:
            raise CaseRefused(str(error)) from error

    def run(self, *, kill: bool = False, **changes: Any) -> EpochTrace:
        """Run an epoch of this case, with changes.

        Raises:
            CaseRefused: a loader without a state refuses the case, or fails if the data do not fill
                a step.
            LoaderFailed: the loader crashed or hung.
        """
        request = replace(self.request, **changes)
        trace = self.processes.run(request, kill=kill)
        if not trace.error:
            return trace
        is_small = self.case.rows < self.case.global_batch_size
        may_fail = trace.refused or (trace.kind == "crash" and is_small)
        if may_fail and not request.resume_from:
            raise CaseRefused(trace.error)
        when = "after a resume, " if request.resume_from else ""
        raise LoaderFailed(Finding(trace.kind, f"{when}{trace.error}", trace.batches))

    def compare(self, change: str, **changes: Any) -> Verdict:
        """Compare this case with itself after changes, which `change` describes."""
        expected = self.run().batches
        actual = self.run(**changes).batches
        return difference(expected, actual, change)

    @property
    def full_steps(self) -> int:
        """Steps of an epoch that are full on every rank."""
        return self.case.rows // self.case.global_batch_size

    def find_miscount(self, batches: Batches) -> Verdict:
        """Find a row that was read twice or never, unless the declared tail repeats or drops it."""
        rows = self.case.rows
        step_rows = self.case.global_batch_size
        rest = rows % step_rows
        may_drop = 0
        may_repeat = 0
        if "drop" in self.adapter.tail:
            may_drop = rest
        if "pad" in self.adapter.tail:
            may_repeat = -rest % step_rows
        counts = Counter(all_rows(batches))
        twice = [row for row, count in counts.items() if count > 1]
        surplus = sum(counts.values()) - len(counts)
        if surplus > may_repeat:
            times = "twice" if counts[twice[0]] == 2 else f"{counts[twice[0]]} times"
            message = (
                f"row {twice[0]} was read {times}: {readers_of(batches, twice[0])}"
            )
            return Finding("doubled", message, batches, rows=tuple(twice))
        never = [row for row in range(rows) if row not in counts]
        if len(never) > may_drop:
            message = f"row {never[0]} was never read"
            if len(never) > 1:
                message += f" (and {len(never) - 1} others of {rows})"
            return Finding("lost", message, batches)
        return None
