"""Pictures of the stateless order: rounds, clouds, the tree of shares, windows, how far shares stray."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import ArrayLike

from figures.cells import Cell, colour_of, fill, in_line, picture
from figures.draw import COLOURS, GREY, IDLE, INK, LINES, curves, panels

ORANGE = COLOURS[1]
RAMP = LinearSegmentedColormap.from_list("course", [LINES[3], LINES[0], COLOURS[2], COLOURS[4]])


def clouds(runs: Sequence[tuple[str, ArrayLike]], headline: str) -> Figure:
    """Place against number, one panel per shuffle: structure would show as lines or gaps."""
    contents = {title: {"": [places]} for title, places in runs}
    style = {"ls": "none", "marker": ".", "ms": 2}
    labels = {"xlabel": "number", "ylabel": "place"}
    return curves(contents, 3.2, colours=LINES, style=style, headline=headline, **labels)


def rounds(
    stages: Sequence[tuple[str, ArrayLike]],
    traced: Sequence[int],
    title: str,
    slides: Collection[int] = (),
) -> Figure:
    """Boards on which numbers move; the colour is the number.

    Args:
        stages: (title, board [rows, columns] of numbers) of each; four to a line.
        traced: up to two numbers with a dot on each, on all boards but the last.
        title: of the picture.
        slides: the boards, from 0, that are one slide away from the board before; there a line shows it.
    """
    figure, boards = panels(dict(stages), 4.2, rows=len(stages) // 4, headline=title)
    before: dict[int, Any] = {}
    for stage, (axes, board) in enumerate(boards):
        axes.imshow(board, cmap=RAMP, interpolation="nearest", aspect="auto")
        axes.axis("off")
        for number, colour in zip(
            traced if axes is not boards[-1][0] else [], ("white", ORANGE), strict=False
        ):
            ((row, column),) = np.argwhere(np.asarray(board) == number)
            if stage in slides:
                _slide(axes, before[number], (row, column), np.shape(board), colour)
            axes.plot(column, row, "o", ms=8.5, color=colour, mec=INK, mew=1.2)
            before[number] = row, column
    return figure


def _slide(
    axes: Axes, was: Sequence[int], now: Sequence[int], shape: Sequence[int], colour: str
) -> None:
    """A line down or to the right, over the edge of the board if need be."""
    (row_was, column_was), (row, column), (rows, columns) = was, now, shape
    style: dict[str, Any] = {
        "color": colour,
        "lw": 2,
        "path_effects": [Stroke(linewidth=3.5, foreground=INK), Normal()],
    }
    parts = [((column_was, column), (row_was, row))]
    if row < row_was:
        parts = [((column, column), (row_was, rows - 0.5)), ((column, column), (-0.5, row))]
    if column < column_was:
        parts = [((column_was, columns - 0.5), (row, row)), ((-0.5, column), (row, row))]
    for x, y in parts:
        axes.plot(x, y, **style)


def sharing(tree: Any, items: Mapping[int, int], names: Sequence[str]) -> Figure:
    """How a tree of shares (of `plain.share_tree`) hands a window's items down to the sources, level by level.

    Args:
        tree: a source, or (left tree, right tree, ...).
        items: of the window, by source.
        names: of the sources.
    """
    levels: dict[int, list[Cell]] = {}

    def place(node: Any, left: int, level: int) -> int:
        row = levels.setdefault(level, [])
        if isinstance(node, int):
            row.append(Cell(left, f"{names[node]}: {items[node]}", colour_of(node), items[node]))
            return items[node]
        width = place(node[0], left, level + 1)
        width += place(node[1], left + width, level + 1)
        row.append(Cell(left, f"{width} turns", IDLE, width))
        return width

    place(tree, 0, 0)
    rows, title = (
        {f"level {n}": row for n, row in levels.items()},
        "A window's turns split down the tree, rounded at each branch",
    )
    return picture(rows, 0.4, room=0.5, title=title, gap=0.3)[0]


def windows(stages: Mapping[str, tuple[Sequence[int], Sequence[Any]]]) -> Figure:
    """A window of positions in rows of 8, once per stage: {title: (source, text) of each position}."""
    figure, places = panels(stages, 2.5)
    for axes, (sources, texts) in places:
        fill(
            axes,
            {
                str(k): in_line(texts[k : k + 8], sources[k : k + 8])
                for k in range(0, len(sources), 8)
            },
        )
        axes.set(yticks=[])
    return figure


def deviations(
    series: Mapping[str, ArrayLike], labels: Mapping[str, tuple[float, float]], title: str
) -> Figure:
    """Samples of one source read so far, less its share, along the run: [N] for each way, named at (position, y).

    Up to three ways, gray, dashed violet and black: the other colors belong to sources, and violet is as dark as black.
    """
    colours = (GREY, LINES[3], INK)
    lines, texts = (
        {name: [it] for name, it in series.items()},
        {"xlabel": "position", "ylabel": "samples too many"},
    )
    figure = curves({title: lines}, 3, colours=colours, style={"lw": 1.2}, **texts)
    for line in figure.axes[0].lines[1:2]:
        line.set_linestyle((0, (2.5, 1)))
    for (name, place), colour in zip(labels.items(), colours, strict=False):
        figure.axes[0].text(*place, name, color=colour, weight="bold")
    return figure
