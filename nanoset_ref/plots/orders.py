"""Pictures of orders: an index as a strip, the greedy choice, shares along a run, who is read how often."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nanoset_ref.plots._colours import COLOURS, INK
from nanoset_ref.plots._draw import canvas, cell, frameless, grid, half_framed


def strips(rows: Sequence[tuple[str, ArrayLike, ArrayLike]]) -> Figure:
    """Stretches of an index as coloured cells: the colour is the dataset, the number the sample.

    Args:
        rows: (name, datasets [n], samples [n]) of each stretch.
    """
    longest = max(len(np.asarray(datasets)) for _, datasets, _ in rows)
    figure, axes = canvas(0.42 * longest + 1.6, 0.62 * len(rows) + 0.5)
    for height, (name, datasets, samples) in enumerate(reversed(rows)):
        axes.text(-0.3, height + 0.4, name, ha="right", va="center")
        for place, (dataset, sample) in enumerate(zip(np.asarray(datasets), np.asarray(samples), strict=True)):
            cell(axes, place, height, 0.92, 0.8, COLOURS[dataset], str(sample), lw=0.5, size=9)
    for dataset in sorted({int(d) for _, datasets, _ in rows for d in np.asarray(datasets)}):
        cell(axes, dataset * 2.2, len(rows) + 0.15, 0.5, 0.45, COLOURS[dataset])
        axes.text(dataset * 2.2 + 0.65, len(rows) + 0.37, f"d{dataset}", va="center", size=9)
    frameless(axes, xlim=(-0.3, longest), ylim=(-0.1, len(rows) + 0.7))
    return figure


def greedy_errors(errors: ArrayLike, chosen: Sequence[int]) -> Figure:
    """How far each dataset is behind its share before each step, and which one is taken: [steps, datasets]."""
    errors = np.asarray(errors)
    figure, axes = canvas(8.5, 3.2)
    for dataset in range(errors.shape[1]):
        axes.plot(errors[:, dataset], color=COLOURS[dataset], lw=2, label=f"d{dataset}", zorder=1)
    for step, dataset in enumerate(chosen):
        axes.plot(step, errors[step, dataset], "o", color=COLOURS[dataset], mec=INK, ms=7, zorder=2)
    axes.axhline(0, color=INK, lw=0.6)
    half_framed(axes, xlabel="step t", ylabel="weight x t - taken  (samples)", xticks=range(len(chosen)))
    figure.legend(ncols=errors.shape[1], loc="outside upper right", title="dot: the one that is taken")
    return figure


def shares_along_run(panels: Sequence[tuple[str, ArrayLike, Sequence[float]]], names: Sequence[str]) -> Figure:
    """The share of each dataset in the first k samples, against its weight (dashed).

    Args:
        panels: (title, dataset index [N], weights) of each order.
        names: of the datasets.
    """
    figure, all_axes = grid(4.2 * len(panels), 3.2, columns=len(panels), sharey=True)
    for axes, (title, datasets, weights) in zip(all_axes, panels, strict=True):
        datasets = np.asarray(datasets)
        k = np.arange(1, len(datasets) + 1)
        for dataset, (name, weight) in enumerate(zip(names, weights, strict=True)):
            axes.plot(k, np.cumsum(datasets == dataset) / k, color=COLOURS[dataset], lw=2, label=name)
            axes.axhline(weight, color=COLOURS[dataset], ls="--", lw=1)
        half_framed(axes, title=title, xlabel="samples read", xscale="log", ylim=(0, 1))
    figure.axes[0].set_ylabel("share of the samples read")
    figure.axes[-1].legend()
    return figure


def readings(rows: Sequence[tuple[str, ArrayLike, ArrayLike]], lengths: Sequence[int]) -> Figure:
    """How often each sample of each dataset is read: a square per sample with its count, the darker the more.

    Args:
        rows: (title, datasets [N], samples [N]) of each order.
        lengths: samples in each dataset.
    """
    size = 0.5 * max(lengths) * len(rows) + 1.6, 0.5 * len(lengths) + 0.9
    figure, all_axes = grid(*size, columns=len(rows))
    counts = [_counts(datasets, samples, lengths) for _, datasets, samples in rows]
    most = max(int(count.max()) for columns in counts for count in columns)
    for axes, (title, _, _), columns in zip(all_axes, rows, counts, strict=True):
        for dataset, count in enumerate(columns):
            axes.text(-0.2, dataset + 0.45, f"d{dataset}", ha="right", va="center")
            for sample, number in enumerate(count.tolist()):
                depth = (number / most) ** 0.5
                shade = tuple(1 - depth * (1 - part) for part in (0.19, 0.51, 0.74))
                ink = "white" if depth > 0.7 else INK
                cell(axes, sample, dataset, 0.9, 0.9, shade, str(number), lw=0.5, size=9, color=ink)
        frameless(axes, xlim=(-0.6, max(lengths)), ylim=(len(lengths), -0.1), title=title)
    return figure


def readings_along_file(panels: Sequence[tuple[str, Sequence[ArrayLike]]], names: Sequence[str]) -> Figure:
    """How often the samples along each file are read, on average over 40 stretches: counts [samples] per dataset."""
    figure, all_axes = grid(4.2 * len(panels), 3.2, columns=len(panels), sharey=True)
    for axes, (title, counts) in zip(all_axes, panels, strict=True):
        for dataset, (name, count) in enumerate(zip(names, counts, strict=True)):
            means = [part.mean() for part in np.array_split(np.asarray(count), 40)]
            axes.step(np.arange(40) / 40, means, where="post", color=COLOURS[dataset], lw=2, label=name)
        half_framed(axes, title=title, xlabel="place in the file (0: beginning, 1: end)")
    figure.axes[0].set_ylabel("times read, on average")
    figure.axes[-1].legend()
    return figure


def epochs(panels: Sequence[tuple[str, ArrayLike]], samples_per_epoch: int) -> Figure:
    """Which sample is read at each position, over several epochs: places [N] in one epoch's data, laid end to end."""
    figure, all_axes = grid(4.6 * len(panels), 3, columns=len(panels), sharey=True)
    for axes, (title, places) in zip(all_axes, panels, strict=True):
        places = np.asarray(places)
        axes.plot(places, ".", ms=2.5, color="#3182bd")
        for edge in range(0, len(places) + 1, samples_per_epoch):
            axes.axvline(edge, color=INK, lw=0.6)
        half_framed(axes, title=title, xlabel="position in the run")
    figure.axes[0].set_ylabel("sample")
    return figure


def _counts(datasets: ArrayLike, samples: ArrayLike, lengths: Sequence[int]) -> list[np.ndarray]:
    datasets, samples = np.asarray(datasets), np.asarray(samples)
    return [np.bincount(samples[datasets == dataset], minlength=length) for dataset, length in enumerate(lengths)]
