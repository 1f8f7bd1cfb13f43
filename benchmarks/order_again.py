"""Six comparisons of notebook 17, once more with new seeds: `python -m benchmarks.order_again --real FOLDER`.

The 158 comparisons of `benchmarks.order_statistics` were not fixed before their runs. These are: their list, the
seeds and what each should show stood here, committed, before the first of their runs was trained. All outcomes of
that one series count. It drew the shuffle of twelve rounds that the package had then; the same was run once more when
the package had the shuffle of ten rounds, and is stored beside it.

1. Model, texts and held-out documents are those of `benchmarks.order_matters`; only the seeds are new.
2. A comparison has the same two tests as there. Holm's correction is over these twelve, six on each of two texts.
3. It *agrees* if its mean has the sign written here, and a star where one is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.order_matters import prepared, save
from benchmarks.order_pieces import Run, train_all
from benchmarks.order_questions import APART, questions
from benchmarks.order_statistics import Finding, findings, table
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import REAL

SEEDS = range(10, 20)  # those of the first series are 0 to 9
TEXTS = ("corpus", "real")
RESULTS = Path(__file__).with_name("results") / "order_again.json"  # twelve rounds
TEN_ROUNDS = RESULTS.with_stem("order_again_ten_rounds")  # of the shuffle


class Claim(NamedTuple):
    """What a headline of the page says of one comparison.

    Attributes:
        label: of the comparison, in `benchmarks.order_questions`.
        sign: of its mean in nats: 1 for a cost, -1 for a gain.
        stars: the texts on which it has a star in the first series.
    """

    label: str
    sign: int
    stars: tuple[str, ...] = TEXTS


CLAIMS = (
    # sources that are kept apart cost more than sources blended in file order
    Claim(f"{APART} - blended", 1),
    # a buffer that is emptied as a whole keeps a cost
    Claim("a buffer of 1,000", 1),
    # so does file order that ends shuffled
    Claim("in file order, last 20% shuffled", 1),
    # sixteen epochs cost
    Claim("16 epochs", 1),
    # a good source last is better off, at a constant rate
    Claim("last fifth, constant: better source", -1),
    # what a cut blend costs, its few samples cost in any order
    Claim("blend, few samples: small source", 1, ("real",)),
)


def runs_of_claims() -> list[Run]:
    """Both arms of each comparison, seed by seed."""
    arms: dict[tuple[str, str], None] = {}
    labels = [claim.label for claim in CLAIMS]
    for question in questions(["first", "last"]):
        if question.label in labels:
            arms[question.experiment, question.arm] = None
            arms[question.experiment, question.reference] = None
    return [
        Run("small", text, *arm, seed)
        for seed in SEEDS
        for text in TEXTS
        for arm in arms
    ]


def outcomes(path: Path = RESULTS) -> dict[Claim, dict[str, Finding]]:
    """By claim and text, what the new seeds say."""
    found = findings(path, [claim.label for claim in CLAIMS])
    return {
        claim: {it.text: it for it in found if it.question.label == claim.label}
        for claim in CLAIMS
    }


def agrees(claim: Claim, found: Finding) -> bool:
    """Whether the new seeds say what the claim says, and as surely."""
    same_sign = found.mean * claim.sign > 0
    return same_sign and (found.has_star or found.text not in claim.stars)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("data/order_again"))
    parser.add_argument("--output", type=Path, default=TEN_ROUNDS)
    options = parser.parse_args(arguments)
    texts, documents = {}, {}
    for text in TEXTS:
        facts = prepared(options.folder, "small", text, options.real)
        texts[text], documents[text] = facts
    runs = runs_of_claims()
    results = train_all(options.folder, runs)
    again = command("order_again").replace(str(options.real), "FOLDER")
    head = {"command": again, "machine": machine(), "seeds": list(SEEDS)}
    head |= {"sizes": {"small": vars(SIZES["small"])}, "real_text": REAL}
    head |= {"vocabulary": VOCABULARY, "texts": texts}
    save({**head, "runs": results}, documents, options.output)
    found = [
        it for by_text in outcomes(options.output).values() for it in by_text.values()
    ]
    print(table(found))


if __name__ == "__main__":
    main()
