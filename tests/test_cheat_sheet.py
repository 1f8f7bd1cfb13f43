"""docs/cheat_sheet: drawn again, it has the same words; its laws and numbers are those of the package."""

import importlib.util
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref import Nanoset, Schedule

DOCS = Path(__file__).parent.parent / "docs"
REAL_RUNS = (DOCS / "real_runs.md").read_text(encoding="utf-8")


def words(path: Path) -> list[str]:
    """The texts of an SVG whose letters are curves: matplotlib names each in a comment."""
    comments = re.findall("<!-- (.*?) -->", path.read_text(encoding="utf-8"), re.DOTALL)
    return [unescape(text) for text in comments]


@pytest.fixture(scope="module")
def sheet():
    spec = importlib.util.spec_from_file_location(
        "cheat_sheet", DOCS / "cheat_sheet.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_drawn_again_it_has_the_same_words(sheet, tmp_path) -> None:
    sheet.save(tmp_path)
    found = words(tmp_path / "cheat_sheet.svg")
    assert found == words(DOCS / "cheat_sheet.svg")
    assert len(found) > 100
    for folder in (tmp_path, DOCS):
        pages = re.findall(
            rb"/Type /Page\b(?!s)", (folder / "cheat_sheet.pdf").read_bytes()
        )
        assert len(pages) == 1


def test_it_has_the_laws_of_loading_with_their_numbers(sheet) -> None:
    titles = re.findall(
        r"^## (\d+)\. (.+)$", (DOCS / "laws.md").read_text(), re.MULTILINE
    )
    shown = words(DOCS / "cheat_sheet.svg")
    assert len(titles) >= 11
    for number, title in titles:
        is_shown = number not in ("8", "9", "11")  # about files and code of the package
        assert (title in shown) == is_shown == (int(number) in sheet.GLOSSES)


def test_the_rows_are_those_of_the_package(sheet, tmp_path) -> None:
    said = dict(sheet.ROWS)
    T, S = 1000, 17
    path = tmp_path / "ids.npy"
    np.arange(T, dtype=np.uint16).tofile(path)
    assert "(T - 1) // S rows that overlap" in said["of T tokens"]
    assert Nanoset(path, None, S, 5).dataset_lengths == [(T - 1) // S]
    assert "T // (S + 1) disjoint" in said["of T tokens"]
    assert Nanoset(path, None, S, 5, disjoint=True).dataset_lengths == [T // (S + 1)]
    pieces = [[r, 2 * 4 - 1 - r] for r in range(4)]
    assert sorted(np.ravel(pieces)) == list(range(8))
    assert (
        "cp = 4: rank {} has pieces {} and {}".format(1, *pieces[1]) in said["zig-zag"]
    )


def test_the_worked_resume_is_the_schedule_s(sheet) -> None:
    text = " ".join(sheet.resume_lines())
    layouts = {"Rank 1: {}.": (4, 2), "Now on 2 ranks of 4 rows. Rank 1: {}.": (2, 4)}
    for sentence, (dp_size, rows) in layouts.items():
        schedule = Schedule(
            dp_size=dp_size, micro_batch_size=rows, batch_accumulation_per_replica=3
        )
        assert schedule.global_batch_size == 24
        batches = schedule.rank_batches(240, 1, 3).tolist()
        assert sentence.format(sheet.spelled(batches)) in text
    slot = Schedule(
        dp_size=4, micro_batch_size=2, batch_accumulation_per_replica=3,
        consumed_train_samples=240, first_step=11,
    ).slot(250)  # fmt: skip
    said = f"step {slot.step}, micro-batch {slot.micro_batch}, row {slot.row}, rank {slot.dp_rank}."
    assert said in text


def test_the_numbers_are_those_of_their_sources(sheet) -> None:
    numbers = {meaning: number for number, meaning, _ in sheet.numbers()}
    for number, _, source in sheet.numbers():
        if source == "docs/real_runs.md":
            assert number in REAL_RUNS
    (hours,) = [number for number in numbers.values() if "hours" in number]
    assert hours in REAL_RUNS
    N, S = 10**7, 1000
    is_read = np.zeros(N, bool)
    for start in np.random.default_rng(0).integers(0, N, N // S):
        is_read[start : start + S] = True  # nearly all crops end within the text
    said = "of tokens are never read in one epoch's worth of random crops (1/e)"
    assert numbers[said] == f"{1 - is_read.mean():.0%}"
    stateless = (DOCS.parent / "nanoset_ref" / "orders" / "stateless.py").read_text()
    assert "some 150 bytes per source" in stateless and "1.7 samples" in stateless
