"""Pictures of the main road: from text to a batch, how long documents are, and a falling loss."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from nanoset_ref.plots.batches import INK, printable

COLOURS = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fc9272")
LINES = ("#3182bd", "#e6550d", "#31a354", "#756bb1")
SEPARATOR = "#636363"


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
    figure = Figure(figsize=(0.37 * len(tokens) + 0.4, 3.6 + 0.45 * batch_size), layout="constrained")
    axes = figure.subplots()
    begin = 0
    for number, document in enumerate(documents):
        box(axes, begin, 0, len(document), COLOURS[number % len(COLOURS)])
        words = "".join(document[:-1])
        shown = words if len(words) <= 4 * len(document) else words[: 4 * len(document) - 1] + "…"
        axes.text(begin + 0.25, 0.5, shown, va="center", size=9, style="italic")
        begin += len(document)
    for place, (piece, number) in enumerate(tokens):
        cell(axes, place, 1.9, piece, number)
    for sample in range((len(tokens) - 1) // sequence_length):
        height = 3.5 + 0.62 * (sample % 2)
        box(axes, sample * sequence_length, height, sequence_length + 1, "white", 0.5)
        middle = (sample + 0.5) * sequence_length + 0.5
        axes.text(middle, height + 0.25, f"sample {sample}", ha="center", va="center", size=9)
    left = max(0.0, (len(tokens) - sequence_length - 1) / 2)
    for k, sample in enumerate(order[:batch_size]):
        height = 5.75 + 1.05 * k
        for offset in range(sequence_length + 1):
            cell(axes, left + offset, height, *tokens[sample * sequence_length + offset])
        axes.text(left - 0.3, height + 0.5, f"k = {k} → sample {sample}", ha="right", va="center", size=9)
        bottom = 4.0 + 0.62 * (sample % 2)
        tip = (left + (sequence_length + 1) * (k + 1) / (batch_size + 1), 5.7)
        arrow = FancyArrowPatch(
            ((sample + 0.5) * sequence_length + 0.5, bottom), tip, arrowstyle="-|>", mutation_scale=9
        )
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
    axes.set(xlim=(-0.1, len(tokens) + 0.1), ylim=(end + 0.1, -0.5))
    axes.axis("off")
    return figure


def lengths(tokens_per_document: Mapping[str, Sequence[int]]) -> Figure:
    """How many documents have how many tokens, and where most tokens are, per domain, on a logarithmic axis."""
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    longest = max(max(counts) for counts in tokens_per_document.values())
    edges = np.geomspace(4, longest + 1, 16)
    for axes, name, by_tokens in ((panels[0], "documents", False), (panels[1], "tokens", True)):
        weights = [np.asarray(counts) if by_tokens else None for counts in tokens_per_document.values()]
        for (domain, counts), weight, colour in zip(tokens_per_document.items(), weights, LINES, strict=False):
            axes.hist(
                counts,
                bins=edges.tolist(),
                weights=weight,
                histtype="step",
                lw=2,
                color=colour,
                label=domain,
            )
        axes.set(xscale="log", xlabel="length of the document in tokens", ylabel=name)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    return figure


def loss_curve(losses: Sequence[float], uniform: float, sample: str = "") -> Figure:
    """The training loss per step, beside that of guessing among all tokens (`uniform`), and what the model writes."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(losses, color="#3182bd", lw=2)
    axes.axhline(uniform, color=SEPARATOR, ls="--", lw=1)
    axes.text(len(losses) - 1, uniform, "guessing among all tokens", ha="right", va="bottom", size=9, color=SEPARATOR)
    axes.set(xlabel="training step", ylabel="loss (nats per token)", ylim=(0, uniform * 1.12))
    axes.spines[["top", "right"]].set_visible(False)
    if sample:
        sample = textwrap.fill(" ".join(sample.split()), 100)
        axes.text(0.02, 0.05, sample, transform=axes.transAxes, size=8, family="monospace", va="bottom", color=INK)
    return figure


def box(axes: Axes, left: float, top: float, width: float, colour: str, height: float = 1.0) -> None:
    """A rectangle with a hair of space to its right."""
    axes.add_patch(Rectangle((left, top), width - 0.08, height, facecolor=colour, edgecolor=INK, lw=0.8))


def cell(axes: Axes, left: float, top: float, piece: str, document: int) -> None:
    """One token, in the colour of its document; a separator is dark."""
    separator = piece == "<|endoftext|>"
    box(axes, left, top, 1, SEPARATOR if separator else COLOURS[document % len(COLOURS)], 0.9)
    axes.text(
        left + 0.46, top + 0.45, printable(piece, 5), ha="center", va="center", size=6.5, family="monospace",
        color="white" if separator else INK,
    )  # fmt: skip
