"""The map of the course and its pages agree on their sequence, their times and what they need."""

import itertools
import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
MAP = (NOTEBOOKS / "00_map.md").read_text(encoding="utf-8")
TIMES = (
    r"(?P<reading>\d+) minutes to read and predict, "
    r"(?P<exercises>\d+) for the exercises; \d+ seconds to run\.(?= \*\*|$)"
)
ROW = re.compile(r"^\| \[(\d\d) [^]]*\]\((\S+)\) \| ([^|]+) \| (\d+) \|", re.MULTILINE)


def minutes_of_the_map() -> dict[str, int]:
    """By number of a page, the minutes for it."""
    rows = ROW.findall(MAP)
    assert len({number for number, *_ in rows}) == len(rows)
    return {number: int(minutes) for number, _, _, minutes in rows}


def test_map_and_site_have_all_pages_in_one_order() -> None:
    site = (NOTEBOOKS.parent / "docs" / "contents.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\./notebooks/(\d\d_\w+)$", site, re.MULTILINE)
    pages = [page for _, page, _, _ in ROW.findall(MAP)]
    assert listed == ["00_map", *[page.removesuffix(".ipynb") for page in pages]]
    assert sorted(pages) == sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def test_a_page_names_the_next_one_of_the_map_at_its_top_and_once_at_its_end() -> None:
    pages = [page for _, page, _, _ in ROW.findall(MAP)]
    for place, (page, following) in enumerate(itertools.pairwise(pages), 1):
        cells = json.loads((NOTEBOOKS / page).read_text(encoding="utf-8"))["cells"]
        text = ["".join(cell["source"]) for cell in cells]
        assert f"*Page {place} of {len(pages)} in the order of the [map]" in text[0]
        assert f"Next: [{following[:2]}]({following})." in text[0], page
        named = f"Next: [{following[:2]}]({following})"
        assert text[-1].splitlines()[-1].startswith(named), page
        assert "\n".join(text[1:]).count("\nNext") == 1, page
        if place > 1:
            before = pages[place - 2]
            assert f"Before: [{before[:2]}]({before})." in text[0], page


def test_the_last_page_of_the_map_says_so_at_its_top() -> None:
    *_, before, last = [page for _, page, _, _ in ROW.findall(MAP)]
    cells = json.loads((NOTEBOOKS / last).read_text(encoding="utf-8"))["cells"]
    top = "".join(cells[0]["source"])
    place = len(ROW.findall(MAP))
    assert f"*Page {place} of {place} in the order of the [map]" in top
    assert f"Before: [{before[:2]}]({before}).*" in top


def times_of_page(number: str) -> re.Match[str]:
    """The line of a page that names its times."""
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    return re.search(r"\*\*Time\*\*: " + TIMES, text, re.MULTILINE)


def test_the_minutes_of_the_map_are_about_those_of_the_pages() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        page = json.loads(path.read_text(encoding="utf-8"))
        text = "\n".join("".join(cell["source"]) for cell in page["cells"])
        [said] = re.findall(r"\*\*Time\*\*: (.*)", text)
        times = re.match(TIMES, said)
        assert times, said
        total = int(times["reading"]) + int(times["exercises"])
        assert abs(minutes_of_the_map()[path.name[:2]] - total) <= 5, path.name


def reading_minutes(cells: list[dict]) -> float:
    """Minutes for 120 words, 30 lines of code or two predictions each, up to the exercises."""
    minutes = 0.0
    for cell in cells:
        text = "".join(cell["source"])
        if text.startswith("## Exercises"):
            break
        if cell["cell_type"] == "markdown":
            minutes += len(text.split()) / 120
        else:
            lines = [line for line in text.splitlines() if line.strip()]
            minutes += len(lines) / 30 + text.count("guess(") / 2
    return minutes


@pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda it: it.stem
)
def test_a_page_can_be_read_in_the_time_that_it_names(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    said = int(times_of_page(path.name[:2])["reading"])
    assert said == pytest.approx(reading_minutes(cells), rel=0.1)


def test_the_map_says_what_the_pages_need() -> None:
    needs = re.findall(r"^\| \[(\d\d) .*\| ([\d, ]*) ?\|$", MAP, re.MULTILINE)
    assert len(needs) == len(minutes_of_the_map())
    for number, said in needs:
        [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
        page = json.loads(path.read_text(encoding="utf-8"))
        text = "\n".join("".join(cell["source"]) for cell in page["cells"])
        [line] = re.findall(r"\*\*You need\*\*:? (.*?)The \[glossary\]|$", text)[:1]
        listed = sorted(re.findall(r"\[(\d\d)\]", line))
        assert listed == re.findall(r"\d\d", said), number


def test_the_minutes_of_a_path_are_the_sum_of_its_pages() -> None:
    paths = re.findall(
        r"^- \*\*\w+\*\*(.*?): (\d+) minutes, and (\d+) for the exercises",
        MAP,
        re.MULTILINE | re.DOTALL,
    )
    assert len(paths) == 3
    for pages, reading, exercising in paths:
        times = [times_of_page(number) for number in re.findall(r"\[(\d\d)\]", pages)]
        assert sum(int(it["reading"]) for it in times) == int(reading)
        assert sum(int(it["exercises"]) for it in times) == int(exercising)
