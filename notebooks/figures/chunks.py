"""Pictures of packing and dealing: documents in rows, rows in chunks, what is lost, what a bad order does."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import HEIGHT, Cell, picture, side_by_side
from figures.draw import INK, RED, SOURCES, draw_lines, panels

FILLS, STROKES = zip(*SOURCES.values(), strict=True)


def forgetting(
    runs: Mapping[str, tuple[Sequence[int], ArrayLike]], names: Sequence[str], rows_per_step: int
) -> Figure:
    """Losses on held-out rows of each subset while a model trains; where it reads one subset only, in its colour.

    Args:
        runs: {title: (the number of each row's subset, in the order of reading; losses [measurements, subsets])}.
        names: of the subsets.
        rows_per_step: in a training step.
    """
    figure, places = panels(runs, 3.1, sharey=True)
    for axes, (sources, losses) in places:
        step = 0.0
        for source, group in groupby(sources):
            first, step = step, step + len(list(group)) / rows_per_step
            if step - first > 4:
                axes.axvspan(first, step, color=FILLS[source], alpha=0.2, lw=0)
        measured = np.linspace(0, step, len(np.asarray(losses)))
        draw_lines(
            axes,
            {name: (measured, loss) for name, loss in zip(names, np.transpose(losses))},
            STROKES,
        )
        for line, style in zip(axes.lines, ("-", (0, (4, 1)), (0, (1, 0.8))), strict=False):
            line.set_linestyle(style)
        axes.set(
            xlabel="training step",
            xlim=(0, step * (1 + 0.16 * len(runs))),
            xticks=range(0, int(step) + 1, 50),
        )
        axes.spines["bottom"].set_bounds(0, step)  # beside it are the names
        height, gap = -np.inf, 0.075 * np.ptp(axes.get_ylim())
        for source in np.argsort(np.asarray(losses)[-1]):
            height = max(height + gap, np.asarray(losses)[-1][source])
            axes.text(1.02 * step, height, names[source], color=STROKES[source], va="center")
    figure.axes[0].set_ylabel("loss on held-out rows, nats")
    return figure


def mixture_over_time(
    runs: Mapping[str, ArrayLike], names: Sequence[str], samples_per_bar: int
) -> Figure:
    """How much of each subset is read in each bar's part of a run, one panel per run; dashed: over the whole run.

    Args:
        runs: {title: the number of each sample's subset, in the order of reading}.
        names: of the subsets.
        samples_per_bar: length of a bar, in samples.
    """
    figure, places = panels(runs, 2.6, sharey=True)
    for axes, sources in places:
        count = len(np.asarray(sources)) // samples_per_bar
        bars = np.asarray(sources)[: count * samples_per_bar].reshape(count, samples_per_bar)
        shares = [(bars == subset).mean(axis=1) for subset in range(len(names))]
        for share, top, colour in zip(shares, np.cumsum(shares, axis=0), FILLS, strict=True):
            axes.bar(
                np.arange(count) + 0.5,
                share,
                1,
                bottom=top - share,
                color=colour,
                edgecolor="white",
                lw=0.3,
            )
        for target in np.cumsum(np.bincount(sources, minlength=len(names)))[:-1] / len(
            np.asarray(sources)
        ):
            axes.axhline(target, color=INK, lw=1.2, ls="--")
        axes.set(xlabel="row of the run", xlim=(0, count), ylim=(0, 1))
        axes.set_xticks(
            [0, count // 2, count], [f"{bars * samples_per_bar}" for bars in (0, count // 2, count)]
        )
    parts = np.bincount(sources, minlength=len(names)) / len(np.asarray(sources))
    for name, middle in zip(names, np.cumsum(parts) - parts / 2):
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
        axes.annotate(name, (1.04, middle), color=INK, annotation_clip=False, **place)
    figure.axes[0].set_ylabel("share of the rows")
    return figure


def tails(tokens: Mapping[str, int], row_length: int, title: str) -> Figure:
    """What each packer makes of its tokens: full rows, and in a red frame the tail that fills none.

    Args:
        tokens: by packer, the tokens of its documents.
        row_length: in tokens.
        title: of the picture.
    """
    rows, frame = {}, {"edgecolor": RED, "lw": 1.5}
    for packer, count in tokens.items():
        full, tail = divmod(count, row_length)
        cells = side_by_side([("", FILLS[0], 1.0)] * full)
        rows[packer] = [*cells, Cell(full, "", "white", tail / row_length, frame)]
    figure, axes = picture(rows, 0.34, title=title)
    for row, count in enumerate(tokens.values()):
        lost = f"{count % row_length:,} lost"
        axes.text(count / row_length + 0.2, row + HEIGHT / 2, lost, color=RED, va="center")
    axes.set_xlim(right=max(tokens.values()) / row_length + 3)
    return figure
