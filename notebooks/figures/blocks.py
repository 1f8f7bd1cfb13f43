"""Pictures of workers that read ahead, and of what a batch costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from figures.cells import Cell, colour_of, heads, picture
from figures.draw import COLOURS, INK, canvas, key, stacked


def reading_ahead(sizes: Sequence[int], delivered: int, asked: int, num_workers: int) -> Figure:
    """The first blocks of a run, one column each, in the row of the worker that reads them.

    Args:
        sizes: batches in each block.
        delivered: batches that the training loop has got; blocks that it has got whole are dark.
        asked: batches in the blocks that the workers have been asked for, whole blocks.
        num_workers: rows.
    """
    rows: dict[str, list[Cell]] = {f"worker {worker}": [] for worker in range(num_workers)}
    first = edge = 0
    for block, size in enumerate(sizes):
        worker, last = block % num_workers, first + size - 1
        colour = INK if last < delivered else colour_of(worker) if last < asked else "white"
        name = f"{first} to {last}" if size > 1 else str(first)
        font = {"color": "white" if last < delivered else INK}
        rows[f"worker {worker}"].append(Cell(block, name, colour, edge={"ls": "-" if last < asked else ":"}, font=font))
        edge += last < asked
        first += size
    figure, axes = picture(rows, 0.55, room=0.4, size=9)
    axes.axvline(edge - 0.03, color=INK, lw=1.2, ls="--")
    heads(axes, {0.47: "delivered (dark)", edge - 0.4: "asked for"}, size=9)
    return figure


def cost(ways: Mapping[str, Mapping[str, int]]) -> Figure:
    """Bytes written to memory for one batch, per way of making it and step by step: {way: {step: bytes}}."""
    figure, axes = canvas(0.55 * len(ways) + 1.1)
    steps = dict.fromkeys(step for parts in ways.values() for step in parts)
    colours = dict(zip(steps, COLOURS, strict=False))
    kib = {way: {step: size / 1024 for step, size in parts.items()} for way, parts in ways.items()}
    stacked(axes, kib, colours, "KiB")
    axes.set_xlabel("KiB written to memory per batch")
    key(figure, colours, "upper center")
    return figure
