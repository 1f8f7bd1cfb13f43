"""Pictures of ranks: who reads which position, and what travels along the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures.cells import Cell, colour_of, heads, picture
from figures.draw import COLOURS, IDLE, INK, LINES, curves

INPUT, LABEL = COLOURS[:2]


def pipeline(batches: Sequence[Mapping[str, str]], names: Sequence[str]) -> Figure:
    """One row per pipeline rank, one column per entry of its batch.

    Args:
        batches: per rank, what each entry is, as text; entries that begin with "->" are drawn as pointers.
        names: per rank, its name.
    """
    rows = {
        name: [_entry(column, key, text) for column, (key, text) in enumerate(batch.items())]
        for name, batch in zip(names, batches, strict=True)
    }
    figure, axes = picture(rows, 0.62, room=0.5, gap=0.03, size=9)
    heads(axes, {column + 0.48: key for column, key in enumerate(batches[0])}, size=10, family="monospace")
    return figure


def _entry(column: int, key: str, text: str) -> Cell:
    if text.startswith("->"):
        return Cell(column, text.replace("->", "→"), IDLE, edge={"ls": ":"}, font={"color": "#888888"})
    return Cell(column, text, INPUT if key.startswith("input") else LABEL)


def readers(rows: Mapping[str, Sequence[int]], global_batch_size: int) -> Figure:
    """One row of cells per way of reading: the colour and number of cell k is the rank that reads position k.

    Args:
        rows: per way, the rank of each position; -1 where nobody reads it.
        global_batch_size: positions between two dark lines.
    """
    drawn = {
        name: [Cell(k, str(rank), colour_of(rank)) if rank >= 0 else Cell(k) for k, rank in enumerate(ranks)]
        for name, ranks in rows.items()
    }
    figure, axes = picture(drawn, 0.5, room=0.4)
    length = max(map(len, rows.values()))
    for edge in range(0, length + 1, global_batch_size):
        axes.axvline(edge - 0.03, color=INK, lw=1.6)
    heads(axes, {k + 0.47: str(k) for k in range(0, length, 4)}, "position", size=8)
    return figure


def machine(layouts: Sequence[Any], reads: Sequence[str]) -> Figure:
    """All processes of a run: a column per data-parallel rank, in it its pipeline stages, in those the tp ranks.

    Args:
        layouts: of every global rank, in order: a `ParallelLayout`.
        reads: what each reads, as text; empty for nothing.
    """
    dp, pp, tp = layouts[0].dp_size, layouts[0].pp_size, layouts[0].tp_size
    rows: dict[str, list[Cell]] = {f"pp rank {pp_rank}": [] for pp_rank in range(pp)}
    for rank, (layout, text) in enumerate(zip(layouts, reads, strict=True)):
        left = layout.dp_rank * (tp + 0.3) + layout.tp_rank
        words = rf"$\bf{{process\ {rank}}}$" + f"\ntp rank {layout.tp_rank}\n\n{text or 'no data'}"
        colour, edge = (colour_of(layout.dp_rank), "-") if text else (IDLE, ":")
        rows[f"pp rank {layout.pp_rank}"].append(Cell(left, words, colour, edge={"ls": edge}))
    figure, axes = picture(rows, 1.05, room=0.3)
    heads(axes, {dp_rank * (tp + 0.3) + tp / 2: f"dp rank {dp_rank}" for dp_rank in range(dp)}, size=10)
    return figure


def growth(counts: Sequence[int], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> Figure:
    """Lines over counts, both axes logarithmic."""
    contents = {"": {name: [counts, values] for name, values in lines.items()}}
    logs = {"xscale": "log", "yscale": "log", "xlabel": xlabel, "ylabel": ylabel}
    return curves(contents, 3.4, colours=LINES, style={"marker": "o"}, **logs)
