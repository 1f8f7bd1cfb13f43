"""Exercises arrive open and say what is wrong; none of them stops the notebook."""

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from course.registry import RULES, call, page, variables_of_the_page

OPEN = re.compile(r"(^|[=:,]|\breturn|\byield)\s*\.\.\.\s*(#.*)?$", re.MULTILINE)


def check(key: str, answer: Any) -> None:
    """Print "right", or "not yet" with the hint. Nothing is raised, whatever the answer is.

    Args:
        key: of the exercise, such as "05.3": its rule and hint are in `course/pages/page_05.py`.
        answer: what the reader put in the place of `...`: a value, a function, or a class. While
            the dots stand nothing is printed: a page that nobody has worked through has no output
            below its exercises.
    """
    if is_open(answer):
        return
    page(key)
    rule = RULES[key]
    try:
        # an array has no truth value
        is_right = bool(call(rule.holds, variables_of_the_page(), answer))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        print(f"not yet: {rule.hint} (your answer raised {said})")
        return
    print("right" if is_right else f"not yet: {rule.hint}")


def is_open(answer: Any) -> bool:
    """Whether three dots still stand in the place of an answer, or of a part of it."""
    parts = [answer]
    if isinstance(answer, tuple):
        parts = list(answer)
    elif inspect.isclass(answer) or is_dataclass(answer):
        parts = list(vars(answer).values())
    functions = [part for part in parts if inspect.isfunction(part)]
    has_dots = any(part is ... for part in parts)
    return has_dots or any(OPEN.search(_source_of(it)) for it in functions)


def _source_of(function: Any) -> str:
    """The source; "" where there is none, as for what a dataclass generates."""
    try:
        return inspect.getsource(function)
    except OSError:
        return ""
