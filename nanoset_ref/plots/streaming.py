"""Pictures of streams: who is dealt which element, what a resume repeats or loses, packed rows, what it costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nanoset_ref.plots._colours import COLOURS, DOCUMENTS, IDLE, INK, LINES, NEVER, TWICE
from nanoset_ref.plots._draw import canvas, cell, frameless, grid, half_framed, label, printable, swatches

ONCE, WORKERS = COLOURS[0], COLOURS[:4]


def striping(panels: Mapping[str, Sequence[tuple[str, Sequence[int]]]]) -> Figure:
    """Elements in their order from left to right, one row per worker; a filled cell is read by the worker of its row.

    Args:
        panels: title -> (name, elements) of each worker.
    """
    heights = [len(workers) for workers in panels.values()]
    length = 1 + max(max(elements) for workers in panels.values() for _, elements in workers)
    size = (0.3 * length + 2.2, 0.26 * sum(heights) + 0.55 * len(panels) + 0.2)
    figure, all_axes = grid(*size, rows=len(panels), height_ratios=heights)
    for axes, (title, workers) in zip(all_axes, panels.items(), strict=True):
        for row, (name, elements) in enumerate(workers):
            axes.text(-0.3, row + 0.5, name, ha="right", va="center", size=8)
            for element in elements:
                cell(axes, element, row, 1, 1, WORKERS[row % len(WORKERS)], str(element), lw=0.5, size=7)
        axes.add_patch(Rectangle((0, 0), length, len(workers), fill=False, edgecolor=INK, lw=0.5))
        axes.set(xlim=(-0.2, length + 0.2), ylim=(len(workers) + 0.05, -0.05))
        axes.set_title(title, size=9, loc="left")
        axes.axis("off")
    return figure


def readings(ways: Mapping[str, Sequence[int]], length: int) -> Figure:
    """How often each of `length` elements was read, one row per way: once, never, or more often (with the number).

    Args:
        ways: name -> the elements as they were read.
    """
    figure, axes = canvas(0.27 * length + 3.4, 0.42 * len(ways) + 0.9)
    for row, (name, read) in enumerate(ways.items()):
        axes.text(-0.4, row + 0.42, name, ha="right", va="center", size=9)
        for element in range(length):
            times = list(read).count(element)
            colour = NEVER if times == 0 else ONCE if times == 1 else TWICE
            cell(axes, element, row, 0.9, 0.84, colour, str(times) if times > 1 else "", lw=0.5)
    for element in range(0, length, 4):
        label(axes, element + 0.45, -0.3, str(element), color="#666666")
    keys = swatches(ONCE, NEVER, TWICE)
    figure.legend(keys, ["once", "never", "more often"], ncols=3, frameon=False, fontsize=9, loc="outside lower center")
    frameless(axes, xlim=(-0.3, length), ylim=(len(ways), -0.6))
    return figure


def collective(steps: Sequence[int]) -> Figure:
    """Training steps of ranks that meet in a collective operation at each, until one has no element left.

    Args:
        steps: of each rank; who has more waits at the first step that somebody else does not have.
    """
    together = min(steps)
    figure, axes = canvas(0.95 * max(steps) + 3.0, 0.62 * len(steps) + 0.4)
    for rank, own in enumerate(steps):
        axes.text(-0.1, rank + 0.4, f"rank {rank}", ha="right", va="center")
        for step in range(together):
            cell(axes, step, rank, 0.92, 0.8, ONCE, f"step {step}", lw=0.6)
        if own > together:
            cell(axes, together, rank, 2.4, 0.8, TWICE, "waits for the others", ls=":", size=9)
        elif own < max(steps):
            axes.text(together + 0.15, rank + 0.4, "done, saves and leaves", va="center", size=9, color="#666666")
    for step in range(together):
        axes.plot([step + 0.46] * 2, [0.8, len(steps) - 1], color=INK, lw=1.2, zorder=0)
    frameless(axes, xlim=(-0.9, max(together + 2.5, max(steps))), ylim=(len(steps), -0.15))
    return figure


def packed_rows(rows: Sequence[Sequence[tuple[str, int]]]) -> Figure:
    """Packed rows of tokens, one colour per document; the last token of a row is the first of the next one (thick).

    Args:
        rows: per row, (text, number of the document) of each token.
    """
    width = len(rows[0])
    figure, axes = canvas(0.72 * width + 1.0, 0.5 * len(rows) + 0.2)
    for number, row in enumerate(rows):
        axes.text(-0.15, number + 0.42, f"row {number}", ha="right", va="center", size=9)
        for column, (piece, document) in enumerate(row):
            colour = DOCUMENTS[document % len(DOCUMENTS)]
            shared = (column == 0 and number > 0) or (column == width - 1 and number + 1 < len(rows))
            text, weight = ("EOS", "bold") if piece.startswith("<|") else (printable(piece)[:7], "normal")
            lw = 2.2 if shared else 0.6
            cell(axes, column, number, 0.94, 0.84, colour, text, lw=lw, family="monospace", weight=weight)
    frameless(axes, xlim=(-1.0, width), ylim=(len(rows), -0.1))
    return figure


def handed_over(rows: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> Figure:
    """A run that is continued by another one: the positions each delivered, and those it had ready when it died.

    Args:
        rows: name -> (delivered positions, positions that were prefetched only).
    """
    last = max(max([*delivered, *ready]) for delivered, ready in rows.values())
    figure, axes = canvas(0.29 * last + 3.4, 0.45 * len(rows) + 0.9)
    for row, (name, (delivered, ready)) in enumerate(rows.items()):
        axes.text(-0.4, row + 0.42, name, ha="right", va="center", size=9)
        for positions, colour in ((ready, IDLE), (delivered, WORKERS[row % len(WORKERS)])):
            for position in positions:
                style = ":" if colour == IDLE else "-"
                cell(axes, position, row, 0.9, 0.84, colour, str(position), lw=0.6, ls=style, size=7)
    keys = swatches(IDLE)
    keys[0].set_linestyle(":")
    figure.legend(keys, ["ready, never delivered"], frameon=False, fontsize=9, loc="outside lower center")
    frameless(axes, xlim=(-0.3, last + 1.2), ylim=(len(rows), -0.1))
    return figure


def encoders(panels: Mapping[str, Sequence[Sequence[bool]]]) -> Figure:
    """Which worker encodes which block of text, one panel per way: panels[title][worker][block]."""
    workers, blocks = (len(next(iter(panels.values()))), len(next(iter(panels.values()))[0]))
    figure, all_axes = grid(0.3 * blocks * len(panels) + 1.6, 0.32 * workers + 0.9, columns=len(panels))
    for axes, (title, matrix) in zip(all_axes, panels.items(), strict=True):
        for worker, row in enumerate(matrix):
            for block, encodes in enumerate(row):
                colour = WORKERS[worker % len(WORKERS)] if encodes else "white"
                cell(axes, block, worker, 0.92, 0.88, colour, lw=0.5)
        axes.set(xlim=(-0.1, blocks), ylim=(workers, -0.1), title=title, xticks=[], xlabel="blocks of the text")
        axes.set_yticks([worker + 0.44 for worker in range(workers)], [f"worker {worker}" for worker in range(workers)])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure


def stream_or_file(tokens_per_second: Mapping[str, float], seconds: Mapping[str, tuple[float, float]]) -> Figure:
    """Left, tokens per second of each way, logarithmic; right, the time all of it takes against passes over the text.

    Args:
        tokens_per_second: name -> while training.
        seconds: name -> (before the first pass, for each pass).
    """
    figure, (left, right) = grid(11, 3.2, columns=2)
    rates = list(tokens_per_second.values())
    bars = left.barh(list(tokens_per_second), rates, color=DOCUMENTS[: len(rates)])
    left.bar_label(bars, [f" {rate / 1e6:,.2f} million" for rate in rates], size=9)
    left.set(xscale="log", xlabel="tokens per second", xlim=(1e4, 20 * max(rates)))
    left.invert_yaxis()
    passes = range(1, 7)
    for (name, (before, each)), colour in zip(seconds.items(), LINES, strict=False):
        right.plot(passes, [before + each * count for count in passes], "o-", color=colour, label=name)
    right.set(xlabel="passes over the text", ylabel="seconds", ylim=(0, None), xticks=list(passes))
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        half_framed(axes)
    return figure
