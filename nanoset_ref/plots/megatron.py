"""Pictures of Megatron's way: documents in a stream, cut into samples; epochs; and its rows beside Nanoset's."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from nanoset_ref.plots._colours import DOCUMENTS, INK, LINES, SEPARATOR
from nanoset_ref.plots._draw import canvas, cell, frameless, grid, half_framed, label

Part = tuple[int, int, int]  # document, start, stop


def stream(
    documents: Sequence[Sequence[int]], document_index: ArrayLike, sample_index: ArrayLike, shuffle_index: ArrayLike
) -> Figure:
    """The three indexes on a toy, token by token: documents, the shuffled stream with its cuts, samples as they are
    read.

    Args:
        documents: the tokens of each.
        document_index, sample_index, shuffle_index: as MegatronNanoset has them; samples have one token more than they
            are apart.
    """
    order = np.asarray(document_index).tolist()
    owners = [(document, token) for document in order for token in documents[document]]
    begins = np.concatenate([[0], np.cumsum([len(documents[document]) for document in order])])
    cuts = [int(begins[i]) + offset for i, offset in np.asarray(sample_index).tolist()]
    width = max(len(owners), sum(b - a + 1.5 for a, b in itertools.pairwise(cuts)))
    figure, axes = canvas(0.36 * width + 1.2, 3.2)
    place = 0.0
    for number, tokens in enumerate(documents):
        for token in tokens:
            _token(axes, place, 5.0, number, token)
            place += 1
        axes.text(place - len(tokens) / 2, 6.1, f"document {number}", ha="center", size=8)
        place += 0.5
    for place, (number, token) in enumerate(owners):
        _token(axes, place, 3.2, number, token)
    for j, (begin, end) in enumerate(itertools.pairwise(cuts)):
        height = 2.95 - 0.42 * (j % 2)
        axes.plot([begin + 0.05, end + 0.95], [height, height], color=INK, lw=1.2, solid_capstyle="butt")
        axes.text((begin + end + 1) / 2, height - 0.06, f"sample {j}", ha="center", va="top", size=8)
    left = 0.0
    for k, j in enumerate(np.asarray(shuffle_index).tolist()):
        begin, end = cuts[j], cuts[j + 1]
        for column in range(begin, end + 1):
            _token(axes, left + column - begin, 0.5, *owners[column])
        axes.text(left + (end - begin + 1) / 2, 0.35, f"k = {k} (sample {j})", ha="center", va="top", size=8)
        left += end - begin + 1.5
    for height, name in ((5.4, "corpus"), (3.6, "stream"), (0.9, "run")):
        axes.text(-0.4, height, name, ha="right", va="center", weight="bold", size=9)
    frameless(axes, xlim=(-2.6, width + 0.2), ylim=(-0.3, 6.6))
    return figure


def rows(
    panels: Mapping[str, Sequence[Sequence[Part]]], row_length: int, names: Mapping[int, str] | None = None
) -> Figure:
    """Samples as bars, one below the other, in the colours of their documents; the number of each document is written
    in.

    Args:
        panels: by title, for each row the (document, start, stop) that it is made of.
        row_length: tokens per row.
        names: what to write for a document instead of its number.
    """
    count = max(len(panel) for panel in panels.values())
    figure, all_axes = grid(10, 0.34 * count + 0.8, columns=len(panels))
    for axes, (title, panel) in zip(all_axes, panels.items(), strict=True):
        for row, parts in enumerate(panel):
            left = 0
            for document, start, stop in parts:
                colour = DOCUMENTS[document % len(DOCUMENTS)]
                axes.add_patch(Rectangle((left, row), stop - start, 0.8, facecolor=colour, edgecolor="white", lw=0.8))
                if stop - start > 0.035 * row_length * len(panels):
                    name = (names or {}).get(document, str(document))
                    label(axes, left + (stop - start) / 2, row + 0.42, name, size=7)
                left += stop - start
        axes.set(xlim=(0, row_length), ylim=(count, -0.2), xlabel="token in the row")
        axes.set_yticks(np.arange(len(panel)) + 0.4, map(str, range(len(panel))), size=7)
        axes.set_title(title, size=10, loc="left")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


def samples_built(asked: ArrayLike, built: ArrayLike, epochs: ArrayLike) -> Figure:
    """How many samples a dataset has, against how many were asked for, with the number of epochs on each step."""
    asked, built, epochs = np.asarray(asked), np.asarray(built), np.asarray(epochs)
    figure, axes = canvas(7, 3)
    axes.step(asked, built, where="post", color=LINES[0], lw=2)
    axes.plot(asked, asked, color=SEPARATOR, lw=1, ls="--")
    middle = asked[len(asked) // 4]
    axes.text(middle, middle, "  as many as asked", va="top", size=8, color=SEPARATOR)
    for epoch in np.unique(epochs).tolist():
        first = int(np.argmax(epochs == epoch))
        axes.text(asked[first], built[first], f" E = {epoch}", va="bottom", size=9, color=LINES[0])
    half_framed(axes, xlabel="samples asked for", ylabel="samples built", ylim=(0, built[-1] * 1.15))
    return figure


def shuffles(panels: Mapping[str, ArrayLike], asked: int, samples_per_epoch: float) -> Figure:
    """Which sample of the stream stands at each position of the run; what is asked for ends at a line.

    Args:
        panels: by title, the shuffle index.
        asked: positions that are read; the rest is never seen.
        samples_per_epoch: where the epochs of the stream begin.
    """
    figure, all_axes = grid(9.5, 3.4, columns=len(panels), sharey=True)
    for axes, (title, index) in zip(all_axes, panels.items(), strict=True):
        index = np.asarray(index)
        read = np.arange(len(index)) < asked
        axes.scatter(np.flatnonzero(read), index[read], s=6, color=LINES[0], label="read")
        axes.scatter(np.flatnonzero(~read), index[~read], s=6, color="#cccccc", label="never read")
        axes.axvline(asked - 0.5, color=LINES[1], lw=1.5)
        for epoch in np.arange(samples_per_epoch, len(index), samples_per_epoch):
            axes.axhline(epoch, color=SEPARATOR, lw=0.8, ls="--")
        half_framed(axes, xlabel="position in the run", xlim=(0, len(index)), ylim=(0, len(index)))
        axes.set_title(title, size=10, loc="left")
    first, end = figure.axes[0], figure.axes[0].get_xlim()[1]  # what is kept apart leaves room for words
    first.text(1.01 * asked, 0.3 * end, "the run ends", color=LINES[1], size=9)
    first.text(0.02 * end, 1.03 * samples_per_epoch, "epoch 2 begins", color=SEPARATOR, size=9)
    first.set_ylabel("sample of the stream")
    first.legend(loc="lower right", fontsize=8)
    return figure


def coverage(panels: Mapping[str, ArrayLike], edges: ArrayLike) -> Figure:
    """How often, up to twice, each token of a file is an input; thin lines are the edges of documents."""
    figure, all_axes = grid(10, 0.75 * len(panels) + 0.7, rows=len(panels), sharex=True)
    for axes, (title, counts) in zip(all_axes, panels.items(), strict=True):
        counts = np.asarray(counts)
        axes.imshow(counts[None], aspect="auto", cmap="Blues", vmin=0, vmax=4, interpolation="nearest",
                    extent=(0, len(counts), 0, 1))  # fmt: skip
        for edge in np.asarray(edges).tolist():
            axes.axvline(edge, color=INK, lw=0.4)
        axes.set(yticks=[])
        axes.set_title(title, size=9, loc="left", pad=3)
    figure.axes[-1].set_xlabel("token of the file; white: never an input, light: once, dark: twice")
    return figure


def attention(mask: ArrayLike, pieces: Sequence[str]) -> Figure:
    """Who sees whom: queries below each other, keys side by side, True = masked."""
    seen = ~np.asarray(mask, dtype=bool)
    figure, axes = canvas(0.34 * len(pieces) + 1.2, 0.3 * len(pieces) + 1)
    axes.imshow(seen, cmap="Blues", vmin=0, vmax=1.4)
    ticks = np.arange(len(pieces))
    axes.set_xticks(ticks, pieces, rotation=90, size=7, family="monospace")
    axes.set_yticks(ticks, pieces, size=7, family="monospace")
    axes.set(xlabel="is seen", ylabel="sees")
    axes.spines[:].set_visible(False)
    return figure


def _token(axes: Axes, left: float, bottom: float, document: int, token: int) -> None:
    cell(axes, left, bottom, 0.94, 0.9, DOCUMENTS[document % len(DOCUMENTS)], str(token), lw=0.6)
