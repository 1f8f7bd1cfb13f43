"""Pictures of Megatron's indexes: documents in samples, epochs, shuffles, masks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import document_colour, draw_row, fill, side_by_side
from figures.draw import GREY, INK, LINES, canvas, curves, half_framed, panels

Part = tuple[int, int, int]  # document, start, stop


def stream(
    documents: Sequence[Sequence[int]], document_index: ArrayLike, sample_index: ArrayLike, shuffle_index: ArrayLike
) -> Figure:
    """The three indexes on a toy: documents, the shuffled stream with its cuts, samples as they are read.

    Args:
        documents: the tokens of each.
        document_index, sample_index, shuffle_index: as MegatronNanoset has them; samples have one token more than they
            are apart.
    """
    order = np.asarray(document_index).tolist()
    tokens = [(token, document) for document in order for token in documents[document]]
    begins = np.cumsum([0, *(len(documents[document]) for document in order)])
    cuts = [int(begins[i]) + offset for i, offset in np.asarray(sample_index).tolist()]
    spans = list(pairwise(cuts))
    width = max(len(tokens) + len(documents) / 2, sum(end - begin + 1.5 for begin, end in spans))
    figure, axes = canvas(3.2)
    left = 0.0
    for number, document in enumerate(documents):
        _tokens(axes, [(token, number) for token in document], left, 0.6)
        axes.text(left + len(document) / 2, 0.3, f"document {number}", ha="center", size=8)
        left += len(document) + 0.5
    _tokens(axes, tokens, 0, 2.4)
    for j, (begin, end) in enumerate(spans):
        height = 3.5 + 0.42 * (j % 2)
        axes.plot([begin + 0.05, end + 0.95], [height, height], color=INK, lw=1.2, solid_capstyle="butt")
        axes.text((begin + end + 1) / 2, height + 0.06, f"sample {j}", ha="center", va="top", size=8)
    left = 0.0
    for k, j in enumerate(np.asarray(shuffle_index).tolist()):
        begin, end = spans[j]
        _tokens(axes, tokens[begin : end + 1], left, 5.1)
        axes.text(left + (end - begin + 1) / 2, 6.1, f"k = {k} (sample {j})", ha="center", va="top", size=8)
        left += end - begin + 1.5
    for height, name in ((1, "corpus"), (2.8, "stream"), (5.5, "run")):
        axes.text(-0.4, height, name, ha="right", va="center", weight="bold", size=9)
    axes.set(xlim=(-2.6, width + 0.2), ylim=(6.6, 0))
    axes.axis("off")
    return figure


def _tokens(axes: Axes, tokens: Sequence[tuple[int, int]], left: float, top: float) -> None:
    cells = side_by_side(((token, document_colour(document), 1) for token, document in tokens), left)
    draw_row(axes, cells, top, height=0.9)


def rows(contents: Mapping[str, Sequence[Sequence[Part]]], row_length: int) -> Figure:
    """Samples as bars, one below the other, in the colours of their documents, with their numbers where there is room.

    Args:
        contents: by title, for each row the (document, start, stop) that it is made of.
        row_length: tokens per row.
    """
    figure, places = panels(contents, 0.34 * max(map(len, contents.values())) + 0.8)
    line = {"edgecolor": "white", "lw": 0.8}
    room = 0.035 * row_length * len(contents)
    for axes, samples in places:
        drawn = {}
        for row, parts in enumerate(samples):
            bars = ((document, document_colour(document), stop - start) for document, start, stop in parts)
            drawn[str(row)] = side_by_side(bars, room=room, **line)
        fill(axes, drawn, gap=0, size=7)
        axes.tick_params(axis="y", labelsize=7)
        axes.set(xlim=(0, row_length), xlabel="token in the row", xticks=range(0, row_length, 100))
    return figure


def samples_built(asked: ArrayLike, built: ArrayLike, epochs: ArrayLike) -> Figure:
    """How many samples a dataset has, against how many were asked for, with the number of epochs on each step."""
    asked, built, epochs = np.asarray(asked), np.asarray(built), np.asarray(epochs)
    labels = {"xlabel": "samples asked for", "ylabel": "samples built", "ylim": (0, built[-1] * 1.15)}
    lines = {"": {"built": [asked, built]}}
    figure = curves(lines, 3, colours=LINES, style={"drawstyle": "steps-post"}, legend=None, **labels)
    (axes,) = figure.axes
    axes.plot(asked, asked, color=GREY, lw=1, ls="--")
    middle = asked[len(asked) // 4]
    axes.text(middle, middle, "  as many as asked", va="top", size=8, color=GREY)
    for epoch, first in zip(*np.unique(epochs, return_index=True), strict=True):
        axes.text(asked[first], built[first], f" E = {epoch}", va="bottom", size=9, color=LINES[0])
    return figure


def shuffles(contents: Mapping[str, ArrayLike], asked: int, samples_per_epoch: float) -> Figure:
    """Which sample of the stream stands at each position of the run; what is asked for ends at a line.

    Args:
        contents: by title, the shuffle index.
        asked: positions that are read; the rest is never seen.
        samples_per_epoch: where the epochs of the stream begin.
    """
    figure, places = panels(contents, 3.4, sharey=True)
    for axes, index in places:
        samples = np.asarray(index)
        end = len(samples)
        axes.scatter(np.arange(asked), samples[:asked], s=6, color=LINES[0], label="read")
        axes.scatter(np.arange(asked, end), samples[asked:], s=6, color="#cccccc", label="never read")
        axes.axvline(asked - 0.5, color=LINES[1], lw=1.5)
        for epoch in np.arange(samples_per_epoch, end, samples_per_epoch):
            axes.axhline(epoch, color=GREY, lw=0.8, ls="--")
        half_framed(axes, xlabel="position in the run", xlim=(0, end), ylim=(0, end))
    first = figure.axes[0]  # what is kept apart leaves room for words
    end = first.get_xlim()[1]
    first.text(1.01 * asked, 0.3 * end, "the run ends", color=LINES[1], size=9)
    first.text(0.02 * end, 1.03 * samples_per_epoch, "epoch 2 begins", color=GREY, size=9)
    first.set_ylabel("sample of the stream")
    first.legend(loc="lower right", fontsize=8)
    return figure


def coverage(contents: Mapping[str, ArrayLike], edges: ArrayLike) -> Figure:
    """How often, up to twice, each token of a file is an input; thin lines are the edges of documents."""
    figure, places = panels(contents, 0.75 * len(contents) + 0.7, rows=len(contents), sharex=True)
    for axes, counts in places:
        counts = np.asarray(counts)[None]
        axes.imshow(counts, aspect="auto", cmap="Blues", vmax=4, extent=(0, counts.size, 0, 1), interpolation="nearest")
        axes.vlines(np.asarray(edges), 0, 1, color=INK, lw=0.4)
        axes.set(yticks=[])
    figure.axes[-1].set_xlabel("token of the file; white: never an input, light: once, dark: twice")
    return figure


def attention(mask: ArrayLike, pieces: Sequence[str]) -> Figure:
    """Who sees whom: queries below each other, keys side by side, True = masked."""
    figure, axes = canvas(0.3 * len(pieces) + 1)
    axes.imshow(~np.asarray(mask, dtype=bool), cmap="Blues", vmin=0, vmax=1.4)
    axes.set_xticks(range(len(pieces)), pieces, rotation=90, size=7, family="monospace")
    axes.set_yticks(range(len(pieces)), pieces, size=7, family="monospace")
    axes.set(xlabel="is seen", ylabel="sees")
    axes.spines[:].set_visible(False)
    return figure
