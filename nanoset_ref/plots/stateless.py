"""Pictures of an order without an index: a permutation computed in rounds, positions dealt out, what designs cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nanoset_ref.plots._colours import COLOURS, INK
from nanoset_ref.plots._draw import canvas, cell, frameless, grid, half_framed


def rounds(stages: Sequence[tuple[str, ArrayLike]], columns: int) -> Figure:
    """Where the numbers 0 .. n-1 stand after each round, as a grid of places; the colour is the number.

    Args:
        stages: (title, places [n]) of each; places[x] is where x stands.
        columns: places per row of the grid.
    """
    figure, all_axes = grid(2.3 * len(stages), 2.6, columns=len(stages))
    for axes, (title, places) in zip(all_axes, stages, strict=True):
        places = np.asarray(places)
        board = np.full(-(-int(places.max() + 1) // columns) * columns, np.nan)
        board[places] = np.arange(len(places))
        axes.imshow(board.reshape(-1, columns), cmap="viridis", interpolation="nearest")
        axes.set(title=title, xticks=[], yticks=[])
    return figure


def clouds(panels: Sequence[tuple[str, ArrayLike]]) -> Figure:
    """Place against number, one panel per shuffle: structure would show as lines or gaps."""
    figure, all_axes = grid(3 * len(panels), 3, columns=len(panels))
    for axes, (title, places) in zip(all_axes, panels, strict=True):
        axes.plot(np.asarray(places), ".", ms=1.5, color="#3182bd")
        half_framed(axes, title=title, xlabel="position")
    figure.axes[0].set_ylabel("sample")
    return figure


def dealing(sources: ArrayLike, numbers: ArrayLike) -> Figure:
    """A block of positions in rows of 16: the colour is the source, the number is the item's number in it."""
    sources, numbers = np.asarray(sources), np.asarray(numbers)
    height = len(sources) // 16
    figure, axes = canvas(8, 0.5 * height + 0.2)
    for k, (source, number) in enumerate(zip(sources.tolist(), numbers.tolist(), strict=True)):
        row, column = divmod(k, 16)
        cell(axes, column, row, 0.92, 0.85, COLOURS[source], str(number), lw=0.5, size=9)
    frameless(axes, xlim=(-0.1, 16), ylim=(height, -0.1))
    return figure


def deviations(series: Mapping[str, ArrayLike]) -> Figure:
    """Samples of one source read so far, less its share, along the run: [N] for each way to choose."""
    figure, axes = canvas(8.5, 3)
    for colour, (name, values) in zip(("#bdbdbd", "#fdae6b", "#3182bd"), series.items(), strict=True):
        axes.plot(np.asarray(values), lw=1, color=colour, label=name)
    axes.axhline(0, color=INK, lw=0.6)
    half_framed(axes, xlabel="position in the run", ylabel="samples too many")
    figure.legend(loc="outside upper right", ncols=len(series))
    return figure


def coverage(series: Mapping[str, ArrayLike], length: int) -> Figure:
    """Different samples of one source that have been read, after each of its readings."""
    figure, axes = canvas(8.5, 3)
    for colour, (name, values) in zip(("#fdae6b", "#3182bd"), series.items(), strict=True):
        axes.plot(np.arange(1, len(np.asarray(values)) + 1), values, lw=2, color=colour, label=name)
    axes.axhline(length, color=INK, ls="--", lw=0.8)
    axes.text(0, length, f" all {length} samples", va="bottom")
    half_framed(axes, xlabel="readings of the source", ylabel="different samples read", ylim=(0, 1.15 * length))
    axes.legend(loc="lower right")
    return figure


def costs(panels: Sequence[tuple[str, Mapping[str, tuple[ArrayLike, ArrayLike]]]]) -> Figure:
    """What designs cost against the number of samples, on two logarithmic axes.

    Args:
        panels: (label of the vertical axis, {design: (samples, cost)}); a design of the same name keeps its colour.
    """
    figure, all_axes = grid(4.8 * len(panels), 3.6, columns=len(panels))
    names = list(dict.fromkeys(name for _, series in panels for name in series))
    colours = dict(zip(names, ("#bdbdbd", "#969696", "#fdae6b", "#3182bd"), strict=False))
    for axes, (label, series) in zip(all_axes, panels, strict=True):
        for name, (sizes, values) in series.items():
            axes.loglog(sizes, values, "o-", ms=4, lw=2, color=colours[name], label=name)
        half_framed(axes, xlabel="samples in the run", ylabel=label)
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(names))
    return figure
