"""Pictures of packing and dealing: documents in rows, rows in chunks, what is lost, what a bad order does."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, fill
from figures.draw import IDLE, INK, LINES, RED, SOURCES, canvas, draw_lines, panels, printable

FILLS, STROKES = zip(*SOURCES.values(), strict=True)


def forgetting(runs: Mapping[str, tuple[Sequence[int], ArrayLike]], names: Sequence[str], rows_per_step: int) -> Figure:
    """Losses on held-out rows of each subset while a model trains; where it reads one subset only, in its colour.

    Args:
        runs: {title: (the number of each row's subset, in the order of reading; losses [measurements, subsets])}.
        names: of the subsets.
        rows_per_step: in a training step.
    """
    figure, places = panels(runs, 3.1, sharey=True)
    for axes, (sources, losses) in places:
        step = 0.0
        for source, group in groupby(sources):
            first, step = step, step + len(list(group)) / rows_per_step
            if step - first > 4:
                axes.axvspan(first, step, color=FILLS[source], alpha=0.35, lw=0)
        measured = np.linspace(0, step, len(np.asarray(losses)))
        draw_lines(axes, {name: (measured, loss) for name, loss in zip(names, np.transpose(losses))}, STROKES)
        axes.set(xlabel="training step", xlim=(0, step * (1 + 0.16 * len(runs))))
        height = 0.0
        for source in np.argsort(np.asarray(losses)[-1]):
            height = max(height + 0.4, np.asarray(losses)[-1][source])
            axes.text(1.02 * step, height, names[source], color=STROKES[source], va="center")
    figure.axes[0].set_ylabel("loss on held-out rows, nats")
    return figure


def packing(documents: Sequence[Sequence[str]], row_length: int) -> Figure:
    """The same documents in rows with wrap and without, every second one paler; what no row holds is grey.

    Args:
        documents: the text of each token, of each document.
        row_length: tokens per row.
    """
    drawn = {
        "Wrap: a document goes on in the next row": _rows(documents, row_length, wrap=True),
        "Cut: what does not fit is thrown away": _rows(documents, row_length, wrap=False),
    }
    heights = [len(rows) for rows in drawn.values()]
    figure, both = panels(drawn, 0.36 * sum(heights) + 0.9, rows=2, height_ratios=heights)
    for axes, rows in both:
        fill(axes, {f"row {row}" if cells[0].colour != IDLE else "tail": cells for row, cells in enumerate(rows)})
        axes.set_xlim(-0.05, 1.6 * row_length)
        axes.axvline(row_length - 0.03, color=INK, lw=1.5)
    return figure


def _rows(documents: Sequence[Sequence[str]], row_length: int, wrap: bool) -> list[list[Cell]]:
    """Cells row by row: the rest of a document in the next row, or beyond the edge; in the end what fills no row."""
    shades = [to_rgba(FILLS[0], alpha) for alpha in (1, 0.4)]
    rows: list[list[Cell]] = [[]]
    for document, tokens in enumerate(documents):
        for token in tokens:
            if wrap and len(rows[-1]) == row_length:
                rows.append([])
            look, ink = (shades[document % 2], INK) if len(rows[-1]) < row_length else (IDLE, RED)
            rows[-1].append(Cell(len(rows[-1]), printable(token.strip(), 8), look, font={"color": ink}))
        if len(rows[-1]) >= row_length:
            rows.append([])
    tail = [cell._replace(colour=IDLE, font={"color": RED}) for cell in rows.pop()]
    return [*rows, tail] if tail else rows


def lost_share(row_lengths: Sequence[int], lost: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The share of all tokens that is in no row, per way of packing.

    Args:
        row_lengths: tokens per row, the horizontal axis.
        lost: per way, the share at each row length, 0 to 1.
        title: above the picture.
    """
    figure, axes = canvas(3)
    draw_lines(axes, {name: (row_lengths, np.multiply(100, it)) for name, it in lost.items()}, LINES, marker="o")
    for (name, shares), colour in zip(lost.items(), LINES, strict=False):
        axes.text(row_lengths[-1] * 1.15, 100 * shares[-1], name, color=colour, va="center")
    axes.set_xscale("log", base=2)
    axes.set_xticks(row_lengths, [f"{length:,}" for length in row_lengths])
    axes.set(title=title, xlabel="tokens per row", ylabel="tokens lost, %", ylim=(-3, 100))
    axes.set_xlim(right=row_lengths[-1] * 5)
    return figure


def mixture_over_time(runs: Mapping[str, ArrayLike], names: Sequence[str], samples_per_bar: int) -> Figure:
    """How much of each subset is read in each stretch of a run, one panel per run; dashed: over the whole run.

    Args:
        runs: {title: the number of each sample's subset, in the order of reading}.
        names: of the subsets.
        samples_per_bar: length of a stretch, in samples.
    """
    figure, places = panels(runs, 2.6, sharey=True)
    for axes, sources in places:
        count = len(np.asarray(sources)) // samples_per_bar
        stretches = np.asarray(sources)[: count * samples_per_bar].reshape(count, samples_per_bar)
        shares = [(stretches == subset).mean(axis=1) for subset in range(len(names))]
        for share, top, colour in zip(shares, np.cumsum(shares, axis=0), FILLS, strict=True):
            axes.bar(np.arange(count) + 0.5, share, 1, bottom=top - share, color=colour, edgecolor="white", lw=0.3)
        for target in np.cumsum(np.bincount(sources, minlength=len(names)))[:-1] / len(np.asarray(sources)):
            axes.axhline(target, color=INK, lw=1.2, ls="--")
        axes.set(xlabel=f"bars of {samples_per_bar} rows", xlim=(0, count), ylim=(0, 1), xticks=(0, count))
    for top, share, name in zip(np.cumsum(shares, axis=0), shares, names, strict=True):
        axes.text(count / 2, (top - share / 2).mean(), name, ha="center", va="center", weight="bold")
    figure.axes[0].set_ylabel("share of the rows")
    return figure
