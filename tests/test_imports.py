"""What the package imports: in one direction, under its own names, and nothing private."""

import ast
import re
from collections import Counter

import pytest
from package_modules import (
    FOUNDATIONS,
    FUNCTIONS,
    MODULES,
    PACKAGE,
    ROOMS,
    Guards,
    above,
    uses,
)

# of every NamedTuple, of os, and of IPython
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_repr_html_"}


def room_of(name: str) -> str:
    """The room of what is imported by a dotted name."""
    path = name.removeprefix("nanoset_ref.").replace(".", "/")
    if any(path.startswith(module.removesuffix(".py")) for module in FOUNDATIONS):
        return "foundations"
    return path.split("/")[0]


def uphill_imports() -> Counter[str]:
    """Imports of a room that stands later; plain.py imports nothing and is imported by nothing."""
    found: Counter[str] = Counter()
    for module in MODULES:
        if module.name == "__init__.py" or module.path.stem == "__main__":
            continue
        allowed = {module.room}
        if module.room != "plain":
            allowed.update(ROOMS[: ROOMS.index(module.room)])
        rooms = {
            room_of(name) for name in module.imports if name.startswith("nanoset_ref.")
        }
        found.update(
            f"{module.name} -> {room}" for room in rooms & {*ROOMS, "plain"} - allowed
        )
    return found


def circles() -> Counter[str]:
    """Imports within a function of what the package's own `__init__` defines, which imports the module itself."""
    found: Counter[str] = Counter()
    defined = {
        module.path.parent: {
            node.name for node in module.tree.body if isinstance(node, FUNCTIONS)
        }
        for module in MODULES
        if module.path.name == "__init__.py"
    }
    for module in MODULES:
        package = ".".join(module.path.parent.relative_to(PACKAGE.parent).parts)
        inner = [
            node for _, function in module.functions for node in ast.walk(function)
        ]
        for node in inner:
            if isinstance(node, ast.ImportFrom) and node.module == package:
                names = {alias.name for alias in node.names}
                names &= defined[module.path.parent]
                found.update(f"{module.name} -> {name}" for name in names)
    return found


def foreign_private_names() -> Counter[str]:
    """Private attributes of something else than self that the module does not define, and private names imported."""
    found: Counter[str] = Counter()
    for module in MODULES:
        own = {
            node.name
            for node in module.nodes
            if isinstance(node, (ast.ClassDef, *FUNCTIONS))
        }
        own |= {
            node.id
            for node in module.nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        attributes = [node for node in module.nodes if isinstance(node, ast.Attribute)]
        own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
        read = [
            node.attr
            for node in attributes
            if ast.unparse(node.value) not in ("self", "cls", "super()")
        ]
        imported = [
            name.split(".")[-1]
            for name in module.imports
            if name.startswith("nanoset_ref.")
        ]
        foreign = [name for name in read if name not in own] + imported
        count = sum(
            name[0] == "_" and name[:2] != "__" and name not in PUBLIC
            for name in foreign
        )
        found[module.name] += count
    return found


def modules_in_strings() -> Counter[str]:
    """Strings that name something inside a module, which an import would hide behind."""
    found: Counter[str] = Counter()
    for module in MODULES:
        texts = [node.value for node in module.nodes if isinstance(node, ast.Constant)]
        found[module.name] += sum(
            isinstance(text, str)
            and re.fullmatch(r"nanoset_ref(\.\w+)+:\w+", text) is not None
            for text in texts
        )
    return found


# guard: how it is measured, the goal, and the exceptions
GUARDS: Guards = {
    "modules named in strings": (modules_in_strings, 0, {}),
    "homes of importing by name": (
        uses("import_module", "resolve_name", "__import__"),
        0,
        {
            "laws/laws_command.py": 2,  # the user's loader, named on the command line
        },
    ),
    "imports that run uphill": (uphill_imports, 0, {}),
    "imports of one's own package": (circles, 0, {}),
    "private names of other modules": (
        foreign_private_names,
        0,
        {"load/collator.py": 3},
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_no_import_is_of_a_kind_that_hides_or_runs_uphill(guard: str) -> None:
    assert above(*GUARDS[guard]) == {}
