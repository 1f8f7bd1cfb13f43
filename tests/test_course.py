"""What the notebooks share does what its docstrings say."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from course import (
    DOCUMENTS,
    check,
    exercises,
    guess,
    guesses,
    pieces,
    registry,
    show,
    show_source,
    tally,
    tiny_corpus,
)
from course.drift import start_ranks
from course.pictures import show_table
from course.registry import Answer, Rule
from nanoset_ref import Nanoset, TokenFile


def test_the_tiny_corpus_holds_its_documents_and_ten_samples(tmp_path: Path) -> None:
    files = {source: TokenFile(path) for source, path in tiny_corpus(tmp_path).items()}
    for (source, file), samples in zip(files.items(), (5, 3, 2), strict=True):
        assert Nanoset(file.path, None, 8, 1).order.samples_per_epoch == samples
        assert "".join(pieces(file.tokens, tmp_path)).split("EOS") == [
            *DOCUMENTS[source],
            "",
        ]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A page 99 with a question and an exercise, and a cache folder of its own."""
    asked = {
        "99.1": Answer(print, 70, 5, ("70%",)),
        "99.2": Answer(print, "Both", 0, ("both",)),
        "99.3": Answer(print, (2, 1), 0, ("two",)),
        "99.4": Answer(print, True, 0, ("yes",)),
    }
    monkeypatch.setattr(registry, "page", lambda key: None)
    for module in (exercises, guesses):
        monkeypatch.setattr(module, "page", lambda key: None)
    monkeypatch.setattr(registry, "ANSWERS", asked)
    monkeypatch.setattr(guesses, "ANSWERS", asked)
    monkeypatch.setattr(guesses, "_here", {})
    monkeypatch.setattr(guesses, "KEPT", tmp_path / "cache" / "guesses.json")
    monkeypatch.setitem(
        exercises.RULES, "99.1", Rule(lambda it: it + 1 == 8, "count again")
    )
    monkeypatch.setitem(exercises.RULES, "99.2", Rule(lambda it: list(it()), "iterate"))
    monkeypatch.setitem(
        exercises.RULES, "99.3", Rule(lambda it, WANTED: it == WANTED, "look up")
    )


WANTED = 5  # a variable of the page that calls check


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (..., ""),
        ((..., 1), ""),
        (7, "right"),
        (8, "not yet: count again"),
        ("x", "not yet: count again (your answer raised TypeError"),
        (np.array([7, 7]), "not yet: count again (your answer raised ValueError"),
        (eval("lambda: 7"), "not yet: count again (your answer raised TypeError"),
    ],
)
def test_a_check_says_right_or_what_to_think_of_and_nothing_of_an_open_answer(
    page, answer, said: str, capsys
) -> None:
    check("99.1", answer)
    printed = capsys.readouterr().out
    assert printed.startswith(said)
    assert bool(printed) == bool(said)


def test_a_class_with_an_open_method_is_open(page, capsys) -> None:
    class Unwritten:
        def __iter__(self):
            return ...

    check("99.2", Unwritten)
    assert capsys.readouterr().out == ""


def test_a_dataclass_is_checked_without_the_source_of_what_it_generates(
    page, capsys
) -> None:
    @dataclass
    class Written:
        number: int = 7

        def __iter__(self):
            return iter(())

    check("99.2", Written)
    assert capsys.readouterr().out == "not yet: iterate\n"


@dataclass
class Described:
    make: object
    claims: object


@pytest.mark.parametrize(
    "answer",
    [
        Described(eval("lambda data: data"), ...),
        Described(test_a_class_with_an_open_method_is_open, "once"),  # returns dots
        (test_a_class_with_an_open_method_is_open, "once"),
    ],
)
def test_an_answer_with_an_open_part_is_open(answer: object) -> None:
    assert exercises.is_open(answer)
    assert not exercises.is_open(Described(eval("lambda data: data"), "once"))


def test_a_rule_reads_the_variables_of_the_page_that_asks(page, capsys) -> None:
    check("99.3", 5)
    assert capsys.readouterr().out == "right\n"


def test_a_variable_that_the_page_has_not_made_is_named() -> None:
    with pytest.raises(NameError, match="lengths is not defined on this page yet"):
        registry.call(lambda lengths: lengths, {})


@pytest.mark.parametrize(
    ("key", "guessed", "is_right"),
    [
        ("99.1", 66, True),
        ("99.1", 64, False),
        ("99.1", "much", False),
        pytest.param("99.1", 10**400, False, id="huge"),
        ("99.1", True, False),
        ("99.2", " both", True),
        ("99.3", [2, 1], True),
        ("99.3", (1, 2), False),
        ("99.4", True, True),
        ("99.4", 1, False),
    ],
)
def test_a_guess_is_compared_and_counted(
    page, key, guessed, is_right: bool, capsys
) -> None:
    guess(key, guessed)
    tally("99")
    said, counted = capsys.readouterr().out.splitlines()
    assert said.startswith("right" if is_right else "not so")
    assert counted == f"you guessed {int(is_right)} of 4 right; 3 are open"
    assert guesses.kept() == {key: is_right}
    assert guesses.summary() == f"you guessed {int(is_right)} of 1 right, on 1 pages"


def test_an_open_guess_prints_nothing_and_leaves_nothing_behind(page, capsys) -> None:
    guess("99.1", ...)
    tally("99")
    assert capsys.readouterr().out == ""
    assert not guesses.KEPT.exists()


def test_a_guess_counts_where_nothing_can_be_kept(page, capsys) -> None:
    guesses.KEPT.parent.parent.joinpath("cache").write_text("a file, so no folder")
    guess("99.1", 70)
    assert capsys.readouterr().out.startswith("right")
    assert guesses.kept() == {}


def test_damage_to_the_kept_guesses_is_no_error(page) -> None:
    guesses.KEPT.parent.mkdir()
    guesses.KEPT.write_text("[half a li")
    guess("99.2", "both")
    assert guesses.kept() == {"99.2": True}


def test_only_what_is_true_or_false_counts_as_a_kept_guess(page) -> None:
    guesses.KEPT.parent.mkdir()
    guesses.KEPT.write_text('{"99.1": "x", "99.2": true, "99.3": null}')
    assert guesses.summary() == "you guessed 1 of 1 right, on 1 pages"


def test_a_picture_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="one width"):
        show(Figure(figsize=(3, 2)), "", "")


@pytest.fixture
def displayed(monkeypatch) -> list:
    shown: list = []
    monkeypatch.setattr("course.pictures.display", shown.append)
    return shown


def test_a_table_has_its_numbers_at_the_right(displayed) -> None:
    show_table(["way", "cut"], [["wrap", "3.5%"], ["pad", "0.0%"]])
    lines = "| way | cut |\n| :--- | ---: |\n| wrap | 3.5% |\n| pad | 0.0% |"
    assert displayed[0].data == lines


def test_a_source_has_the_colors_of_code(displayed) -> None:
    show_source(pieces)
    assert displayed[0].data.startswith("```python\ndef pieces(")


def test_the_ranks_of_notebook_04_meet_in_a_folder_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "My Notebooks ü#?"
    (folder / "data").mkdir(parents=True)
    monkeypatch.chdir(folder)
    started: list[list[str]] = []

    class Job:
        def __init__(self, command: list[str], **options: object) -> None:
            started.append(command)

        def communicate(self) -> tuple[str, None]:
            return "two equal batches", None

    monkeypatch.setattr("course.drift.subprocess.Popen", Job)
    assert start_ranks("a.npy", [1, 1]) == ["two equal batches"] * 2
    meeting = str(folder / "data/04_meeting")
    assert [command[2:] for command in started] == [
        [meeting, "a.npy", "1", "1", rank] for rank in "01"
    ]
