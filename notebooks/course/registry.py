"""The code behind the pages: openings, answers, figures and rules, each found by its key.

Notebook 05 has its code in `course/pages/page_05.py`: `opening()` draws the first picture, the
function marked `@answer("05.3", ...)` prints and draws what stands in the third fold, and the one
marked `@rule("05.1", ...)` judges the first exercise. A parameter of such a function is a variable
of the page: `def third(trained)` is called with the `trained` of the notebook.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

PAGES = "course.pages.page_"
Function = Callable[..., Any]


class Answer(NamedTuple):
    """What a fold shows, and the guess that is right.

    Attributes:
        run: prints and draws it.
        expects: the right guess: a number, a word, True or False, or a tuple.
        within: how far a number may be off.
        words: what only the fold may say. Neither the page before it nor its section after it does.
    """

    run: Function
    expects: Any
    within: float
    words: tuple[str, ...]


class Rule(NamedTuple):
    """Whether an answer to an exercise is right, and what to think of when it is not."""

    holds: Function
    hint: str


ANSWERS: dict[str, Answer] = {}
RULES: dict[str, Rule] = {}
FIGURES: dict[str, Function] = {}


def answer(
    key: str, expects: Any, *, words: tuple[str, ...], within: float = 0
) -> Callable[[Function], Function]:
    """Mark the function behind a fold; the arguments are those of `Answer`."""

    def mark(function: Function) -> Function:
        ANSWERS[key] = Answer(function, expects, within, words)
        return function

    return mark


def rule(key: str, hint: str) -> Callable[[Function], Function]:
    """Mark the function that judges an exercise; its first parameter is the reader's answer."""

    def mark(function: Function) -> Function:
        RULES[key] = Rule(function, hint)
        return function

    return mark


def figure(key: str) -> Callable[[Function], Function]:
    """Mark a function that shows a picture."""

    def mark(function: Function) -> Function:
        FIGURES[key] = function
        return function

    return mark


def page(key: str) -> ModuleType:
    """The code of the page that a key belongs to: "05" and "05.3" belong to notebook 05."""
    return importlib.import_module(f"{PAGES}{key[:2]}")


def opening(key: str) -> None:
    """Show the first picture of a page."""
    page(key).opening()


def draw(key: str) -> None:
    """Show a picture of a page, drawn from the page's variables."""
    page(key)
    call(FIGURES[key], variables_of_the_page())


def show_answer(key: str) -> None:
    """Print and draw what stands in a fold, from the page's variables: for copies without images/."""
    page(key)
    call(ANSWERS[key].run, variables_of_the_page())


def call(function: Function, variables: Mapping[str, Any], *given: Any) -> Any:
    """Call a function with `given`, then with the variables that its other parameters name.

    Raises:
        NameError: the page has no such variable yet.
    """
    parameters = list(inspect.signature(function).parameters.values())
    named = {}
    for parameter in parameters[len(given) :]:
        if parameter.name in variables:
            named[parameter.name] = variables[parameter.name]
        elif parameter.default is parameter.empty:
            raise NameError(
                f"{parameter.name} is not defined on this page yet: run the cells above this one"
            )
    return function(*given, **named)


def variables_of_the_page() -> dict[str, Any]:
    """The variables of the cell that called this module's or a sibling's function."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals["__name__"].startswith("course."):
        frame = frame.f_back
    return frame.f_globals if frame is not None else {}
