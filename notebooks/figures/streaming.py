"""Pictures of streams: who is dealt which element, what a resume repeats or loses, packed rows, what it costs."""

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from figures.cells import HEIGHT, Cell, colour_of, document_colour, fill, heads, picture
from figures.draw import COLOURS, IDLE, INK, LINES, draw_lines, half_framed, key, panels, printable
from figures.resume import times_read


def striping(contents: Mapping[str, Sequence[tuple[str, Sequence[int]]]]) -> Figure:
    """Elements in their order from left to right, one row per worker; a filled cell is read by the worker of its row.

    Args:
        contents: title -> (name, elements) of each worker.
    """
    heights = [len(workers) for workers in contents.values()]
    length = 1 + max(element for workers in contents.values() for _, elements in workers for element in elements)
    size = 0.26 * sum(heights) + 0.4 * len(contents)
    figure, places = panels(contents, size, rows=len(contents), height_ratios=heights)
    for axes, workers in places:
        rows = {
            name: [Cell(element, str(element), colour_of(row)) for element in elements]
            for row, (name, elements) in enumerate(workers)
        }
        fill(axes, rows, size=7)
        axes.set_xlim(-0.1, length + 0.05)
        axes.spines[:].set(visible=True, lw=0.5)
    return figure


def readings(ways: Mapping[str, Sequence[int]], length: int) -> Figure:
    """How often each of `length` elements was read, one row per way: once, never, or more often (with the number).

    Args:
        ways: name -> the elements as they were read.
    """
    counts = {name: Counter(read) for name, read in ways.items()}
    rows = {name: [count[element] for element in range(length)] for name, count in counts.items()}
    figure = times_read(rows, {})
    heads(figure.axes[0], {element + 0.45: str(element) for element in range(0, length, 4)}, size=8)
    return figure


def collective(steps: Sequence[int]) -> Figure:
    """Training steps of ranks that meet in a collective operation at each, until one has no element left.

    Args:
        steps: of each rank; who has more waits at the first step that somebody else does not have.
    """
    together = min(steps)
    rows = {}
    for rank, own in enumerate(steps):
        if own > together:
            last = Cell(together, "waits for the others", COLOURS[1], 2.4, {"ls": ":"})
        else:
            last = Cell(together, "done, saves and leaves", "none", 2.4, {"lw": 0})
        both = [Cell(step, f"step {step}", COLOURS[0]) for step in range(together)]
        rows[f"rank {rank}"] = [*both, last] if max(steps) > together else both
    figure, axes = picture(rows, 0.6)
    for step in range(together):
        axes.plot([step + 0.47] * 2, [HEIGHT, len(steps) - 1], color=INK, lw=1.2, zorder=0)
    return figure


def packed_rows(rows: Sequence[Sequence[tuple[str, int]]]) -> Figure:
    """Packed rows of tokens, one colour per document; the last token of a row is the first of the next one (thick).

    Args:
        rows: per row, (text, number of the document) of each token.
    """
    drawn: dict[str, list[Cell]] = {}
    for number, row in enumerate(rows):
        cells = drawn[f"row {number}"] = []
        for column, (piece, document) in enumerate(row):
            shared = (column == 0 and number > 0) or (column == len(row) - 1 and number + 1 < len(rows))
            text, font = printable(piece, 7), {"weight": "bold" if piece.startswith("<|") else "normal"}
            cells.append(Cell(column, text, document_colour(document), edge={"lw": 2.2 if shared else 0.6}, font=font))
    figure, _ = picture(drawn, 0.5, family="monospace")
    return figure


def handed_over(rows: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> Figure:
    """A run that is continued by another one: the positions each delivered, and those it had ready when it died.

    Args:
        rows: name -> (delivered positions, positions that were prefetched only).
    """
    drawn = {}
    for row, (name, (delivered, ready)) in enumerate(rows.items()):
        waiting = [Cell(position, str(position), IDLE, edge={"ls": ":"}) for position in ready]
        drawn[name] = waiting + [Cell(position, str(position), colour_of(row)) for position in delivered]
    figure, _ = picture(drawn, 0.45, room=0.5, size=7)
    key(figure, {"ready, never delivered": IDLE})
    return figure


def encoders(contents: Mapping[str, Sequence[Sequence[bool]]]) -> Figure:
    """Which worker encodes which block of text, one panel per way: contents[title][worker][block]."""
    first = next(iter(contents.values()))
    figure, places = panels(contents, 0.32 * len(first) + 0.6)
    for axes, matrix in places:
        rows = {
            f"worker {worker}": [
                Cell(k, "", colour_of(worker) if encodes else "white") for k, encodes in enumerate(row)
            ]
            for worker, row in enumerate(matrix)
        }
        fill(axes, rows)
        axes.set_xlabel("blocks of the text")
    return figure


def stream_or_file(tokens_per_second: Mapping[str, float], seconds: Mapping[str, tuple[float, float]]) -> Figure:
    """Left, tokens per second of each way, logarithmic; right, the time all of it takes against passes over the text.

    Args:
        tokens_per_second: name -> while training.
        seconds: name -> (before the first pass, for each pass).
    """
    figure, [(left, _), (right, _)] = panels({"while training": 0, "all of it": 0}, 3.2)
    rates = list(tokens_per_second.values())
    bars = left.barh(list(tokens_per_second), rates, color=LINES)
    left.bar_label(bars, [f" {rate / 1e6:,.2f} million" for rate in rates], size=9)
    left.invert_yaxis()
    half_framed(left, xscale="log", xlabel="tokens per second", xlim=(1e4, 20 * max(rates)))
    passes = range(1, 7)
    lines = {name: [passes, [before + each * n for n in passes]] for name, (before, each) in seconds.items()}
    draw_lines(right, lines, LINES, marker="o")
    half_framed(right, xlabel="passes over the text", ylabel="seconds", ylim=(0, None), xticks=list(passes))
    right.legend(frameon=False, fontsize=9)
    return figure
