"""How the package is written: one decision a line, and the words of the field."""

import ast
import re
from collections import Counter

import pytest
from package_modules import MODULES, Guards, above

# words of ours where the field has its own; "room" is free space in a row, and "mix" is a command
METAPHORS = re.compile(
    r"\b(dress\w*|roads?|house|dialects?|whoever|who waits)\b", re.IGNORECASE
)


def tuples_of_calls() -> Counter[str]:
    """Assignments of several computations at once: `a, b = f(x), g(y)`."""
    found: Counter[str] = Counter()
    for module in MODULES:
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(
                node.value, ast.Tuple
            ):
                continue
            if not isinstance(node.targets[0], ast.Tuple):
                continue  # a pair as a value
            values = [part for value in node.value.elts for part in ast.walk(value)]
            found[module.name] += any(isinstance(value, ast.Call) for value in values)
    return found


def nested_conditionals() -> Counter[str]:
    found: Counter[str] = Counter()
    for module in MODULES:
        for node in module.nodes:
            if isinstance(node, ast.IfExp):
                inner = [part for part in ast.walk(node) if part is not node]
                found[module.name] += any(isinstance(part, ast.IfExp) for part in inner)
    return found


def metaphors() -> Counter[str]:
    """Words that `METAPHORS` lists, in code, docstrings, comments and messages."""
    return Counter(
        {
            module.name: len(METAPHORS.findall(module.path.read_text(encoding="utf-8")))
            for module in MODULES
        }
    )


# guard: how it is measured, the goal, and the exceptions
GUARDS: Guards = {
    "assignments of several calls": (tuples_of_calls, 0, {}),
    "conditional expressions in one another": (nested_conditionals, 0, {}),
    "private words": (metaphors, 0, {}),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_nothing_is_written_in_a_way_that_is_read_twice(guard: str) -> None:
    assert above(*GUARDS[guard]) == {}


def test_no_statement_is_torn_by_a_comment_at_its_end() -> None:
    """The formatter puts parentheses around one name to keep a comment beside it; it belongs on the line above."""
    torn = re.compile(r"\(\n\s*[\w.]+,?(?:  # [^\n]*)?\n\s*\)(?:  # | \w+ \w+:  # |$)")
    found = [
        f"{module.name}: {match[0]!r}"
        for module in MODULES
        for match in torn.finditer(module.path.read_text(encoding="utf-8"))
        if "#" in match[0]
    ]
    assert found == []
