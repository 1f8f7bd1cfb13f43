"""The report of the laws: text, HTML, JSON, a script of the counterexample, and a badge."""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from nanoset_ref.laws.adapter import Adapter
from nanoset_ref.laws.findings import Finding
from nanoset_ref.laws.rules import Case

MAX_STEPS = 8  # in a table
SCRIPT = '''"""The law {law!r}: {words}"""

from nanoset_ref.laws import Case, judge
from {module} import {name}

print(judge({name}, {law!r}, {case!r}{options}))
'''
STYLE = "border:1px solid #6b6b6b;padding:2px 8px;text-align:left"
COLORS = {"holds": "#00795a", "broken": "#b3261e"}


@dataclass(frozen=True)
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
        reason = outcome.refused
        if outcome.late and not reason:
            reason = "the budget ended"
        return f"{text} {reason}".rstrip()

    def __repr__(self) -> str:
        return "\n".join([*map(self.line, self.outcomes), self.tables()])

    def tables(self) -> str:
        """The smallest case of each broken law, with a table of rank by step."""
        lines = []
        for law in self.broken:
            lines += ["", f"{law}: {self.outcomes[law].case}", *self._table(law)]
        return "\n".join(lines)

    def _table(self, law: str) -> list[str]:
        """Rank by step: the rows read and, in parentheses, the right ones if they differ."""
        cells = self._cells(law)
        if not any(cells):
            return []
        width = max(len(text) for row in cells for text, _ in row)
        steps = _steps_to_show(self.outcomes[law].finding)
        head = "  ".join(f"step {step}".ljust(width) for step in steps)
        lines = [f"{'':8}{head}".rstrip()]
        for rank, row in enumerate(cells):
            texts = "  ".join(text.ljust(width) for text, _ in row)
            lines.append(f"rank {rank:<3}{texts}".rstrip())
        return lines

    def _cells(self, law: str) -> list[list[tuple[str, bool]]]:
        """[rank][step] -> (text, whether it is wrong)."""
        finding = self.outcomes[law].finding
        if finding is None or not finding.found:
            return []
        steps = _steps_to_show(finding)
        rows = []
        for rank, read in enumerate(finding.found):
            wanted = finding.wanted[rank] if finding.wanted else read
            rows.append([_cell(read, wanted, step, finding) for step in steps])
        return rows

    def _repr_html_(self) -> str:
        rows = []
        for law in self.outcomes:
            word = self.word(law)
            color = COLORS.get(word, "#6b6b6b")
            said = html.escape(self.line(law)[21:].strip())
            cells = [law, f'<b style="color:{color}">{word}</b>', said]
            rows.append(_html_row(cells))
        parts = [_html_table(rows)]
        for law in self.broken:
            parts.append(f"<p><b>{law}</b>: {html.escape(str(self.outcomes[law].case))}</p>")
            parts.append(_html_table([_html_cells(row) for row in self._cells(law)]))
        return "\n".join(parts)

    def to_json(self) -> str:
        """The report as JSON; `found` and `wanted` have the steps listed in `steps`."""
        laws = {}
        for law, outcome in self.outcomes.items():
            laws[law] = asdict(outcome) | {"is": self.word(law)}
            if outcome.finding:
                laws[law]["finding"] |= _excerpt(outcome.finding)
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
            words=outcome.finding.words if outcome.finding else "",
            module=make.__module__,
            name=make.__name__,
            case=outcome.case,
            options="",
        )


def _steps_to_show(finding: Finding | None) -> list[int]:
    """Every step if there are few, else the first ones at which something is wrong."""
    if finding is None:
        return []
    traces = [*finding.found, *finding.wanted]
    steps = range(max(map(len, traces), default=0))
    if len(steps) <= MAX_STEPS:
        return list(steps)
    wrong: set[int] = set()
    for rank, read in enumerate(finding.found):
        wanted = finding.wanted[rank] if finding.wanted else read
        wrong |= {step for step in steps if _cell(read, wanted, step, finding)[1]}
    return sorted(wrong)[:MAX_STEPS] or list(steps[:MAX_STEPS])


def _excerpt(finding: Finding) -> dict[str, Any]:
    """The part of a finding that a report keeps."""
    steps = _steps_to_show(finding)
    return {
        "steps": steps,
        "found": [_batches_at(steps, rank) for rank in finding.found],
        "wanted": [_batches_at(steps, rank) for rank in finding.wanted],
        "rows": finding.rows[:MAX_STEPS],
    }


def _batches_at(steps: list[int], batches: list[Any]) -> list[Any]:
    """The batches of a rank at these steps; empty where there is none."""
    return [batches[step] if step < len(batches) else () for step in steps]


def _cell(read: list[Any], wanted: list[Any], step: int, finding: Finding) -> tuple[str, bool]:
    rows = read[step : step + 1]
    right = wanted[step : step + 1]
    text = " ".join(map(str, rows[0])) if rows else "-"
    if rows != right:
        due = " ".join(map(str, right[0])) if right else "-"
        return f"{text} (not {due})", True
    marked = bool(rows) and not finding.wanted and bool({*rows[0]} & {*finding.rows})
    return (f"{text} !" if marked else text), marked


def _html_cells(row: list[tuple[str, bool]]) -> str:
    texts = []
    for text, wrong in row:
        said = html.escape(text)
        texts.append(f'<b style="color:{COLORS["broken"]}">{said}</b>' if wrong else said)
    return _html_row(texts)


def _html_row(cells: list[str]) -> str:
    return "<tr>" + "".join(f'<td style="{STYLE}">{cell}</td>' for cell in cells) + "</tr>"


def _html_table(rows: list[str]) -> str:
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table>'
