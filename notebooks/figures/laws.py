"""Pictures of broken laws: rank by step, which sizes break a law, how a case shrinks."""

from collections.abc import Collection, Mapping, Sequence

from matplotlib.figure import Figure

from figures.cells import HEIGHT, Cell, draw_row, fill, heads, picture
from figures.draw import COLOURS, RED, panels

MISSING = {"edgecolor": RED, "ls": "--", "lw": 1.2}
BROKEN = COLOURS[6]


def counterexamples(
    tables: Mapping[str, Mapping[str, Sequence[Sequence[int]]]], headline: str
) -> Figure:
    """Tables side by side, a column for each step; where another line has a batch, its absence has a red edge.

    Args:
        tables: by title, by the name of a line, the rows of the batch at each step.
        headline: the takeaway.
    """
    lines = max(map(len, tables.values()))
    widths = [max(map(len, table.values())) for table in tables.values()]
    figure, places = panels(
        tables,
        0.42 * lines + 1.05,
        headline=headline,
        width_ratios=[width + 0.6 for width in widths],
    )
    for axes, table in places:
        longest = max(map(len, table.values()))
        drawn = {}
        for name, line in table.items():
            cells = [
                Cell(step, "row " + " ".join(map(str, rows)), COLOURS[0])
                for step, rows in enumerate(line)
            ]
            cells += [
                Cell(step, "no batch", edge=MISSING, font={"color": RED})
                for step in range(len(line), longest)
            ]
            drawn[name] = cells
        fill(axes, drawn)
        axes.set_xlim(-0.05, longest)
        heads(axes, {step + 0.47: f"step {step}" for step in range(longest)}, size=9)
    return figure


def sizes(
    breaks: Mapping[str, Collection[int]], largest: int, tested: Collection[int], title: str
) -> Figure:
    """Which numbers of rows break a law: a line for each number of ranks, a column for each number of rows.

    Args:
        breaks: by the name of a line, the numbers of rows that break the law: these cells are red.
        largest: number of rows; the first column is 1.
        tested: numbers of rows that are framed.
        title: the takeaway.
    """
    drawn = {}
    for name, broken in breaks.items():
        colours = [BROKEN if rows in broken else "white" for rows in range(1, largest + 1)]
        drawn[name] = [
            Cell(rows, "", colour, edge={"lw": 0.4}) for rows, colour in enumerate(colours, 1)
        ]
    figure, axes = picture(drawn, 0.32, room=0.75, title=title)
    frames = [Cell(rows - 0.1, "", "none", 1.2, {"lw": 1.8}) for rows in tested]
    draw_row(axes, frames, -0.1, height=len(drawn) - 1 + HEIGHT + 0.2)
    axes.set(xlim=(0.85, largest + 1.2), ylim=(len(drawn), -0.2))
    heads(axes, {rows + 0.47: str(rows) for rows in tested}, "rows", size=9)
    return figure


def shrinking(cases: Sequence[tuple[str, Sequence[int], Collection[int]]], title: str) -> Figure:
    """Cases that break a law, each smaller than the one above it: a cell for each row, a hole where it was not read.

    Args:
        cases: (name, rows in the order in which they should be read, rows that were not read).
        title: the takeaway.
    """
    drawn = {}
    for name, order, lost in cases:
        drawn[name] = [
            Cell(place, edge=MISSING)
            if row in lost
            else Cell(place, colour=COLOURS[0], edge={"lw": 0.3})
            for place, row in enumerate(order)
        ]
    figure, axes = picture(drawn, 0.3, room=0.35, title=title)
    for line, (_, order, lost) in enumerate(cases):
        said = f"{len(lost)} of {len(order)} rows lost"
        axes.text(len(order) + 0.5, line + HEIGHT / 2, said, size=9, va="center", color=RED)
    axes.set_xlim(-0.05, 1.25 * max(len(order) for _, order, _ in cases))
    return figure
