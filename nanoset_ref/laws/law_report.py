"""The report of the laws: text, HTML, JSON, a script of the counterexample, and a badge."""

from __future__ import annotations

import html
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import packages_distributions, version
from typing import Any

from nanoset_ref.laws.adapter import Adapter
from nanoset_ref.laws.findings import Finding
from nanoset_ref.laws.trial import Case

MAX_STEPS = 8  # in a table
SCRIPT = '''"""The law {law!r}: {message}"""

from nanoset_ref.laws import Case, judge
from {module} import {name}

raise SystemExit(judge({name}, {law!r}, {case!r}))
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
STYLE = "border:1px solid #767676;padding:2px 8px;text-align:left"
Cell = tuple[str, str]  # a text, and a key of COLORS or ""
Grid = list[list[Cell]]
COLORS = {"holds": "#008a66", "broken": "#e0352b"}  # readable on white and on black


@dataclass
class Outcome:
    """The result of one law.

    Args:
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
    outcomes: dict[str, Outcome]
    seed: int = 0
    chosen: list[str] = field(default_factory=list)

    def word(self, law: str) -> str:
        outcome = self.outcomes[law]
        if outcome.finding:
            return "broken"
        if law not in self.adapter.claims.split() and not outcome.cases:
            return "not claimed"
        return "holds" if outcome.cases else "not judged"

    @property
    def broken(self) -> list[str]:
        return [law for law in self.outcomes if self.word(law) == "broken"]

    @property
    def unjudged(self) -> list[str]:
        """The laws that were to be judged, and for which no case was."""
        return [law for law in self.chosen if self.word(law) == "not judged"]

    def line(self, law: str) -> str:
        outcome = self.outcomes[law]
        text = f"{law:<8} {self.word(law):<12}"
        if outcome.finding:
            return f"{text} {outcome.finding}"
        if outcome.cases:
            early = ", ended by the budget" if outcome.late else ""
            return f"{text} {outcome.cases} cases{early}"
        ended = "the budget ended" if outcome.late else ""
        return f"{text} {outcome.refused or ended}".rstrip()

    def __repr__(self) -> str:
        return "\n".join([*map(self.line, self.chosen), self.tables()])

    def tables(self) -> str:
        """The laws that are not claimed, and the smallest case of each broken law with a table of
        rank by step; laws that are broken by the same case in the same way share a table.
        """
        others = [law for law in self.outcomes if self.word(law) == "not claimed"]
        lines = [f"not claimed: {' '.join(others) or 'none'}"]
        tables: dict[str, list[str]] = {}
        for law in self.broken:
            table = "\n".join([str(self.outcomes[law].case), *self._table(law)])
            tables.setdefault(table, []).append(law)
        for table, laws in tables.items():
            lines += ["", f"{' '.join(laws)}: {table}"]
        return "\n".join(lines)

    def _table(self, law: str) -> list[str]:
        lines = []
        grid = self._grid(law)
        width = max((len(text) for row in grid for text, _ in row[1:]), default=0)
        for (rank, _), *cells in grid:
            texts = "  ".join(text.ljust(width) for text, _ in cells)
            lines.append(f"{rank:<8}{texts}".rstrip())
        return lines

    def _grid(self, law: str) -> Grid:
        """Rank by step, with a head: the rows read and, in parentheses, the expected ones if
        they differ. A long epoch shows the first steps with something wrong.
        """
        finding = self.outcomes[law].finding
        if finding is None or not finding.found:
            return []
        wanted = finding.wanted or finding.found
        columns: list[list[Cell]] = []
        for step in range(max(map(len, finding.found + wanted))):
            column = [(f"step {step}", "")]
            for read, due in zip(finding.found, wanted, strict=True):
                column.append(_cell(read[step : step + 1], due[step : step + 1], finding.rows))
            columns.append(column)
        if len(columns) > MAX_STEPS:
            wrong = [column for column in columns if any(mark for _, mark in column)]
            columns = (wrong or columns)[:MAX_STEPS]
        head = [("", ""), *((f"rank {rank}", "") for rank in range(len(finding.found)))]
        return [list(row) for row in zip(head, *columns, strict=True)]

    def _repr_html_(self) -> str:
        overview = [
            [(law, ""), (self.word(law), self.word(law)), (self.line(law)[22:], "")]
            for law in self.chosen
        ]
        parts = [_html_table(overview), f"<p>{self.tables().splitlines()[0]}</p>"]
        for law in self.broken:
            outcome = self.outcomes[law]
            parts.append(f"<h3>{law}, broken by {html.escape(self.loader)}</h3>")
            parts.append(f"<p>{html.escape(f'{outcome.finding} in {outcome.case}')}</p>")
            parts.append(_html_table(self._grid(law)))
        return "\n".join(parts)

    @property
    def loader(self) -> str:
        """MODULE:NAME of the function that makes it."""
        make = self.adapter.make
        return f"{make.__module__}:{make.__qualname__}"

    def to_html(self) -> str:
        """The report as a page, with the loader and the versions of what its module imports."""
        versions = [f"Python {platform.python_version()}", *_versions(self.adapter.make.__module__)]
        return PAGE.format(
            title=html.escape(f"{self.loader} under the laws of loading"),
            versions=", ".join(versions),
            seed=self.seed,
            body=self._repr_html_(),
        )

    def to_json(self) -> str:
        """The report as JSON; `table` is that of the report as text."""
        laws = {}
        for law, outcome in self.outcomes.items():
            laws[law] = asdict(outcome) | {"is": self.word(law)}
            if finding := outcome.finding:
                kept = {"kind": finding.kind, "words": finding.message, "table": self._table(law)}
                laws[law]["finding"] = kept
        return json.dumps({"seed": self.seed, "laws": laws}, indent=1)

    def badge(self) -> str:
        """A line of Markdown for a README."""
        claimed = [law for law in self.outcomes if law in self.adapter.claims.split()]
        held = [law for law in claimed if self.word(law) == "holds"]
        color = "brightgreen" if len(held) == len(claimed) else "lightgrey"
        if self.broken:
            color = "red"
        text = f"{len(held)}%20of%20{len(claimed)}"
        return f"![laws of loading](https://img.shields.io/badge/laws_of_loading-{text}-{color})"

    def script(self, law: str) -> str:
        """A Python script that checks the smallest case again."""
        make = self.adapter.make
        outcome = self.outcomes[law]
        return SCRIPT.format(
            law=law,
            message=outcome.finding.message if outcome.finding else "",
            module=make.__module__,
            name=make.__name__,
            case=outcome.case,
        )


def _cell(read: list[Any], due: list[Any], marked: tuple[Any, ...]) -> Cell:
    """The batch of a rank at a step, and what it should have been if it is another."""
    if read != due:
        return f"{_batch_text(read)} (not {_batch_text(due)})", "broken"
    if any(row in marked for batch in read for row in batch):
        return f"{_batch_text(read)} !", "broken"
    return _batch_text(read), ""


def _batch_text(batches: list[Any]) -> str:
    """The rows of the batch of one step, or "-" if there is none."""
    rows = [str(row).removeprefix("tokens ") for batch in batches for row in batch]
    return " ".join(rows) if batches else "-"


def _versions(module: str) -> list[str]:
    """The name and version of each package that a module imports from."""
    values = vars(sys.modules[module]).values()
    names = {str(getattr(value, "__module__", getattr(value, "__name__", ""))) for value in values}
    packages = {name.partition(".")[0] for name in names}
    known = packages_distributions()
    found = [known[name][0] for name in sorted(packages & known.keys())]
    return [f"{name} {version(name)}" for name in found]


def _html_table(grid: Grid) -> str:
    rows = []
    for row in grid:
        cells = []
        for text, kind in row:
            color = COLORS.get(kind, "inherit")
            style = f'style="{STYLE};color:{color}"'
            cells.append(f"<td {style}>{html.escape(text)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = f'<table style="border-collapse:collapse">{"".join(rows)}</table>'
    return f'<div style="overflow-x:auto">{table}</div>'
