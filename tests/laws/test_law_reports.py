"""Reports of broken laws: in words, as a table, as a page, and as a script that finds the case again."""

import importlib
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from laws.mutants import adapter_of
from nanoset_ref.io.files import write_text
from nanoset_ref.laws import LAWS, Case, Finding, LawReport, check
from nanoset_ref.laws.law_report import MISSING, READ, WRONGLY_READ, Outcome


def test_the_smallest_case_is_reported_in_words_and_as_a_table() -> None:
    report = check(adapter_of("state before delivery"), laws=["resume"], budget=600)
    outcome = report.outcomes["resume"]
    assert outcome.case == Case(rows=2, stops=(1,))
    assert str(outcome.finding) == (
        "doubled: stopped after 1 step and resumed, step 1 read what step 0 should have"
    )
    assert report.tables().splitlines()[-2:] == [
        "        step 0     step 1     step 2",
        "rank 0  0          0 (not 1)  1 (not -)",
    ]
    drawn = report._repr_html_()
    assert re.findall(r"<b [^>]*>([^<]+)</b>", drawn) == ["broken"]
    cells = re.findall('<td style="(.*?)">([^<]*)</td>', drawn)
    styles = READ, WRONGLY_READ, WRONGLY_READ
    texts = "0", "0 (not 1)", "1 (not -)"
    assert cells[-3:] == [*zip(styles, texts, strict=True)]
    kept = json.loads(report.to_json())
    assert kept["laws"]["resume"]["finding"]["kind"] == "doubled"
    assert kept["loader"] == report.loader
    assert {*LAWS} - {*kept["claims"]} == {"masks"}
    assert kept["versions"]["nanoset_ref"] == version("nanoset_ref")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept["date"])
    assert "0%20of%2018-red" in report.badge()


LATE_STATE = """
import numpy as np
from nanoset_ref.laws import Adapter

TABLE = np.arange(3)  # comparing it with an adapter gives three answers

class Loader:
    def __init__(self, rows, state):
        self.batches, self.start = [[row] for row in range(rows)], state or 0
        self.at = self.start

    def __iter__(self):
        for self.at in range(self.start, len(self.batches)):
            yield self.batches[self.at]

    def state(self):  # of the batch before
        return self.at

def make(data, *, rank, world_size, workers, seed, epoch, batch_size, state=None):
    return Loader(data, state)

ours = Adapter(make=make, state_of=Loader.state, claims="resume", max_ranks=1)
"""


@pytest.mark.parametrize("given", ["an adapter with a name", "a function and options"])
def test_the_script_of_a_counterexample_finds_it_again(tmp_path, monkeypatch, given):
    (tmp_path / "late_state.py").write_text(LATE_STATE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("late_state")
    if given == "an adapter with a name":
        report = check(module.ours, budget=600)
    else:
        options = {"state_of": module.Loader.state, "claims": "resume", "max_ranks": 2}
        report = check(module.make, **options, budget=600)
    assert report.broken == ["resume"]
    script = report.script("resume")
    assert ("state_of=Loader.state" in script) == (given == "a function and options")
    (tmp_path / "again.py").write_text(script)
    again = subprocess.run(
        [sys.executable, tmp_path / "again.py"], capture_output=True, text=True
    )
    assert again.returncode == 1
    assert again.stderr.strip() == str(report.outcomes["resume"].finding)


def test_a_long_trace_is_reported_by_the_steps_that_are_wrong() -> None:
    read = [(row,) for row in range(100)]
    read[70] = (3,)
    finding = Finding("doubled", "row 3 was read twice", [read], rows=(3,))
    report = LawReport(adapter_of(), {"once": Outcome(1, Case(rows=100), finding)})
    head, ranks = report.tables().splitlines()[-2:]
    assert (head.split(), ranks.split()) == (
        ["step", "3", "step", "70"],
        "rank 0 3 ! 3 !".split(),
    )
    kept = json.loads(report.to_json())["laws"]["once"]["finding"]
    assert kept["table"] == [head, ranks]


def test_a_page_draws_a_missing_batch_and_shares_the_table_of_two_laws() -> None:
    finding = Finding("hang", "rank 1 has no batch", [[(0,)], []])
    outcomes = {law: Outcome(1, Case(), finding) for law in ("once", "ranks")}
    report = LawReport(adapter_of(claims="once ranks repeat"), outcomes)
    others = " ".join(law for law in LAWS if law not in ("once", "ranks", "repeat"))
    notes = f"\nnot claimed: {others}\nStep 0 is the first."
    assert f"{notes}</pre>" in report._repr_html_()
    assert f"{notes}\n\nonce ranks: Case(rows=1)\n" in repr(report)
    right = LawReport(adapter_of(), {"once": Outcome(1)})
    assert repr(right).endswith("\nnot claimed: masks")
    assert [case for case, _ in report._cases()] == ["once ranks: Case(rows=1)"]
    assert report.to_html().count(f'<td style="{MISSING}">-</td>') == 1


def test_an_error_about_a_name_that_is_not_utf_8_is_in_the_page_and_in_the_script(
    tmp_path: Path,
) -> None:
    finding = Finding("crash", "OSError: no \udcff.npy")
    report = LawReport(adapter_of(), {"once": Outcome(1, Case(rows=1), finding)})
    for text in (report.to_html(), report.script("once")):
        write_text(tmp_path / "report", text)
        assert r"no \udcff.npy" in (tmp_path / "report").read_text(encoding="utf-8")
