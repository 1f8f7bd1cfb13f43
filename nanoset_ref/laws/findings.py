"""Differences between the rows read and the rows expected, classified and described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from nanoset_ref.laws.runner import Batches, Kind

Place = tuple[int, int, Any]  # rank, step, row


@dataclass(frozen=True)
class Finding:
    """A violation of a law.

    Args:
        kind: lost, doubled, out of order, hang, crash, other data or slow growth.
        words: a sentence that describes the violation.
        found: [rank][step] -> the rows that were read.
        wanted: the rows that should have been read; empty if no single order is right.
        rows: the rows in the sentence.
    """

    kind: Kind
    words: str
    found: Batches = field(default_factory=list)
    wanted: Batches = field(default_factory=list)
    rows: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


Verdict = Finding | None  # None: the law holds


def places(batches: Batches) -> Iterator[Place]:
    """Yield every row with the rank and the step that read it."""
    for rank, steps in enumerate(batches):
        for step, rows in enumerate(steps):
            for row in rows:
                yield rank, step, row


def rows_of(batches: Batches) -> list[Any]:
    return [row for _, _, row in places(batches)]


def by_step(batches: Batches, steps: int | None = None) -> Batches:
    """The rows that all ranks together read in each step, sorted, in the form of one rank.

    Args:
        batches: the rows read.
        steps: only these first steps.

    >>> by_step([[(4, 1), (0,)], [(2, 3)]])
    [[(1, 2, 3, 4), (0,)]]
    """
    together = []
    for step in range(max(map(len, batches))):
        rows = [row for rank in batches for row in chain.from_iterable(rank[step : step + 1])]
        together.append(tuple(sorted(rows, key=str)))
    return [together[:steps]]


def find_miscount(batches: Batches, rows: int, *, spare: int = 0, again: int = 0) -> Verdict:
    """Find a row that was read twice or never.

    Args:
        batches: the rows read.
        rows: the number of rows in the data.
        spare: how many rows may be left out.
        again: how many rows may be read twice.
    """
    counts = Counter(rows_of(batches))
    twice = [row for row, count in counts.items() if count > 1]
    surplus = sum(counts.values()) - len(counts)
    if surplus > again:
        words = f"row {twice[0]} was read {_times(counts[twice[0]])}: {_where(batches, twice[0])}"
        return Finding("doubled", words, batches, rows=tuple(twice))
    never = [row for row in range(rows) if row not in counts]
    if len(never) > spare:
        many = f" ({len(never)} of {rows} rows were not)" if len(never) > 1 else ""
        words = f"row {never[0]} was never read{many}"
        return Finding("lost", words, batches, rows=tuple(never))
    return None


def difference(wanted: Batches, found: Batches, when: str) -> Verdict:
    """Describe the first difference between two traces; `when` names the change between them."""
    if wanted == found:
        return None
    more = Counter(rows_of(found)) - Counter(rows_of(wanted))
    less = Counter(rows_of(wanted)) - Counter(rows_of(found))
    step = 0
    while _at_step(found, step) == _at_step(wanted, step):
        step += 1
    read = _at_step(found, step)
    right = _at_step(wanted, step)
    kind: Kind = "out of order"
    if less:
        kind = "lost"
        row = next(iter(less))
        words = f"row {row} was not read; it should have been {_where(wanted, row)}"
    elif read in _steps(wanted):
        kind = "doubled" if more else kind
        words = f"step {step} read what step {_steps(wanted).index(read)} should have"
    elif more:
        kind = "doubled"
        row = next(iter(more))
        words = f"row {row} was read an extra time, {_where(found, row)}"
    else:
        rank = [old == new for old, new in zip(right, read, strict=True)].index(False)
        words = (
            f"rank {rank} read {_as_text(read[rank])} at step {step} "
            f"and should have read {_as_text(right[rank])}"
        )
    return Finding(kind, f"{when}, {words}", found, wanted)


def _steps(batches: Batches) -> list[Batches]:
    """The rows of each step."""
    return [_at_step(batches, step) for step in range(max(map(len, batches)))]


def _at_step(batches: Batches, step: int) -> Batches:
    """[rank] -> a list of its batch at the step, or of nothing."""
    return [steps[step : step + 1] for steps in batches]


def _where(batches: Batches, row: Any) -> str:
    by = [f"by rank {rank} at step {step}" for rank, step, other in places(batches) if other == row]
    return " and ".join(by[:3])


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _as_text(batches: list[tuple[Any, ...]]) -> str:
    return str(list(batches[0])) if batches else "nothing"
