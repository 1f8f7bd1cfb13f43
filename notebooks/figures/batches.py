"""Pictures of batches: the shift, what is in them."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from figures.cells import HEIGHT, Cell, picture
from figures.draw import COLOURS, arrow, printable

INPUT, LABEL = COLOURS[:2]


def shift(pieces: Sequence[str]) -> Figure:
    """The tokens of one sample of S + 1 as text, and under them the S inputs and the S labels cut from it.

    Labels stand under the input that has to predict them: one place to the left of where they were.
    """
    rows = {"sample": (pieces, "white"), "input_ids": (pieces[:-1], INPUT), "label_ids": (pieces[1:], LABEL)}
    drawn = {
        name: [Cell(column, printable(piece), colour) for column, piece in enumerate(shown)]
        for name, (shown, colour) in rows.items()
    }
    figure, axes = picture(drawn, 0.8, family="monospace", size=9)
    for column in range(1, len(pieces)):
        arrow(axes, (column + 0.47, HEIGHT), (column - 0.53, 2), LABEL)
    return figure
