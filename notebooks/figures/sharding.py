"""Pictures of ranks: who reads which position, and what travels along the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures.cells import Cell, colour_of, heads, picture
from figures.draw import COLOURS, GREY, IDLE, arrow

FILLS = {"input": COLOURS[4], "label": COLOURS[3]}  # no source has these


def readers(rows: Mapping[str, Sequence[tuple[int, bool]]], title: str) -> Figure:
    """One row of cells per way of sharing: the number in cell k is the rank that reads page k.

    Args:
        rows: per way, the rank of each page, and whether it reads the page in the first step: these are coloured.
        title: the takeaway.
    """
    drawn = {
        name: [Cell(k, str(r), colour_of(r) if now else "white", edge={"lw": now}) for k, (r, now) in enumerate(cells)]
        for name, cells in rows.items()
    }
    figure, axes = picture(drawn, 0.37, room=0.75, title=title)
    heads(axes, {k + 0.47: str(k) for k in range(0, 32, 4)}, "page", size=9)
    return figure


def pipeline(ranks: Sequence[Mapping[str, str]], title: str) -> Figure:
    """Pipeline ranks from left to right: above each what it has of the inputs, below it what it has of the labels.

    Args:
        ranks: per rank, as text, its two entries of the inputs, what it computes, its two entries of the labels.
            Entries that begin with "→" are drawn as pointers.
        title: the takeaway.
    """
    places = [1.75 * column for column in range(len(ranks))]
    rows = {
        name: [_entry(left, name, rank[name]) for left, rank in zip(places, ranks, strict=True)] for name in ranks[0]
    }
    figure, axes = picture(rows, 0.6, height=0.7, title=title)
    for left in places[:-1]:
        arrow(axes, (left + 1, 2.37), (left + 1.75, 2.37))
        axes.text(left + 1.35, 2.28, "activations", ha="center", size=9, color=GREY)
    arrow(axes, (0.47, 1.7), (0.47, 2))
    arrow(axes, (places[-1] + 0.47, 3), (places[-1] + 0.47, 2.7))
    axes.set_yticks([row + 0.35 for row in range(5)], list(rows))
    return figure


def _entry(left: float, name: str, text: str) -> Cell:
    if text.startswith("→"):
        return Cell(left, text, IDLE, edge={"ls": ":"}, font={"color": GREY})
    return Cell(left, text, FILLS.get(name[:5], "white"))


def machine(layouts: Sequence[Any], reads: Sequence[str], title: str) -> Figure:
    """All processes of a run: a column per data-parallel rank, in it its pipeline stages, in those the tp ranks.

    Args:
        layouts: of every global rank, in order: a `ParallelLayout`.
        reads: what each reads, as text; empty for nothing.
        title: the takeaway.
    """
    dp, pp, tp = layouts[0].dp_size, layouts[0].pp_size, layouts[0].tp_size
    rows: dict[str, list[Cell]] = {f"pp rank {pp_rank}": [] for pp_rank in range(pp)}
    for rank, (layout, text) in enumerate(zip(layouts, reads, strict=True)):
        left = layout.dp_rank * (tp + 0.3) + layout.tp_rank
        words = rf"$\bf{{GPU\ {rank}}}$" + f" · tp rank {layout.tp_rank}\n{text or 'no data'}"
        colour, edge = (FILLS[text[:5]], "-") if text else (IDLE, ":")
        rows[f"pp rank {layout.pp_rank}"].append(Cell(left, words, colour, edge={"ls": edge}))
    figure, axes = picture(rows, 0.72, room=0.6, title=title)
    heads(axes, {dp_rank * (tp + 0.3) + tp / 2: f"dp rank {dp_rank}" for dp_rank in range(dp)}, size=10)
    return figure
