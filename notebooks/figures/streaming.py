"""Pictures of streams: who is dealt which element, what a resume repeats or loses, packed rows, what a buffer mixes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from textwrap import wrap

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import HEIGHT, Cell, draw_row, fill, heads, picture
from figures.draw import COLOURS, IDLE, INK, RED, SOURCES, canvas, panels, printable

FILLS = [fill for fill, _ in SOURCES.values()]
NEVER = {"edgecolor": RED, "ls": "--", "lw": 1.2}
TIMES = [("never", "white", 1, NEVER, {"color": RED}), ("once",), ("twice", COLOURS[4])]


def dealt(
    documents: Mapping[str, Sequence[str]],
    rows: Mapping[str, Mapping[int, str]],
    title: str,
    count: bool = False,
) -> Figure:
    """The elements in their order from left to right, and below them who reads which.

    Args:
        documents: by source, the texts of the elements.
        rows: per reader, what to write at each element it reads.
        title: the takeaway.
        count: a last row says how often each element is read.
    """
    texts = ["\n".join(wrap(text, 7)) for text in chain.from_iterable(documents.values())]
    fills = [SOURCES[source][0] for source, own in documents.items() for _ in own]
    lines = {
        name: [Cell(k, text, fills[k]) for k, text in row.items()] for name, row in rows.items()
    }
    if count:
        times = Counter(chain.from_iterable(rows.values()))
        lines["times read"] = [Cell(k, *TIMES[times[k]]) for k in range(len(texts))]
    figure, axes = canvas(0.34 * len(lines) + 1.35)
    draw_row(axes, [Cell(k, text, fills[k]) for k, text in enumerate(texts)], -2.4, height=2.2)
    for row, line in enumerate(lines.values()):
        draw_row(axes, line, row)
    axes.set(xlim=(-0.05, len(texts)), ylim=(len(lines), -2.45), title=title)
    axes.set_yticks(
        [-1.3, *(row + HEIGHT / 2 for row in range(len(lines)))], ["document", *lines], size=9
    )
    axes.set_xticks([k + 0.47 for k in range(len(texts))], range(len(texts)), size=9)
    axes.tick_params(length=0, labelbottom=False, labeltop=True)
    axes.spines[:].set_visible(False)
    return figure


def collective(steps: Sequence[int], title: str) -> Figure:
    """Training steps of ranks that meet in a collective operation at each, until one has no element left.

    Args:
        steps: of each rank; who has more waits at the first step that somebody else does not have.
        title: the takeaway.
    """
    together = min(steps)
    ends = [
        Cell(together, "has left", "none", 1, {"lw": 0}),
        Cell(together, "waits for all ranks", COLOURS[4]),
    ]
    both = [Cell(step, f"step {step + 1}", COLOURS[5]) for step in range(together)]
    rows = {f"rank {rank}": [*both, ends[own > together]] for rank, own in enumerate(steps)}
    figure, axes = picture(rows, 0.33, title=title)
    top, bottom = -0.1, len(steps) - 1 + HEIGHT + 0.1
    axes.vlines(np.arange(together) + 0.97, top, bottom, color=INK, lw=1.5, zorder=5)
    axes.vlines(together + 0.97, top, bottom, color=INK, lw=1.5, ls="--", zorder=5)
    return figure


def packed_rows(rows: Sequence[Sequence[tuple[str, str]]], title: str) -> Figure:
    """Packed rows of tokens in the colours of their sources; a thick frame is a token that two rows share.

    Args:
        rows: per row, (text, source) of each token.
        title: the takeaway.
    """
    drawn: dict[str, list[Cell]] = {}
    for number, row in enumerate(rows):
        line = drawn[f"row {number}"] = []
        for column, (piece, source) in enumerate(row):
            shared = (column == 0 and number > 0) or (
                column == len(row) - 1 and number + 1 < len(rows)
            )
            style = {"weight": "bold" if piece == "EOS" else "normal"}
            line.append(
                Cell(
                    column,
                    printable(piece),
                    SOURCES[source][0],
                    1,
                    {"lw": 2.2 if shared else 0.6},
                    style,
                )
            )
    return picture(drawn, 0.3, room=0.35, title=title)[0]


def mixtures(sources: Mapping[str, ArrayLike], height: int, title: str) -> Figure:
    """The source of every row in the order in which a model reads them, one strip per buffer.

    Args:
        sources: name of the strip -> number of the source at each position; positions run down, then to the right.
        height: positions in a column.
        title: the takeaway.
    """
    figure, places = panels(sources, 1.1 * len(sources) + 0.6, rows=len(sources), headline=title)
    for axes, numbers in places:
        drawn = np.resize(numbers, (np.size(numbers) // height, height)).T
        extent = (0, drawn.size, height, 0)
        axes.imshow(
            drawn, ListedColormap(FILLS), aspect="auto", interpolation="nearest", extent=extent
        )
        axes.set(yticks=[])
        axes.label_outer()
    axes.set_xlabel("position in the run")
    first, numbers = places[0]
    for number, name in enumerate(SOURCES):
        middle = float(np.flatnonzero(np.asarray(numbers) == number).mean())
        first.text(middle, height / 2, name, ha="center", va="center", color=INK)
    return figure


def handed_over(rows: Mapping[str, Mapping[int, tuple[str, str]]], title: str) -> Figure:
    """A run that is continued by another one: what each delivered at which position.

    Args:
        rows: name -> position -> (text, source; another word for what was never delivered).
        title: the takeaway.
    """
    drawn = {
        name: [Cell(k, text, SOURCES.get(source, [IDLE])[0]) for k, (text, source) in row.items()]
        for name, row in rows.items()
    }
    figure, axes = picture(drawn, 0.36, room=0.75, title=title)
    heads(
        axes,
        {k + 0.47: str(k) for k in sorted({*chain.from_iterable(rows.values())})},
        "position",
        size=9,
    )
    return figure


def encoders(contents: Mapping[str, Sequence[Sequence[bool]]], title: str) -> Figure:
    """Which worker encodes which block of text, one panel per way: contents[title][worker][block]."""
    workers = len(next(iter(contents.values())))
    figure, places = panels(contents, 0.27 * workers + 0.85, headline=title)
    for axes, matrix in places:
        rows = {
            f"worker {worker}": [
                Cell(k, "", COLOURS[3] if own else "white") for k, own in enumerate(row)
            ]
            for worker, row in enumerate(matrix)
        }
        fill(axes, rows)
        axes.set_xlabel("blocks of the text")
        axes.label_outer()
    return figure
