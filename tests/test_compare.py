"""The command that compares two source trees, on tiny sizes: every row of its table, and its two processes."""

import contextlib
import functools
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import compare, measure_tree
from benchmarks.measure_tree import Sizes, measurements, rates

ROOT = Path(__file__).parent.parent
SIZES = ["--rounds", "1", "--scale", "0.005", "--seconds", "0.01"]
ROWS = {
    *(
        f"{kind} {length}, {workers} workers"
        for kind in ("read", "cold")
        for length in (512, 2048, 8192)
        for workers in (0, 2)
    ),
    *(f"bucket {length}" for length in (512, 2048, 8192)),
    *(f"megatron rows {length}" for length in (512, 2048, 8192)),
    *(f"stateless lookup {sources}" for sources in (1, 2, 8, 32, 128, 1000)),
    *(
        "megatron index",
        "preprocess, hf",
        "preprocess, gigatoken",
        "nanotron lookup 8",
        "nanotron build 8",
    ),
}


def shown(table: str) -> set[str]:
    """The rows of a table, all of whose figures are above 0."""
    rows = re.findall(
        r"^(.{24}) *([\d.e+]+) +([\d.e+]+) \S.*? ([\d.]+) +[\d.]+ - [\d.]+ +(?:[\d.]+|-)$",
        table,
        re.M,
    )
    assert all(float(number) > 0 for _, *numbers in rows for number in numbers)
    return {name.strip() for name, *_ in rows}


def test_every_measurement_is_a_row(tmp_path: Path, monkeypatch, capsys) -> None:
    """Each is done once, in this process, for both trees."""

    @functools.cache
    def ask(folder: str, name: str) -> dict[str, float]:
        return rates(measurements(Path(folder), Sizes.scaled(0.005))[name], 0.01)

    monkeypatch.setattr(
        compare, "start", lambda tree, arguments: contextlib.nullcontext(arguments[0])
    )
    monkeypatch.setattr(compare, "ask", ask)
    monkeypatch.setattr(measure_tree, "WARM_ROWS", 2_000)
    monkeypatch.setattr(
        sys,
        "argv",
        ["compare", str(ROOT), *SIZES, "--output", str(tmp_path / "result.json")],
    )
    compare.main()
    assert shown(capsys.readouterr().out) == ROWS
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result["rows"]) == ROWS and result["failures"] == {}
    for row in result["rows"].values():
        assert (
            len(row["old"]) == len(row["new"]) == 1
            and row["times_as_fast"]["wall"]["median"] > 0
        )


def test_a_measurement_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    """In two processes, the old tree being this one with a folder that cannot be imported."""
    broken = tmp_path / "nanoset_ref" / "megatron"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('this is broken')")
    for path in (ROOT / "nanoset_ref").iterdir():
        if path.name != broken.name:
            broken.with_name(path.name).symlink_to(path)
    words = ["--only", "megatron index", "nanotron build"]
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path), *SIZES, *words])
    with pytest.raises(
        SystemExit,
        match="^megatron index fails: old tree, ImportError: this is broken$",
    ):
        compare.main()
    assert shown(capsys.readouterr().out) == {"nanotron build 8"}
