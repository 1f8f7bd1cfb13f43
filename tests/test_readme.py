"""The README keeps its word: its commands and its code are run, and what it shows is what they print."""

import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.M | re.S)


def test_commands_and_code_do_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict = {}
    printed = ""
    checked = []
    for kind, block in BLOCKS:
        checked.append(kind)
        if kind == "sh" and not block.startswith("make "):
            result = subprocess.run(["sh", "-e", "-c", block], capture_output=True, text=True)
            assert result.returncode == 0, result.stderr
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(block, names)
            printed = output.getvalue()
        elif kind == "text":
            assert printed == block
    assert checked == ["sh", "sh", "python", "text", "sh"]


def test_make_has_the_targets_named() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"make (\w+)", README)
    assert {"lab", "test"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, flags=re.M) for target in targets)


def test_every_link_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
    for link in re.findall(r"urlpath=lab/tree/([^)\s]+)\)", README):
        assert (ROOT / link).is_file()


def test_every_notebook_is_listed() -> None:
    assert [path.name for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.name not in README] == []


def test_the_speeds_are_those_of_the_committed_measurement() -> None:
    measured = json.loads((ROOT / "benchmarks/results/reading.json").read_text())["million_tokens_per_second"]
    names = {
        "**nanoset_ref**": "nanoset_ref",
        "nanoset_ref, read ahead by a thread": "nanoset_ref, a thread",
        "nanoset_ref, every place for the first time": "nanoset_ref, first touch",
        "OLMo-core": "olmo",
        "Nanotron": "nanotron",
        "Megatron-Core": "megatron",
        "mosaicml-streaming": "mosaicml",
    }
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", README, flags=re.M)
    assert len(rows) == 11
    for label, *shown in rows:
        for number, candidates in zip(shown, measured.values(), strict=True):
            ours, theirs = candidates[names.get(label, label)]["wall"], candidates["nanotron"]["wall"]
            assert number == f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.1f}", label
