"""Every rule has one home: what belongs there is written nowhere else, and no name is given twice."""

import ast
from collections import Counter
from typing import Any

import pytest
from package_modules import MODULES, Guards, above, uses


def file_stems() -> Counter[str]:
    return Counter(
        module.path.stem for module in MODULES if not module.path.stem.startswith("__")
    )


def public_classes() -> Counter[str]:
    classes = (
        node.name
        for module in MODULES
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    )
    return Counter(name for name in classes if not name.startswith("_"))


def strides() -> Counter[str]:
    """Per file, how often a number of ranks is multiplied, divided by, or the step of a range or slice."""
    found: Counter[str] = Counter()
    for module in MODULES:
        for node in module.nodes:
            operands: list[Any] = []
            if isinstance(node, ast.BinOp) and isinstance(
                node.op, (ast.Mult, ast.Mod, ast.FloorDiv)
            ):
                operands = [node.left, node.right]
            elif isinstance(node, ast.Slice):
                operands = [node.step]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
                operands = node.args[2:]
            names = {getattr(it, "id", getattr(it, "attr", "")) for it in operands}
            found[module.name] += bool(names & {"dp_size", "world_size"})
    return found


# guard: how it is measured, the goal, and the exceptions: homes, which are there to stay
GUARDS: Guards = {
    "files of one stem": (file_stems, 1, {"preprocess": 2}),
    "public classes of one name": (
        public_classes,
        1,
        {"Adapter": 2},  # the laws have their own
    ),
    "homes of argparse": (
        uses("argparse", "ArgumentParser"),
        0,
        {
            "cli/arguments.py": 4,  # home
        },
    ),
    "homes of locks": (
        uses("flock", "lockf"),
        0,
        {
            "io/locks.py": 4
        },  # home: one that forked children inherit, taken, awaited and released, and one that they do not
    ),
    "homes of RandomState": (
        uses("RandomState"),
        0,
        {
            "orders/mt19937.py": 1,
            "orders/others/llm_c.py": 2,  # one stream for each rank, as llm.c has it
            "plain.py": 2,
            "chunks/mixing.py": 1,
        },  # homes: orders, plain.py
    ),
    "homes of how ranks share positions": (
        strides,
        0,
        {
            "load/schedule.py": 5,  # home
            "plain.py": 7,  # home
            "load/resumable_sampler.py": 2,
            "load/skip_sampler.py": 2,
            "streaming/iterable.py": 1,
            "laws/rules.py": 1,  # what it judges
            "laws/trial.py": 1,
        },
    ),
    "casts": (uses("cast"), 0, {"preprocess/text_formats.py": 1}),  # of an Arrow array
}


@pytest.mark.parametrize("guard", GUARDS)
def test_no_rule_is_at_home_elsewhere_as_well(guard: str) -> None:
    assert above(*GUARDS[guard]) == {}
