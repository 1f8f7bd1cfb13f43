"""Pictures of documents in rows of one length: four ways to pack them, and what each way cuts, loses or pads."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, fill
from figures.draw import COLOURS, IDLE, INK, LINES, RED, draw_lines, half_framed, panels, printable

PADDING, LOST = -1, -2  # in the place of a document's number
WAYS = dict(zip(("wrap", "pad", "best fit", "cut"), LINES, strict=True))
Row = Sequence[tuple[str, int, int]]  # text, number of the document, tokens


def ways(contents: Mapping[str, Sequence[Row]], row_length: int) -> Figure:
    """Rows of pieces, each document in its colour; padding is grey, what no row holds stands beyond the row's end.

    Args:
        contents: by way, the pieces of each row.
        row_length: in tokens; there the row ends.
    """
    heights = [max(len(rows) for rows in list(contents.values())[at : at + 2]) for at in (0, 2)]
    figure, places = panels(contents, 0.3 * sum(heights) + 1.1, rows=2, height_ratios=heights)
    for number, (axes, rows) in enumerate(places):
        fill(axes, {f"row {row}": _cells(pieces) for row, pieces in enumerate(rows)})
        axes.set(xlim=(-0.05, 1.42 * row_length), ylim=(heights[number // 2], -0.1))
        axes.vlines(row_length - 0.03, -0.1, len(rows), color=INK, lw=1.5)
    return figure


def _cells(pieces: Row) -> list[Cell]:
    cells, left = [], 0
    for text, document, size in pieces:
        shown = printable(text.strip(), int(2.4 * size)).replace("␣", " ") if size > 1 else ""
        colour = {PADDING: IDLE, LOST: "white"}.get(document, COLOURS[document % 5])
        cells.append(Cell(left, shown, colour, size, font={"color": RED if document == LOST else INK}))
        left += size
    return cells


def counts(row_lengths: Sequence[int], contents: Mapping[str, Sequence[Mapping[str, ArrayLike]]]) -> Figure:
    """Above, the documents that are cut; below, the tokens that are lost or padding; both by tokens per row.

    Args:
        row_lengths: the horizontal axis.
        contents: by corpus, for the upper and the lower panel: by way, a share (0 to 1) at each row length.
    """
    uppers = {corpus: upper for corpus, (upper, _) in contents.items()}
    lowers = {" " * place: lower for place, (_, lower) in enumerate(contents.values(), 1)}
    figure, places = panels(uppers | lowers, 5, rows=2, sharey="row", sharex=True)
    for place, (axes, shares) in enumerate(places):
        lines = {name: (row_lengths, 100 * np.asarray(values)) for name, values in shares.items()}
        draw_lines(axes, lines, [WAYS[way] for way in shares], marker="o", ms=4)
        half_framed(axes, ylim=(-4, 104))
        axes.grid(alpha=0.3)
        axes.set_xscale("log", base=2)
        shown = row_lengths[::2]
        axes.set_xticks(shown, [f"{length:,}" for length in shown])
        axes.minorticks_off()
        if place in (0, len(uppers)):
            axes.legend(frameon=False, fontsize=10)
    figure.axes[0].set_ylabel("documents cut, %")
    figure.axes[len(uppers)].set_ylabel("tokens lost or padding, %")
    figure.axes[len(uppers) + len(lowers) // 2].set_xlabel("tokens per row")
    return figure
