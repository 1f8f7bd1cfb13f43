"""Which differences of `benchmarks.order_matters` survive a test: `python -m benchmarks.order_statistics [FILE]`.

1. A comparison takes one arm from another, seed by seed, in one text: n paired differences.
2. Their t-test asks whether a mean so far from zero would be rare if order had no effect (differences taken as normal;
   n - 1 degrees of freedom). All sign flips ask the same without that assumption, but with five seeds they can
   never say less than 2 / 32.
3. Holm's correction (1979) holds the chance of a single false claim, over all comparisons of all texts, below 5%.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.order_matters import at_the_end

RESULTS = Path(__file__).with_name("results") / "order_matters.json"
LEVEL = 0.05
EPOCHS = (2, 4, 8, 16)
APART = "one after another, each shuffled"
BLENDED = "blended, each in file order"
WAYS = ("in file order", "buffer 10", "buffer 100", "buffer 1,000", "buffer 10,000")


class Question(NamedTuple):
    """Does an arm of an experiment lose more than another, on the mean of some sources or (none named) of all?"""

    label: str
    experiment: str
    arm: str
    reference: str
    sources: tuple[str, ...] = ()


class Finding(NamedTuple):
    """What the seeds of one text answer: nats per token.

    Attributes:
        text, question: which.
        mean: of the differences.
        reach: from the mean to the ends of its 95% interval by Student's t, for this comparison alone.
        flips: share of the ways to flip signs whose mean is as far from zero.
        p: of the t-test, alone.
        holm: p after Holm's correction over all findings.
    """

    text: str
    question: Question
    mean: float
    reach: float
    flips: float
    p: float
    holm: float = math.nan


def questions(sources: Sequence[str]) -> Iterator[Question]:
    """The comparisons that notebook 17 makes on a text with these sources, the better one last."""
    first, *between, last = sources
    for way in WAYS:
        yield Question(way, "buffers", way, "shuffled")
    yield Question("sources apart, each shuffled", "buffers", APART, "shuffled")
    yield Question("blended, each in file order", "buffers", BLENDED, "shuffled")
    yield Question("apart, compared with blended", "buffers", APART, BLENDED)
    for epochs in EPOCHS:
        yield Question(
            f"{epochs} epochs", "repetition", f"{epochs} epochs, same order", "fresh"
        )
    for epochs in EPOCHS:
        anew, same = (
            f"{epochs} epochs, {how}" for how in ("shuffled anew", "same order")
        )
        yield Question(f"{epochs} epochs, anew - same order", "repetition", anew, same)
    for rate, suffix in (("falling", ""), ("constant", ", constant rate")):
        for place in ("last", "first"):
            arm, spread = f"in the {place} fifth{suffix}", f"spread out{suffix}"
            parts = {"better source": (last,), "the rest": (first, *between), "all": ()}
            for what, those in parts.items():
                label = f"{place} fifth, {rate} rate: {what}"
                yield Question(label, "annealing", arm, spread, those)
    constant = "spread out, constant rate"
    yield Question(
        "spread out, constant - falling rate", "annealing", constant, "spread out"
    )
    read = {"large source": (first,), "small source": (last,)}
    if between:
        read["unread source (control)"] = tuple(between)
    for what, those in read.items():
        yield Question(
            f"blend, Nanotron: {what}", "blend", "nanotron", "stateless", those
        )


def differences(
    runs: Sequence[Mapping[str, Any]], text: str, question: Question
) -> np.ndarray:
    """How much more the arm loses than its reference [seeds], in nats per token."""
    mine = [run for run in runs if run["run"][1:3] == [text, question.experiment]]
    each = [at_the_end(mine, source) for source in question.sources or (None,)]
    seeds = sorted(each[0][question.arm])
    more = [
        [
            losses[question.arm][seed] - losses[question.reference][seed]
            for seed in seeds
        ]
        for losses in each
    ]
    return np.mean(more, axis=0)


def sign_flips(values: np.ndarray) -> float:
    """Of all 2 ** n ways to sign n differences, the share whose mean is at least as far from zero."""
    count = len(values)
    signs = 2 * np.indices((2,) * count).reshape(count, -1) - 1
    sums = np.abs(values @ signs)
    return float(np.mean(sums >= abs(values.sum()) - 1e-9))


def two_sided(t: float, freedom: int) -> float:
    """The probability of a Student's t at least as far from zero (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    angle = math.atan(abs(t) / math.sqrt(freedom))
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1, (freedom - odd) // 2 + 1):
        total += term
        term *= math.cos(angle) ** 2 * (2 * k - 1 + odd) / (2 * k + odd)
    inside = total * math.sin(angle)
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return max(0.0, 1 - inside)


def t_of(level: float, freedom: int) -> float:
    """The t beyond which (on both sides) lies this much probability, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if two_sided(middle, freedom) > level:
            low = middle
        else:
            high = middle
    return high


def holm(probabilities: Sequence[float]) -> list[float]:
    """Holm's corrected probabilities, in the given order.

    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    corrected = [0.0] * len(probabilities)
    least = 0.0
    ranked = sorted(range(len(probabilities)), key=lambda place: probabilities[place])
    for rank, place in enumerate(ranked):
        scaled = (len(ranked) - rank) * probabilities[place]
        least = max(least, min(1.0, scaled))
        corrected[place] = least
    return corrected


def findings(result: Mapping[str, Any]) -> list[Finding]:
    """Every comparison of every text, corrected together."""
    found = []
    for text, sources in result["texts"].items():
        for question in questions(list(sources)):
            values = differences(result["runs"], text, question)
            count = len(values)
            mean = float(values.mean())
            error = float(values.std(ddof=1)) / math.sqrt(count)
            reach = t_of(LEVEL, count - 1) * error
            p = two_sided(mean / error, count - 1)
            flips = sign_flips(values)
            found.append(Finding(text, question, mean, reach, flips, p))
    corrected = holm([finding.p for finding in found])
    return [
        finding._replace(holm=p) for finding, p in zip(found, corrected, strict=True)
    ]


def table(found: Sequence[Finding]) -> str:
    """A line per question; a column per text: mean, 95% interval, p after Holm, and * where that is below 5%."""
    texts = list(dict.fromkeys(finding.text for finding in found))
    head = "".join(f"   {text + ': nats, p':<25}" for text in texts)
    lines = [f"{'':<45}{head}".rstrip()]
    for label in dict.fromkeys(finding.question.label for finding in found):
        cells = {it.text: cell(it) for it in found if it.question.label == label}
        lines.append(
            f"{label:<45}"
            + "".join(f"   {cells.get(text, ''):<25}" for text in texts).rstrip()
        )
    return "\n".join(lines)


def cell(finding: Finding) -> str:
    star = " *" if finding.holm < LEVEL else ""
    chance = f"{finding.holm:.3f}" if finding.holm >= 0.0005 else "<.001"
    return f"{finding.mean:+.3f} \u00b1 {finding.reach:.3f}  {chance}{star}"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if sys.argv[1:] else RESULTS
    print(table(findings(json.loads(path.read_text()))))
