"""Pictures of crashes and continued runs: what is read how often, stages, losses."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from figures.cells import GAP, HEIGHT, Cell, heads, picture, side_by_side
from figures.draw import COLOURS, INK, LINES, RED, canvas, half_framed, key


def times_read(rows: Mapping[str, Sequence[int]], marks: Mapping[int, str], inches: float = 0.42) -> Figure:
    """One row of cells per run: how often each position was read. White once, red never, orange more than once.

    Args:
        rows: per run, how often each position was read.
        marks: lines in front of some positions, with what they mean.
        inches: of height of a row.
    """
    colours = {"never read": RED, "read once": "white", "read again": COLOURS[1]}
    drawn = {}
    for name, counts in rows.items():
        shades = [list(colours.values())[min(count, 2)] for count in counts]
        numbers = [str(count) if count > 1 and len(counts) < 40 else "" for count in counts]
        drawn[name] = side_by_side(zip(numbers, shades, [1] * len(shades), strict=True), lw=0.4)
    figure, axes = picture(drawn, inches, room=0.6)
    for position in marks:
        axes.axvline(position - GAP / 2, -0.15, 1.15, color=INK, lw=1.6, ls="--", clip_on=False)
    heads(axes, marks, size=9)
    key(figure, colours)
    return figure


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
    figure, axes = picture(rows, 0.6, room=0.5)
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
    figure, axes = canvas(3.8)
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
