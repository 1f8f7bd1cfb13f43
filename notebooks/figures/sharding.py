"""Pictures of ranks: who reads which position, and what travels along the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures.cells import Cell, colour_of, heads, picture
from figures.draw import COLOURS, GREY, IDLE, arrow

INPUT, LABEL = COLOURS[4], COLOURS[3]
ROOM = 0.75  # between two stages of a pipeline


def readers(rows: Mapping[str, tuple[Sequence[int], int]], title: str) -> Figure:
    """One row of cells per way of sharing: the number in cell k is the rank that reads page k.

    Args:
        rows: per way, the rank of each page, and how many pages each rank reads in the first step: these are coloured.
        title: the takeaway.
    """
    drawn = {}
    for name, (ranks, micro_batch_size) in rows.items():
        first = [ranks[:k].count(rank) < micro_batch_size for k, rank in enumerate(ranks)]
        drawn[name] = [
            Cell(k, str(rank), colour_of(rank) if now else "white", edge={} if now else {"edgecolor": "#cccccc"})
            for k, (rank, now) in enumerate(zip(ranks, first, strict=True))
        ]
    figure, axes = picture(drawn, 0.37, room=0.75)
    heads(axes, {k + 0.47: str(k) for k in range(0, len(ranks), 4)}, "page", size=9)
    axes.set_title(title)
    return figure


def pipeline(batches: Sequence[Mapping[str, str]], stages: Sequence[str], title: str) -> Figure:
    """Stages of a pipeline from left to right, above them what each has of the inputs, below them of the labels.

    Args:
        batches: per stage, what each entry is, as text; entries that begin with "→" are drawn as pointers.
        stages: what each does.
        title: the takeaway.
    """
    places = [column * (1 + ROOM) for column in range(len(stages))]
    rows = {
        name: [_entry(left, name, batch[name]) for left, batch in zip(places, batches, strict=True)]
        for name in batches[0]
    }
    flow = [Cell(left, stage, "white", edge={"lw": 1.4}) for left, stage in zip(places, stages, strict=True)]
    names = list(rows)
    names.insert(2, "model")
    figure, axes = picture({name: rows.get(name, flow) for name in names}, 0.6, height=0.7)
    for left in places[:-1]:
        arrow(axes, (left + 1, 2.37), (left + 1 + ROOM, 2.37))
        axes.text(left + 0.97 + ROOM / 2, 2.28, "activations", ha="center", size=9, color=GREY)
    arrow(axes, (places[0] + 0.47, 1.7), (places[0] + 0.47, 2))
    arrow(axes, (places[-1] + 0.47, 3), (places[-1] + 0.47, 2.7))
    axes.set_title(title)
    axes.set_yticks([row + 0.35 for row in range(5)], names)
    return figure


def _entry(left: float, name: str, text: str) -> Cell:
    if text.startswith("→"):
        return Cell(left, text, IDLE, edge={"ls": ":"}, font={"color": GREY})
    return Cell(left, text, INPUT if name.startswith("input") else LABEL)


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
        colour, edge = (INPUT if text.startswith("input") else LABEL, "-") if text else (IDLE, ":")
        rows[f"pp rank {layout.pp_rank}"].append(Cell(left, words, colour, edge={"ls": edge}))
    figure, axes = picture(rows, 0.72, room=0.6)
    heads(axes, {dp_rank * (tp + 0.3) + tp / 2: f"dp rank {dp_rank}" for dp_rank in range(dp)}, size=10)
    axes.set_title(title)
    return figure
