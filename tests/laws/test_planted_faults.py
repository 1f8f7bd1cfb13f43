"""Each planted fault is found by the law that is named for it, and a right loader holds them all."""

import itertools
from types import SimpleNamespace

import pytest

from laws.mutants import FAULTS, adapter_of
from nanoset_ref.laws import case_search, check


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_the_law_named_for_it(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = FAULTS[fault]
    limit, budget = 60.0, 600
    if "hangs" in fault:  # each case that does waits for the limit
        limit, budget = 0.3, 20
        cases = SimpleNamespace(monotonic=itertools.count().__next__)
        monkeypatch.setattr(case_search, "time", cases)  # a case takes a second
    report = check(adapter_of(fault, limit=limit), laws=[law], budget=budget)
    assert report.broken == [law], report


def test_a_right_loader_holds_all_laws() -> None:
    report = check(adapter_of(), budget=600, examples=20)
    assert report.broken == [], report
    judged = [law for law, outcome in report.outcomes.items() if outcome.cases]
    assert judged == adapter_of().claims.split()
