"""Pictures of the stateless order: rounds, clouds, windows, and what designs cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import in_line, picture
from figures.draw import INK, LINES, curves, key, panels

DESIGNS = ("#969696", "#bdbdbd", "#fdae6b", "#3182bd")


def clouds(runs: Sequence[tuple[str, ArrayLike]], xlabel: str = "position") -> Figure:
    """Sample against position, one panel per shuffle: structure would show as lines or gaps."""
    contents = {title: {"": [places]} for title, places in runs}
    style = {"ls": "none", "marker": ".", "ms": 2}
    return curves(contents, 3, colours=LINES, style=style, legend=None, xlabel=xlabel, ylabel="sample")


def rounds(stages: Sequence[tuple[str, ArrayLike]], columns: int) -> Figure:
    """Where the numbers 0 .. n-1 stand after each round, as a grid of places; the colour is the number.

    Args:
        stages: (title, places [n]) of each; places[x] is where x stands.
        columns: places per row of the grid.
    """
    figure, boards = panels(dict(stages), 2.6)
    for axes, places in boards:
        places = np.asarray(places)
        board = np.full(-(-int(places.max() + 1) // columns) * columns, np.nan)
        board[places] = np.arange(len(places))
        axes.imshow(board.reshape(-1, columns), cmap="viridis", interpolation="nearest")
        axes.set(xticks=[], yticks=[])
    return figure


def dealing(sources: ArrayLike, numbers: ArrayLike) -> Figure:
    """A block of positions in rows of 16: the colour is the source, the number is the item's number in it."""
    sources, numbers = np.asarray(sources), np.asarray(numbers)
    rows = {str(k): in_line(numbers[k : k + 16], sources[k : k + 16]) for k in range(0, len(sources), 16)}
    figure, _ = picture(rows, 0.5, size=9)
    return figure


def deviations(series: Mapping[str, ArrayLike]) -> Figure:
    """Samples of one source read so far, less its share, along the run: [N] for each way to choose."""
    lines = {name: [values] for name, values in series.items()}
    labels = {"xlabel": "position in the run", "ylabel": "samples too many"}
    figure = curves({"": lines}, 3, colours=DESIGNS[1:], style={"lw": 1}, legend=None, **labels)
    figure.axes[0].axhline(0, color=INK, lw=0.6)
    key(figure, loc="upper right")
    return figure


def coverage(series: Mapping[str, ArrayLike], length: int) -> Figure:
    """Different samples of one source that have been read, after each of its readings."""
    lines = {name: [np.arange(1, len(np.asarray(values)) + 1), values] for name, values in series.items()}
    labels = {"xlabel": "readings of the source", "ylabel": "different samples read", "ylim": (0, 1.15 * length)}
    figure = curves({"": lines}, 3, colours=DESIGNS[2:], legend="lower right", **labels)
    (axes,) = figure.axes
    axes.axhline(length, color=INK, ls="--", lw=0.8)
    axes.text(0, length, f" all {length} samples", va="bottom")
    return figure


def costs(contents: Sequence[tuple[str, Mapping[str, tuple[ArrayLike, ArrayLike]]]]) -> Figure:
    """What designs cost against the number of samples, on two logarithmic axes.

    Args:
        contents: (what is measured, {design: (samples, cost)}); all with the same designs.
    """
    lines = {what: {name: list(points) for name, points in series.items()} for what, series in contents}
    style, logs = {"marker": "o", "ms": 4}, {"xscale": "log", "yscale": "log", "xlabel": "samples in the run"}
    figure = curves(lines, 3.6, colours=DESIGNS, style=style, legend=None, share=False, **logs)
    key(figure, loc="upper center")
    return figure
