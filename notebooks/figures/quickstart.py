"""Pictures of the main road: from text to a batch, and what the order does to the loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from figures.cells import Cell, draw_row, side_by_side
from figures.draw import GREY, INK, RED, SOURCES, arrow, canvas, panels, printable

LEFT, CELL, LINE = (
    0.82,
    0.47,
    0.215,
)  # inches: where tokens begin, from one to the next, from row to row
ORDER, END = (
    5.95,
    7.38,
)  # inches: where the order begins, and where lines from it to the batch run down
BATCH = END - 0.35 - 8 * CELL  # inches: where a batch of eight columns begins
Runs = Mapping[str, Sequence[float]]


def text_to_batch(
    files: Mapping[str, Sequence[str]],
    sequence_length: int,
    order: Sequence[tuple[str, int]],
    batch_size: int,
) -> Figure:
    """The whole road in one picture: token files, their samples, the order, and its first batch.

    Args:
        files: by source, the text of its tokens; "EOS" ends a document.
        sequence_length: S; sample j is the S + 1 tokens from j * S on.
        order: the (source, sample) at each position.
        batch_size: samples in the batch: positions 0 to batch_size - 1.
    """
    figure, axes = canvas(4.6)
    axes.set(
        xlim=(0, 7.5),
        ylim=(4.26, -0.05),
        title="Text becomes token files, samples in one order, and a batch",
    )
    axes.axis("off")
    documents = sum(pieces.count("EOS") for pieces in files.values())
    _head(axes, ORDER, 0, "2  One order")
    top = y = _head(
        axes,
        0,
        0,
        f"1  {documents} documents in token files, cut into samples of {sequence_length + 1} tokens",
    )
    end, ends, rows = LEFT + sequence_length * CELL, {}, {}
    for source, pieces in files.items():
        document, tokens = 0, []
        for piece in pieces:
            colour = "#c8c8c8" if piece == "EOS" else _shade(source, document)
            tokens.append((printable(piece.strip(" ")), colour, CELL))
            document += piece == "EOS"
        last = (len(pieces) - 1) // sequence_length * sequence_length
        for begin in range(0, last, sequence_length):
            sample = source, begin // sequence_length
            ends[sample], rows[sample] = y + LINE / 2, tokens[begin : begin + sequence_length + 1]
            cells = side_by_side(rows[sample][:-1], LEFT) + side_by_side(
                rows[sample][-1:], end, ls=":"
            )
            y = _row(axes, cells, y, f"{source} {sample[1]}")
        tail = side_by_side(tokens[last + 1 :], LEFT + CELL, edgecolor=RED, lw=1.4)
        axes.text(
            tail[-1].left + 0.52,
            y + LINE / 2,
            "left over: in no sample",
            color=RED,
            size=9,
            va="center",
        )
        y = _row(axes, side_by_side(tokens[last : last + 1], LEFT) + tail, y) + 0.06
    slots = np.linspace(top + LINE / 2, y - LINE / 2 - 0.08, len(order))
    for k, (sample, slot) in enumerate(zip(order, slots, strict=True)):
        used, (fill, line) = k < batch_size, SOURCES[sample[0]]
        box = Cell(
            ORDER,
            f"{k}:  {sample[0]} {sample[1]}",
            fill,
            END - 0.13 - ORDER,
            {"lw": 1.8 if used else 0.5},
        )
        draw_row(axes, [box], slot - LINE / 2, height=LINE - 0.02, gap=0)
        t, begin = np.linspace(0, 1, 50), end + CELL
        bend = ends[sample] + (slot - ends[sample]) * (3 * t**2 - 2 * t**3)
        axes.plot(
            begin + (ORDER - begin) * t,
            bend,
            color=line,
            lw=2.2 if used else 1,
            alpha=1 if used else 0.5,
        )
    _first_batch(
        axes, y + 0.02, {slot: rows[sample] for slot, sample in zip(slots[:batch_size], order)}
    )
    return figure


def _first_batch(
    axes: Axes, top: float, samples: Mapping[float, Sequence[tuple[str, Any, float]]]
) -> None:
    """The inputs and labels of samples, by their height in the order, where lines to the batch begin."""
    _head(axes, 0, top, "3  The first batch")
    axes.text(0, top + 0.42, "Labels are the tokens\nafter the inputs above.", size=9, va="center")
    y = top
    for k, (slot, tokens) in enumerate(samples.items()):
        middle, line = y + LINE, END + 0.07 * k
        right = BATCH + (len(tokens) - 1) * CELL
        axes.plot([END - 0.13, line, line], [slot, slot, middle], INK, lw=1)
        arrow(axes, (line, middle), (right, middle))
        y = _row(axes, side_by_side(tokens[:-1], BATCH), y, f"{k}:  inputs", BATCH)
        y = _row(axes, side_by_side(tokens[1:], BATCH), y, "labels", BATCH) + 0.2 * LINE


def _head(axes: Axes, left: float, top: float, text: str) -> float:
    axes.text(left, top + 0.1, text, weight="bold", size=10.5, va="center")
    return top + 0.25


def _row(
    axes: Axes, cells: Sequence[Cell], top: float, name: str = "", left: float = LEFT
) -> float:
    """Draw cells with a name at their left; where the next row begins."""
    draw_row(axes, cells, top, height=LINE - 0.03, gap=0.03)
    axes.text(left - 0.07, top + LINE / 2 - 0.015, name, size=9, ha="right", va="center")
    return top + LINE


def _shade(source: str, document: int) -> tuple[float, ...]:
    """The colour of a source, lighter in every second document."""
    return to_rgba(SOURCES[source][0], 1 - document % 2 / 2)


def order_and_loss(losses: Runs, steps: Mapping[str, int], unseen: Runs, guessing: float) -> Figure:
    """What file order does: the training loss per step, and the loss on unseen samples of each source at the end.

    Args:
        losses: by run, "shuffled" and "in file order", the loss of each step.
        steps: by source, how many steps the run in file order gives it.
        unseen: by run, the loss on each source.
        guessing: the loss of guessing among all tokens.
    """
    contents = {
        "In file order the loss jumps at every source …": losses,
        "… and two are forgotten": unseen,
    }
    figure, ((left, _), (right, _)) = panels(contents, 3.3, sharey=True, width_ratios=[2, 1])
    begin = 0
    for place, (source, count) in enumerate(steps.items()):
        fill, line = SOURCES[source]
        left.axvspan(begin - 0.5, begin + count - 0.5, color=fill, alpha=0.2, lw=0)
        left.text(begin, 0.3, source, size=10)
        left.plot(
            range(begin, begin + count),
            losses["in file order"][begin : begin + count],
            color=line,
            lw=2.2,
        )
        ends = [unseen["shuffled"][place], unseen["in file order"][place]]
        right.plot([place, place], ends, color=line, lw=1.5)
        right.scatter([place, place], ends, 55, ["white", line], edgecolor=line, lw=1.8, zorder=3)
        begin += count
    left.plot(losses["shuffled"], color=INK, lw=1.5)
    left.text(begin - 1, losses["shuffled"][-1] - 0.35, "shuffled", size=10, ha="right", va="top")
    left.text(
        begin - count - 0.3,
        guessing + 0.12,
        "guessing among all tokens",
        ha="right",
        size=9,
        color=GREY,
    )
    for axes in (left, right):
        axes.axhline(guessing, color=GREY, ls="--", lw=1)
    for name in unseen:
        right.text(0.15, unseen[name][0], name, size=10, va="center")
    left.set(xlabel="training step", ylabel="loss", ylim=(0, 10))
    right.set(
        xlabel="unseen samples of", xlim=(-0.4, 2.5), xticks=range(len(steps)), xticklabels=[*steps]
    )
    return figure
