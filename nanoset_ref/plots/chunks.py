"""Pictures of corpus preparation: packing, what it loses, what stands in a chunk, and how a mixture runs over time."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from nanoset_ref.plots._colours import DOCUMENTS, IDLE, INK, LINES
from nanoset_ref.plots._draw import canvas, cell, grid, half_framed

Piece = tuple[int, int]  # document, tokens


def packing(document_lengths: Sequence[int], row_length: int) -> Figure:
    """The same documents in rows with wrap and without, one colour per document; what no row holds is grey.

    Args:
        document_lengths: tokens of each document, separators included.
        row_length: tokens per row.
    """
    drawn = {
        "wrap: documents go on in the next row": _wrapped(document_lengths, row_length),
        "no wrap: the rest is cut away": _cut(document_lengths, row_length),
    }
    height = max(len(rows) for rows in drawn.values())
    figure, both = grid(11, 0.32 * height + 1.0, columns=2)
    for axes, (title, rows) in zip(both, drawn.items(), strict=True):
        for row, pieces in enumerate(rows):
            _draw_row(axes, row, pieces, row_length)
        axes.axvline(row_length, color=INK, lw=1.5)
        half_framed(axes, xlim=(0, row_length * 1.55), ylim=(height, -0.2), xlabel="tokens", title=title)
        names = [*(f"row {row}" for row in range(len(rows) - 1)), "tail"]
        axes.set_yticks([row + 0.4 for row in range(len(rows))], names)
    return figure


def _wrapped(lengths: Sequence[int], row_length: int) -> list[list[Piece]]:
    """Rows of pieces; the last is the tail."""
    rows: list[list[Piece]] = [[]]
    room = row_length
    for document, left in enumerate(lengths):
        while left:
            taken = min(left, room)
            rows[-1].append((document, taken))
            left, room = left - taken, room - taken
            if not room:
                rows.append([])
                room = row_length
    return rows


def _cut(lengths: Sequence[int], row_length: int) -> list[list[Piece]]:
    """Rows of pieces, the last of a row reaching beyond it by what is cut away; the last row is the tail."""
    rows: list[list[Piece]] = [[]]
    for document, length in enumerate(lengths):
        rows[-1].append((document, length))
        if sum(tokens for _, tokens in rows[-1]) >= row_length:
            rows.append([])
    return rows


def _draw_row(axes: Axes, row: int, pieces: list[Piece], row_length: int) -> None:
    begin, whole = 0, sum(tokens for _, tokens in pieces) >= row_length
    for document, tokens in pieces:
        inside = max(0, min(tokens, row_length - begin)) if whole else 0
        shown = min(tokens - inside, row_length * 0.52)  # a long rest is not drawn to its end
        name = str(document) if (inside or shown) > row_length / 16 else ""
        rest = f"{tokens - inside} cut" if shown > row_length / 6 else ""
        cell(axes, begin, row, inside, 0.8, DOCUMENTS[document % len(DOCUMENTS)], name if inside else "", lw=0.8)
        cell(axes, begin + inside, row, shown, 0.8, IDLE, rest if inside else name, lw=0.8, ls=":")
        begin += tokens


def lost_share(row_lengths: Sequence[int], lost: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The share of all tokens that is in no row, per way of packing.

    Args:
        row_lengths: tokens per row, the horizontal axis.
        lost: per way, the share at each row length, 0 to 1.
        title: above the picture.
    """
    figure, axes = canvas(7, 3.4)
    for (name, shares), colour, marker in zip(lost.items(), LINES, "osD^", strict=False):
        axes.plot(row_lengths, [100 * share for share in shares], color=colour, marker=marker, ms=5, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(row_lengths, [f"{length:,}" for length in row_lengths])
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_yticks([0, 0.1, 1, 10, 50], ["0", "0.1", "1", "10", "50"])
    axes.set(xlabel="tokens per row", ylabel="tokens lost, %", title=title, ylim=(-0.01, 100))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    return figure


def chunk_strips(panels: Mapping[str, Sequence[Sequence[int]]], names: Sequence[str]) -> Figure:
    """Every chunk as a strip, every sample a line in the colour of its subset.

    Args:
        panels: {title: per chunk, the number of each sample's subset}; all chunks of one size.
        names: of the subsets.
    """
    figure, columns = grid(11, 0.34 * len(next(iter(panels.values()))) + 1.4, columns=len(panels))
    colours = ListedColormap(list(DOCUMENTS[: len(names)]))
    for axes, (title, chunks) in zip(columns, panels.items(), strict=True):
        axes.imshow(np.array(chunks), aspect="auto", cmap=colours, vmin=0, vmax=len(names) - 1, interpolation="nearest")
        for edge in range(1, len(chunks)):
            axes.axhline(edge - 0.5, color="white", lw=3)
        axes.set_yticks(range(len(chunks)), [f"chunk {i}" for i in range(len(chunks))])
        axes.set(xlabel="sample within the chunk", title=title)
    _name_subsets(figure, names)
    return figure


def mixture_over_time(
    runs: Mapping[str, Sequence[int] | NDArray[np.int64]], names: Sequence[str], samples_per_bar: int
) -> Figure:
    """How much of each subset is read in each stretch of a run, one panel per run.

    Args:
        runs: {title: the number of each sample's subset, in the order of reading}.
        names: of the subsets.
        samples_per_bar: length of a stretch, in samples.
    """
    figure, columns = grid(11, 2.9, columns=len(runs), sharey=True)
    for axes, (title, sources) in zip(columns, runs.items(), strict=True):
        count = len(sources) // samples_per_bar
        stretches = np.asarray(sources)[: count * samples_per_bar].reshape(count, samples_per_bar)
        bottom = np.zeros(count)
        for i in range(len(names)):
            share = (stretches == i).mean(axis=1)
            axes.bar(np.arange(count) + 0.5, share, 1.0, bottom=bottom, color=DOCUMENTS[i], edgecolor="white", lw=0.3)
            bottom += share
        axes.set(title=title, xlabel=f"stretch of {samples_per_bar} samples", xlim=(0, count), ylim=(0, 1))
    figure.axes[0].set_ylabel("share of the samples")
    _name_subsets(figure, names)
    return figure


def _name_subsets(figure: Figure, names: Sequence[str]) -> None:
    handles = [Patch(color=colour, label=name) for colour, name in zip(DOCUMENTS, names, strict=False)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names), frameon=False)
