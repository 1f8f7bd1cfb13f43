"""All options of a run at once: what it reads is what plain.py reads, or it is refused and says why.

The long form draws ten thousand runs: python -m benchmarks.combinations
"""

import functools
import logging

import pytest
from combined.axes import AXES, REFUSALS, Draw, cost, covering, drawn, refusals
from combined.corpora import Corpora
from combined.runs import hold, told


@functools.cache
def pool(refused: float) -> list[Draw]:
    return [
        drawn(number, 1, share_with_workers=0.15, refused=refused)
        for number in range(2500 if refused else 1500)
    ]


@pytest.fixture(autouse=True)
def quiet(caplog):
    """At INFO every dataset counts and prints its summary."""
    caplog.set_level(logging.ERROR, "nanoset_ref")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return Corpora(tmp_path_factory.mktemp("corpora"))


def outcome_of(draw: Draw, corpora: Corpora) -> str:
    try:
        return hold(draw, corpora)
    except AssertionError as error:
        return f"{told(draw)}\n{error}\n"


def test_every_pair_of_options_reads_what_plain_reads(corpora):
    runs, share = covering(pool(refused=0), budget=120)
    for name, values in AXES.items():
        wanted = {value for value in values if name_is_drawn(name, value)}
        assert {draw[name] for draw in runs} >= wanted, (
            f"a value of {name} is in no run"
        )
    assert share > 0.8, "too few pairs of options meet"
    outcomes = [outcome_of(draw, corpora) for draw in runs]
    failures = [outcome for outcome in outcomes if outcome != "held"]
    assert not failures, f"{len(failures)} of {len(runs)}:\n" + "\n".join(failures[:9])


def name_is_drawn(name: str, value: object) -> bool:
    """Whether a run may have this value: some are refused whatever stands beside them."""
    return (name, value) not in {("order", "published short"), ("weights", (1, 2))}


@pytest.mark.parametrize("rule", [refusal.rule for refusal in REFUSALS])
def test_a_combination_that_breaks_a_rule_is_refused(corpora, rule):
    broken = [
        draw
        for draw in pool(refused=1)
        if [refusal.rule for refusal in refusals(draw)] == [rule]
    ]
    assert outcome_of(min(broken, key=cost), corpora) == rule
