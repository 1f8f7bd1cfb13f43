"""Pictures of the main road: from text to a batch, how long documents are, and a falling loss."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.cells import Cell, document_colour, draw_row, side_by_side
from figures.draw import GREY, INK, LINES, arrow, canvas, curves, half_framed, panels, printable


def text_to_batch(
    documents: Sequence[Sequence[str]], sequence_length: int, order: Sequence[int], batch_size: int
) -> Figure:
    """The whole road in one picture: documents, the token file, its samples, and the first batch of the global order.

    Args:
        documents: per document the text of its tokens, the separator included as the last.
        sequence_length: S; sample j is the S + 1 tokens from j * S on.
        order: order[k] is the sample that stands at position k.
        batch_size: samples in the batch: positions 0 to batch_size - 1.
    """
    tokens = [(piece, number) for number, document in enumerate(documents) for piece in document]
    figure, axes = canvas(3.6 + 0.45 * batch_size)
    words = [printable("".join(document[:-1]), 4 * len(document)).replace("␣", " ") for document in documents]
    bars = ((text, document_colour(n), len(documents[n])) for n, text in enumerate(words))
    draw_row(axes, side_by_side(bars), 0, size=9, style="italic")
    _tokens(axes, tokens, 0, 1.9)
    width = sequence_length + 1
    for sample in range((len(tokens) - 1) // sequence_length):
        cell = Cell(sample * sequence_length, f"sample {sample}", width=width)
        draw_row(axes, [cell], 3.5 + 0.62 * (sample % 2), height=0.5)
    left = max(0.0, (len(tokens) - width) / 2)
    for k, sample in enumerate(order[:batch_size]):
        top, begin = 5.75 + 1.05 * k, sample * sequence_length
        _tokens(axes, tokens[begin : begin + width], left, top)
        axes.text(left - 0.3, top + 0.45, f"k = {k} → sample {sample}", ha="right", va="center", size=9)
        centre = begin + width / 2
        side = left - 3.5 if centre < left + width / 2 else left + width + 0.05
        end = (left + width / 2, top) if k == 0 else (side, top + 0.4)
        arrow(axes, (centre, 4.0 + 0.62 * (sample % 2)), end)
    names = {-0.25: "documents", 1.65: "token file", 3.22: "samples of S + 1 tokens, neighbours share one"}
    for height, name in names.items():
        axes.text(0, height, name, size=9, weight="bold", va="center")
    bottom = 5.75 + 1.05 * batch_size
    axes.text(left + width + 0.4, (5.75 + bottom) / 2, "batch", size=9, weight="bold", va="center")
    axes.set(xlim=(-0.1, len(tokens) + 0.1), ylim=(bottom + 0.1, -0.5))
    axes.axis("off")
    return figure


def _tokens(axes: Axes, tokens: Sequence[tuple[str, int]], left: float, top: float) -> None:
    """Tokens side by side in the colours of their documents; separators are dark."""
    cells = []
    for column, (piece, document) in enumerate(tokens):
        colour, ink = (GREY, "white") if piece == "<|endoftext|>" else (document_colour(document), INK)
        cells.append(Cell(left + column, printable(piece, 5), colour, font={"color": ink}))
    draw_row(axes, cells, top, height=0.9, size=6.5, family="monospace")


def lengths(tokens_per_document: Mapping[str, Sequence[int]]) -> Figure:
    """How many documents have how many tokens, and where most tokens are, per domain, on a logarithmic axis."""
    longest = max(max(counts) for counts in tokens_per_document.values())
    edges = np.geomspace(4, longest + 1, 16).tolist()
    figure, places = panels({"documents": False, "tokens": True}, 2.8, sharex=True)
    for axes, by_tokens in places:
        for (domain, counts), colour in zip(tokens_per_document.items(), LINES, strict=False):
            weights = counts if by_tokens else None
            axes.hist(counts, edges, weights=weights, histtype="step", lw=2, color=colour, label=domain)
        half_framed(axes, xscale="log", xlabel="length of the document in tokens")
    figure.axes[0].legend(frameon=False)
    return figure


def loss_curve(losses: Sequence[float], uniform: float, sample: str = "") -> Figure:
    """The training loss per step, beside that of guessing among all tokens (`uniform`), and what the model writes."""
    labels = {"xlabel": "training step", "ylabel": "loss (nats per token)"}
    figure = curves({"": {"loss": [losses]}}, 3.2, colours=LINES, legend=None, ylim=(0, uniform * 1.12), **labels)
    (axes,) = figure.axes
    axes.axhline(uniform, color=GREY, ls="--", lw=1)
    axes.text(len(losses) - 1, uniform, "guessing among all tokens", ha="right", va="bottom", size=9, color=GREY)
    written = textwrap.fill(" ".join(sample.split()), 100)
    axes.text(0.02, 0.05, written, transform=axes.transAxes, size=8, family="monospace", va="bottom", color=INK)
    return figure
