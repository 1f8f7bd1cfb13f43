"""Differences between the rows read and the rows expected, classified and described."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Literal

Batches = list[list[tuple[Any, ...]]]  # [rank][step] -> the rows
Kind = Literal[
    "lost", "doubled", "out of order", "hang", "crash", "other data", "slow growth"
]


@dataclass(frozen=True)
class Finding:
    """A violation of a law.

    Attributes:
        kind: lost, doubled, out of order, hang, crash, other data or slow growth.
        message: a sentence that describes the violation.
        actual: [rank][step] -> the rows that were read.
        expected: the rows that should have been read; empty if no single order is right.
        rows: the rows in the message.
    """

    kind: Kind
    message: str
    actual: Batches = field(default_factory=list)
    expected: Batches = field(default_factory=list)
    rows: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


Verdict = Finding | None  # None: the law holds


def reads(batches: Batches) -> Iterator[tuple[int, int, Any]]:
    """Yield the rank and the step of every read, and the row."""
    for rank, steps in enumerate(batches):
        for step, rows in enumerate(steps):
            for row in rows:
                yield rank, step, row


def all_rows(batches: Batches) -> list[Any]:
    """The rows of all ranks, rank after rank."""
    return [row for _, _, row in reads(batches)]


def by_step(batches: Batches, steps: int | None = None) -> Batches:
    """The rows that all ranks together read in each step, sorted, in the form of one rank.

    Args:
        batches: the rows read.
        steps: only these first steps.

    >>> by_step([[(4, 1), (0,)], [(2, 3)]])
    [[(1, 2, 3, 4), (0,)]]
    """
    together = []
    for of_ranks in zip_longest(*batches, fillvalue=()):
        rows = sorted(chain(*of_ranks), key=str)
        together.append(tuple(rows))
    return [together[:steps]]


def difference(expected: Batches, actual: Batches, change: str) -> Verdict:
    """Find the first difference between two traces; the message begins with the `change`."""
    if expected == actual:
        return None
    kind, message = _describe(expected, actual)
    return Finding(kind, f"{change}, {message}", actual, expected)


def _describe(expected: Batches, actual: Batches) -> tuple[Kind, str]:
    """Classify and describe the first difference."""
    due = Counter(all_rows(expected))
    read = Counter(all_rows(actual))
    if any(isinstance(row, str) for row in due):
        read = due  # random crops: their counts mean little
    extra = read - due
    missing = due - read
    if missing:
        row = next(iter(missing))
        return (
            "lost",
            f"row {row} was not read; it should have been {readers_of(expected, row)}",
        )
    step = 0
    while at_step(actual, step) == at_step(expected, step):
        step += 1
    read_now = at_step(actual, step)
    due_now = at_step(expected, step)
    numbers = range(max(map(len, expected)))
    steps = [at_step(expected, number) for number in numbers]
    if read_now in steps:
        kind: Kind = "doubled" if extra else "out of order"
        return kind, f"step {step} read what step {steps.index(read_now)} should have"
    if extra:
        row = next(iter(extra))
        return "doubled", f"row {row} was read an extra time, {readers_of(actual, row)}"
    rank = 0
    while read_now[rank] == due_now[rank]:
        rank += 1
    return (
        "out of order",
        f"rank {rank} read {_as_text(read_now[rank])} at step {step} "
        f"and should have read {_as_text(due_now[rank])}",
    )


def at_step(batches: Batches, step: int) -> Batches:
    """For each rank its batch at the step, in a list; an empty list if it has none."""
    return [steps[step : step + 1] for steps in batches]


def readers_of(batches: Batches, row: Any) -> str:
    """The ranks and steps that read a row, at most three, in words."""
    by = [
        f"by rank {rank} at step {step}"
        for rank, step, other in reads(batches)
        if other == row
    ]
    return " and ".join(by[:3])


def _as_text(batches: list[tuple[Any, ...]]) -> str:
    """The batch of one step, or "nothing" if there is none."""
    return str(list(batches[0])) if batches else "nothing"
