"""Which differences of `benchmarks.order_matters` survive a test: `python -m benchmarks.order_statistics [FILE]`.

1. A comparison takes one arm from another in one text: a difference for each seed and each held-out row.
2. Two things may be chance: the seeds, which fix initial weights and shuffles, and the held-out documents.
   The paired t-test over the seeds asks whether a mean so far from zero would be rare if order had no effect
   (differences taken as normal; n - 1 degrees of freedom). The bootstrap asks it over the documents.
3. A claim needs both, so its p is the larger one (an intersection-union test), and its interval the wider one.
4. Holm's correction (1979) holds the chance of a single false claim, over all comparisons of all texts, below 5%.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.order_matters import at_the_end, rows_path
from benchmarks.order_questions import Question, questions

RESULTS = Path(__file__).with_name("results") / "order_matters.json"
LEVEL = 0.05
RESAMPLES, BOOTSTRAP_SEED = 20_000, 17


class Test(NamedTuple):
    """Of a mean difference: its p, and the reach of its 95% interval to each side."""

    p: float
    reach: float


class Finding(NamedTuple):
    """What a text answers: nats per token.

    Attributes:
        text, question: which.
        mean: of the differences.
        seeds, documents: the t-test over seeds, the bootstrap over held-out documents.
        holm: the larger p of the two after Holm's correction over all findings.
    """

    text: str
    question: Question
    mean: float
    seeds: Test
    documents: Test
    holm: float = math.nan

    @property
    def p(self) -> float:
        return max(self.seeds.p, self.documents.p)

    @property
    def reach(self) -> float:
        return max(self.seeds.reach, self.documents.reach)

    @property
    def has_star(self) -> bool:
        """Whether the comparison survives the correction."""
        return self.holm < LEVEL


class Rows(NamedTuple):
    """What a source's held-out rows lost: losses [runs of the text, rows], and the document each row begins in."""

    losses: NDArray[np.float64]
    documents: NDArray[np.int64]


def rows_of(path: Path, texts: Mapping[str, Any]) -> dict[str, dict[str, Rows]]:
    """The held-out rows of some results, by text and source."""
    with np.load(rows_path(path)) as stored:
        return {
            text: {
                source: Rows(
                    stored[f"{text}/{source}/losses"] / 100,
                    stored[f"{text}/{source}/documents"].astype(int),
                )
                for source in sources
            }
            for text, sources in texts.items()
        }


# ---- over seeds


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


def t_test(values: np.ndarray) -> Test:
    """Student's, of the mean of paired differences."""
    freedom = len(values) - 1
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    p = two_sided(float(values.mean()) / error, freedom)
    return Test(p, t_of(LEVEL, freedom) * error)


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


# ---- over held-out documents


def bootstrap(
    values: Sequence[NDArray[np.float64]],
    documents: Sequence[NDArray[np.int64]],
    shares: NDArray[np.float64],
) -> list[Test]:
    """The differences of some questions, had other documents been held out.

    1. As many documents of each source as there are, drawn with replacement, each with all its rows; 20,000 times.
    2. Each draw has a mean and a standard error, like the rows at hand: its t is how far its mean lies from theirs, in
       its own standard errors. (With a dozen documents this "bootstrap-t" is fair where plain percentiles are not.)
    3. p is the share of draws whose t is as large, to either side, as that of the observed mean; the interval reaches
       as many standard errors as 95% of the draws stay within.

    Args:
        values: differences [rows, questions] of each source.
        documents: the document [rows] that each of them begins in.
        shares: of each source in the mean that a question is about [sources, questions].
    """
    random = np.random.default_rng(BOOTSTRAP_SEED)
    # [1 + draws, questions] after the first source; the first row is of the rows at hand
    means: Any = 0.0
    variances: Any = 0.0
    for mine, places, share in zip(values, documents, shares, strict=True):
        names, numbers, rows = np.unique(
            places, return_inverse=True, return_counts=True
        )
        count = len(names)
        sums = np.zeros((count, mine.shape[1]))
        np.add.at(sums, numbers, mine)
        draws = random.multinomial(count, np.full(count, 1 / count), RESAMPLES)
        weights = np.vstack([np.ones((1, count)), draws])
        mean, variance = mean_and_variance(weights, sums, rows[:, None])
        means = means + share * mean
        variances = variances + share**2 * variance
    errors = np.sqrt(variances)
    t = np.abs(means[1:] - means[0]) / errors[1:]
    rare = np.mean(t >= np.abs(means[0]) / errors[0], axis=0)
    reach = np.quantile(t, 1 - LEVEL, axis=0) * errors[0]
    least = 1 / RESAMPLES  # no p is known to be smaller
    return [Test(*both) for both in zip(np.maximum(rare, least), reach, strict=True)]


def mean_and_variance(
    weights: np.ndarray, sums: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of the mean over all rows: itself, and its variance if documents are drawn at random [draws, questions].

    Args:
        weights: how often each document is in a draw [draws, documents].
        sums, rows: each document's sum of differences [documents, questions], and its number of rows [documents, 1].
    """
    total = weights @ rows
    mean = weights @ sums / total
    squares = weights @ sums**2 - 2 * mean * (weights @ (sums * rows))
    squares = np.maximum(squares + mean**2 * (weights @ rows**2), 0)
    count = len(rows)
    return mean, squares * count / (count - 1) / total**2


def over_documents(
    runs: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Rows],
    asked: Sequence[Question],
) -> list[Test]:
    """The bootstrap of some questions about a text; differences of rows are means over the seeds."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault(tuple(run["run"][2:4]), []).append(place)
    values, shares = [], []
    for source, (losses, _) in rows.items():
        lost = {arm: losses[where].mean(axis=0) for arm, where in places.items()}
        more = [
            lost[it.experiment, it.arm] - lost[it.experiment, it.reference]
            for it in asked
        ]
        values.append(np.transpose(more))
        shares.append([_share(source, it.sources or tuple(rows)) for it in asked])
    return bootstrap(values, [it.documents for it in rows.values()], np.array(shares))


def _share(source: str, sources: Sequence[str]) -> float:
    return (source in sources) / len(sources)


# ---- together


def findings(
    path: Path = RESULTS, labels: Collection[str] | None = None
) -> list[Finding]:
    """Every comparison of every text of a result file, or those with these labels, corrected together."""
    result = json.loads(path.read_text())
    found = []
    for text, rows in rows_of(path, result["texts"]).items():
        asked = [
            it for it in questions(list(rows)) if labels is None or it.label in labels
        ]
        if asked:
            runs = [run for run in result["runs"] if run["run"][1] == text]
            found += answers(runs, text, rows, asked)
    return corrected(found)


def answers(
    runs: Sequence[Mapping[str, Any]],
    text: str,
    rows: Mapping[str, Rows],
    asked: Sequence[Question],
) -> list[Finding]:
    """What the runs of a text say of some questions, not yet corrected."""
    values = [differences(runs, text, question) for question in asked]
    return [
        Finding(text, question, float(more.mean()), t_test(more), documents)
        for question, more, documents in zip(
            asked, values, over_documents(runs, rows, asked), strict=True
        )
    ]


def corrected(found: Sequence[Finding]) -> list[Finding]:
    """Findings after Holm's correction over all of them."""
    probabilities = holm([finding.p for finding in found])
    return [
        finding._replace(holm=p)
        for finding, p in zip(found, probabilities, strict=True)
    ]


def with_both_errors(finding: Finding, seeds: int) -> float:
    """The p of a mean if seeds and documents vary at once: their squared standard errors added.

    Student's t with the seeds' degrees of freedom. Half of the documents' reach is taken as their standard error.
    """
    freedom = seeds - 1
    over_seeds = finding.seeds.reach / t_of(LEVEL, freedom)
    error = math.hypot(over_seeds, finding.documents.reach / 2)
    return two_sided(finding.mean / error, freedom)


def stars_with_both_errors(found: Sequence[Finding], seeds: int) -> list[Finding]:
    """The findings that survive Holm's correction of `with_both_errors`."""
    corrected = holm([with_both_errors(finding, seeds) for finding in found])
    return [it for it, p in zip(found, corrected, strict=True) if p < LEVEL]


def detectable(noise: Finding, comparisons: int, seeds: int) -> float:
    """The difference that gets a star in four of five such experiments, in nats per token; about.

    Args:
        noise: a comparison with the usual spread over seeds.
        comparisons: how many Holm's correction counts; as if this were the first of them.
        seeds: how many each has.
    """
    freedom = seeds - 1
    error = noise.seeds.reach / t_of(LEVEL, freedom)
    return error * (t_of(LEVEL / comparisons, freedom) + t_of(2 * (1 - 0.8), freedom))


def table(found: Sequence[Finding]) -> str:
    """A line per question; a column per text: mean, 95% interval, p after Holm, and * where that is below 5%."""
    texts = list(dict.fromkeys(finding.text for finding in found))
    head = "".join(f"   {text + ': nats, p':<25}" for text in texts)
    wide = max(len(finding.question.label) for finding in found)
    lines = [f"{'':<{wide}}{head}".rstrip()]
    for label in dict.fromkeys(finding.question.label for finding in found):
        cells = {it.text: cell(it) for it in found if it.question.label == label}
        lines.append(
            f"{label:<{wide}}"
            + "".join(f"   {cells.get(text, ''):<25}" for text in texts).rstrip()
        )
    return "\n".join(lines)


def cell(finding: Finding) -> str:
    star = " *" if finding.has_star else ""
    chance = f"{finding.holm:.3f}" if finding.holm >= 0.0005 else "<.001"
    return f"{finding.mean:+.3f} \u00b1 {finding.reach:.3f}  {chance}{star}"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if sys.argv[1:] else RESULTS
    print(table(findings(path)))
