"""Pictures of where batches come from: a jump of the loss, a step, another plan."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from figures.cells import HEIGHT, Cell, draw_row, picture
from figures.draw import COLOURS, IDLE, LINES, RED, SOURCES, canvas

COLUMNS = {
    "file": (0, 1),
    "document and its tokens": (1.7, 4.7),
    "position": (5.2, 6.1),
    "rank": (6.7, 7.4),
}
LOST = {"edgecolor": RED, "ls": "--", "lw": 1.5}
NARROW = 7  # per cent of a bar: too little for a text
GAP = 1.5  # between the boxes of a column, in tokens


def step(pieces: Sequence[tuple[str, str, str, str, int]], title: str) -> Figure:
    """Where a step comes from, as a flow from left to right.

    Args:
        pieces: (file, document and tokens, position, rank, number of tokens) of each piece of a document, by position.
        title: above the picture.
    """
    figure, axes = canvas(0.3 * len(pieces) + 2)
    before, came, edge = dict[int, float](), 0.0, GAP * len(pieces) / 2 + 0.3
    for column, (name, (left, right)) in enumerate(COLUMNS.items()):
        axes.text((left + right) / 2, -edge - 0.5, name, ha="center", weight="bold")
        boxes = dict.fromkeys(piece[column] for piece in pieces)
        top, here = -GAP * len(boxes) / 2, {}
        for box in boxes:
            inside = [k for k, piece in enumerate(pieces) if piece[column] == box]
            colour = SOURCES[pieces[inside[0]][0]][0] if column < 3 else IDLE
            first = top
            for k in inside:
                here[k], top = top, top + pieces[k][-1]
            draw_row(
                axes, [Cell(left, box, colour, right - left)], first, height=top - first, gap=0
            )
            top += GAP
        for k, start in before.items():
            t, colour = np.linspace(0, 1, 30), SOURCES[pieces[k][0]][0]
            y = start + (here[k] - start) * (3 * t**2 - 2 * t**3)
            axes.fill_between(
                came + (left - came) * t, y, y + pieces[k][-1], color=colour, alpha=0.45, lw=0
            )
        before, came = here, right
    axes.set(
        title=title, xlim=(-0.05, 7.45), ylim=(sum(piece[-1] for piece in pieces) + edge, -edge - 2)
    )
    axes.set_axis_off()
    return figure


def jump(losses: Sequence[float], steps: range, marked: Sequence[int], title: str) -> Figure:
    """Losses of training steps, with a dot and its number on those that are marked.

    Args:
        losses: of each step of a run; the first is that of step 1.
        steps: those that are drawn.
        marked: steps with a dot.
        title: above the picture.
    """
    figure, axes = canvas(2.9)
    axes.plot(steps, [losses[step - 1] for step in steps], color=LINES[0], lw=1.3)
    for step in marked:
        axes.plot(step, losses[step - 1], "o", ms=8, color=RED)
        above = max(losses[step - 1 : step + len(steps) // 11])  # the losses under the label
        axes.annotate(f"step {step}", (step, above), (7, 5), textcoords="offset points", color=RED)
    axes.set(
        title=title,
        xlabel="training step",
        ylabel="loss, nats per token",
        xlim=(steps[0], steps[-1] + 1),
    )
    axes.grid(alpha=0.3)
    return figure


def difference(files: Mapping[str, tuple[int, int, int, int]], title: str) -> Figure:
    """Tokens that a saved plan would read from here on, and those that another plan reads, as shares of each file's.

    Args:
        files: by source, the tokens that both read, that only the saved plan reads, and that only the new one reads:
            those read before the change, and others.
        title: above the picture.
    """
    parts: dict[str, list[tuple[str, str, int]]] = {}
    for source, (both, lost, again, fresh) in files.items():
        same = ("both", SOURCES[source][0], both)
        parts[f"{source}: saved"] = [same, ("lost", "white", lost)]
        parts[f"{source}: new"] = [
            same,
            ("again", COLOURS[4], again),
            ("first time", COLOURS[5], fresh),
        ]
    rows = {name: _shares(own, sum(part[-1] for part in own)) for name, own in parts.items()}
    figure, axes = picture(rows, 0.45, 0.5, title=title)
    for row, own in enumerate(parts.values()):
        what, _, tokens = own[-1]
        if not list(rows.values())[row][-1].text:
            axes.text(100.5, row + HEIGHT / 2, f"{what}\n{tokens:,}", va="center", size=9)
    axes.set_xlim(-0.3, 113)
    return figure


def _shares(parts: Sequence[tuple[str, str, int]], total: int) -> list[Cell]:
    """Cells of (what, color, tokens), 100 wide together; the lost one is framed, a narrow one has no text."""
    cells, left = [], 0.0
    for what, colour, tokens in parts:
        share = 100 * tokens / total
        text = f"{what}\n{tokens:,}" if share >= NARROW else ""
        cells.append(Cell(left, text, colour, share, LOST if what == "lost" else {}))
        left += share
    return cells
