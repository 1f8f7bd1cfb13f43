"""The command that compares two source trees, on tiny sizes: this tree with itself."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIZES = ["--rounds", "1", "--scale", "0.005", "--seconds", "0.01"]
ROWS = {
    *(f"read {length}, {workers} workers" for length in (512, 2048, 8192) for workers in (0, 2)),
    *(f"megatron rows {length}" for length in (512, 2048, 8192)),
    *(f"stateless lookup {sources}" for sources in (1, 2, 8, 32, 128, 1000)),
    *("megatron index", "preprocess, hf", "preprocess, gigatoken", "nanotron lookup 8", "nanotron build 8"),
}


def compare(old_tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.compare", str(old_tree), *SIZES, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_tree_compared_with_itself_fills_every_row(tmp_path: Path) -> None:
    pytest.importorskip("gigatoken")
    done = compare(ROOT, "--output", str(tmp_path / "result.json"))
    assert done.returncode == 0, done.stderr
    table = re.findall(
        r"^(.{24}) *([\d.e+]+) +([\d.e+]+) \S.*? ([\d.]+) +[\d.]+ - [\d.]+ +(?:[\d.]+|-)$", done.stdout, re.M
    )
    assert {name.strip() for name, *_ in table} == ROWS
    assert all(float(number) > 0 for _, *numbers in table for number in numbers)
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result["rows"]) == ROWS and result["failures"] == {}
    for row in result["rows"].values():
        assert len(row["old"]) == len(row["new"]) == 1 and row["times_as_fast"]["wall"]["median"] > 0


def test_a_measurement_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "nanoset_ref").mkdir()
    (tmp_path / "nanoset_ref" / "__init__.py").touch()
    done = compare(tmp_path, "--only", "nanotron build")
    assert done.returncode == 1
    assert re.search("^nanotron build 8 fails: old tree, (ModuleNotFound|Import)Error: .*orders", done.stderr, re.M)
