"""Pictures of batches: samples in their cells, the shift, what a wrong one does to the loss."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from figures.cells import Cell, in_line, picture
from figures.draw import GREY, INK, LINES, RED, SOURCES, arrow, curves, printable


def runs(losses: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The running means over ten steps of the losses of runs; a run's name stands at the end of its line."""
    smooth = {
        name: [np.convolve(values, np.ones(10) / 10, "valid")] for name, values in losses.items()
    }
    labels = {"xlabel": "step", "ylabel": "loss, nats per token"}
    figure = curves({title: smooth}, 2.9, colours=(INK, GREY), ylim=(-0.3, None), **labels)
    for line, dashes in zip(figure.axes[0].lines, ("-", "-", "--")):
        line.set_linestyle(dashes)
        figure.axes[0].text(
            *line.get_xydata()[-1], f"  {line.get_label()}", color=line.get_color(), va="center"
        )
    return figure


def shift(pieces: Sequence[str], title: str) -> Figure:
    """The tokens of one sample of a story, S + 1 as text, and under them the S labels and the S inputs cut from it.

    Labels stand above the input that has to predict them: one place to the left of where they were.
    """
    rows = {"sample": (0, pieces), "label_ids": (3, pieces[1:]), "input_ids": (4, pieces[:-1])}
    drawn = {
        name: in_line(map(printable, shown), [kind] * len(shown))
        for name, (kind, shown) in rows.items()
    }
    figure, axes = picture(drawn, 0.72, room=0.2, height=0.5, size=10.5)
    for column in range(1, len(pieces)):
        arrow(axes, (column + 0.47, 0.5), (column - 0.53, 1), LINES[3])
        arrow(axes, (column - 0.53, 2), (column - 0.53, 1.5))
    axes.set(title=title, ylim=(2.55, -0.05))
    axes.set_yticks([0.25, 1.25, 2.25], list(drawn))
    return figure


def samples(
    rows: Mapping[str, Sequence[tuple[int, str, str]]], title: str, lost: Collection[int] = ()
) -> Figure:
    """Rows of samples, in their sources' colours.

    Args:
        rows: by name, who or what has these samples: of each the position, the first token, the source.
        title: the takeaway.
        lost: positions drawn with a red edge.
    """
    red = {"edgecolor": RED, "lw": 2.2}
    drawn = {
        name: [
            Cell(
                column,
                f"{k}\n{printable(piece)}",
                SOURCES[source][0],
                edge=red if k in lost else {},
            )
            for column, (k, piece, source) in enumerate(cells)
        ]
        for name, cells in rows.items()
    }
    return picture(drawn, 0.6, room=0.4, title=title)[0]
