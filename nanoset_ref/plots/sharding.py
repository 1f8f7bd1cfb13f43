"""Pictures of data-parallel reading: who reads which position, how often each was read, what that costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nanoset_ref.training.parallel import ParallelLayout

RANKS = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fc9272", "#d9d9d9", "#fdd0a2", "#c7e9c0")
NEVER, TWICE, INK = "#de2d26", "#fdae6b", "#333333"


def readers(rows: Mapping[str, Sequence[int]], global_batch_size: int) -> Figure:
    """One row of cells per way of reading: the colour and number of cell k is the rank that reads position k.

    Args:
        rows: per way, the rank of each position; -1 where nobody reads it.
        global_batch_size: positions between two dark lines.
    """
    length = max(map(len, rows.values()))
    figure = Figure(figsize=(0.34 * length + 2.2, 0.62 * len(rows) + 0.8), layout="constrained")
    axes = figure.subplots()
    for height, (name, ranks) in enumerate(rows.items()):
        axes.text(-0.4, height + 0.4, name, ha="right", va="center")
        for position, rank in enumerate(ranks):
            colour = "white" if rank < 0 else RANKS[rank % len(RANKS)]
            axes.add_patch(Rectangle((position, height), 0.94, 0.8, facecolor=colour, edgecolor=INK, lw=0.6))
            axes.text(position + 0.47, height + 0.4, str(rank) if rank >= 0 else "", ha="center", va="center", size=8)
    for edge in range(0, length + 1, global_batch_size):
        axes.axvline(edge - 0.03, color=INK, lw=1.6)
    for position in range(0, length, 4):
        axes.text(position + 0.47, -0.25, str(position), ha="center", va="center", size=8, color="#666666")
    axes.text(-0.4, -0.25, "position", ha="right", va="center", size=8, color="#666666")
    axes.set(xlim=(-6.2, length + 0.1), ylim=(len(rows), -0.6))
    axes.axis("off")
    return figure


def machine(layouts: Sequence[ParallelLayout], reads: Sequence[str]) -> Figure:
    """All processes of a run: a column per data-parallel rank, in it its pipeline stages, in those the tp ranks.

    Args:
        layouts: of every global rank, in order.
        reads: what each reads, as text; empty for nothing.
    """
    dp, pp, tp = layouts[0].dp_size, layouts[0].pp_size, layouts[0].tp_size
    figure = Figure(figsize=(1.25 * dp * tp + 1.2, 1.05 * pp + 0.7), layout="constrained")
    axes = figure.subplots()
    for rank, (layout, text) in enumerate(zip(layouts, reads, strict=True)):
        left, top = layout.dp_rank * (tp + 0.3) + layout.tp_rank, layout.pp_rank
        colour = RANKS[layout.dp_rank % len(RANKS)] if text else "#f0f0f0"
        axes.add_patch(Rectangle((left, top), 0.95, 0.86, facecolor=colour, edgecolor=INK, ls="-" if text else ":"))
        axes.text(left + 0.47, top + 0.2, f"process {rank}", ha="center", va="center", size=8, weight="bold")
        axes.text(left + 0.47, top + 0.56, text or "no data", ha="center", va="center", size=8)
    for dp_rank in range(dp):
        axes.text(dp_rank * (tp + 0.3) + tp / 2, -0.2, f"dp rank {dp_rank}", ha="center", va="center")
    for pp_rank in range(pp):
        axes.text(-0.15, pp_rank + 0.43, f"pp rank {pp_rank}", ha="right", va="center")
    axes.set(xlim=(-0.9, dp * (tp + 0.3)), ylim=(pp, -0.4))
    axes.axis("off")
    return figure


def times_read(rows: Mapping[str, Sequence[int]], marks: Mapping[int, str]) -> Figure:
    """One row of cells per run: how often each position was read. White once, red never, orange more than once.

    Args:
        rows: per run, how often each position was read.
        marks: lines in front of some positions, with what they mean.
    """
    length = max(map(len, rows.values()))
    figure = Figure(figsize=(0.1 * length + 2.2, 0.42 * len(rows) + 0.8), layout="constrained")
    axes = figure.subplots()
    for height, (name, counts) in enumerate(rows.items()):
        axes.text(-1, height + 0.4, name, ha="right", va="center")
        for position, count in enumerate(counts):
            colour = NEVER if count == 0 else "white" if count == 1 else TWICE
            axes.add_patch(Rectangle((position, height), 0.94, 0.8, facecolor=colour, edgecolor=INK, lw=0.4))
    for position, text in marks.items():
        axes.axvline(position, color=INK, lw=1.4, ls="--")
        axes.text(position + 0.6, -0.35, text, ha="left", va="center", size=9)
    handles = [Rectangle((0, 0), 1, 1, facecolor=c, edgecolor=INK) for c in ("white", TWICE, NEVER)]
    labels = ["read once", "read again", "never read"]
    axes.legend(handles, labels, ncols=3, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.6, 0.0))
    axes.set(xlim=(-0.27 * length, length + 0.5), ylim=(len(rows), -0.7))
    axes.axis("off")
    return figure


def growth(counts: Sequence[int], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> Figure:
    """Lines over counts, both axes logarithmic."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for (name, values), marker in zip(lines.items(), "os^D", strict=False):
        axes.plot(counts, values, marker=marker, label=name)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
