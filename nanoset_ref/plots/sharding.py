"""Pictures of data-parallel reading: who reads which position, how often each was read, what that costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from nanoset_ref.plots._colours import COLOURS, IDLE, INK, NEVER, TWICE
from nanoset_ref.plots._draw import canvas, cell, frameless, half_framed, label, swatches
from nanoset_ref.training.parallel import ParallelLayout


def readers(rows: Mapping[str, Sequence[int]], global_batch_size: int) -> Figure:
    """One row of cells per way of reading: the colour and number of cell k is the rank that reads position k.

    Args:
        rows: per way, the rank of each position; -1 where nobody reads it.
        global_batch_size: positions between two dark lines.
    """
    length = max(map(len, rows.values()))
    figure, axes = canvas(0.34 * length + 2.2, 0.62 * len(rows) + 0.8)
    for height, (name, ranks) in enumerate(rows.items()):
        axes.text(-0.4, height + 0.4, name, ha="right", va="center")
        for position, rank in enumerate(ranks):
            colour, name = ("white", "") if rank < 0 else (COLOURS[rank % len(COLOURS)], str(rank))
            cell(axes, position, height, 0.94, 0.8, colour, name, lw=0.6)
    for edge in range(0, length + 1, global_batch_size):
        axes.axvline(edge - 0.03, color=INK, lw=1.6)
    for position in range(0, length, 4):
        label(axes, position + 0.47, -0.25, str(position), color="#666666")
    label(axes, -0.4, -0.25, "position", ha="right", color="#666666")
    frameless(axes, xlim=(-6.2, length + 0.1), ylim=(len(rows), -0.6))
    return figure


def machine(layouts: Sequence[ParallelLayout], reads: Sequence[str]) -> Figure:
    """All processes of a run: a column per data-parallel rank, in it its pipeline stages, in those the tp ranks.

    Args:
        layouts: of every global rank, in order.
        reads: what each reads, as text; empty for nothing.
    """
    dp, pp, tp = layouts[0].dp_size, layouts[0].pp_size, layouts[0].tp_size
    figure, axes = canvas(1.25 * dp * tp + 1.2, 1.05 * pp + 0.7)
    for rank, (layout, text) in enumerate(zip(layouts, reads, strict=True)):
        left, top = layout.dp_rank * (tp + 0.3) + layout.tp_rank, layout.pp_rank
        colour, edge = (COLOURS[layout.dp_rank % len(COLOURS)], "-") if text else (IDLE, ":")
        cell(axes, left, top, 0.95, 0.86, colour, ls=edge)
        label(axes, left + 0.47, top + 0.16, f"process {rank}", weight="bold")
        label(axes, left + 0.47, top + 0.33, f"tp rank {layout.tp_rank}", size=7)
        label(axes, left + 0.47, top + 0.61, text or "no data")
    for dp_rank in range(dp):
        label(axes, dp_rank * (tp + 0.3) + tp / 2, -0.2, f"dp rank {dp_rank}", size=10)
    for pp_rank in range(pp):
        axes.text(-0.15, pp_rank + 0.43, f"pp rank {pp_rank}", ha="right", va="center")
    frameless(axes, xlim=(-0.9, dp * (tp + 0.3)), ylim=(pp, -0.4))
    return figure


def times_read(rows: Mapping[str, Sequence[int]], marks: Mapping[int, str]) -> Figure:
    """One row of cells per run: how often each position was read. White once, red never, orange more than once.

    Args:
        rows: per run, how often each position was read.
        marks: lines in front of some positions, with what they mean.
    """
    length = max(map(len, rows.values()))
    figure, axes = canvas(0.1 * length + 2.2, 0.42 * len(rows) + 0.8)
    for height, (name, counts) in enumerate(rows.items()):
        axes.text(-1, height + 0.4, name, ha="right", va="center")
        for position, count in enumerate(counts):
            colour = NEVER if count == 0 else "white" if count == 1 else TWICE
            cell(axes, position, height, 0.94, 0.8, colour, lw=0.4)
    for position, text in marks.items():
        axes.axvline(position, color=INK, lw=1.4, ls="--")
        axes.text(position + 0.6, -0.35, text, ha="left", va="center", size=9)
    labels = ["read once", "read again", "never read"]
    handles = swatches("white", TWICE, NEVER)
    axes.legend(handles, labels, ncols=3, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.6, 0.0))
    frameless(axes, xlim=(-0.27 * length, length + 0.5), ylim=(len(rows), -0.7))
    return figure


def growth(counts: Sequence[int], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> Figure:
    """Lines over counts, both axes logarithmic."""
    figure, axes = canvas(6.4, 3.4)
    for (name, values), marker in zip(lines.items(), "os^D", strict=False):
        axes.plot(counts, values, marker=marker, label=name)
    half_framed(axes, xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
