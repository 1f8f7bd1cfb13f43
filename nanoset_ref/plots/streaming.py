"""Pictures of streams: who is dealt which element, what a resume repeats or loses, packed rows, what it costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nanoset_ref.plots.batches import INK, printable
from nanoset_ref.plots.quickstart import COLOURS, LINES

ONCE, NEVER, TWICE, IDLE = "#9ecae1", "#de2d26", "#fdae6b", "#f0f0f0"
WORKERS = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc")


def striping(panels: Mapping[str, Sequence[tuple[str, Sequence[int]]]]) -> Figure:
    """Elements in their order from left to right, one row per worker; a filled cell is read by the worker of its row.

    Args:
        panels: title -> (name, elements) of each worker.
    """
    heights = [len(workers) for workers in panels.values()]
    length = 1 + max(max(elements) for workers in panels.values() for _, elements in workers)
    size = (0.3 * length + 2.2, 0.26 * sum(heights) + 0.55 * len(panels) + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    all_axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (title, workers) in zip(all_axes, panels.items(), strict=True):
        for row, (name, elements) in enumerate(workers):
            axes.text(-0.3, row + 0.5, name, ha="right", va="center", size=8)
            for element in elements:
                colour = WORKERS[row % len(WORKERS)]
                axes.add_patch(Rectangle((element, row), 1, 1, facecolor=colour, edgecolor=INK, lw=0.5))
                axes.text(element + 0.5, row + 0.52, str(element), ha="center", va="center", size=7)
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
    figure = Figure(figsize=(0.27 * length + 3.4, 0.42 * len(ways) + 0.9), layout="constrained")
    axes = figure.subplots()
    for row, (name, read) in enumerate(ways.items()):
        axes.text(-0.4, row + 0.42, name, ha="right", va="center", size=9)
        for element in range(length):
            times = list(read).count(element)
            colour = NEVER if times == 0 else ONCE if times == 1 else TWICE
            axes.add_patch(Rectangle((element, row), 0.9, 0.84, facecolor=colour, edgecolor=INK, lw=0.5))
            if times > 1:
                axes.text(element + 0.45, row + 0.44, str(times), ha="center", va="center", size=8)
    for element in range(0, length, 4):
        axes.text(element + 0.45, -0.3, str(element), ha="center", va="center", size=8, color="#666666")
    keys = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=INK) for colour in (ONCE, NEVER, TWICE)]
    figure.legend(keys, ["once", "never", "more often"], ncols=3, frameon=False, fontsize=9, loc="outside lower center")
    axes.set(xlim=(-0.3, length), ylim=(len(ways), -0.6))
    axes.axis("off")
    return figure


def collective(steps: Sequence[int]) -> Figure:
    """Training steps of ranks that meet in a collective operation at each, until one has no element left.

    Args:
        steps: of each rank; who has more waits at the first step that somebody else does not have.
    """
    together = min(steps)
    figure = Figure(figsize=(0.95 * max(steps) + 3.0, 0.62 * len(steps) + 0.4), layout="constrained")
    axes = figure.subplots()
    for rank, own in enumerate(steps):
        axes.text(-0.1, rank + 0.4, f"rank {rank}", ha="right", va="center")
        for step in range(together):
            axes.add_patch(Rectangle((step, rank), 0.92, 0.8, facecolor=ONCE, edgecolor=INK, lw=0.6))
            axes.text(step + 0.46, rank + 0.4, f"step {step}", ha="center", va="center", size=8)
        if own > together:
            axes.add_patch(Rectangle((together, rank), 2.4, 0.8, facecolor=TWICE, edgecolor=INK, ls=":", lw=1))
            axes.text(together + 1.2, rank + 0.4, "waits for the others", ha="center", va="center", size=9)
        elif own < max(steps):
            axes.text(together + 0.15, rank + 0.4, "done, saves and leaves", va="center", size=9, color="#666666")
    for step in range(together):
        axes.plot([step + 0.46] * 2, [0.8, len(steps) - 1], color=INK, lw=1.2, zorder=0)
    axes.set(xlim=(-0.9, max(together + 2.5, max(steps))), ylim=(len(steps), -0.15))
    axes.axis("off")
    return figure


def packed_rows(rows: Sequence[Sequence[tuple[str, int]]]) -> Figure:
    """Packed rows of tokens, one colour per document; the last token of a row is the first of the next one (thick).

    Args:
        rows: per row, (text, number of the document) of each token.
    """
    width = len(rows[0])
    figure = Figure(figsize=(0.72 * width + 1.0, 0.5 * len(rows) + 0.2), layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        axes.text(-0.15, number + 0.42, f"row {number}", ha="right", va="center", size=9)
        for column, (piece, document) in enumerate(row):
            colour = COLOURS[document % len(COLOURS)]
            shared = (column == 0 and number > 0) or (column == width - 1 and number + 1 < len(rows))
            cell = Rectangle((column, number), 0.94, 0.84, facecolor=colour, edgecolor=INK, lw=2.2 if shared else 0.6)
            axes.add_patch(cell)
            end = piece.startswith("<|")
            text = "EOS" if end else printable(piece)[:7]
            weight = "bold" if end else "normal"
            axes.text(
                column + 0.47, number + 0.44, text, ha="center", va="center", size=8, family="monospace", weight=weight
            )
    axes.set(xlim=(-1.0, width), ylim=(len(rows), -0.1))
    axes.axis("off")
    return figure


def handed_over(rows: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> Figure:
    """A run that is continued by another one: the positions each delivered, and those it had ready when it died.

    Args:
        rows: name -> (delivered positions, positions that were prefetched only).
    """
    last = max(max([*delivered, *ready]) for delivered, ready in rows.values())
    figure = Figure(figsize=(0.29 * last + 3.4, 0.45 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots()
    for row, (name, (delivered, ready)) in enumerate(rows.items()):
        axes.text(-0.4, row + 0.42, name, ha="right", va="center", size=9)
        for positions, colour in ((ready, IDLE), (delivered, WORKERS[row % len(WORKERS)])):
            for position in positions:
                style = ":" if colour == IDLE else "-"
                cell = Rectangle((position, row), 0.9, 0.84, facecolor=colour, edgecolor=INK, lw=0.6, ls=style)
                axes.add_patch(cell)
                axes.text(position + 0.45, row + 0.44, str(position), ha="center", va="center", size=7)
    keys = [Rectangle((0, 0), 1, 1, facecolor=IDLE, edgecolor=INK, ls=":")]
    figure.legend(keys, ["ready, never delivered"], frameon=False, fontsize=9, loc="outside lower center")
    axes.set(xlim=(-0.3, last + 1.2), ylim=(len(rows), -0.1))
    axes.axis("off")
    return figure


def encoders(panels: Mapping[str, Sequence[Sequence[bool]]]) -> Figure:
    """Which worker encodes which block of text, one panel per way: panels[title][worker][block]."""
    workers, blocks = (len(next(iter(panels.values()))), len(next(iter(panels.values()))[0]))
    figure = Figure(figsize=(0.3 * blocks * len(panels) + 1.6, 0.32 * workers + 0.9), layout="constrained")
    for axes, (title, matrix) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for worker, row in enumerate(matrix):
            for block, encodes in enumerate(row):
                colour = WORKERS[worker % len(WORKERS)] if encodes else "white"
                axes.add_patch(Rectangle((block, worker), 0.92, 0.88, facecolor=colour, edgecolor=INK, lw=0.5))
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
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    bars = left.barh(list(tokens_per_second), list(tokens_per_second.values()), color=COLOURS[: len(tokens_per_second)])
    left.bar_label(bars, [f" {value / 1e6:,.2f} million" for value in tokens_per_second.values()], size=9)
    left.set(xscale="log", xlabel="tokens per second", xlim=(1e4, 20 * max(tokens_per_second.values())))
    left.invert_yaxis()
    passes = range(1, 7)
    for (name, (before, each)), colour in zip(seconds.items(), LINES, strict=False):
        right.plot(passes, [before + each * count for count in passes], "o-", color=colour, label=name)
    right.set(xlabel="passes over the text", ylabel="seconds", ylim=(0, None), xticks=list(passes))
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
