"""What keeps the package light: few packages, imports in one direction, one home for every rule, a budget in tokens.

Tokens are Python's names, operators and literals, as `tokenize` counts them; lines are free. Each guard has a goal; an
exception says why it is one. Raise a goal only in a commit that says why.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parent.parent / "nanoset_ref"
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
# words of ours where the field has its own; "room" is free space in a row, and "mix" is a command
METAPHORS = re.compile(
    r"\b(dress\w*|roads?|house|dialects?|whoever|who waits)\b", re.IGNORECASE
)
SPACE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# of every NamedTuple, of os, and of IPython
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_repr_html_"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


def tokens_of_package() -> dict[str, int]:
    return {"package": sum(len(module.tokens) for module in MODULES)}


def tokens_per_line() -> dict[str, float]:
    """Of each room, and of plain.py."""
    tokens: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for module in MODULES:
        tokens[module.room] += len(module.tokens)
        lines[module.room] += len(module.lines)
    return {
        room: round(tokens[room] / lines[room], 1) for room in tokens if lines[room]
    }


def entries() -> dict[str, int]:
    """What stands at the top of the package."""
    return {"nanoset_ref": len({*PACKAGE.iterdir()} - {PACKAGE / "__pycache__"})}


def function_lines() -> dict[str, int]:
    spans = [
        (name, module, range(node.lineno, node.end_lineno + 1))
        for module in MODULES
        for name, node in module.functions
    ]
    return {name: len(module.lines.intersection(span)) for name, module, span in spans}


def parameters() -> dict[str, int]:
    every = [(name, node.args) for module in MODULES for name, node in module.functions]
    named = {name: [*a.posonlyargs, *a.args, *a.kwonlyargs] for name, a in every}
    return {
        name: len([arg for arg in found if arg.arg not in ("self", "cls")])
        for name, found in named.items()
    }


def public_names() -> dict[str, int]:
    """What the package and each annex offer at their top."""
    return {
        room or "top": len(import_module(f"nanoset_ref.{room}".rstrip(".")).__all__)
        for room in ["", *OFFERING]
    }


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


def uses(*names: str) -> Callable[[], Counter[str]]:
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


# guard: how it is measured, the goal, and the exceptions; "homes" are there to stay
GUARDS: dict[str, tuple[Callable[[], Any], int, dict[str, int]]] = {
    "tokens of the package": (
        tokens_of_package,
        # The design of 2026-11 asked for 90,000, which cannot be reached. The rooms of that time have 109,000
        # with one decision a line. Since then: cards of runs, questions to them and readers of other systems'
        # configs 17,000; the tool that judges loaders 11,000; orders of other loaders 7,000; and 27,000 for what
        # was found by reading, attacking and damaging: plans and states that name what is read, files of other
        # programs, links, buckets, kills, options without effect, errors with a way out. A search for clones, for
        # parameters that no call passes, for fields that nobody reads and for helpers of one use (2026-11-29)
        # found 1,500. The goal is what stands, rounded up: whatever is added from here on takes something out.
        # On 2026-11-30 a walk through the issues, line by line, found promises that were not kept, such as lists of
        # files that are checked and laws for blends: 1,500 more. Then many passages in one search, a config in
        # each checkpoint, batches that grow, an .idx without its .bin, and errors that a reader found: 1,400.
        # Then answers of a checkpoint about a run that changed, plans of finished stages, orders computed by NumPy
        # until they are compiled, a file for each system's configs, and errors and corners of an attack: 1,500.
        # Then https URLs of clouds, compressed objects, denied access by cloud, ranks that are compared when a
        # stage begins, and tokenizers of cards: 200.
        # Then a fork that waits for a thread which compiles, and lists of encodings: 120.
        176_120,
        {},
    ),
    "tokens per line": (
        tokens_per_line,
        8,
        {
            "plain": 8.4,  # its lines are formulas beside their values
        },
    ),
    "entries at the top": (
        entries,
        16,
        {},
    ),  # twelve rooms, the laws, and three files of Python's
    "code lines of a function": (
        function_lines,
        40,
        {
            "load/dataloader.py:build_nanoset_dataloader": 59,  # a seed's signature
            "load/gather_kernel.py:gather_rows": 47,  # one loop over rows, for speed
        },
    ),
    "parameters of a function": (
        parameters,
        8,
        {
            "load/dataloader.py:build_nanoset_dataloader": 15,  # a seed's signature and what grew on it
            "preprocess/preprocess_command.py:preprocess": 14,
            "chunks/commands.py:mix": 9,
            "laws/laws_command.py:check_loader": 9,  # its options; --overwrite is the newest
            "chunks/mixing.py:mix": 9,  # a seed's five, and what becomes of the leftover
            "megatron/preprocess.py:preprocess_corpus": 14,
        },
    ),
    "assignments of several calls": (tuples_of_calls, 0, {}),
    "conditional expressions in one another": (nested_conditionals, 0, {}),
    "private words": (metaphors, 0, {}),
    "modules named in strings": (modules_in_strings, 0, {}),
    "homes of importing by name": (
        uses("import_module", "resolve_name", "__import__"),
        0,
        {
            "laws/laws_command.py": 2,  # the user's loader, named on the command line
        },
    ),
    "public names of a room": (public_names, 48, {}),
    "imports that run uphill": (uphill_imports, 0, {}),
    "imports of one's own package": (circles, 0, {}),
    "files of one stem": (file_stems, 1, {"preprocess": 2}),
    "public classes of one name": (
        public_classes,
        1,
        {"Adapter": 2},  # the laws have their own
    ),
    "private names of other modules": (
        foreign_private_names,
        0,
        {"load/collator.py": 3},
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
def test_no_figure_is_above_its_goal_or_exception(guard: str) -> None:
    measure, goal, exceptions = GUARDS[guard]
    assert {
        name: value
        for name, value in measure().items()
        if value > exceptions.get(name, goal)
    } == {}


CLOSURE = """
import sys, tempfile
import numpy as np
from nanoset_ref import Nanoset, build_nanoset_dataloader

with tempfile.TemporaryDirectory() as folder:
    np.arange(10_001, dtype=np.uint16).tofile(f"{folder}/a_input_ids.npy")
    dataset = Nanoset(f"{folder}/a_input_ids.npy", None, 16, 100, token_dtype=np.uint16)
    assert len(list(build_nanoset_dataloader(dataset, micro_batch_size=4))) == 25
print(*[m.__file__ for name, m in sys.modules.items() if name.split(".")[0] == "nanoset_ref"])
"""


def test_a_reader_of_the_plain_loader_opens_few_files() -> None:
    """What a plain loader over a .npy file imports; files of at most 30 tokens, such as one with the names
    of two types, are not counted as files.
    """
    found = subprocess.run(
        [sys.executable, "-c", CLOSURE], capture_output=True, text=True, check=True
    )
    files = {Path(name) for name in found.stdout.split()}
    sizes = [len(module.tokens) for module in MODULES if module.path in files]
    assert sum(sizes) <= 18_000
    assert len([size for size in sizes if size > 30]) <= 20


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
