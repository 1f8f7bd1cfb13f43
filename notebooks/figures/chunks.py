"""Pictures of packing and dealing: documents in rows, rows in chunks, what is lost, mixtures."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, document_colour, fill, side_by_side
from figures.draw import COLOURS, IDLE, INK, LINES, curves, half_framed, key, panels


def packing(document_lengths: Sequence[int], row_length: int) -> Figure:
    """The same documents in rows with wrap and without, one colour per document; what no row holds is grey.

    Args:
        document_lengths: tokens of each document, separators included.
        row_length: tokens per row.
    """
    drawn = {
        "wrap: documents go on in the next row": _rows(document_lengths, row_length, wrap=True),
        "no wrap: the rest is cut away": _rows(document_lengths, row_length, wrap=False),
    }
    height = max(map(len, drawn.values()))
    figure, both = panels(drawn, 0.32 * height + 0.9)
    for axes, rows in both:
        *whole, tail = rows
        cells = {f"row {row}": _row(owners, row_length) for row, owners in enumerate(whole)}
        fill(axes, cells | {"tail": _row(tail, 0)}, gap=0)
        axes.axvline(row_length, color=INK, lw=1.5)
        axes.spines[["left", "bottom"]].set_visible(True)
        ticks = range(0, int(1.5 * row_length), row_length // 4)
        axes.set(xlim=(0, row_length * 1.55), ylim=(height, -0.2), xlabel="tokens", xticks=ticks)
    return figure


def _rows(lengths: Sequence[int], row_length: int, wrap: bool) -> list[list[int]]:
    """The document of each token, row by row, the tail last; without wrap a row holds what is cut as well."""
    rows: list[list[int]] = [[]]
    for document, length in enumerate(lengths):
        rows[-1] += [document] * length
        while len(rows[-1]) >= row_length:
            rest = rows[-1][row_length:] if wrap else []
            rows[-1] = rows[-1][: len(rows[-1]) - len(rest)]
            rows.append(rest)
    return rows


def _row(owners: Sequence[int], row_length: int) -> list[Cell]:
    """Coloured up to `row_length`, grey beyond; a long rest is not drawn to its end."""
    parts = []
    for (document, inside), group in groupby(enumerate(owners), key=lambda it: (it[1], it[0] < row_length)):
        width = len(list(group))
        text, colour = (document, document_colour(document)) if inside else (f"{width} lost", IDLE)
        parts.append((text, colour, width if inside else min(width, 8)))
    return side_by_side(parts, room=1)


def lost_share(row_lengths: Sequence[int], lost: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The share of all tokens that is in no row, per way of packing.

    Args:
        row_lengths: tokens per row, the horizontal axis.
        lost: per way, the share at each row length, 0 to 1.
        title: above the picture.
    """
    lines = {name: [row_lengths, [100 * share for share in shares]] for name, shares in lost.items()}
    labels = {"xlabel": "tokens per row", "ylabel": "tokens lost, %", "ylim": (-0.01, 100)}
    figure = curves({title: lines}, 3.4, colours=LINES, style={"marker": "o"}, **labels)
    (axes,) = figure.axes
    axes.set_xscale("log", base=2)
    axes.set_xticks(row_lengths, [f"{length:,}" for length in row_lengths])
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_yticks([0, 0.1, 1, 10, 50], ["0", "0.1", "1", "10", "50"])
    return figure


def chunk_strips(contents: Mapping[str, Sequence[Sequence[int]]], names: Sequence[str]) -> Figure:
    """Every chunk as a strip, every sample a line in the colour of its subset.

    Args:
        contents: {title: per chunk, the number of each sample's subset}; all chunks of one size.
        names: of the subsets.
    """
    count = len(next(iter(contents.values())))
    figure, places = panels(contents, 0.34 * count + 1.3)
    colours = ListedColormap(COLOURS[: len(names)])
    for axes, chunks in places:
        axes.imshow(np.array(chunks), aspect="auto", cmap=colours, vmin=0, vmax=len(names) - 1, interpolation="nearest")
        axes.hlines(np.arange(1, count) - 0.5, *axes.get_xlim(), color="white", lw=3)
        axes.set_yticks(range(count), [f"chunk {chunk}" for chunk in range(count)])
        axes.set_xlabel("sample within the chunk")
    key(figure, dict(zip(names, COLOURS, strict=False)))
    return figure


def mixture_over_time(runs: Mapping[str, ArrayLike], names: Sequence[str], samples_per_bar: int) -> Figure:
    """How much of each subset is read in each stretch of a run, one panel per run.

    Args:
        runs: {title: the number of each sample's subset, in the order of reading}.
        names: of the subsets.
        samples_per_bar: length of a stretch, in samples.
    """
    figure, places = panels(runs, 2.9, sharey=True)
    for axes, sources in places:
        count = len(np.asarray(sources)) // samples_per_bar
        stretches = np.asarray(sources)[: count * samples_per_bar].reshape(count, samples_per_bar)
        shares = [(stretches == subset).mean(axis=1) for subset in range(len(names))]
        for share, top, colour in zip(shares, np.cumsum(shares, axis=0), COLOURS, strict=False):
            axes.bar(np.arange(count) + 0.5, share, 1, bottom=top - share, color=colour, edgecolor="white", lw=0.3)
        half_framed(axes, xlabel=f"stretch of {samples_per_bar} samples", xlim=(0, count), ylim=(0, 1))
    figure.axes[0].set_ylabel("share of the samples")
    key(figure, dict(zip(names, COLOURS, strict=False)))
    return figure
