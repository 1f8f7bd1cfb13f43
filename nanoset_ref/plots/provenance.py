"""Pictures of where tokens come from: rows cut by documents, when documents are read, a run whose plan changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from nanoset_ref.plots._colours import COLOURS, INK
from nanoset_ref.plots._draw import canvas, grid, half_framed, label


def step(rows: Sequence[tuple[str, int, Sequence[tuple[str, int]]]], files: Sequence[str]) -> Figure:
    """The rows of a step as bars cut at document boundaries.

    Args:
        rows: (name, number of the file, [(document, tokens), ...]) of each row.
        files: names of the files; the colour of a bar is its file.
    """
    figure, axes = canvas(9, 0.42 * len(rows) + 0.7)
    for height, (name, file, parts) in enumerate(rows):
        begin = 0
        for number, (document, tokens) in enumerate(parts):
            bar = Rectangle((begin, height), tokens, 0.8, facecolor=COLOURS[file], edgecolor=INK)
            bar.set_alpha(1 - 0.45 * (number % 2))
            axes.add_patch(bar)
            if tokens > 8:
                label(axes, begin + tokens / 2, height + 0.4, document)
            begin += tokens
        axes.text(-1, height + 0.4, name, ha="right", va="center", size=9)
    for file, name in enumerate(files):
        axes.plot([], [], "s", ms=9, color=COLOURS[file], mec=INK, label=name)
    figure.legend(loc="outside upper right", ncols=len(files))
    axes.set(xlim=(0, begin), ylim=(len(rows), -0.1), xlabel="token of the row", yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def readings(lanes: Sequence[tuple[str, ArrayLike, int]], steps: int) -> Figure:
    """When documents are read: a mark per reading, one lane per document.

    Args:
        lanes: (name, steps at which it is read, number of its colour).
        steps: length of the run.
    """
    figure, axes = canvas(9, 0.45 * len(lanes) + 0.7)
    for height, (name, at, colour) in enumerate(lanes):
        axes.axhline(height, color="#dddddd", lw=0.8, zorder=0)
        axes.plot(np.asarray(at), [height] * len(np.asarray(at)), "o", color=COLOURS[colour], mec=INK, ms=6)
        axes.text(-0.01 * steps, height, name, ha="right", va="center", size=9)
    axes.set(xlim=(0, steps + 1), ylim=(len(lanes) - 0.4, -0.6), xlabel="optimizer step", yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def passes(panels: Sequence[tuple[str, Sequence[ArrayLike]]], names: Sequence[str], changes: Sequence[int]) -> Figure:
    """Different samples of each file that have been read, as a share of the file, along a run whose plan changes.

    Args:
        panels: (title, [share [N] of each file]).
        names: of the files.
        changes: positions at which the plan changes.
    """
    figure, all_axes = grid(4.6 * len(panels), 3.2, columns=len(panels), sharey=True)
    for axes, (title, shares) in zip(all_axes, panels, strict=True):
        for file, (name, share) in enumerate(zip(names, shares, strict=True)):
            axes.plot(np.asarray(share), lw=2, color=COLOURS[file], label=name)
        for change in changes:
            axes.axvline(change, color=INK, ls="--", lw=0.8)
        half_framed(axes, title=title, xlabel="position in the run", ylim=(0, 1.05))
    figure.axes[0].set_ylabel("different samples read, share of the file")
    figure.axes[-1].legend(loc="lower right")
    return figure
