"""The search for a case that breaks a law: which cases are judged, with which options, in which process."""

import importlib
import math
import subprocess
import sys
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from laws.mutants import adapter_of
from nanoset_ref.laws import Case, case_search, check, judge


def test_a_broken_resume_is_not_searched_again_with_a_kill() -> None:
    report = check(
        adapter_of("resume one row late"), laws=["resume", "killed"], budget=600
    )
    resume, killed = (report.outcomes[law] for law in report.broken)
    assert (killed.case, killed.cases) == (resume.case, 1)
    assert str(killed.finding) == str(resume.finding).replace("stopped", "killed")


def test_a_search_of_its_own_where_the_known_case_does_not_break_the_law() -> None:
    report = check(adapter_of("state in the process"), laws=["killed"], budget=600)
    assert report.broken == ["killed"]


def test_a_slow_loader_is_not_asked_for_more_rows_than_it_reads_in_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its limit is far away, and it is taken for twenty times as slow: a busy machine may delay it."""
    clock = SimpleNamespace(monotonic=lambda: 20 * monotonic())
    monkeypatch.setattr(case_search, "time", clock)

    def make(data: int, *, rank: int, world_size: int, **settings: Any) -> Any:
        for row in range(rank, data, world_size):
            sleep(0.0004)
            yield [row]

    options = {"claims": "once", "max_rows": 9, "max_batch_size": 1, "limit": 20.0}
    report = check(make, examples=3, rows_of=list, budget=9000, **options)
    assert str(report.outcomes["once"].finding) == "None"
    assert report.outcomes["once"].cases > 3


def test_the_same_seed_gives_the_same_cases() -> None:
    reports = [
        check(adapter_of(), laws=["once"], seed=3, examples=9, largest=65) for _ in "ab"
    ]
    assert str(reports[0]) == str(reports[1])


def test_a_case_is_judged_again() -> None:
    assert judge(adapter_of(), "resume", Case(rows=9, stops=(2, 1))) is None
    found = judge(adapter_of("resume one row late"), "resume", Case(rows=9, stops=(3,)))
    assert found is not None
    assert found.kind == "lost"


def test_an_unknown_law_and_a_missing_state_are_named() -> None:
    with pytest.raises(
        ValueError, match="'ones' is not a law; the laws are once, ranks"
    ):
        check(adapter_of(), claims="ones")
    with pytest.raises(ValueError, match="'resume' needs state_of"):
        check(adapter_of(), state_of=None, claims="resume")


def test_without_hypothesis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "nanoset_ref.laws.case_search")
    with pytest.raises(ImportError, match=r'pip install "nanoset_ref\[laws\]"'):
        importlib.import_module("nanoset_ref.laws.case_search")


def test_a_loader_computes_though_the_caller_had_threads() -> None:
    """Threads do not survive a fork, and libraries would wait for them for ever."""

    def make(data: Any, **place: Any) -> Any:
        torch.ones(10**6).sum()
        return [[row] for row in range(data)]

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(10**6).sum()
    try:
        assert judge(make, "once", Case(rows=3), limit=60.0) is None
    finally:
        torch.set_num_threads(threads)


def test_torch_and_numba_are_not_imported() -> None:
    code = (
        "import sys; from nanoset_ref.laws import check; "
        "check(lambda data, **place: [], claims='repeat', examples=1); "
        "print({'torch', 'numba', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'numpy'}\n"


def test_errors_name_what_make_returns_and_its_signature_is_checked_first() -> None:
    report = check(lambda data, **place: 5, claims="once", examples=3, budget=600)
    assert "make returned 5, not an iterable of batches" in report.line("once")
    with pytest.raises(
        TypeError, match=r"must be a function make\(data, \*, rank, .*argument 'epoch'"
    ):
        check(lambda data, rank, world_size, workers, seed: [], claims="once")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit must be a number of seconds above 0"),
        ({"limit": "5"}, "limit must be a number of seconds above 0"),
        ({"limit": math.nan}, "limit must be a number of seconds above 0"),
        ({"limit": math.inf}, r"limit must be .* up to 86400 \(a day\), got inf"),
        ({"files": 0}, "files must be at least 1, got 0"),
        ({"tail": "x"}, "tail must be one of .*'drop', 'pad', .*'keep'.*, got 'x'"),
        ({"same_epochs": "no"}, "same_epochs must be one of .*, got 'no'"),
        ({"max_rows": 0}, "max_rows must be at least 1"),
        ({"max_ranks": 0}, "max_ranks must be at least 1"),
        ({"max_workers": -1}, "max_workers must be at least 0"),
        ({"max_batch_size": 2.5}, "max_batch_size must be an integer of at least 1"),
        ({"largest": "9"}, "largest must be an integer of at least 0"),
        ({"examples": 0}, "examples must be at least 1"),
    ],
    ids=str,
)
def test_a_field_out_of_range_is_no_finding(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(adapter_of(), laws=["once"], budget=2, **{"examples": 3} | options)


def test_no_laws_are_not_all_laws() -> None:
    def make(data: Any, **place: Any) -> Any:
        return []

    with pytest.raises(
        ValueError, match=r"laws must name a law, or be None .*got \[\]"
    ):
        check(make, laws=[], claims="once")
