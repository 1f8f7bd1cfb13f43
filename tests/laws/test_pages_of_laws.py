"""What docs/laws_of_loading.md and the page of peers say: their code, numbers, pictures and recorded runs."""

import importlib
import importlib.util
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.laws.record import short_table, table
from laws.mutants import FAULTS
from nanoset_ref.laws import LAWS, Case, check, judge

PAGE = Path(__file__).parents[2] / "docs" / "laws_of_loading.md"


def test_every_law_has_a_planted_fault_or_a_test_of_its_own_and_a_section() -> None:
    assert {*LAWS} - {*FAULTS.values()} == {"order", "masks"}
    assert [law for law in LAWS if f"\n### {law}\n" not in PAGE.read_text()] == []


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
    report = check(make, examples=5, budget=600)
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
