"""Pictures of batches: the shift to the labels, who gets what along the pipeline, who reads ahead, what it costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

INPUT, LABEL, POINTER, INK = "#9ecae1", "#fdae6b", "#f0f0f0", "#333333"
WORKERS = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fc9272", "#d9d9d9", "#fdd0a2", "#c7e9c0")


def shift(pieces: Sequence[str]) -> Figure:
    """The tokens of one sample of S + 1 as text, and under them the S inputs and the S labels cut from it."""
    figure = Figure(figsize=(1.1 * len(pieces), 2.6), layout="constrained")
    axes = figure.subplots()
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
            axes.add_patch(Rectangle((place, height), 0.94, 0.6, facecolor=colour, edgecolor=INK))
            axes.text(
                place + 0.47, height + 0.3, printable(piece), ha="center", va="center", family="monospace", size=9
            )
    for column in range(1, len(pieces)):
        arrow = FancyArrowPatch((column + 0.47, 2), (column - 0.53, 0.62), arrowstyle="-|>", mutation_scale=8)
        arrow.set(color=LABEL, alpha=0.8, connectionstyle="arc3,rad=0.0", zorder=0)
        axes.add_patch(arrow)
    axes.set(xlim=(-1.3, len(pieces)), ylim=(-0.15, 2.75))
    axes.axis("off")
    return figure


def pipeline(batches: Sequence[Mapping[str, str]], names: Sequence[str]) -> Figure:
    """One row per pipeline rank, one column per entry of its batch.

    Args:
        batches: per rank, what each entry is, as text; entries that begin with "->" are drawn as pointers.
        names: per rank, its name.
    """
    keys = list(batches[0])
    figure = Figure(figsize=(2.1 * len(keys) + 1.5, 0.62 * len(batches) + 0.7), layout="constrained")
    axes = figure.subplots()
    for row, (name, batch) in enumerate(zip(names, batches, strict=True)):
        axes.text(-0.1, row + 0.4, name, ha="right", va="center")
        for column, key in enumerate(keys):
            pointer = batch[key].startswith("->")
            colour = POINTER if pointer else INPUT if key.startswith("input") else LABEL
            axes.add_patch(
                Rectangle((column, row), 0.96, 0.8, facecolor=colour, edgecolor=INK, ls=":" if pointer else "-")
            )
            text = batch[key].replace("->", "→")
            axes.text(
                column + 0.48, row + 0.4, text, ha="center", va="center", size=9, color="#888888" if pointer else INK
            )
    for column, key in enumerate(keys):
        axes.text(column + 0.48, -0.25, key, ha="center", va="center", family="monospace")
    axes.set(xlim=(-1.3, len(keys)), ylim=(len(batches), -0.5))
    axes.axis("off")
    return figure


def reading_ahead(sizes: Sequence[int], delivered: int, asked: int, num_workers: int) -> Figure:
    """The first blocks of a run, one column each, in the row of the worker that reads them.

    Args:
        sizes: batches in each block.
        delivered: batches that the training loop has got.
        asked: batches in the blocks that the workers have been asked for.
        num_workers: rows.
    """
    figure = Figure(figsize=(1.25 * len(sizes) + 1.4, 0.5 * num_workers + 1.2), layout="constrained")
    axes = figure.subplots()
    first = 0
    for block, size in enumerate(sizes):
        row = block % num_workers
        colour = WORKERS[row % len(WORKERS)] if first < asked else "white"
        style = "-" if first < asked else ":"
        axes.add_patch(Rectangle((block, row), 0.94, 0.8, facecolor=colour, edgecolor=INK, ls=style))
        gone = min(max((delivered - first) / size, 0), 1)
        axes.add_patch(Rectangle((block, row), 0.94 * gone, 0.8, facecolor=INK, alpha=0.75))
        name = f"{first}\u2013{first + size - 1}" if size > 1 else f"{first}"
        axes.text(block + 0.47, row + 0.4, name, ha="center", va="center", size=9, color="white" if gone == 1 else INK)
        first += size
        if first == asked:
            axes.axvline(block + 0.97, color=INK, lw=1.2, ls="--")
            axes.text(block + 0.9, -0.3, "asked for", ha="right", va="center", size=9)
    for row in range(num_workers):
        axes.text(-0.15, row + 0.4, f"worker {row}", ha="right", va="center")
    axes.text(0.0, -0.3, "delivered (dark)", ha="left", va="center", size=9)
    axes.set(xlim=(-0.9, len(sizes)), ylim=(num_workers, -0.6))
    axes.axis("off")
    return figure


def cost(ways: Mapping[str, Mapping[str, int]]) -> Figure:
    """Bytes written to memory for one batch, per way of making it and step by step: {way: {step: bytes}}."""
    figure = Figure(figsize=(8.5, 0.55 * len(ways) + 1.3), layout="constrained")
    axes = figure.subplots()
    steps = list(dict.fromkeys(step for parts in ways.values() for step in parts))
    for row, (_, parts) in enumerate(ways.items()):
        left = 0.0
        for step, size in parts.items():
            colour = WORKERS[steps.index(step) % len(WORKERS)]
            axes.barh(row, size / 1024, left=left, color=colour, edgecolor=INK, height=0.62)
            left += size / 1024
        axes.text(left, row, f" {left:.0f} KiB", va="center", size=9)
    axes.set_yticks(range(len(ways)), list(ways))
    axes.invert_yaxis()
    axes.set_xlabel("KiB written to memory per batch")
    handles = [Rectangle((0, 0), 1, 1, facecolor=WORKERS[k % len(WORKERS)], edgecolor=INK) for k in range(len(steps))]
    axes.legend(handles, steps, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, frameon=False, fontsize=9)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def printable(piece: str, longest: int = 9) -> str:
    """A token's text with blanks and line ends made visible, cut to `longest` characters."""
    shown = piece.replace(" ", "␣").replace("\n", "↵").replace("<|endoftext|>", "EOS")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
