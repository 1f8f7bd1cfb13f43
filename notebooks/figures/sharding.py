"""Pictures of ranks: who reads which position, and what travels along the pipeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from figures.cells import HEIGHT, Cell, colour_of, draw_row, heads, picture
from figures.draw import COLOURS, GREY, IDLE, INK, arrow, canvas

FILLS = {"input": COLOURS[4], "label": COLOURS[3]}  # no source has these
COPIES = (IDLE, "#b8b8b8")  # of data-parallel ranks


def readers(rows: Mapping[str, Sequence[tuple[int, bool]]], title: str) -> Figure:
    """One row of cells per way of sharing: the number in cell k is the rank that reads sample k.

    Args:
        rows: per way, the rank of each sample, and whether it reads it in the first step: these are coloured.
        title: the takeaway.
    """
    drawn = {
        name: [
            Cell(k, str(r), colour_of(r) if now else "white", edge={"lw": now})
            for k, (r, now) in enumerate(cells)
        ]
        for name, cells in rows.items()
    }
    figure, axes = picture(drawn, 0.37, room=0.75, title=title)
    heads(axes, {k + 0.47: str(k) for k in range(0, 32, 4)}, "sample", size=9)
    return figure


def columns(ways: Mapping[str, Sequence[Sequence[int]]], title: str) -> Figure:
    """One strip of cells per way of cutting a row: in column k, the number k + 1 and the context rank.

    Args:
        ways: by name, the columns of each context rank.
        title: the takeaway.
    """
    drawn = {
        way: [
            Cell(k, f"{k + 1}\nr{rank}", colour_of(3 * rank))
            for rank, mine in enumerate(ranks)
            for k in mine
        ]
        for way, ranks in ways.items()
    }
    figure, axes = picture(drawn, 0.56, room=0.3, title=title)
    length = max(cell.left for cell in drawn[next(iter(ways))]) + 1
    for row, ranks in enumerate(ways.values()):
        for rank, mine in enumerate(ranks):
            place = row + (rank + 0.5) * HEIGHT / len(ranks)
            said = f"rank {rank}: {sum(k + 1 for k in mine)}"
            axes.add_patch(
                Rectangle(
                    (length + 0.15, place - 0.12), 0.3, 0.24, facecolor=colour_of(3 * rank), lw=0
                )
            )
            axes.text(length + 0.6, place, said, size=9, va="center")
    axes.set_xlim(-0.05, length + 3)
    return figure


def pipeline(ranks: Sequence[Mapping[str, str]], title: str) -> Figure:
    """Pipeline ranks from left to right: above each what it has of the inputs, below it what it has of the labels.

    Args:
        ranks: per rank, as text, its entry of the inputs, what it computes, its entry of the labels.
            Entries that begin with "→" are drawn as pointers.
        title: the takeaway.
    """
    places = [1.75 * column for column in range(len(ranks))]
    rows = {
        name: [_entry(left, name, rank[name]) for left, rank in zip(places, ranks, strict=True)]
        for name in ranks[0]
    }
    figure, axes = picture(rows, 0.6, height=0.7, title=title)
    for left in places[:-1]:
        arrow(axes, (left + 1, 1.37), (left + 1.75, 1.37))
        axes.text(left + 1.35, 1.28, "activations", ha="center", size=9, color=GREY)
    arrow(axes, (0.47, 0.7), (0.47, 1))
    arrow(axes, (places[-1] + 0.47, 2), (places[-1] + 0.47, 1.7))
    axes.set_yticks([row + 0.35 for row in range(3)], list(rows))
    return figure


def _entry(left: float, name: str, text: str) -> Cell:
    if text.startswith("→"):
        return Cell(left, text, edge={"ls": ":", "edgecolor": GREY}, font={"color": GREY})
    return Cell(left, text, FILLS.get(name[:5], COLOURS[7]))


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
        words = f"GPU {rank} · tp rank {layout.tp_rank}\n{text or 'no data'}"
        colour, edge = (FILLS[text[:5]], "-") if text else (IDLE, ":")
        rows[f"pp rank {layout.pp_rank}"].append(Cell(left, words, colour, edge={"ls": edge}))
    figure, axes = picture(rows, 0.72, room=0.6, title=title)
    heads(
        axes,
        {dp_rank * (tp + 0.3) + tp / 2: f"dp rank {dp_rank}" for dp_rank in range(dp)},
        size=10,
    )
    return figure


def nodes(
    layouts: Sequence[Any], positions: Sequence[Sequence[int]], per_node: int, title: str
) -> Figure:
    """Two nodes side by side: the GPUs, the page cache and the disk of each, and what crosses the network.

    Args:
        layouts: of every global rank, in order: a `ParallelLayout`.
        positions: by rank, those of its first micro-batch.
        per_node: GPUs of a node.
        title: the takeaway.
    """
    figure, axes = canvas(4.35)
    axes.set(xlim=(-0.02, 7.5), ylim=(3.85, -0.05), title=title)
    axes.axis("off")
    for node in range(2):
        ranks = range(node * per_node, (node + 1) * per_node)
        _node(
            axes,
            4.2 * node,
            node,
            {rank: layouts[rank] for rank in ranks},
            [positions[rank] for rank in ranks],
        )
    both: dict[str, Any] = {"arrowstyle": "<|-|>", "mutation_scale": 10, "color": INK, "lw": 1.2}
    axes.add_patch(FancyArrowPatch((3.32, 0.75), (4.18, 0.75), **both))
    axes.text(3.75, 0.5, "activations", ha="center", va="center", size=9)
    axes.text(3.75, 1, "no ids", ha="center", va="center", size=9, color=GREY)
    store = "shared file system or bucket: asked only for what a node's disk does not hold"
    draw_row(axes, [Cell(0, store, IDLE, 7.44, edge={"ls": ":"})], 3.4, height=0.33, gap=0)
    for left in (1.65, 5.85):
        arrow(axes, (left, 3.38), (left, 3.07))
    return figure


def _node(
    axes: Axes,
    left: float,
    node: int,
    layouts: Mapping[int, Any],
    positions: Sequence[Sequence[int]],
) -> None:
    """A node 3.3 inches wide: two rows of GPUs, thick frames for those of tp rank 0; its page cache and its disk."""
    stage = next(iter(layouts.values()))
    field = "input_ids" if stage.pp_rank == 0 else "label_ids"
    axes.text(
        left,
        0.08,
        f"Node {node}: pp rank {stage.pp_rank} needs {field}",
        size=10,
        weight="bold",
        va="center",
    )
    for rank, layout in layouts.items():
        words = f"GPU {rank}\ndp {layout.dp_rank} \u00b7 tp {layout.tp_rank}"
        edge = {"lw": 2.2} if layout.tp_rank == 0 else {}
        cell = Cell(left + 0.825 * (rank % 4), words, COPIES[layout.dp_rank], 0.825, edge=edge)
        draw_row(axes, [cell], 0.25 + 0.55 * (rank % len(layouts) // 4), height=0.48)
    read = sorted({position for mine in positions for position in mine})
    draw_row(
        axes,
        [Cell(left, f"page cache: positions {', '.join(map(str, read))}", "white", 3.3)],
        1.75,
        height=0.4,
    )
    draw_row(axes, [Cell(left, "disk: a copy of the token files", IDLE, 3.3)], 2.63, height=0.4)
    arrow(axes, (left + 1.65, 1.73), (left + 1.65, 1.33))
    axes.text(left + 1.75, 1.54, "read by 8 processes", size=9, va="center", color=GREY)
    arrow(axes, (left + 1.65, 2.61), (left + 1.65, 2.17))
    axes.text(left + 1.75, 2.4, "each row once", size=9, va="center", color=GREY)
