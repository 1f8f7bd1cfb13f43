"""Pictures of batches: the shift to the labels, who gets what along the pipeline, who reads ahead, what it costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from nanoset_ref.plots._colours import COLOURS, IDLE, INK
from nanoset_ref.plots._draw import canvas, cell, frameless, half_framed, label, printable, swatches

INPUT, LABEL = COLOURS[:2]


def shift(pieces: Sequence[str]) -> Figure:
    """The tokens of one sample of S + 1 as text, and under them the S inputs and the S labels cut from it."""
    figure, axes = canvas(1.1 * len(pieces), 2.6)
    rows = (
        ("sample", 2, 0, pieces, "white"),
        ("input_ids", 1, 0, pieces[:-1], INPUT),
        ("label_ids", 0, 1, pieces[1:], LABEL),
    )
    for name, height, first, shown, colour in rows:
        axes.text(-0.15, height + 0.3, name, ha="right", va="center", family="monospace")
        for column, piece in enumerate(shown, start=first):
            # labels stand under the input that has to predict them: one place to the left of where they were
            place = column - first
            cell(axes, place, height, 0.94, 0.6, colour, printable(piece), family="monospace", size=9)
    for column in range(1, len(pieces)):
        arrow = FancyArrowPatch((column + 0.47, 2), (column - 0.53, 0.62), arrowstyle="-|>", mutation_scale=8)
        arrow.set(color=LABEL, alpha=0.8, connectionstyle="arc3,rad=0.0", zorder=0)
        axes.add_patch(arrow)
    frameless(axes, xlim=(-1.3, len(pieces)), ylim=(-0.15, 2.75))
    return figure


def pipeline(batches: Sequence[Mapping[str, str]], names: Sequence[str]) -> Figure:
    """One row per pipeline rank, one column per entry of its batch.

    Args:
        batches: per rank, what each entry is, as text; entries that begin with "->" are drawn as pointers.
        names: per rank, its name.
    """
    keys = list(batches[0])
    figure, axes = canvas(2.1 * len(keys) + 1.5, 0.62 * len(batches) + 0.7)
    for row, (name, batch) in enumerate(zip(names, batches, strict=True)):
        axes.text(-0.1, row + 0.4, name, ha="right", va="center")
        for column, key in enumerate(keys):
            pointer = batch[key].startswith("->")
            colour = IDLE if pointer else INPUT if key.startswith("input") else LABEL
            edge, ink = (":", "#888888") if pointer else ("-", INK)
            cell(axes, column, row, 0.96, 0.8, colour, batch[key].replace("->", "→"), ls=edge, size=9, color=ink)
    for column, key in enumerate(keys):
        label(axes, column + 0.48, -0.25, key, size=10, family="monospace")
    frameless(axes, xlim=(-1.3, len(keys)), ylim=(len(batches), -0.5))
    return figure


def reading_ahead(sizes: Sequence[int], delivered: int, asked: int, num_workers: int) -> Figure:
    """The first blocks of a run, one column each, in the row of the worker that reads them.

    Args:
        sizes: batches in each block.
        delivered: batches that the training loop has got.
        asked: batches in the blocks that the workers have been asked for.
        num_workers: rows.
    """
    figure, axes = canvas(1.25 * len(sizes) + 1.4, 0.5 * num_workers + 1.2)
    first = 0
    for block, size in enumerate(sizes):
        row = block % num_workers
        colour, edge = (COLOURS[row % len(COLOURS)], "-") if first < asked else ("white", ":")
        cell(axes, block, row, 0.94, 0.8, colour, ls=edge)
        gone = min(max((delivered - first) / size, 0), 1)
        axes.add_patch(Rectangle((block, row), 0.94 * gone, 0.8, facecolor=INK, alpha=0.75))
        name = f"{first}\u2013{first + size - 1}" if size > 1 else f"{first}"
        label(axes, block + 0.47, row + 0.4, name, size=9, color="white" if gone == 1 else INK)
        first += size
        if first == asked:
            axes.axvline(block + 0.97, color=INK, lw=1.2, ls="--")
            axes.text(block + 0.9, -0.3, "asked for", ha="right", va="center", size=9)
    for row in range(num_workers):
        axes.text(-0.15, row + 0.4, f"worker {row}", ha="right", va="center")
    axes.text(0.0, -0.3, "delivered (dark)", ha="left", va="center", size=9)
    frameless(axes, xlim=(-0.9, len(sizes)), ylim=(num_workers, -0.6))
    return figure


def cost(ways: Mapping[str, Mapping[str, int]]) -> Figure:
    """Bytes written to memory for one batch, per way of making it and step by step: {way: {step: bytes}}."""
    figure, axes = canvas(8.5, 0.55 * len(ways) + 1.3)
    steps = list(dict.fromkeys(step for parts in ways.values() for step in parts))
    for row, (_, parts) in enumerate(ways.items()):
        left = 0.0
        for step, size in parts.items():
            colour = COLOURS[steps.index(step) % len(COLOURS)]
            axes.barh(row, size / 1024, left=left, color=colour, edgecolor=INK, height=0.62)
            left += size / 1024
        axes.text(left, row, f" {left:.0f} KiB", va="center", size=9)
    axes.set_yticks(range(len(ways)), list(ways))
    axes.invert_yaxis()
    handles = swatches(*(COLOURS[k % len(COLOURS)] for k in range(len(steps))))
    axes.legend(handles, steps, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, frameon=False, fontsize=9)
    axes.margins(x=0.12)
    half_framed(axes, xlabel="KiB written to memory per batch")
    return figure
