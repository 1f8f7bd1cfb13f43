"""The report of the laws: text, HTML, JSON, a script of the counterexample, and a badge."""

import html
import json
import platform
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from nanoset_ref.io.error_text import pluralize
from nanoset_ref.laws.adapter import Adapter
from nanoset_ref.laws.findings import Finding, at_step
from nanoset_ref.laws.rules import LAWS
from nanoset_ref.laws.trial import Case

MAX_STEPS = 8  # in a table
SCRIPT = '''"""The law {law!r}: {finding}"""

from nanoset_ref.laws import Case, judge
{imports}

raise SystemExit(judge({name}, {law!r}, {case!r}{options}))
'''
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root {{color-scheme: light dark}} body {{font-family: sans-serif; margin: 1em}}</style>
<h1>{title}</h1>
<p>{versions}; seed {seed}</p>
{body}
</html>
"""
# cells in HTML: dark text on light blue and light red, as in the pictures of the docs
READ = "background:#bcdcf6;color:#222222"
WRONGLY_READ = "background:#ee8f88;color:#222222"
MISSING = "border:2px dashed #e0352b"
Table = tuple[tuple[str, ...], ...]  # a head with the steps, and a row for each rank
WRONG = re.compile(r"\(not | !")  # in a cell


@dataclass
class Outcome:
    """The result of one law.

    Attributes:
        cases: the number of cases checked.
        case: the smallest case that breaks the law; None if none was found.
        finding: the violation in this case.
        refused: the loader's last reason to refuse a case.
        late: whether the budget ended the search.
    """

    cases: int = 0
    case: Case | None = None
    finding: Finding | None = None
    refused: str = ""
    late: bool = False


@dataclass(repr=False)
class LawReport:
    """The laws that hold for a loader, and the smallest counterexample for each that is broken."""

    adapter: Adapter
    outcomes: dict[str, Outcome]  # of the requested laws
    seed: int = 0

    def status(self, law: str) -> str:
        """ "holds", "broken" or "not judged"."""
        outcome = self.outcomes[law]
        if outcome.finding:
            return "broken"
        return "holds" if outcome.cases else "not judged"

    @property
    def broken(self) -> list[str]:
        """The requested laws that the loader breaks."""
        return [law for law in self.outcomes if self.status(law) == "broken"]

    @property
    def unjudged(self) -> list[str]:
        """The requested laws without a judged case."""
        return [law for law in self.outcomes if self.status(law) == "not judged"]

    def line(self, law: str) -> str:
        """The result of one law in a line of text."""
        outcome = self.outcomes[law]
        text = f"{law:<8} {self.status(law):<12}"
        if outcome.finding:
            return f"{text} {outcome.finding}"
        if outcome.cases:
            early = ", ended by the budget" if outcome.late else ""
            return f"{text} {pluralize(outcome.cases, 'case')}{early}"
        ended = "the budget ended" if outcome.late else ""
        return f"{text} {outcome.refused or ended}".rstrip()

    def __repr__(self) -> str:
        lines = [*map(self.line, self.outcomes), self.tables()]
        return "\n".join(lines)

    def tables(self) -> str:
        """The notes, and the smallest case of each broken law with a table of rank by step; laws
        that are broken by the same case in the same way share a table.
        """
        lines = [self._notes()]
        for case, table in self._cases():
            lines += ["", case, *_text_lines(table)]
        return "\n".join(lines)

    def _notes(self) -> str:
        """The laws that are not claimed and, where findings name steps, how these are counted."""
        known = {*self.adapter.claims.split(), *self.outcomes}
        others = [law for law in LAWS if law not in known]
        notes = f"not claimed: {' '.join(others) or 'none'}"
        if self.broken:
            notes += "\nStep 0 is the first."
        return notes

    def _cases(self) -> Iterator[tuple[str, Table]]:
        """Yield the smallest case of each broken law, with the law's name, and its table."""
        laws_of: dict[tuple[Case | None, Table], list[str]] = {}
        for law in self.broken:
            shown = self.outcomes[law].case, self._table(law)
            laws_of.setdefault(shown, []).append(law)
        for (case, table), laws in laws_of.items():
            yield f"{' '.join(laws)}: {case}", table

    def _table(self, law: str) -> Table:
        """Rank by step: the rows read and, in parentheses, the expected ones if they differ. A long
        epoch has the first steps with something wrong.
        """
        finding = self.outcomes[law].finding
        if finding is None or not finding.actual:
            return ()
        expected = finding.expected or finding.actual
        columns = []
        for step in range(max(map(len, finding.actual + expected))):
            cells = [f"step {step}"]
            read_now = at_step(finding.actual, step)
            due_now = at_step(expected, step)
            for read, due in zip(read_now, due_now, strict=True):
                cells.append(_cell(read, due, finding.rows))
            columns.append(cells)
        if len(columns) > MAX_STEPS:
            wrong = [cells for cells in columns if WRONG.search("  ".join(cells))]
            columns = (wrong or columns)[:MAX_STEPS]
        heads = ["", *(f"rank {rank}" for rank in range(len(expected)))]
        return tuple(zip(heads, *columns, strict=True))

    def _repr_html_(self) -> str:
        lines = [*map(self.line, self.outcomes), self._notes()]
        # a red that is readable on white and on black
        red = '<b style="color:#e0352b">broken</b>'
        text = html.escape("\n".join(lines)).replace("broken", red)
        parts = [f'<pre style="overflow-x:auto">{text}</pre>']
        for case, table in self._cases():
            parts.append(f"<p>{html.escape(case)}</p>{_html_table(table)}")
        return "\n".join(parts)

    @property
    def loader(self) -> str:
        """MODULE:NAME of the function that makes it."""
        return ":".join(_location(self.adapter.make))

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Python and of this package."""
        return {
            "Python": platform.python_version(),
            "nanoset_ref": version("nanoset_ref"),
        }

    def to_html(self) -> str:
        """The report as a page, with the loader and the versions that were used."""
        return PAGE.format(
            title=html.escape(f"{self.loader} under the laws of loading"),
            versions=", ".join(map(" ".join, self.versions.items())),
            seed=self.seed,
            body=self._repr_html_(),
        )

    def to_json(self) -> str:
        """The report as JSON; `table` is the same as in the text."""
        laws = {}
        for law, outcome in self.outcomes.items():
            laws[law] = asdict(outcome) | {"status": self.status(law)}
            if outcome.finding is not None:
                laws[law]["finding"] = {
                    "kind": outcome.finding.kind,
                    "message": outcome.finding.message,
                    "table": _text_lines(self._table(law)),
                }
        facts = {
            "loader": self.loader,
            "versions": self.versions,
            "date": time.strftime("%Y-%m-%d"),
            "claims": self.adapter.claims.split(),
            "seed": self.seed,
            "laws": laws,
        }
        return json.dumps(facts, indent=1)

    def badge(self) -> str:
        """A line of Markdown for a README."""
        claims = set(self.adapter.claims.split())
        held = claims & {law for law in self.outcomes if self.status(law) == "holds"}
        color = "brightgreen" if held == claims else "lightgrey"
        if self.broken:
            color = "red"
        text = f"{len(held)}%20of%20{len(claims)}"
        return f"![laws of loading](https://img.shields.io/badge/laws_of_loading-{text}-{color})"

    def script(self, law: str) -> str:
        """A Python script that checks the smallest case again.

        It imports the adapter from the module of its `make`. If that module has no such adapter,
        the script imports `make` and lists the options, functions by their names.
        """
        make = self.adapter.make
        module, function = _location(make)
        scope = vars(sys.modules[module])
        names = [
            name
            for name, it in scope.items()
            if isinstance(it, Adapter) and it == self.adapter
        ]
        imports = [(module, names[0] if names else function)]
        default = self.adapter if names else Adapter(make=make)
        text = ""
        for option, value in vars(self.adapter).items():
            if value == getattr(default, option):
                continue
            expression = repr(value)
            if callable(value):
                imports.append(_location(value))
                expression = imports[-1][1]
            text += f", {option}={expression}"
        lines = {
            f"from {module} import {name.split('.')[0]}" for module, name in imports
        }
        outcome = self.outcomes[law]
        return SCRIPT.format(
            law=law,
            finding=outcome.finding,
            imports="\n".join(sorted(lines)),
            name=imports[0][1],
            case=outcome.case,
            options=text,
        )


def _location(function: Any) -> tuple[str, str]:
    """The module and the name of a function, a functools.partial or the class of a callable."""
    function = getattr(function, "func", function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return named.__module__, named.__qualname__


def _text_lines(table: Table) -> list[str]:
    """A table as lines of text, its columns aligned."""
    width = max((len(cell) for _, *cells in table for cell in cells), default=0)
    lines = []
    for head, *cells in table:
        line = "  ".join(cell.ljust(width) for cell in cells)
        lines.append(f"{head:<8}{line}".rstrip())
    return lines


def _html_table(table: Table) -> str:
    """A table as HTML: a wrong batch is red, a missing one dashed."""
    text = ""
    for row in table:
        text += "<tr>"
        for cell in row:
            style = READ if cell[:1].isdigit() else ""
            if WRONG.search(cell):
                style = WRONGLY_READ
            if cell.startswith("-"):
                style = MISSING
            text += f'<td style="{style}">{html.escape(cell)}</td>'
    return f'<div style="overflow-x:auto"><table>{text}</table></div>'


def _cell(read: list[Any], due: list[Any], marked: tuple[Any, ...]) -> str:
    """The batch of a rank at a step and, if it is wrong, the expected one."""
    if read != due:
        return f"{_batch_text(read)} (not {_batch_text(due)})"
    text = _batch_text(read)
    if any(row in marked for batch in read for row in batch):
        text += " !"
    return text


def _batch_text(batches: list[Any]) -> str:
    """The rows of the batch of one step, or "-" if there is none."""
    rows = [str(row).removeprefix("tokens ") for batch in batches for row in batch]
    return " ".join(rows) if batches else "-"
