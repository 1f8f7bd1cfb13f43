"""Pictures of Megatron's indexes, splits and masks: documents in samples, epochs, who sees whom."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import HEIGHT, Cell, draw_row, fill, side_by_side
from figures.draw import COLOURS, GREY, INK, LINES, RED, SOURCES, canvas, curves, panels, printable

Kind = int | str  # a document of the stories, the name of a source, or a colour
# by name, the (text, what colours it, width) of each cell
Rows = Mapping[str, Sequence[tuple[Any, Kind, float]]]
SAMPLES = list(
    zip(COLOURS[1:5], ("#b84e00", "#007a58", "#8e4585", "#5f6600"), strict=True)
)  # fill and line of each
SAMPLES.append((COLOURS[6], RED))
# six documents of the stories: blues whose lightness leaps from each to the next
SHADES = ("#e3effb", "#4f9fd6", "#bfe6ee", "#2f5d9c", "#a3b4ee", "#14264f")


def _colour(kind: Kind) -> str:
    return SHADES[kind % 6] if isinstance(kind, int) else SOURCES.get(kind, (kind,))[0]


def bars(contents: Mapping[str, Rows], side: bool = False, room: float = 0) -> Figure:
    """Rows of cells, in the colours of sources, or in the shades of documents.

    Args:
        contents: by title; a text on white is no token, and is shown as it is.
        side: panels side by side, not one below the other.
        room: no text in narrower cells.
    """
    heights = [1] if side else [len(content) for content in contents.values()]
    height = 0.33 * max(sum(heights), *map(len, contents.values())) + 0.4 * len(heights)
    figure, places = panels(contents, height, rows=len(heights), height_ratios=heights)
    for axes, content in places:
        shown = {}
        for name, row in content.items():
            shown[name] = [
                (text if kind == "white" else printable(str(text)), _colour(kind), wide)
                for text, kind, wide in row
            ]
        fill(axes, {name: side_by_side(row, room=room) for name, row in shown.items()})
    return figure


def passes(read: Mapping[str, float], title: str) -> Figure:
    """How often each source is read, to scale: a line at each whole pass, the number at the end of the bar.

    Args:
        read: by source, passes over it.
        title: the finding.
    """
    figure, axes = canvas(0.36 * len(read) + 0.95)
    for row, (source, times) in enumerate(read.items()):
        draw_row(axes, [Cell(0, "", SOURCES[source][0], times)], row, gap=0)
        for whole in range(1, int(times) + 1):
            axes.plot([whole] * 2, [row, row + HEIGHT], color=INK, lw=0.7)
        axes.text(times + 0.03, row + HEIGHT / 2, f"{times:.2f} passes", va="center")
    most = max(read.values())
    axes.set(
        xlim=(0, 1.17 * most),
        ylim=(len(read) - 0.1, -0.05),
        title=title,
        xlabel="passes over the source",
    )
    axes.set(xticks=range(int(most) + 1))
    axes.set_yticks([row + HEIGHT / 2 for row in range(len(read))], list(read))
    axes.tick_params(axis="y", length=0)
    axes.spines.left.set_visible(False)
    axes.spines.bottom.set_bounds(0, most)
    return figure


def stream(
    documents: Sequence[Sequence[str]],
    document_index: ArrayLike,
    sample_index: ArrayLike,
    shuffle_index: ArrayLike,
) -> Figure:
    """The three indexes: documents, the shuffled stream with its cuts, samples in the order in which they are read.

    A sample keeps its color from the cut to the order of the run. A cut runs through the middle of the token
    that both its samples hold.

    Args:
        documents: the texts of the tokens of each.
        document_index, sample_index, shuffle_index: as MegatronNanoset has them; samples have one token more than they
            are apart.
    """
    order, run = np.asarray(document_index).tolist(), np.asarray(shuffle_index).tolist()
    tokens = [(piece, document) for document in order for piece in documents[document]]
    begins = np.cumsum([0, *(len(documents[document]) for document in order)])
    spans = list(
        pairwise(int(begins[place]) + offset for place, offset in np.asarray(sample_index).tolist())
    )
    figure, axes = canvas(6)
    centres = []
    for top, row, name in ((0, range(len(documents)), "file"), (2, order, "document\nindex")):
        cells = side_by_side(
            (d if top else f"document {d}", SHADES[d % 6], len(documents[d])) for d in row
        )
        draw_row(axes, cells, top, size=10)
        centres.append([cell.left + cell.width / 2 for cell in cells])
        _name(axes, top, name)
    for place, document in enumerate(order):
        axes.plot([centres[0][document], centres[1][place]], [0.85, 1.97], color=GREY, lw=1)
    middles = _cut(axes, spans, len(tokens), 3.05)
    wide = len(tokens) / len(run)
    for k, j in enumerate(run):
        fill, stroke = SAMPLES[j % len(SAMPLES)]
        axes.plot([middles[j], (k + 0.5) * wide], [3.9, 5.27], color=stroke, lw=2, zorder=0)
        draw_row(axes, [Cell(k * wide, f"k = {k}:  sample {j}", fill, wide)], 5.3, size=10)
        begin, end = spans[j]
        draw_row(axes, _text_of_sample(tokens[begin : end + 1], len(tokens)), 6.5 + 0.95 * k)
        axes.text(
            -0.5,
            6.9 + 0.95 * k,
            f"k = {k}",
            ha="right",
            va="center",
            size=10,
            color=stroke,
            weight="bold",
        )
    _name(axes, 5.3, "shuffle\nindex")
    axes.set_title("Shuffle documents, cut every S tokens, shuffle samples")
    axes.set(xlim=(-5, len(tokens) + 0.1), ylim=(6.45 + 0.95 * len(run), -0.1))
    axes.axis("off")
    return figure


def _cut(axes: Axes, spans: Sequence[tuple[int, int]], num_tokens: int, top: float) -> list[float]:
    """Draw the samples below the stream, and what no sample holds; the middle of each sample."""
    middles = []
    for j, (begin, end) in enumerate(spans):
        left = begin + 0.5 if j else begin
        right = end + 0.5 if j + 1 < len(spans) else end + 1
        draw_row(axes, [Cell(left, f"sample {j}", SAMPLES[j % len(SAMPLES)][0], right - left)], top)
        middles.append((left + right) / 2)
        if j:
            axes.plot([left - 0.03] * 2, [1.9, top], color="white", lw=3)
            axes.plot([left - 0.03] * 2, [1.9, top], color=INK, lw=1.5, ls=(0, (2, 1.2)))
    lost = spans[-1][1] + 1
    draw_row(axes, [Cell(lost, "", "none", num_tokens - lost, {"edgecolor": RED, "lw": 2})], 2)
    axes.text(num_tokens, top + 0.9, "left over", color=RED, size=10, ha="right", va="top")
    _name(axes, top, "sample\nindex")
    return middles


def _text_of_sample(tokens: Sequence[tuple[str, int]], width: int) -> list[Cell]:
    """A cell per token; the first token of each document's part is preceded by the number of the document."""
    parts, before = [], None
    for piece, document in tokens:
        text = printable(piece)
        if document != before:
            text = f"{document}: {text}"
        parts.append((text, SHADES[document % 6], width / len(tokens)))
        before = document
    return side_by_side(parts)


def _name(axes: Axes, top: float, name: str) -> None:
    axes.text(
        -0.5, top + 0.41, name, ha="right", va="center", weight="bold", size=10, linespacing=0.9
    )


def shuffles(
    contents: Mapping[str, ArrayLike], asked: int, samples_per_epoch: float, headline: str
) -> Figure:
    """Which sample of the stream stands at each position of the run; what is asked for ends at a line.

    Args:
        contents: by title, the shuffle index.
        asked: positions that are read; the rest is never seen.
        samples_per_epoch: where the epochs of the stream begin.
        headline: the takeaway.
    """
    figure, places = panels(contents, 3.4, headline=headline, sharey=True)
    for axes, index in places:
        samples = np.asarray(index)
        end = len(samples)
        axes.scatter(np.arange(asked), samples[:asked], s=5, color=LINES[0])
        axes.scatter(np.arange(asked, end), samples[asked:], s=5, color="#cccccc")
        axes.axvline(asked - 0.5, color=LINES[1], lw=1.5)
        axes.axhline(samples_per_epoch, color=GREY, lw=1, ls="--")
        axes.set(xlabel="position k", xlim=(0, end), ylim=(0, end))
    first = figure.axes[0]  # what is kept apart leaves room for words
    first.text(1.03 * asked, 0.3 * end, "the run ends here;\ngray is never read", color=LINES[1])
    first.text(0.02 * end, 1.03 * samples_per_epoch, "epoch 2 begins", color=GREY)
    first.set_ylabel("sample of the stream")
    return figure


def attention(tokens: Sequence[tuple[str, Kind]]) -> Figure:
    """Who sees whom, queries below each other, keys side by side: the own document in its colour, others hatched."""
    figure, axes = canvas(0.19 * len(tokens) + 0.9)
    document = np.cumsum([0] + [piece == "EOS" for piece, _ in tokens[:-1]])
    foreign = {"edgecolor": "#b0b0b0", "hatch": "////", "lw": 0.4}
    for query, (_, kind) in enumerate(tokens):
        own = document[: query + 1] == document[query]
        looks = [(_colour(kind), 1) if same else ("white", 1, foreign) for same in own]
        draw_row(axes, [Cell(key, "", *look) for key, look in enumerate(looks)], query, height=0.94)
    pairs = len(tokens) * (len(tokens) + 1) // 2
    within = sum(count * (count + 1) // 2 for count in np.bincount(document).tolist())
    left = 0.56 * len(tokens)
    colours = dict.fromkeys(_colour(kind) for _, kind in tokens)
    legend = (
        [Cell(left - number, "", colour) for number, colour in enumerate(reversed(colours))],
        [Cell(left, "", "white", 1, foreign)],
    )
    said = (
        f"own document: {within}",
        f"another document: {pairs - within}",
    )
    for row, (box, text) in enumerate(zip(legend, said, strict=True)):
        draw_row(axes, box, 0.3 + 1.4 * row, height=0.94)
        axes.text(left + 1.2, 0.77 + 1.4 * row, text, va="center")
    pieces = [printable(piece) for piece, _ in tokens]
    axes.set_yticks(np.arange(len(tokens)) + 0.5, pieces, size=9)
    axes.set_xticks(np.arange(0, len(tokens), 3) + 0.5, pieces[::3], size=9)
    axes.set(
        xlim=(0, len(tokens)),
        ylim=(len(tokens), 0),
        xlabel="token looked at",
        ylabel="token that looks",
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        f"A document mask leaves {within} of the {pairs} pairs that a causal mask allows"
    )
    return figure


def mask_losses(
    contents: Mapping[str, Mapping[str, Sequence[float]]], ranges: Sequence[str]
) -> Figure:
    """Losses of two trainings: along the steps, and by the place in a document.

    Args:
        contents: by title, for each of the two panels, the losses of the trainings by name; the higher one first.
        ranges: the names of the places.
    """
    lines = {
        title: {name: [values] for name, values in losses.items()}
        for title, losses in contents.items()
    }
    figure = curves(lines, 3.4, colours=LINES, share=False)
    for axes, losses in zip(figure.axes, contents.values(), strict=True):
        sides = ("bottom", max, 0.08), ("top", min, -0.08)
        for (name, values), colour, (side, outermost, gap) in zip(
            losses.items(), LINES, sides, strict=False
        ):
            place = outermost(values[len(values) // 2 :]) + gap
            axes.text(len(values) - 1, place, name, color=colour, ha="right", va=side)
        axes.margins(y=0.12)
    left, right = figure.axes
    left.set(xlabel="step", ylabel="loss (nats per token)")
    right.set(
        xlabel="place in its document",
        ylabel="loss (nats per token)",
        xticks=range(len(ranges)),
        xticklabels=ranges,
    )
    return figure
