"""Pictures of batches: samples in their cells, the shift, what a wrong one does to the loss."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from figures.cells import Cell, picture
from figures.draw import COLOURS, GREY, LINES, RED, SOURCES, arrow, canvas, draw_lines, half_framed, printable

INPUT, LABEL = COLOURS[4], COLOURS[3]  # no source has these
Sample = tuple[int, str, str]  # position, first token, source


def runs(losses: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The losses of runs over steps, smoothed over ten; a run's name stands at the end of its line."""
    figure, axes = canvas(2.9)
    for (name, values), colour in zip(losses.items(), LINES, strict=False):
        smooth = np.convolve(values, np.ones(10) / 10, "valid")
        draw_lines(axes, {name: (smooth,)}, [colour])
        axes.text(len(smooth) + 1, smooth[-1], name, color=colour, va="center", weight="bold")
    half_framed(axes, title=title, xlabel="step", ylabel="loss, nats per token", ylim=(-0.3, None))
    return figure


def shift(pieces: Sequence[str], title: str) -> Figure:
    """The tokens of one sample of S + 1 as text, and under them the S labels and the S inputs cut from it.

    Labels stand above the input that has to predict them: one place to the left of where they were.
    """
    rows = {"sample": (pieces, "white"), "label_ids": (pieces[1:], LABEL), "input_ids": (pieces[:-1], INPUT)}
    drawn = {
        name: [Cell(column, printable(piece), colour) for column, piece in enumerate(shown)]
        for name, (shown, colour) in rows.items()
    }
    figure, axes = picture(drawn, 0.72, room=0.2, height=0.5, size=10.5)
    for column in range(1, len(pieces)):
        arrow(axes, (column + 0.47, 0.5), (column - 0.53, 1), LINES[3])
        arrow(axes, (column - 0.53, 2), (column - 0.53, 1.5))
    axes.set(title=title, ylim=(2.55, -0.05))
    axes.set_yticks([0.25, 1.25, 2.25], list(drawn))
    return figure


def samples(rows: Mapping[str, Sequence[Sample | None]], title: str, lost: Collection[int] = ()) -> Figure:
    """Rows of samples, in their sources' colours; None is an empty cell.

    Args:
        rows: by name, who or what has these samples.
        title: the takeaway.
        lost: positions drawn with a red edge.
    """
    drawn = {
        name: [
            Cell(column, f"{it[0]}\n{printable(it[1])}", SOURCES[it[2]][0], edge=_edge(it[0] in lost)) if it
            else Cell(column, edge={"ls": ":", "edgecolor": GREY})
            for column, it in enumerate(cells)
        ]
        for name, cells in rows.items()
    }  # fmt: skip
    figure, axes = picture(drawn, 0.6, room=0.4)
    axes.set_title(title)
    return figure


def _edge(lost: bool) -> dict[str, float | str]:
    return {"edgecolor": RED, "lw": 2.2} if lost else {}
