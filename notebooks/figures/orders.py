"""Pictures of orders: indexes as strips, greedy choices, shares along a run, readings."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, colour_of, fill, in_line, picture
from figures.draw import COLOURS, INK, curves, key, panels
from figures.permutations import clouds


def strips(rows: Sequence[tuple[str, ArrayLike, ArrayLike]]) -> Figure:
    """Stretches of an index as coloured cells: the colour is the dataset, the number the sample.

    Args:
        rows: (name, datasets [n], samples [n]) of each stretch.
    """
    drawn = {name: in_line(np.asarray(samples), np.asarray(datasets)) for name, datasets, samples in rows}
    figure, _ = picture(drawn, 0.6, room=0.5, size=9)
    datasets = np.unique(np.concatenate([np.asarray(found) for _, found, _ in rows])).tolist()
    key(figure, {f"d{dataset}": colour_of(dataset) for dataset in datasets}, "upper center")
    return figure


def greedy_errors(errors: ArrayLike, chosen: Sequence[int]) -> Figure:
    """How far each dataset is behind its share before each step, and which one is taken: [steps, datasets]."""
    errors = np.asarray(errors)
    lines = {f"d{dataset}": [column] for dataset, column in enumerate(errors.T)}
    labels = {"xlabel": "step t", "ylabel": "weight x t - taken  (samples)"}
    figure = curves({"dot: the one that is taken": lines}, 3.2, legend=None, xticks=range(len(chosen)), **labels)
    (axes,) = figure.axes
    axes.scatter(range(len(chosen)), errors[range(len(chosen)), chosen], 49, [colour_of(d) for d in chosen],
                 edgecolor=INK, zorder=3)  # fmt: skip
    axes.axhline(0, color=INK, lw=0.6)
    key(figure, loc="upper right")
    return figure


def shares_along_run(runs: Sequence[tuple[str, ArrayLike, Sequence[float]]], names: Sequence[str]) -> Figure:
    """The share of each dataset in the first k samples, against its weight (dashed).

    Args:
        runs: (title, dataset index [N], weights) of each order.
        names: of the datasets.
    """
    contents = {}
    for title, index, _ in runs:
        k = np.arange(1, len(np.asarray(index)) + 1)
        contents[title] = {name: [k, np.cumsum(np.asarray(index) == d) / k] for d, name in enumerate(names)}
    settings = {"xlabel": "samples read", "ylabel": "share of the samples read", "xscale": "log", "ylim": (0, 1)}
    figure = curves(contents, 3.2, **settings)
    for axes, (_, _, weights) in zip(figure.axes, runs, strict=True):
        for weight, colour in zip(weights, COLOURS, strict=False):
            axes.axhline(weight, color=colour, ls="--", lw=1)
    return figure


def readings(rows: Sequence[tuple[str, ArrayLike, ArrayLike]], lengths: Sequence[int]) -> Figure:
    """How often each sample of each dataset is read: a square per sample with its count, the darker the more.

    Args:
        rows: (title, datasets [N], samples [N]) of each order.
        lengths: samples in each dataset.
    """
    counts = {title: _counts(np.asarray(found), np.asarray(samples), lengths) for title, found, samples in rows}
    most = max(int(count.max()) for found in counts.values() for count in found)
    figure, places = panels(counts, 0.5 * len(lengths) + 0.5)
    for axes, found in places:
        drawn = {f"d{d}": [_shaded(k, n, most) for k, n in enumerate(count.tolist())] for d, count in enumerate(found)}
        fill(axes, drawn, size=9)
    return figure


def _counts(datasets: np.ndarray, samples: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    return [np.bincount(samples[datasets == dataset], minlength=length) for dataset, length in enumerate(lengths)]


def _shaded(left: int, number: int, most: int) -> Cell:
    depth = (number / most) ** 0.5
    font = {"color": "white" if depth > 0.7 else INK}
    return Cell(left, str(number), matplotlib.colormaps["Blues"](0.7 * depth), font=font)


def readings_along_file(runs: Sequence[tuple[str, Sequence[ArrayLike]]], names: Sequence[str]) -> Figure:
    """How often the samples along each file are read, on average over 40 stretches: counts [samples] per dataset."""
    contents = {title: dict(zip(names, map(_averages, counts), strict=True)) for title, counts in runs}
    labels = {"xlabel": "place in the file (0: beginning, 1: end)", "ylabel": "times read, on average"}
    return curves(contents, 3.2, style={"drawstyle": "steps-post"}, **labels)


def _averages(counts: ArrayLike, stretches: int = 40) -> tuple[np.ndarray, list[float]]:
    means = [float(part.mean()) for part in np.array_split(np.asarray(counts), stretches)]
    return np.arange(stretches) / stretches, means


def epochs(runs: Sequence[tuple[str, ArrayLike]], samples_per_epoch: int) -> Figure:
    """Which sample is read at each position, over several epochs: places [N] in one epoch's data, laid end to end."""
    figure = clouds(runs, xlabel="position in the run")
    for axes, (_, places) in zip(figure.axes, runs, strict=True):
        for edge in range(0, len(np.asarray(places)) + 1, samples_per_epoch):
            axes.axvline(edge, color=INK, lw=0.6)
    return figure
