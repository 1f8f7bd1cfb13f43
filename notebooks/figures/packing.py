"""Pictures of documents in rows of one length: four ways to pack them, what each costs, and how best fit searches."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, fill, picture
from figures.draw import COLOURS, HEADLINE, IDLE, INK, LINES, RED, WIDTH, draw_lines, panels

PADDING, LOST = -1, -2  # in the place of a document's number
WAYS = dict(zip(("wrap", "pad", "best fit", "truncate"), LINES, strict=True))
MARKERS = {"wrap": "o", "pad": "s", "best fit": "D", "truncate": "^"}
Row = Sequence[tuple[str, int, int]]  # text, number of the document, tokens


def ways(contents: Mapping[str, Sequence[Row]], row_length: int, headline: str) -> Figure:
    """Rows of pieces, each with its document's number; padding is gray, what no row holds stands beyond the row's end.

    The way with the most rows stands at the right, the others at the left, and below it what each way costs.

    Args:
        contents: by way ("Name: what it does"), the pieces of each row.
        row_length: in tokens; there the row ends.
        headline: above all of them.
    """
    tallest = max(contents, key=lambda way: len(contents[way]))
    stacked = [way for way in contents if way != tallest]
    width, line = 2.72, 0.27  # inches of a row, from one row to the next
    at_left = sum(len(contents[way]) + 1.5 for way in stacked)  # a line and a half for titles
    lines = max(at_left, len(contents[tallest]) + 6.5) + 0.9
    figure = Figure(figsize=(WIDTH, line * lines))
    figure.suptitle(headline, y=1 - 0.25 / lines, va="top", **HEADLINE)

    def panel(left: float, top: float, wide: float, high: float) -> Axes:
        """A panel at so many inches from the left and lines from the top."""
        box = left / WIDTH, 1 - (top + high) / lines, wide / WIDTH, high / lines
        return figure.add_axes(box)

    top = first = 2.1
    for way in stacked:
        rows = contents[way]
        _draw_way(panel(0.45, top, 1.42 * width, len(rows)), way, rows, row_length, 1.42)
        top += len(rows) + 1.5
    rows = contents[tallest]
    _draw_way(panel(4.75, first, width, len(rows)), tallest, rows, row_length, 1)
    below = first + len(rows) + 0.6
    _tell_costs(panel(4.75, below, width, lines - below - 0.2), contents)
    return figure


def _draw_way(axes: Axes, way: str, rows: Sequence[Row], row_length: int, reach: float) -> None:
    """The rows of one way to pack, in a panel that reaches so many row lengths to the right."""
    fill(axes, {f"row {row}": _cells(pieces) for row, pieces in enumerate(rows)})
    axes.set_title(way, size=10.5, weight="normal")
    axes.set(xlim=(-0.05, reach * row_length + 0.05), ylim=(len(rows), -0.1))
    axes.vlines(row_length - 0.03, -0.1, len(rows), color=INK, lw=1.5)


def _tell_costs(axes: Axes, contents: Mapping[str, Sequence[Row]]) -> None:
    """A small table: of each way, the documents it cuts, the tokens it loses, the tokens of padding."""
    axes.set(xlim=(0, 1), ylim=(len(contents) + 0.5, -0.5))
    axes.axis("off")
    lines = [["", "cut", "lost", "padding"]]
    for way, rows in contents.items():
        pieces = [piece for row in rows for piece in row]
        documents = [document for _, document, _ in pieces if document >= 0]
        lost = sum(size for _, document, size in pieces if document == LOST)
        padding = sum(size for _, document, size in pieces if document == PADDING)
        cut = len(documents) - len(set(documents)) + sum(it == LOST for _, it, _ in pieces)
        lines.append([way.partition(":")[0], str(cut), str(lost), str(padding)])
    for row, line in enumerate(lines):
        style: dict[str, Any] = {"size": 10, "va": "center", "color": INK}
        axes.text(0, row, line[0], weight="bold", **style)
        for place, text in zip((0.5, 0.7, 0.98), line[1:], strict=True):
            axes.text(place, row, text, ha="right", **style)
    axes.axhline(0.5, color=INK, lw=0.8)


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
            _name_lines(axes, lines)
    figure.axes[0].set_ylabel("documents cut, %")
    figure.axes[len(uppers)].set_ylabel("tokens lost or padding, %")
    figure.axes[len(uppers) + len(lowers) // 2].set_xlabel("tokens per row")
    return figure


def _name_lines(axes: Axes, lines: Mapping[str, tuple[Sequence[int], np.ndarray]]) -> None:
    """Each name beside its line, where that is farthest from the others."""
    for name, (x, y) in lines.items():
        others = np.array([values for way, (_, values) in lines.items() if way != name])
        gaps = abs(others - y).min(axis=0)
        gaps[: len(x) // 4] = gaps[-1] = -1  # not at the ends
        place = int(gaps.argmax())
        is_above = y[place] > others[:, place].max()
        shift, align = ((5, 5), "bottom") if is_above else ((-5, -6), "top")
        if y[place] < 8:
            shift, align = (0, 6), "bottom"
        style: dict[str, Any] = {"color": WAYS[name], "va": align, "ha": "left", "size": 10}
        if not is_above:
            style["ha"] = "right" if y[place] >= 8 else "center"
        axes.annotate(name, (x[place], y[place]), shift, textcoords="offset points", **style)


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
