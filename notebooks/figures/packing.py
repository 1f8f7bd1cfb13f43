"""Pictures of documents in rows of one length: four ways to pack them, what each costs, and how best fit searches."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, fill, picture
from figures.draw import COLOURS, IDLE, INK, LINES, RED, draw_lines, panels

PADDING, LOST = -1, -2  # in the place of a document's number
WAYS = dict(zip(("wrap", "pad", "best fit", "cut"), LINES, strict=True))
MARKERS = {"wrap": "o", "pad": "s", "best fit": "D", "cut": "^"}
Row = Sequence[tuple[str, int, int]]  # text, number of the document, tokens


def ways(contents: Mapping[str, Sequence[Row]], row_length: int) -> Figure:
    """Rows of pieces, each with its document's number; padding is gray, what no row holds stands beyond the row's end.

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
        whole = f"{document}: {text.strip()}" if document >= 0 else text
        shown = whole if len(whole) <= 2.4 * size else str(document)
        colour = {PADDING: IDLE, LOST: "white"}.get(document, (COLOURS[0], 0.2 + 0.16 * document))
        cells.append(
            Cell(left, shown, colour, size, font={"color": RED if document == LOST else INK})
        )
        left += size
    return cells


def counts(
    row_lengths: Sequence[int],
    contents: Mapping[str, Sequence[Mapping[str, ArrayLike]]],
    title: str,
) -> Figure:
    """Above, the documents that are cut; below, the tokens that are lost or padding; both by tokens per row.

    Args:
        row_lengths: the horizontal axis.
        contents: by corpus, for the upper and the lower panel: by way, a share (0 to 1) at each row length.
        title: what to see.
    """
    uppers = {corpus: upper for corpus, (upper, _) in contents.items()}
    lowers = {" " * place: lower for place, (_, lower) in enumerate(contents.values(), 1)}
    figure, places = panels(uppers | lowers, 5.2, rows=2, headline=title, sharey="row", sharex=True)
    for place, (axes, shares) in enumerate(places):
        lines = {name: (row_lengths, 100 * np.asarray(values)) for name, values in shares.items()}
        draw_lines(axes, lines, [WAYS[way] for way in shares], ms=4)
        for line in axes.lines:
            line.set_marker(MARKERS[str(line.get_label())])
        axes.set(ylim=(-4, 104))
        axes.grid(alpha=0.3)
        axes.set_xscale("log", base=2)
        axes.set_xticks(row_lengths[::3], [f"{length:,}" for length in row_lengths[::3]])
        axes.minorticks_off()
        if place in (0, len(uppers)):
            axes.legend(frameon=False, fontsize=10)
    figure.axes[0].set_ylabel("documents cut, %")
    figure.axes[len(uppers)].set_ylabel("tokens lost or padding, %")
    figure.axes[len(uppers) + len(lowers) // 2].set_xlabel("tokens per row")
    return figure


def tree(counts: Sequence[int], looks: Sequence[int], found: int, title: str) -> Figure:
    """A binary tree of counts: each box holds the sum of the two below it.

    Args:
        counts: by node. Node 1 is the root, the children of node i are 2i and 2i + 1.
        looks: the nodes that a search looks at, in turn.
        found: the leaf that it finds, or 0.
        title: what to see.
    """
    leaves = len(counts) // 2
    rows: dict[str, list[Cell]] = {}
    for depth in range(leaves.bit_length()):
        width, low = leaves >> depth, 1 << depth
        for node in range(low, 2 * low):
            text = (
                f"look {looks.index(node) + 1}: {counts[node]}"
                if node in looks
                else str(counts[node])
            )
            colour = COLOURS[3] if node == found else COLOURS[4] if node in looks else "white"
            cell = Cell((node - low) * width, text, colour, width)
            rows.setdefault(f"sum of {width}" if width > 1 else "rows", []).append(cell)
    rows["with room for"] = [Cell(room, str(room), edge={"lw": 0}) for room in range(leaves)]
    return picture(rows, 0.33, 0.35, title=title)[0]
