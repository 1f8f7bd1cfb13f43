"""Pictures of the main road: from text to a batch, how long documents are, and a falling loss."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from nanoset_ref.plots._colours import DOCUMENTS, INK, LINES, SEPARATOR
from nanoset_ref.plots._draw import canvas, cell, frameless, grid, half_framed, printable

GAP = 0.08  # between two cells


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
    figure, axes = canvas(0.37 * len(tokens) + 0.4, 3.6 + 0.45 * batch_size)
    begin = 0
    for number, document in enumerate(documents):
        cell(axes, begin, 0, len(document) - GAP, 1, DOCUMENTS[number % len(DOCUMENTS)], lw=0.8)
        words = "".join(document[:-1])
        shown = words if len(words) <= 4 * len(document) else words[: 4 * len(document) - 1] + "…"
        axes.text(begin + 0.25, 0.5, shown, va="center", size=9, style="italic")
        begin += len(document)
    for place, (piece, number) in enumerate(tokens):
        _token(axes, place, 1.9, piece, number)
    for sample in range((len(tokens) - 1) // sequence_length):
        height = 3.5 + 0.62 * (sample % 2)
        width = sequence_length + 1 - GAP
        cell(axes, sample * sequence_length, height, width, 0.5, "white", f"sample {sample}", lw=0.8, size=9)
    left = max(0.0, (len(tokens) - sequence_length - 1) / 2)
    for k, sample in enumerate(order[:batch_size]):
        height = 5.75 + 1.05 * k
        for offset in range(sequence_length + 1):
            _token(axes, left + offset, height, *tokens[sample * sequence_length + offset])
        axes.text(left - 0.3, height + 0.5, f"k = {k} → sample {sample}", ha="right", va="center", size=9)
        bottom = 4.0 + 0.62 * (sample % 2)
        centre = (sample + 0.5) * sequence_length + 0.5
        if k == 0:
            tip = (left + (sequence_length + 1) / 2, 5.7)
        elif centre < left + sequence_length / 2:
            tip = (left - 3.5, height + 0.4)  # where the row's name begins
        else:
            tip = (left + sequence_length + 1.05, height + 0.4)
        arrow = FancyArrowPatch((centre, bottom), tip, arrowstyle="-|>", mutation_scale=9)
        arrow.set(color=INK, alpha=0.5, lw=0.9, zorder=0)
        axes.add_patch(arrow)
    for height, name in (
        (-0.25, "documents"),
        (1.65, "token file"),
        (3.22, "samples of S + 1 tokens, neighbours share one"),
    ):
        axes.text(0, height, name, size=9, weight="bold", va="center")
    end = 5.75 + 1.05 * batch_size
    axes.text(left + sequence_length + 1.4, (5.75 + end) / 2, "batch", size=9, weight="bold", va="center")
    frameless(axes, xlim=(-0.1, len(tokens) + 0.1), ylim=(end + 0.1, -0.5))
    return figure


def lengths(tokens_per_document: Mapping[str, Sequence[int]]) -> Figure:
    """How many documents have how many tokens, and where most tokens are, per domain, on a logarithmic axis."""
    figure, panels = grid(9, 2.8, columns=2, sharex=True)
    longest = max(max(counts) for counts in tokens_per_document.values())
    edges = np.geomspace(4, longest + 1, 16).tolist()
    for axes, name, by_tokens in ((panels[0], "documents", False), (panels[1], "tokens", True)):
        for (domain, counts), colour in zip(tokens_per_document.items(), LINES, strict=False):
            weights = counts if by_tokens else None
            axes.hist(counts, edges, weights=weights, histtype="step", lw=2, color=colour, label=domain)
        half_framed(axes, xscale="log", xlabel="length of the document in tokens", ylabel=name)
    panels[0].legend(frameon=False)
    return figure


def loss_curve(losses: Sequence[float], uniform: float, sample: str = "") -> Figure:
    """The training loss per step, beside that of guessing among all tokens (`uniform`), and what the model writes."""
    figure, axes = canvas(9, 3.2)
    axes.plot(losses, color="#3182bd", lw=2)
    axes.axhline(uniform, color=SEPARATOR, ls="--", lw=1)
    axes.text(len(losses) - 1, uniform, "guessing among all tokens", ha="right", va="bottom", size=9, color=SEPARATOR)
    half_framed(axes, xlabel="training step", ylabel="loss (nats per token)", ylim=(0, uniform * 1.12))
    if sample:
        sample = textwrap.fill(" ".join(sample.split()), 100)
        axes.text(0.02, 0.05, sample, transform=axes.transAxes, size=8, family="monospace", va="bottom", color=INK)
    return figure


def _token(axes: Axes, left: float, top: float, piece: str, document: int) -> None:
    """One token, in the colour of its document; a separator is dark."""
    own = DOCUMENTS[document % len(DOCUMENTS)], INK
    colour, ink = (SEPARATOR, "white") if piece == "<|endoftext|>" else own
    text = printable(piece, 5)
    cell(axes, left, top, 1 - GAP, 0.9, colour, text, lw=0.8, size=6.5, family="monospace", color=ink)
