"""Every mention of a law has a number that docs/laws.md defines, and points to that page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = "nanoset_ref", "tests", "benchmarks", "docs", "notebooks"
KINDS = {".py", ".pyi", ".md", ".ipynb", ".yaml"}
NUMBERED = re.compile(r"\blaws?\s+(\d+(?:(?:,|,? and| to)\s+\d+)*)", re.IGNORECASE)
COUNTED = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten) laws\b", re.IGNORECASE
)


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of every file of ours that a reader may open."""
    paths = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        paths += [path for path in (ROOT / folder).rglob("*") if path.suffix in KINDS]
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        if "golden" not in path.parts and name not in (
            "docs/laws.md",
            "tests/test_laws_page.py",
        ):
            yield name, path.read_text(encoding="utf-8")


def laws() -> set[int]:
    page = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    return {int(number) for number in re.findall(r"^## (\d+)\. ", page, re.MULTILINE)}


def mentioned(text: str) -> set[int]:
    """The numbers of the laws that a text names."""
    found = " ".join(NUMBERED.findall(text))
    return {int(number) for number in re.findall(r"\d+", found)}


def test_a_law_is_named_by_its_number_and_the_page_that_defines_it() -> None:
    naming = 0
    for name, text in texts():
        numbers = mentioned(text)
        assert numbers <= laws(), (name, numbers)
        assert not numbers or "docs/laws.md" in text, (
            f"{name} names a law but not docs/laws.md"
        )
        assert not COUNTED.search(text), (
            f"{name} counts laws, which only docs/laws.md does"
        )
        naming += bool(numbers)
    assert naming >= 4


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("law 3 says so", {3}),
        ("(Laws 1 and 2 of the package)", {1, 2}),
        ("laws 1, 4, and 10", {1, 4, 10}),
        ("a law\n3 lines long", {3}),
        ("Little's law; Scaling Laws", set()),
    ],
)
def test_numbers_are_found_in_every_form(text: str, numbers: set[int]) -> None:
    assert mentioned(text) == numbers
