"""What the pictures share: empty figures, cells with a text in them, and how much of a frame they have."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nanoset_ref.plots._colours import INK


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of so many inches with one panel."""
    figure, (axes,) = grid(width, height)
    return figure, axes


def grid(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches and its panels, row by row; options of `Figure.subplots`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, np.ravel(figure.subplots(rows, columns, **options)).tolist()


def cell(
    axes: Axes, left: float, top: float, width: float, height: float, colour: Any, text: str = "", **options: Any
) -> None:
    """A rectangle with an edge and a text in its middle; `lw` and `ls` are for the edge, other options for the text."""
    line = {name: options.pop(name) for name in ("lw", "ls") if name in options}
    axes.add_patch(Rectangle((left, top), width, height, facecolor=colour, edgecolor=INK, **line))
    if text:
        label(axes, left + width / 2, top + height / 2, text, **options)


def label(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    """A text with its middle at (x, y)."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "size": 8} | options
    axes.text(x, y, text, **style)


def swatches(*colours: str) -> list[Rectangle]:
    """Handles of a legend, one per colour."""
    return [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=INK) for colour in colours]


def half_framed(axes: Axes, **settings: Any) -> None:
    """Only the left and the lower edge; settings of `Axes.set`."""
    axes.set(**settings)
    axes.spines[["top", "right"]].set_visible(False)


def frameless(axes: Axes, **settings: Any) -> None:
    """Nothing but what was drawn; settings of `Axes.set`."""
    axes.set(**settings)
    axes.axis("off")


def printable(piece: str, longest: int = 9) -> str:
    """A token's text with blanks and line ends made visible, cut to `longest` characters."""
    shown = piece.replace(" ", "␣").replace("\n", "↵").replace("<|endoftext|>", "EOS")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
