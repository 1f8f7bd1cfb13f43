"""What the pictures share: colours, panels and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

WIDTH = 7.5  # inches of every picture: the text column
DPI = 200
HEADLINE: dict[str, Any] = {"x": 0.005, "ha": "left", "size": 12, "weight": "bold"}

# Okabe and Ito's hues, which color-blind readers can tell apart; each has its own lightness, so print in gray can, too.
# Lines are dark enough for labels in their color on white, fills light enough for dark type (contrasts of 4.5 or more).
LINES = ("#0067a5", "#c45500", "#005a40", "#521a66")
COLOURS = ("#bcdcf6", "#f0a04a", "#55a384", "#bb8fd0", "#f7ec9c", "#d9d9d9", "#ee8f88", "#c3d98c")
SOURCES = dict(
    zip(("stories", "arithmetic", "programs"), zip(COLOURS, LINES), strict=False)
)  # fill and line of each
INK, GREY, IDLE, RED = "#222222", "#5f5f5f", "#efefef", "#b3261e"

Lines = Mapping[str, Sequence[Any]]  # by name, the arguments of `Axes.plot`: (y,) or (x, y)


def canvas(height: float) -> tuple[Figure, Axes]:
    """A figure of the course's width and so many inches of height, with one panel."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def panels(
    contents: Mapping[str, Any], height: float, rows: int = 1, headline: str = "", **options: Any
) -> tuple[Figure, list[tuple[Axes, Any]]]:
    """A figure of so many inches of height with one panel per title; options of `Figure.subplots`."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    below: dict[str, Any] = {}
    if headline:
        figure.suptitle(headline, **HEADLINE)
        below = {"size": 10.5, "weight": "normal"}
    places = np.ravel(figure.subplots(rows, len(contents) // rows, **options)).tolist()
    for axes, title in zip(places, contents, strict=True):
        axes.set_title(title, **below)
    return figure, list(zip(places, contents.values(), strict=True))


def lift_title(figure: Figure) -> None:
    """Move the title of a figure's only panel to the left edge, where all headlines begin."""
    if len(figure.axes) != 1 or figure.get_suptitle():
        return
    (axes,) = figure.axes
    title = axes.get_title(loc="left")
    if title:
        axes.set_title("", loc="left")
        figure.suptitle(title, **HEADLINE)


def draw_lines(axes: Axes, lines: Lines, colours: Sequence[str] = COLOURS, **style: Any) -> None:
    """Each line in the next colour; style of `Axes.plot`."""
    for (name, values), colour in zip(lines.items(), cycle(colours)):
        axes.plot(*values, label=name, color=colour, **{"lw": 2, **style})


def curves(
    contents: Mapping[str, Lines],
    height: float,
    *,
    colours: Sequence[str] = COLOURS,
    style: Mapping[str, Any] | None = None,
    share: bool = True,
    headline: str = "",
    **settings: Any,
) -> Figure:
    """Panels of lines.

    Args:
        contents: by title, the lines of each panel.
        height: inches of the figure.
        colours: of the lines of a panel, in turn.
        style: of `Axes.plot`, for all lines.
        share: one vertical axis for all panels.
        headline: of the figure, above the titles of its panels.
        settings: of `Axes.set`, for all panels.
    """
    figure, places = panels(contents, height, headline=headline, sharey=share)
    for axes, lines in places:
        draw_lines(axes, lines, colours, **style or {})
        axes.set(**settings)
        axes.grid(alpha=0.3)
        if share:
            axes.label_outer()
    return figure


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK
) -> None:
    """A thin arrow behind everything else."""
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "color": colour}
    axes.add_patch(FancyArrowPatch(start, end, alpha=0.7, lw=0.9, zorder=0, **style))


def printable(piece: str, longest: int = 9) -> str:
    """A token's text with blanks and line ends made visible, cut to `longest` characters."""
    shown = piece.replace(" ", "␣").replace("\n", "↵").replace("<|endoftext|>", "EOS")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def two_digits(value: float) -> str:
    """A number as its rounds can bear it: 1,398 is 1,400, 5.73 is 5.7."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:#.2g}"
