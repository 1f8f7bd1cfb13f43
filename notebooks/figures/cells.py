"""The picture behind most pictures: rows of coloured cells with a text in each, a name at the left of every row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from figures.draw import COLOURS, INK, canvas

HEIGHT = 0.82  # of a cell, where the next row is 1 below
GAP = 0.06  # between two cells of width 1


class Cell(NamedTuple):
    """A rectangle with a text in its middle; `edge` has settings of `Rectangle`, `font` of `Axes.text`."""

    left: float
    text: str = ""
    colour: Any = "white"
    width: float = 1
    edge: Mapping[str, Any] = {}
    font: Mapping[str, Any] = {}


def colour_of(number: int) -> str:
    """One of the eight colours for any number."""
    return COLOURS[number % len(COLOURS)]


def ink_on(fill: Any) -> str:
    """Dark type, or white on a dark fill."""
    red, green, blue, opacity = to_rgba(fill)
    is_dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.4
    return "white" if is_dark and opacity > 0 else INK


def side_by_side(
    parts: Iterable[tuple[Any, Any, float]], left: float = 0, room: float = 0, **edge: Any
) -> list[Cell]:
    """Cells of (text, colour, width), each where the one before it ends; no text in those narrower than `room`."""
    cells = []
    for text, colour, width in parts:
        cells.append(Cell(left, str(text) if width > room else "", colour, width, edge))
        left += width
    return cells


def in_line(texts: Iterable[Any], kinds: Iterable[int], left: float = 0) -> list[Cell]:
    """Cells of width 1 side by side, coloured by kind."""
    return side_by_side(
        ((text, colour_of(kind), 1) for text, kind in zip(texts, kinds, strict=True)), left
    )


def draw_row(
    axes: Axes,
    cells: Iterable[Cell],
    top: float,
    *,
    height: float = HEIGHT,
    gap: float = GAP,
    **font: Any,
) -> None:
    """Draw cells with their upper edges at `top`; the vertical axis points down."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "size": 9} | font
    for cell in cells:
        width, edge = cell.width - gap, {"edgecolor": INK, "lw": 0.7} | dict(cell.edge)
        axes.add_patch(Rectangle((cell.left, top), width, height, facecolor=cell.colour, **edge))
        own = {"color": ink_on(cell.colour)} | style | dict(cell.font)
        axes.text(cell.left + width / 2, top + height / 2, cell.text, **own)


def fill(axes: Axes, rows: Mapping[str, Sequence[Cell]], **options: Any) -> None:
    """Draw rows of cells into a panel, their names at the left, no frame; options of `draw_row`."""
    for row, cells in enumerate(rows.values()):
        draw_row(axes, cells, row, **options)
    length = max(cell.left + cell.width for cells in rows.values() for cell in cells)
    axes.set(xlim=(-0.05, length), ylim=(len(rows) - 1 + HEIGHT + 0.05, -0.05), xticks=[])
    axes.set_yticks([row + HEIGHT / 2 for row in range(len(rows))], list(rows))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def picture(
    rows: Mapping[str, Sequence[Cell]],
    inches: float,
    room: float = 0.2,
    title: str = "",
    **options: Any,
) -> tuple[Figure, Axes]:
    """A figure of rows of cells.

    Args:
        rows: by name, the cells of each.
        inches: from one row to the next.
        room: inches for what stands above and below the rows.
        title: above the rows.
        options: of `draw_row`.
    """
    figure, axes = canvas(inches * len(rows) + room)
    fill(axes, rows, **options)
    axes.set_title(title)
    return figure, axes


def heads(axes: Axes, texts: Mapping[float, str], name: str = "", **font: Any) -> None:
    """Texts above the rows, by their place, and what they are."""
    axes.xaxis.tick_top()
    axes.set_xticks(list(texts), list(texts.values()), **font)
    axes.set_xlabel(name, loc="left")
    axes.xaxis.set_label_position("top")
