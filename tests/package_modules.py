"""The files of the package as its guards read them, and what is above a goal."""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent / "nanoset_ref"


SPACE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# Each room imports only rooms that stand before it. How commands are made (`cli.arguments`, `cli.command` and
# `cli.startup`), the text of errors, whole numbers in the environment and the ranks of torchrun stand before all of
# them; each room's __main__ is where a command begins, and imports what it likes.
ROOMS = """
foundations io tokens preprocess orders load megatron streaming chunks train provenance laws cli
""".split()


FOUNDATIONS = (
    "cli/arguments.py",
    "cli/command.py",
    "cli/startup.py",
    "io/error_text.py",
    "io/torchrun.py",
)


OFFERING = (
    "tokens load preprocess megatron streaming chunks train provenance laws".split()
)


def whole_strings(
    tokens: Iterable[tokenize.TokenInfo],
) -> Iterator[tokenize.TokenInfo]:
    """The same tokens, with each f-string as one, which is several from Python 3.12 on."""
    start = getattr(tokenize, "FSTRING_START", None)
    end = getattr(tokenize, "FSTRING_END", None)
    depth = 0
    for token in tokens:
        depth -= token.type == end
        if depth == 0 and token.type != end:
            yield token
        depth += token.type == start


@dataclass(frozen=True)
class Module:
    """One file of the package, its code lines, and the number of its tokens."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def room(self) -> str:
        if self.name in FOUNDATIONS:
            return "foundations"
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        scopes = [
            node
            for node in self.nodes
            if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
        ]
        docs = [
            node.body[0]
            for node in scopes
            if ast.get_docstring(node, clean=False) is not None
        ]
        described = {
            line for doc in docs for line in range(doc.lineno, doc.end_lineno + 1)
        }
        found = whole_strings(
            tokenize.generate_tokens(
                io.StringIO(self.path.read_text(encoding="utf-8")).readline
            )
        )
        return [
            token
            for token in found
            if token.type not in SPACE and token.start[0] not in described
        ]

    @cached_property
    def lines(self) -> set[int]:
        return {
            line
            for token in self.tokens
            for line in range(token.start[0], token.end[0] + 1)
        }

    @property
    def functions(self) -> Iterator[tuple[str, Any]]:
        return (
            (f"{self.name}:{node.name}", node)
            for node in self.nodes
            if isinstance(node, FUNCTIONS)
        )

    @property
    def imports(self) -> Iterator[str]:
        """The dotted names of everything that is imported, inside functions as well."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]

Measure = Callable[[], Any]
Guards = dict[str, tuple[Measure, int, dict[str, int]]]


def above(measure: Measure, goal: int, exceptions: dict[str, int]) -> dict[str, Any]:
    """By name, what is above its goal or its exception."""
    return {
        name: value
        for name, value in measure().items()
        if value > exceptions.get(name, goal)
    }


def uses(*names: str) -> Measure:
    """Per file, how often one of these names is read or imported."""

    def count() -> Counter[str]:
        found: Counter[str] = Counter()
        for module in MODULES:
            read = [
                node.attr for node in module.nodes if isinstance(node, ast.Attribute)
            ]
            read += [name.split(".")[-1] for name in module.imports]
            found[module.name] += sum(name in names for name in read)
        return found

    return count
