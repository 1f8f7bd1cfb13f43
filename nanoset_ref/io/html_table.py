"""A small HTML table, for notebooks."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

MAX_ROWS = 20


def html_table(
    caption: str,
    facts: Mapping[str, Any],
    head: Sequence[str] = (),
    rows: Sequence[Any] = (),
) -> str:
    """Make a table: facts by name, then rows under a head.

    Text is escaped, numbers get commas, and only the first MAX_ROWS rows are shown.
    """
    table = f"<table><caption>{_text(caption)}</caption>"
    for name, value in facts.items():
        table += (
            f"<tr><th style='text-align:left'>{_text(name)}</th>{_cell(value)}</tr>"
        )
    table += "</table>"
    if not head:
        return table
    names = "".join(f"<th>{_text(name)}</th>" for name in head)
    table += f"<table><tr>{names}</tr>"
    for row in rows[:MAX_ROWS]:
        cells = "".join(_cell(value) for value in row)
        table += f"<tr>{cells}</tr>"
    others = len(rows) - MAX_ROWS
    if others > 0:
        table += f"<tr><td colspan='{len(head)}'>and {others:,} others</td></tr>"
    return f"{table}</table>"


def _cell(value: Any) -> str:
    """A cell; numbers stand at its right."""
    side = "right" if isinstance(value, (int, float)) else "left"
    return f"<td style='text-align:{side}'>{_text(value)}</td>"


def _text(value: Any) -> str:
    """A value as escaped text, a number with commas."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return html.escape(str(value))
