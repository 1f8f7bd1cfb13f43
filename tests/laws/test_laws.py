"""The parts of the laws: corpora, searches, reports, the command, the plugin and the pages."""

import importlib
import importlib.util
import json
import math
import re
import signal
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.laws.record import short_table, table
from laws.mutants import FAULTS, adapter_of
from nanoset_ref.io.files import write_text
from nanoset_ref.laws import (
    LAWS,
    Case,
    Finding,
    LawReport,
    check,
    judge,
    laws_command,
    write_corpus,
)
from nanoset_ref.laws.corpora import WRITERS
from nanoset_ref.laws.law_report import MISSING, READ, WRONGLY_READ, Outcome
from nanoset_ref.laws.pytest_plugin import Laws
from nanoset_ref.laws.trial import CaseRefused
from nanoset_ref.tokens import open_tokens


def in_file_order(data: Any, *, batch_size: int, **settings: Any) -> list[Any]:
    tokens = open_tokens(data.path).tokens
    rows = tokens[: len(tokens) // 8 * 8].reshape(-1, 8)
    starts = range(0, len(rows), batch_size)
    return [np.array(rows[start : start + batch_size]) for start in starts]


@pytest.mark.parametrize("form", ["npy", "bin", "ds"])
def test_rows_whose_tokens_do_not_fit_uint16(form: str) -> None:
    """A pair and a .ds file take int32; raw ids have no dtype to tell, so the case is refused."""
    largest, larger = (Case(rows=rows, batch_size=5) for rows in (8190, 8300))
    assert judge(in_file_order, "once", largest, format=form, claims="once") is None
    if form != "npy":
        assert judge(in_file_order, "once", larger, format=form, claims="once") is None
        return
    with pytest.raises(CaseRefused, match="has numbers for 8,190 rows, got 8,300"):
        judge(in_file_order, "once", larger, format=form, claims="once")
    growth = check(in_file_order, format=form, claims="growth", examples=1)
    assert "has numbers for 8,190 rows, got 65,536" in growth.line("growth")


@pytest.mark.parametrize("form", ["npy", "bin", "ds", "jsonl", "parquet", "tar"])
def test_a_corpus_is_written_in_each_format(form: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, form, [3, 2], [0.5, 0.5])
    assert len(corpus.paths) == 2
    if form in ("bin", "ds"):
        tokens = open_tokens(corpus.paths[1])
        assert tokens.num_tokens == 16
    assert {*WRITERS} >= {"mds", "litdata", form}


@pytest.mark.parametrize(
    ("form", "module", "package"),
    [("mds", "streaming", "mosaicml-streaming"), ("litdata", "litdata", "litdata")],
)
def test_a_format_names_the_package_that_writes_it(
    form: str,
    module: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"{form} needs .*: pip install {package}"):
        write_corpus(tmp_path, form, [3])


def test_the_fixture_takes_the_number_of_examples() -> None:
    def make(data: int, **_: Any) -> Any:
        return [[row] for row in range(data)]

    Laws(20.0, 0).hold(make, claims="once", examples=2, max_ranks=1, max_batch_size=1)


def test_a_format_that_is_unknown_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be rows or one of npy"):
        write_corpus(tmp_path, "xyz", [3])


def test_the_smallest_case_is_reported_in_words_and_as_a_table() -> None:
    report = check(adapter_of("state before delivery"), laws=["resume"], budget=20)
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
        report = check(module.ours, budget=20)
    else:
        options = {"state_of": module.Loader.state, "claims": "resume", "max_ranks": 2}
        report = check(module.make, **options, budget=20)
    assert report.broken == ["resume"]
    script = report.script("resume")
    assert ("state_of=Loader.state" in script) == (given == "a function and options")
    (tmp_path / "again.py").write_text(script)
    again = subprocess.run(
        [sys.executable, tmp_path / "again.py"], capture_output=True, text=True
    )
    assert again.returncode == 1
    assert again.stderr.strip() == str(report.outcomes["resume"].finding)


def test_a_broken_resume_is_not_searched_again_with_a_kill() -> None:
    report = check(
        adapter_of("resume one row late"), laws=["resume", "killed"], budget=20
    )
    resume, killed = (report.outcomes[law] for law in report.broken)
    assert (killed.case, killed.cases) == (resume.case, 1)
    assert str(killed.finding) == str(resume.finding).replace("stopped", "killed")


def test_a_search_of_its_own_where_the_known_case_does_not_break_the_law() -> None:
    report = check(adapter_of("state in the process"), laws=["killed"], budget=20)
    assert report.broken == ["killed"]


def test_a_hang_and_a_crash_say_where() -> None:
    def make(data: Any, *, seed: int, **place: Any) -> Any:
        if seed == 0:
            sleep(60)
        if seed == 1:
            signal.raise_signal(signal.SIGSEGV)  # in this thread, as a real one
        if seed == 2:
            sys.exit("no data")
        json.loads([])

    first = make.__code__.co_firstlineno
    for seed, line, words in (
        (0, 2, "hang: no answer in 1 s"),
        (1, 4, "crash: the process died: exit code -11"),
        (2, 6, "crash: SystemExit: no data"),
        (
            3,
            7,
            "crash: TypeError: the JSON object must be str, bytes or bytearray, not list",
        ),
    ):
        found = judge(make, "repeat", Case(seed=seed), limit=1.0)
        assert str(found) == f"{words}, in make (test_laws.py:{first + line})"


def test_a_slow_loader_is_not_asked_for_more_rows_than_it_reads_in_the_limit() -> None:
    def make(data: int, *, rank: int, world_size: int, **settings: Any) -> Any:
        for row in range(rank, data, world_size):
            sleep(0.0004)
            yield [row]

    options = {"claims": "once", "max_rows": 9, "max_batch_size": 1, "limit": 1.0}
    report = check(make, examples=3, rows_of=list, **options)
    assert str(report.outcomes["once"].finding) == "None"
    assert report.outcomes["once"].cases > 3


def test_a_crash_says_where_though_a_library_has_replaced_the_handlers(
    tmp_path: Path,
) -> None:
    (tmp_path / "crash.py").write_text(
        "import faulthandler, signal\n"
        "from nanoset_ref.laws import Case, judge\n"
        "def make(data, **place):\n"
        "    signal.raise_signal(signal.SIGSEGV)\n"
        "faulthandler.enable()\n"
        "signal.signal(signal.SIGSEGV, signal.SIG_DFL)\n"
        "print(judge(make, 'repeat', Case(), limit=5.0))\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "crash.py"], capture_output=True, text=True
    )
    assert (
        done.stdout == "crash: the process died: exit code -11, in make (crash.py:4)\n"
    )


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
        assert judge(make, "once", Case(rows=3), limit=10.0) is None
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


LOADER = """
from nanoset_ref.laws import adapter

@adapter(claims="once ranks", tail="drop")
def make(data, *, rank, world_size, batch_size, **place):
    step = world_size * batch_size
    for first in range(0, data - step + 1 - {less}, step):
        yield list(range(first + rank * batch_size, first + (rank + 1) * batch_size))
"""


def test_the_command_judges_a_function_of_a_module(tmp_path: Path) -> None:
    for name, less, code in (("right", 0, 0), ("wrong", 1, 1)):
        (tmp_path / f"{name}.py").write_text(LOADER.format(less=less))
        words = [f"{name}:make", "--budget", "20", "--html", "laws.html", "--badge"]
        words.append("--overwrite")  # the report of the loader before
        program = "import sys; from nanoset_ref.laws.laws_command import main; sys.exit(main())"
        call = [sys.executable, "-c", program, *words]
        done = subprocess.run(
            call, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (code, "")
        assert done.stdout.splitlines()[1].split()[:2] == ["ranks", "holds"]
        assert done.stdout.splitlines()[2].startswith(
            "not claimed: order workers repeat"
        )
        page = (tmp_path / "laws.html").read_text()
        assert f"<title>{name}:make under the laws of loading</title>" in page
        assert f"nanoset_ref {version('nanoset_ref')}; seed 0" in page
        assert (">broken</b>" in page) == bool(code)


def test_an_error_about_a_name_that_is_not_utf_8_is_in_the_page_and_in_the_script(
    tmp_path: Path,
) -> None:
    finding = Finding("crash", "OSError: no \udcff.npy")
    report = LawReport(adapter_of(), {"once": Outcome(1, Case(rows=1), finding)})
    for text in (report.to_html(), report.script("once")):
        write_text(tmp_path / "report", text)
        assert r"no \udcff.npy" in (tmp_path / "report").read_text(encoding="utf-8")


def test_the_badge_leaves_the_json_of_the_command_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loader_of_json.py").write_text(LOADER.format(less=0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command adds the folder
    words = ["loader_of_json:make", "--law", "once", "--json", "--badge"]
    assert laws_command.main(words) == 0
    output = capsys.readouterr()
    assert set(json.loads(output.out)["laws"]) >= {"once"}
    assert output.err.startswith("![laws of loading](")


def test_the_plugin_has_a_test_for_all_laws_and_one_for_each(tmp_path: Path) -> None:
    (tmp_path / "test_loader.py").write_text(
        LOADER.format(less=1)
        + "\ndef test_all(laws):\n    laws.hold(make)\n\ndef test_each(loading_law):\n    loading_law.hold(make)\n"
    )
    options = "-q -p no:cacheprovider --laws-budget 20".split()
    call = [sys.executable, "-m", "pytest", *options, "test_loader.py"]
    done = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    assert f"2 failed, 1 passed, {len(LAWS) - 2} skipped" in done.stdout
    assert "row 0 was never read" in done.stdout


def test_every_law_has_a_planted_fault_or_a_test_of_its_own_and_a_section() -> None:
    assert {*LAWS} - {*FAULTS.values()} == {"order", "masks"}
    assert [law for law in LAWS if f"\n### {law}\n" not in PAGE.read_text()] == []


PAGE = Path(__file__).parents[2] / "docs" / "laws_of_loading.md"


def loader_on_the_page(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`make` of a block of code that begins with the name of its file."""
    (code,) = re.findall(
        rf"```python\n(# {name}\.py\n.*?)```", PAGE.read_text(), re.DOTALL
    )
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name).make


def test_get_batch_on_the_page_holds_its_laws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = loader_on_the_page("nanogpt_loader", tmp_path, monkeypatch)
    report = check(make, examples=5, budget=60)
    assert (report.broken, report.unjudged) == ([], [])


def test_the_stream_on_the_page_resumes_before_its_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = loader_on_the_page("hf_loader", tmp_path, monkeypatch)
    case = Case(rows=5, batch_size=2, stops=(1, 0))
    for law in make.claims.split():
        assert judge(make, law, case) is None
    found = judge(
        make, "resume", case, state_of=lambda loader: loader.dataset.state_dict()
    )
    if version("datasets") == "5.2.0":
        assert "step 1 read what step 0 should have" in str(found)


def test_the_page_says_how_well_five_orders_shuffle() -> None:
    page = PAGE.read_text()
    (code,) = re.findall(
        r"```python\n(import numpy.*?def mixing.*?)```", page, re.DOTALL
    )
    found: dict[str, Any] = {}
    exec(code, found)
    for order, rows in read_orders().items():
        assert f"| {order} | {found['mixing'](rows):,.2f} |" in page
    draw = np.random.default_rng(1).permutation
    scores = [found["mixing"](draw(10_000)) for _ in range(1000)]
    low, high = np.quantile(scores, [0.01, 0.99])
    assert abs(low - 0.67) < 0.04 and abs(high - 1.40) < 0.05


def read_orders(n: int = 10_000) -> dict[str, Any]:
    """By name, which row of a file of n rows is read at each position."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {"a fair shuffle": random.permutation(n)}
    for buffer in (5000, 1000):
        fillings = [random.permutation(buffer) + first for first in range(0, n, buffer)]
        name = f"a buffer of {buffer:,} rows, emptied as a whole"
        found[name] = np.concatenate(fillings)
    pieces = random.permutation(n // 100)
    found["shuffled pieces of 100 rows"] = (
        100 * pieces[:, None] + np.arange(100)
    ).ravel()
    found["row 617 *k* mod 10,000 at position *k*"] = 617 * np.arange(n) % n
    return found


def test_the_pictures_on_the_page_are_those_that_the_script_draws(
    tmp_path: Path,
) -> None:
    spec: Any = importlib.util.spec_from_file_location(
        "pictures", PAGE.parent / "laws_pictures.py"
    )
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    assert [*pictures.PICTURES] == [*LAWS]
    for law, lanes in pictures.PICTURES.items():
        drawn = PAGE.parent / "images" / "laws" / f"{law}.svg"
        assert drawn.read_text() == pictures.draw(law, lanes)
        assert drawn.stat().st_size < 6000
        assert f"![{pictures.words(law)}](images/laws/{law}.svg)" in PAGE.read_text()


def test_the_page_of_peers_shows_the_committed_results() -> None:
    """As `python -m benchmarks.laws.record --table` prints them."""
    page = Path(__file__).parents[2] / "docs" / "peers_under_the_laws.md"
    assert table() in page.read_text()
    assert short_table() in PAGE.read_text()
    results = json.loads(
        (page.parents[1] / "benchmarks" / "results" / "laws_peers.json").read_text()
    )
    assert {record["month"] for record in results.values()} == {"2026-11"}
    assert "All were tested in November 2026" in page.read_text()
    loaders = (
        page.parent / "loaders.md"
    ).read_text()  # has the versions that were tested
    for name, package in {
        "HF datasets": "datasets",
        "litData": "litdata",
        "grain": "grain",
    }.items():
        (row,) = re.findall(rf"^\| \*\*{name}\*\* .*", loaders, re.MULTILINE)
        tested = re.findall(rf"\({package} ([\d.]+)\)", " ".join(results))
        assert max(tested) in row, (name, tested)


def test_the_page_has_the_recorded_runs_of_right_loaders_and_planted_faults() -> None:
    results = json.loads(
        (PAGE.parents[1] / "benchmarks" / "results" / "laws.json").read_text()
    )
    assert results["false alarms"] == []
    assert (
        f"({results['runs']:,} runs, {results['cases']:,} cases, no false"
        in PAGE.read_text()
    )
    assert f"{len(results['faults'])} faults planted" in PAGE.read_text()
    assert all(fault["found"] for fault in results["faults"].values())
    assert {*results["faults"]} == {*FAULTS}


def test_what_make_returns_is_named_and_its_signature_is_checked_first() -> None:
    report = check(lambda data, **place: 5, claims="once", examples=3, budget=20)
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


def test_a_corpus_has_a_plain_name(tmp_path: Path) -> None:
    """Some libraries take a path for a pattern, in which brackets and blanks mean something."""

    def make(data: Any, **place: Any) -> Any:
        assert re.fullmatch(r"[\w./-]+", data.path), data.path
        return [
            np.arange(8 * (row + 1), 8 * (row + 2)) for row in range(sum(data.rows))
        ]

    report = check(
        make, claims="once", format="npy", max_ranks=1, max_batch_size=1, budget=20
    )
    assert report.broken == []


def test_a_corpus_of_shards_has_a_file_for_each() -> None:
    def make(data: Any, *, rank: int, world_size: int, **place: Any) -> Any:
        assert len(data.paths) == len(data.rows) == min(3, sum(data.rows))
        for path in data.paths[rank::world_size]:
            with tarfile.open(path) as archive:
                for member in archive:
                    yield archive.extractfile(member).read().decode()  # type: ignore[union-attr]

    options = {"format": "tar", "files": 3, "max_batch_size": 1}
    report = check(make, claims="once data", examples=9, budget=20, **options)
    assert (report.broken, report.unjudged) == ([], [])


def test_claims_that_are_no_string_are_refused_by_the_fixture_too() -> None:
    def make(data: Any, **place: Any) -> Any:
        return []

    with pytest.raises(
        TypeError, match="claims must be one string of names, got .'once'."
    ):
        Laws(1.0, 0, "once").hold(make, claims=["once"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("right", "a loader is named MODULE:NAME, such as right:make; got 'right'"),
        (
            "right:mak",
            "right has no 'mak'; name a function or an adapter of the module",
        ),
        (
            "nowhere:make",
            "cannot import nowhere: ModuleNotFoundError: No module named 'nowhere'",
        ),
        (
            "typing_error:make",
            "unexpected keyword argument 'formt'",
        ),
        ("script:make", "cannot import script: SystemExit: 0, in <module> (script.py"),
        (
            "./right.py:make",
            "not a path; got './right': go to its folder, and name right:",
        ),
        ("right:make --html no/laws.html", "no/laws.html: there is no folder no; make"),
        ("right:make --script no/laws.py", "no/laws.py: there is no folder no; make"),
        ("right:make --html right.py", "right.py is read and cannot be written"),
        ("right:make --script right.py", "right.py is read and cannot be written"),
        ("right:make --script wrong.py", "wrong.py exists and is left unchanged"),
        ("right:make --html wrong.py", "wrong.py exists and is left unchanged"),
        ("claims_list:make", "claims must be one string of names, got ['once']"),
        ("no_format:make", "format must be rows or one of npy, bin"),
    ],
)
def test_a_wrong_module_or_adapter_is_an_error_in_one_line_and_no_broken_law(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    name: str,
    message: str,
) -> None:
    right = LOADER.format(less=0)
    for module, text in (
        ("right", right),
        ("wrong", right),
        ("script", f"{right}\nraise SystemExit(0)"),
        ("typing_error", right.replace("tail=", "formt=")),
        ("claims_list", right.replace('"once ranks"', '["once"]')),
        ("no_format", right.replace("tail=", "format='bin16', tail=")),
    ):
        (tmp_path / f"{module}.py").write_text(text.strip())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "right", raising=False)
    assert laws_command.main(name.split()) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.out == ""
    assert laws_command.main(["right.py:make", "--budget", "1e-9"]) == 3


def test_the_traceback_of_a_worker_is_one_line_with_its_innermost_frame() -> None:
    def make(data: Any, **place: Any) -> Any:
        worker = (
            "Caught IndexError in DataLoader worker process 0.\nOriginal Traceback (most recent "
            'call last):\n  File "/a/rows.py", line 7, in fetch\nIndexError: list index out of range\n'
        )
        raise IndexError(worker)

    assert str(judge(make, "repeat", Case(rows=9))) == (
        "crash: IndexError: Caught IndexError in DataLoader worker process 0. ... "
        "IndexError: list index out of range, in fetch (rows.py:7)"
    )
