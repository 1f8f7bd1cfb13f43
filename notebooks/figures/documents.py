"""Pictures of documents: in samples, in rows, in chunks, along a run; packed, shuffled, lost and read again."""

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import Cell, colour_of, document_colour, draw_row, fill, picture, side_by_side
from figures.draw import COLOURS, GREY, IDLE, INK, LINES, canvas, curves, half_framed, key, panels

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
    figure, axes = canvas(0.36 * width + 1.2, 3.2)
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
    figure, places = panels(contents, 10, 0.34 * max(map(len, contents.values())) + 0.8)
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
    figure = curves(lines, (7, 3), colours=LINES, style={"drawstyle": "steps-post"}, legend=None, **labels)
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
    figure, places = panels(contents, 9.5, 3.4, sharey=True)
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
    figure, places = panels(contents, 10, 0.75 * len(contents) + 0.7, rows=len(contents), sharex=True)
    for axes, counts in places:
        counts = np.asarray(counts)[None]
        axes.imshow(counts, aspect="auto", cmap="Blues", vmax=4, extent=(0, counts.size, 0, 1), interpolation="nearest")
        axes.vlines(np.asarray(edges), 0, 1, color=INK, lw=0.4)
        axes.set(yticks=[])
    figure.axes[-1].set_xlabel("token of the file; white: never an input, light: once, dark: twice")
    return figure


def attention(mask: ArrayLike, pieces: Sequence[str]) -> Figure:
    """Who sees whom: queries below each other, keys side by side, True = masked."""
    figure, axes = canvas(0.34 * len(pieces) + 1.2, 0.3 * len(pieces) + 1)
    axes.imshow(~np.asarray(mask, dtype=bool), cmap="Blues", vmin=0, vmax=1.4)
    axes.set_xticks(range(len(pieces)), pieces, rotation=90, size=7, family="monospace")
    axes.set_yticks(range(len(pieces)), pieces, size=7, family="monospace")
    axes.set(xlabel="is seen", ylabel="sees")
    axes.spines[:].set_visible(False)
    return figure


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
    figure, both = panels(drawn, 11, 0.32 * height + 0.9)
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
    figure = curves({title: lines}, (7, 3.4), colours=LINES, style={"marker": "o"}, **labels)
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
    figure, places = panels(contents, 11, 0.34 * count + 1.3)
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
    figure, places = panels(runs, 11, 2.9, sharey=True)
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


Parts = Sequence[tuple[str, int]]  # document, tokens


def step(rows: Sequence[tuple[str, int, Parts]], files: Sequence[str]) -> Figure:
    """The rows of a step as bars cut at document boundaries.

    Args:
        rows: (name, number of the file, [(document, tokens), ...]) of each row.
        files: names of the files; the colour of a bar is its file, every second document is paler.
    """
    drawn = {}
    for name, file, parts in rows:
        shades = [to_rgba(colour_of(file), alpha) for alpha in (1, 0.55)]
        drawn[name] = side_by_side(((text, shades[k % 2], size) for k, (text, size) in enumerate(parts)), room=8)
    length = sum(tokens for _, tokens in rows[0][2])
    figure, axes = picture(drawn, (7.4 / length, 0.42), room=0.7, gap=0)
    axes.set(xlabel="token of the row", xticks=range(0, length, 20))
    key(figure, dict(zip(files, COLOURS, strict=False)), "upper center")
    return figure


def readings(lanes: Sequence[tuple[str, ArrayLike, int]], steps: int) -> Figure:
    """When documents are read: a mark per reading, one lane per document.

    Args:
        lanes: (name, steps at which it is read, number of its colour).
        steps: length of the run.
    """
    figure, axes = canvas(9, 0.4 * len(lanes) + 0.7)
    for height, (_, at, colour) in enumerate(lanes):
        axes.axhline(height, color="#dddddd", lw=0.8, zorder=0)
        axes.eventplot(at, lineoffsets=height, linelengths=0.6, lw=4, color=colour_of(colour))
    axes.set_yticks(range(len(lanes)), [name for name, _, _ in lanes])
    half_framed(axes, xlim=(0, steps + 1), ylim=(len(lanes) - 0.4, -0.6), xlabel="optimizer step")
    return figure


def passes(contents: Sequence[tuple[str, Sequence[ArrayLike]]], names: Sequence[str], changes: Sequence[int]) -> Figure:
    """Different samples of each file that have been read, as a share of the file, along a run whose plan changes.

    Args:
        contents: (title, [share [N] of each file]).
        names: of the files.
        changes: positions at which the plan changes.
    """
    lines = {title: {name: [share] for name, share in zip(names, shares, strict=True)} for title, shares in contents}
    labels = {"xlabel": "position in the run", "ylabel": "different samples read, share of the file"}
    figure = curves(lines, (4.6 * len(contents), 3.2), legend="lower right", ylim=(0, 1.05), **labels)
    for axes in figure.axes:
        for change in changes:
            axes.axvline(change, color=INK, ls="--", lw=0.8)
    return figure
