"""The comparisons of notebook 17: which arm of `benchmarks.order_matters` is compared with which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.order_arms import (
    BATCHES,
    ENDS,
    EPOCHS,
    OTHER_RATES,
    PEAKS,
    RATES,
    TOGETHER,
)

APART = "one after another, each shuffled"
BLENDED = "blended, each in file order"
FEW = "stateless, as few samples"
BUFFERS = tuple(f"a buffer of {size:,}" for size in (10, 100, 1_000, 10_000))
ENDING = tuple(f"in file order, last {percent}% shuffled" for percent in ENDS[::-1])
WAYS = (  # each compared with a full shuffle
    "shuffled again",
    "in file order",
    "in file order, sources reversed",
    *ENDING,
    *BUFFERS,
    *(f"{buffer} that exchanges" for buffer in BUFFERS),
    APART,
    TOGETHER,
    "documents shuffled, a buffer of 1,000",
    BLENDED,
)


class Question(NamedTuple):
    """Does an arm of an experiment lose more than another, on the mean of some sources or (none named) of all?"""

    label: str
    experiment: str
    arm: str
    reference: str
    sources: tuple[str, ...] = ()


def questions(sources: Sequence[str]) -> Iterator[Question]:
    """The comparisons that notebook 17 makes on a text with these sources, the better one last."""
    yield from about_buffers()
    yield from about_repetition()
    yield from about_annealing(sources)
    yield from about_the_blend(sources)


def about_buffers() -> Iterator[Question]:
    for way in WAYS:
        yield Question(way, "buffers", way, "shuffled")
    yield Question(f"{APART} - blended", "buffers", APART, BLENDED)
    for way in ("in file order", *ENDING, "a buffer of 1,000"):
        yield like_for_like(way, RATES["constant"])
    for way in ("in file order", BLENDED):
        for schedule, peak in OTHER_RATES:
            yield like_for_like(way, RATES[schedule] + PEAKS[peak])
    for way in ("in file order", BLENDED, TOGETHER):
        for which in BATCHES.values():
            yield like_for_like(way, which)


def like_for_like(way: str, which: str) -> Question:
    """An order and the shuffle, both at this rate or in these batches."""
    return Question(way + which, "buffers", way + which, "shuffled" + which)


def about_repetition() -> Iterator[Question]:
    again = "fresh, shuffled again"
    yield Question(again, "repetition", again, "fresh")
    for epochs in EPOCHS:
        same = f"{epochs} epochs, same order"
        yield Question(f"{epochs} epochs", "repetition", same, "fresh")
    for epochs in (4, 16):
        arms = (
            f"{epochs} epochs, same order{RATES['constant']}",
            "fresh, constant rate",
        )
        yield Question(f"{epochs} epochs, constant rate", "repetition", *arms)
    for epochs in EPOCHS:
        arms = (f"{epochs} epochs, {how}" for how in ("shuffled anew", "same order"))
        yield Question(f"{epochs} epochs, anew - same order", "repetition", *arms)


def about_annealing(sources: Sequence[str]) -> Iterator[Question]:
    *others, last = sources
    again = "spread out, shuffled again"
    yield Question(f"{again}: better source", "annealing", again, "spread out", (last,))
    for schedule, rate in RATES.items():
        for height in PEAKS.values():
            arms = (
                f"{place}{rate}{height}"
                for place in ("in the last fifth", "spread out")
            )
            label = f"last fifth, {schedule}{height}: better source"
            yield Question(label, "annealing", *arms, (last,))
    for schedule in ("falling", "constant"):
        last_arm, first_arm, spread = (
            f"{place}{RATES[schedule]}"
            for place in ("in the last fifth", "in the first fifth", "spread out")
        )
        parts = {"the rest": tuple(others), "all": ()}
        for what, those in parts.items():
            label = f"last fifth, {schedule}: {what}"
            yield Question(label, "annealing", last_arm, spread, those)
        parts = {"better source": (last,)} | parts
        for what, those in parts.items():
            label = f"first fifth, {schedule}: {what}"
            yield Question(label, "annealing", first_arm, spread, those)
    for schedule in ("constant", "WSD"):
        label = f"spread out, {schedule} - falling rate"
        yield Question(label, "annealing", f"spread out{RATES[schedule]}", "spread out")


def about_the_blend(sources: Sequence[str]) -> Iterator[Question]:
    first, *between, last = sources
    read = {"small source": (last,)}
    if between:
        read["unread source"] = tuple(between)
    again = "stateless, shuffled again"
    for what, those in read.items():
        yield Question(f"{again}: {what}", "blend", again, "stateless", those)
    for what, those in {"large source": (first,), **read}.items():
        yield Question(
            f"blend, Nanotron: {what}", "blend", "nanotron", "stateless", those
        )
    for what, those in read.items():
        yield Question(f"blend, few samples: {what}", "blend", FEW, "stateless", those)
    for what, those in read.items():
        label = f"blend, Nanotron - few: {what}"
        yield Question(label, "blend", "nanotron", FEW, those)
