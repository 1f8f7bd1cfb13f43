"""docs/waiting: drawn again out of the committed results, the pictures have the same words, and the page has each."""

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from test_cheat_sheet import words

from figures.draw import COLOURS, GREY, INK, LINES, RED

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = (DOCS / "waiting.md").read_text(encoding="utf-8")
RESULTS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "benchmarks" / "results").glob("waiting*.json")
}


@pytest.fixture(scope="module")
def pictures():
    spec = importlib.util.spec_from_file_location(
        "waiting_pictures", DOCS / "waiting_pictures.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_names_every_machine() -> None:
    text = json.dumps(RESULTS)
    for cpu in set(re.findall(r'"cpu": "([^"]*)"', text)):
        assert cpu.replace("(R)", "").removesuffix(" Processor") in PAGE


def test_drawn_again_they_have_the_same_words(pictures, tmp_path) -> None:
    pictures.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in (DOCS / "waiting").iterdir()}
    for name in names:
        found = words(tmp_path / name)
        assert found == words(DOCS / "waiting" / name), name


def test_each_has_its_title_its_limits_and_its_numbers(pictures) -> None:
    for name, (title, panels) in pictures.PICTURES.items():
        found = words(DOCS / "waiting" / f"{name}.svg")
        assert title in " ".join(found)
        for panel in (panel() for panel in panels):
            assert panel.limits
            numbers = {bar.said or panel.say(bar.value) for bar in panel.bars}
            limits = {limit.label for limit in panel.limits}
            assert {panel.heading} | numbers | limits <= set(found)


def test_the_page_has_each_picture_once_and_readme_the_overview(pictures) -> None:
    shown = re.findall(r"^!\[.+\]\(waiting/(\w+)\.svg\)$", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(pictures.PICTURES.keys() - {"overview"})
    assert "(docs/waiting/overview.svg)" in (ROOT / "README.md").read_text()


def test_their_colors_are_those_of_the_course(pictures) -> None:
    palette = {INK, GREY, RED, LINES[0], COLOURS[5], "#ffffff"}
    for path in (DOCS / "waiting").iterdir():
        assert set(re.findall(r"#[0-9a-f]{6}\b", path.read_text())) <= palette


def test_they_are_narrow_enough_for_a_phone() -> None:
    """Letters of 11 points in 404 are 9.8 pixels high in 360."""
    for path in (DOCS / "waiting").iterdir():
        assert float(ET.parse(path).getroot().get("width").removesuffix("pt")) <= 404


def bars(panel) -> list[float]:
    return [bar.value for bar in panel.bars]


def test_numbers_in_titles_were_measured(pictures) -> None:
    *most, transformers = bars(pictures.commands())
    assert max(most) <= 0.2
    assert transformers > 1
    questions = {bar.label: bar.value for bar in pictures.questions().bars}
    audits = [value for label, value in questions.items() if "audit" in label]
    assert max(audits) <= 0.75
    assert (
        max(
            questions[label]
            for label in questions
            if label[:5] in ("where", "when,", "compa")
        )
        <= 0.2
    )
    assert max(bars(pictures.first_batch())[:2]) < 0.02
    assert min(bars(pictures.text())) >= 0.8
    assert pictures.many_files().bars[0].value < 0.1
    assert pictures.very_many_files().bars[0].value > 1
    assert pictures.resumes().bars[0].value < 0.2
    ours = RESULTS["waiting_elastic"]["rows"]["nanoset_ref"]
    assert (ours["samples_lost"], ours["samples_read_twice"]) == (0, 0)
    assert max(bars(pictures.answers())) < 0.05
    short, medium, *long = bars(pictures.rows_of_text())
    assert max(short, medium) < 20 < min(long)


def test_two_digits(pictures) -> None:
    found = [pictures.digits(value) for value in (0, 0.8, 4.94, 12.4, 99.7, 134, 1234)]
    assert found == ["0.0", "0.80", "4.9", "12", "100", "130", "1,200"]
    assert [pictures.seconds(it) for it in (0.0123, 1.25)] == ["12 ms", "1.2 s"]
