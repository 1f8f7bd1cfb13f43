"""Pictures of batches: what is in them along the pipeline, which rank reads which position, what a crash costs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from figures.cells import GAP, HEIGHT, Cell, colour_of, heads, picture, side_by_side
from figures.draw import COLOURS, IDLE, INK, LINES, RED, arrow, canvas, curves, half_framed, key, printable, stacked

INPUT, LABEL = COLOURS[:2]


def shift(pieces: Sequence[str]) -> Figure:
    """The tokens of one sample of S + 1 as text, and under them the S inputs and the S labels cut from it.

    Labels stand under the input that has to predict them: one place to the left of where they were.
    """
    rows = {"sample": (pieces, "white"), "input_ids": (pieces[:-1], INPUT), "label_ids": (pieces[1:], LABEL)}
    drawn = {
        name: [Cell(column, printable(piece), colour) for column, piece in enumerate(shown)]
        for name, (shown, colour) in rows.items()
    }
    figure, axes = picture(drawn, (0.95, 0.8), family="monospace", size=9)
    for column in range(1, len(pieces)):
        arrow(axes, (column + 0.47, HEIGHT), (column - 0.53, 2), LABEL)
    return figure


def pipeline(batches: Sequence[Mapping[str, str]], names: Sequence[str]) -> Figure:
    """One row per pipeline rank, one column per entry of its batch.

    Args:
        batches: per rank, what each entry is, as text; entries that begin with "->" are drawn as pointers.
        names: per rank, its name.
    """
    rows = {
        name: [_entry(column, key, text) for column, (key, text) in enumerate(batch.items())]
        for name, batch in zip(names, batches, strict=True)
    }
    figure, axes = picture(rows, (2, 0.62), room=0.5, gap=0.03, size=9)
    heads(axes, {column + 0.48: key for column, key in enumerate(batches[0])}, size=10, family="monospace")
    return figure


def _entry(column: int, key: str, text: str) -> Cell:
    if text.startswith("->"):
        return Cell(column, text.replace("->", "→"), IDLE, edge={"ls": ":"}, font={"color": "#888888"})
    return Cell(column, text, INPUT if key.startswith("input") else LABEL)


def reading_ahead(sizes: Sequence[int], delivered: int, asked: int, num_workers: int) -> Figure:
    """The first blocks of a run, one column each, in the row of the worker that reads them.

    Args:
        sizes: batches in each block.
        delivered: batches that the training loop has got; blocks that it has got whole are dark.
        asked: batches in the blocks that the workers have been asked for, whole blocks.
        num_workers: rows.
    """
    rows: dict[str, list[Cell]] = {f"worker {worker}": [] for worker in range(num_workers)}
    first = edge = 0
    for block, size in enumerate(sizes):
        worker, last = block % num_workers, first + size - 1
        colour = INK if last < delivered else colour_of(worker) if last < asked else "white"
        name = f"{first} to {last}" if size > 1 else str(first)
        font = {"color": "white" if last < delivered else INK}
        rows[f"worker {worker}"].append(Cell(block, name, colour, edge={"ls": "-" if last < asked else ":"}, font=font))
        edge += last < asked
        first += size
    figure, axes = picture(rows, (1.15, 0.55), room=0.4, size=9)
    axes.axvline(edge - 0.03, color=INK, lw=1.2, ls="--")
    heads(axes, {0.47: "delivered (dark)", edge - 0.4: "asked for"}, size=9)
    return figure


def cost(ways: Mapping[str, Mapping[str, int]]) -> Figure:
    """Bytes written to memory for one batch, per way of making it and step by step: {way: {step: bytes}}."""
    figure, axes = canvas(8.5, 0.55 * len(ways) + 1.1)
    steps = dict.fromkeys(step for parts in ways.values() for step in parts)
    colours = dict(zip(steps, COLOURS, strict=False))
    kib = {way: {step: size / 1024 for step, size in parts.items()} for way, parts in ways.items()}
    stacked(axes, kib, colours, "KiB")
    axes.set_xlabel("KiB written to memory per batch")
    key(figure, colours, "upper center")
    return figure


def readers(rows: Mapping[str, Sequence[int]], global_batch_size: int) -> Figure:
    """One row of cells per way of reading: the colour and number of cell k is the rank that reads position k.

    Args:
        rows: per way, the rank of each position; -1 where nobody reads it.
        global_batch_size: positions between two dark lines.
    """
    drawn = {
        name: [Cell(k, str(rank), colour_of(rank)) if rank >= 0 else Cell(k) for k, rank in enumerate(ranks)]
        for name, ranks in rows.items()
    }
    figure, axes = picture(drawn, (0.35, 0.5), room=0.4)
    length = max(map(len, rows.values()))
    for edge in range(0, length + 1, global_batch_size):
        axes.axvline(edge - 0.03, color=INK, lw=1.6)
    heads(axes, {k + 0.47: str(k) for k in range(0, length, 4)}, "position", size=8)
    return figure


def machine(layouts: Sequence[Any], reads: Sequence[str]) -> Figure:
    """All processes of a run: a column per data-parallel rank, in it its pipeline stages, in those the tp ranks.

    Args:
        layouts: of every global rank, in order: a `ParallelLayout`.
        reads: what each reads, as text; empty for nothing.
    """
    dp, pp, tp = layouts[0].dp_size, layouts[0].pp_size, layouts[0].tp_size
    rows: dict[str, list[Cell]] = {f"pp rank {pp_rank}": [] for pp_rank in range(pp)}
    for rank, (layout, text) in enumerate(zip(layouts, reads, strict=True)):
        left = layout.dp_rank * (tp + 0.3) + layout.tp_rank
        words = rf"$\bf{{process\ {rank}}}$" + f"\ntp rank {layout.tp_rank}\n\n{text or 'no data'}"
        colour, edge = (colour_of(layout.dp_rank), "-") if text else (IDLE, ":")
        rows[f"pp rank {layout.pp_rank}"].append(Cell(left, words, colour, edge={"ls": edge}))
    figure, axes = picture(rows, (1.2, 1.05), room=0.3)
    heads(axes, {dp_rank * (tp + 0.3) + tp / 2: f"dp rank {dp_rank}" for dp_rank in range(dp)}, size=10)
    return figure


def times_read(
    rows: Mapping[str, Sequence[int]], marks: Mapping[int, str], inches: tuple[float, float] = (0.1, 0.42)
) -> Figure:
    """One row of cells per run: how often each position was read. White once, red never, orange more than once.

    Args:
        rows: per run, how often each position was read.
        marks: lines in front of some positions, with what they mean.
        inches: of a cell.
    """
    colours = {"never read": RED, "read once": "white", "read again": COLOURS[1]}
    drawn = {}
    for name, counts in rows.items():
        shades = [list(colours.values())[min(count, 2)] for count in counts]
        numbers = [str(count) if count > 1 and inches[0] > 0.2 else "" for count in counts]
        drawn[name] = side_by_side(zip(numbers, shades, [1] * len(shades), strict=True), lw=0.4)
    figure, axes = picture(drawn, inches, room=0.6)
    for position in marks:
        axes.axvline(position - GAP / 2, -0.15, 1.15, color=INK, lw=1.6, ls="--", clip_on=False)
    heads(axes, marks, size=9)
    key(figure, colours)
    return figure


def growth(counts: Sequence[int], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> Figure:
    """Lines over counts, both axes logarithmic."""
    contents = {"": {name: [counts, values] for name, values in lines.items()}}
    logs = {"xscale": "log", "yscale": "log", "xlabel": xlabel, "ylabel": ylabel}
    return curves(contents, (6.4, 3.4), colours=LINES, style={"marker": "o"}, **logs)


STAGES = ("#eaf3fb", "#feeddd", "#eaf6e8", "#f1eef6")
KILLED = "#a50f15"


def timeline(attempts: Sequence[tuple[int, int]], checkpoints: Sequence[int], last: int) -> Figure:
    """The steps of a run in the order they were done, one row per start of the command.

    Args:
        attempts: per start, its first and its last step. Steps that a later start did again are drawn as lost.
        checkpoints: steps after which one was written.
        last: of the run.
    """
    colours = {"counts": COLOURS[0], "lost, done again": COLOURS[4]}
    done, lost = colours.values()
    kept = [first - 1 for first, _ in attempts[1:]] + [last]
    rows = {
        f"start {row + 1}": [Cell(s, str(s), done if s <= kept[row] else lost) for s in range(first, stop + 1)]
        for row, (first, stop) in enumerate(attempts)
    }
    figure, axes = picture(rows, (0.36, 0.6), room=0.5)
    axes.set_xlim(0.95, last + 2)
    for row, ((_, stop), (first, _)) in enumerate(pairwise(attempts)):
        axes.text(stop + 1.3, row + HEIGHT / 2, "killed", va="center", color=KILLED)
        style = {"arrowstyle": "->", "color": INK}
        axes.annotate("", (first, row + 1.0), (stop + 1.0, row + HEIGHT), arrowprops=style)
    written = [(s + 0.97, row + HEIGHT / 2) for row, (first, stop) in enumerate(attempts)
               for s in checkpoints if first <= s <= min(stop, kept[row])]  # fmt: skip
    axes.scatter(*zip(*written, strict=True), marker="D", color=INK, s=25, zorder=3, label="checkpoint")
    key(figure, colours)
    return figure


def losses(
    runs: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    stages: Mapping[str, tuple[int, int]],
    events: Mapping[int, str],
) -> Figure:
    """Loss over steps of several runs; the later ones are drawn as marks on top of the first.

    Args:
        runs: per name, steps and losses.
        stages: per name, first and last step: shaded.
        events: steps after which something happened: dashed lines.
    """
    figure, axes = canvas(8.5, 3.8)
    upright = axes.get_xaxis_transform()
    for (name, (first, last)), colour in zip(stages.items(), STAGES, strict=False):
        axes.axvspan(first - 0.5, last + 0.5, color=colour, zorder=0)
        axes.text((first + last) / 2, 0.97, name, ha="center", va="top", size=9, transform=upright)
    for (name, (steps, values)), style, colour in zip(runs.items(), ["-", "o", "s"], [INK, *LINES], strict=False):
        axes.plot(steps, values, style, color=colour, mfc="none", ms=5, lw=1.4, label=name)
    for step, text in events.items():
        axes.axvline(step + 0.5, color=KILLED, ls="--", lw=1)
        axes.text(step + 0.6, 0.03, text, size=8, color=KILLED, transform=upright, rotation=90)
    half_framed(axes, xlabel="step", ylabel="loss")
    axes.margins(x=0.01)
    key(figure)
    return figure
