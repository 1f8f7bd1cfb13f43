"""Pictures of crashes and continued runs: what is read how often, who runs when, what a checkpoint holds, losses."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from figures.cells import GAP, HEIGHT, Cell, heads, picture
from figures.draw import COLOURS, GREY, INK, LINES, RED, Lines, canvas

LOST = {"edgecolor": RED, "ls": "--", "lw": 1.1}
AGAIN = "#b8b8b8"
STAGES = ("#eaf3fb", "#fdf1e4", "#e9f5f0")
Bars = Mapping[str, Sequence[tuple[float, str, str, float]]]  # by row: left, text, colour, width


def lanes(
    rows: Bars,
    marks: Mapping[float, str],
    title: str = "",
    inches: float = 0.36,
    positions: Sequence[int] = (),
) -> Figure:
    """Bars side by side, one row per run, process or file.

    Args:
        rows: a bar without a colour is what was lost.
        marks: lines across all rows, with what they mean.
        title: the takeaway.
        inches: of height of a row.
        positions: whose numbers stand below their cells.
    """
    drawn = {}
    for name, bars in rows.items():
        drawn[name] = [
            Cell(*bar, {"lw": 0}) if bar[2] else Cell(*bar, LOST)._replace(colour="white")
            for bar in bars
        ]
    figure, axes = picture(
        drawn, inches, room=0.12 + 0.25 * bool(marks) + 0.25 * bool(title), gap=0.08
    )
    for place in marks:
        axes.axvline(place - GAP / 2, -0.05, 1, color=INK, lw=1.2, ls=":", clip_on=False)
    heads(axes, {place - GAP / 2: text for place, text in marks.items()}, size=9)
    for place in positions:
        axes.text(place + 0.46, len(rows) + 0.02, str(place), size=9, ha="center", va="top")
    if positions:
        axes.set_ylim(len(rows) + 0.5, -0.05)
        middles = [row + HEIGHT / 2 for row in range(len(rows))]
        axes.set_yticks([*middles, len(rows) + 0.2], [*rows, "position"])
    axes.set_title(title, loc="left", size=11)
    return figure


def times_read(
    rows: Mapping[str, Sequence[int]],
    marks: Mapping[int, str],
    kinds: Sequence[tuple[str, str]],
    title: str = "",
) -> Figure:
    """One row of cells per run: a colour where a position was read once, a hole where never, grey where more often.

    Args:
        rows: per run, how often each position was read.
        marks: lines in front of some positions, with what they mean.
        kinds: per position, a text and a colour for where it was read once.
        title: the takeaway.
    """
    length = len(kinds)
    drawn = {}
    for name, counts in rows.items():
        looks = [
            (("", ""), kind, (f"{count}\u00d7", AGAIN))[min(count, 2)]
            for kind, count in zip(kinds, counts)
        ]
        drawn[name] = [(k, *look, 1) for k, look in enumerate(looks)]
    figure = lanes(drawn, marks, title)
    for row, counts in enumerate(rows.values()):
        never, again = counts.count(0), sum(count > 1 for count in counts)
        said = [f"{never} never"] * (never > 0) + [f"{again} again"] * (again > 0) or ["each once"]
        colour = RED if never + again else GREY
        figure.axes[0].text(
            length * 1.015, row + HEIGHT / 2, ", ".join(said), size=9, va="center", color=colour
        )
    figure.axes[0].set_xlim(-0.05, length * 1.22)
    return figure


def timeline(attempts: Sequence[tuple[int, int]], checkpoints: Sequence[int], last: int) -> Figure:
    """The steps of a run in the order they were done, one row per start of the command.

    Args:
        attempts: per start, its first and its last step. Steps that a later start did again are drawn as lost.
        checkpoints: steps after which one was written.
        last: of the run.
    """
    kept = [first - 1 for first, _ in attempts[1:]] + [last]
    rows = {f"start {row + 1}": [(s, str(s), COLOURS[0] * (s <= kept[row]), 1) for s in range(first, stop + 1)]
            for row, (first, stop) in enumerate(attempts)}  # fmt: skip
    figure = lanes(
        rows,
        {},
        "Each start continues from the newest checkpoint; what came after it is done again",
        0.56,
    )
    axes = figure.axes[0]
    axes.set_xlim(0.95, last + 3)
    for row, ((_, stop), (first, _)) in enumerate(pairwise(attempts)):
        middle, lost = row + HEIGHT / 2, f"killed: {stop - kept[row]} steps lost"
        axes.text(stop + 1.3, middle, lost, va="center", size=9, color=RED)
        axes.annotate(
            "",
            (first, row + 1),
            (stop + 1, row + HEIGHT),
            arrowprops={"arrowstyle": "->", "color": INK},
        )
    below = 0.91  # between two rows
    written = [(s + 0.97, row + below) for row, (first, stop) in enumerate(attempts)
               for s in checkpoints if first <= s <= min(stop, kept[row])]  # fmt: skip
    axes.scatter(*zip(*written, strict=True), marker="D", color=INK, s=25, zorder=3)
    axes.text(written[0][0], 1 + below, "◆ checkpoint", size=9, va="center", ha="center")
    return figure


def same_losses(
    whole: Sequence[float],
    starts: Mapping[str, Sequence[tuple[int, float]]],
    stages: Mapping[str, int],
    killed: int,
) -> Figure:
    """The loss of a run that was never killed, wide and gray, and on it the starts of a killed run, solid and dashed.

    Pale bands are the stages: their colors belong to data, so the lines are black.

    Args:
        whole: the loss of each step, from step 1.
        starts: by name, (step, loss) of each step of a start.
        stages: by name, the first step of each.
        killed: the step after which the first start ended; a ring marks it where it was done again.
    """
    figure, axes = canvas(3)
    axes.plot(range(1, len(whole) + 1), whole, color=AGAIN, lw=7, solid_capstyle="round")
    ends = [*(first - 0.5 for first in stages.values()), len(whole) + 1]
    for band, (begin, end) in zip(STAGES, pairwise(ends), strict=False):
        axes.axvspan(begin, end, color=band, zorder=0, lw=0)
    for row, (name, points) in enumerate(starts.items()):
        axes.plot(*zip(*points, strict=True), color=INK, lw=2, ls=("-", (0, (3, 1.2)))[row])
        place, beside, side = (
            (points[-1], (0, -22), "right") if row else (points[len(points) // 4], (10, 6), "left")
        )
        axes.annotate(name, place, beside, textcoords="offset points", color=INK, ha=side)
    axes.plot(killed, whole[killed - 1], "o", mfc="none", color=RED, ms=12, mew=2)
    said = f"SIGKILL after step {killed}, done twice:\n{whole[killed - 1]:.4f} both times"
    axes.annotate(
        said,
        (killed, whole[killed - 1]),
        (0, 14),
        textcoords="offset points",
        color=RED,
        ha="center",
        bbox={"facecolor": "white", "lw": 0, "pad": 1},
    )
    for name, first in stages.items():
        axes.text(first, 0.03, name, color=GREY, size=9.5, transform=axes.get_xaxis_transform())
    axes.set(
        title="Both starts of the killed run lie on the run that was never killed", xlabel="step"
    )
    axes.set(ylabel="loss, nats", xlim=(0, len(whole) + 1))
    axes.margins(y=0.12)
    return figure


def losses(
    runs: Lines, stages: Mapping[str, tuple[int, int]], events: Mapping[int, str], title: str
) -> Figure:
    """Loss over steps of several runs; in a run with stages, all but the first are circles.

    Args:
        runs: per name, steps and losses.
        stages: per name, first and last step: shaded.
        events: steps after which something happened: dashed lines.
        title: the takeaway.
    """
    figure, axes = canvas(3.4)
    upright = axes.get_xaxis_transform()
    for (name, (first, last)), colour in zip(stages.items(), STAGES, strict=False):
        axes.axvspan(first - 0.5, last + 0.5, color=colour, zorder=0, lw=0)
        axes.text((first + last) / 2, 0.97, name, ha="center", va="top", size=9, transform=upright)
    for (name, (x, y)), colour in zip(runs.items(), [INK, *LINES], strict=False):
        later = stages and colour != INK
        axes.plot(x, y, "o" if later else "-", color=colour, mfc="none", ms=5)
        place = (
            (x[len(x) // 2] - 2, 0.04, upright) if later else (x[-1] + 0.8, y[-1], axes.transData)
        )
        axes.text(*place[:2], name, color=colour, size=10, transform=place[2])
    for step, text in events.items():
        axes.axvline(step + 0.5, 0, 0.9, color=RED, ls="--", lw=1)
        axes.text(step + 1.5, 0.04, text, size=9, color=RED, transform=upright)
    axes.set(xlabel="step", ylabel="training loss", xlim=(0, x[-1] * 1.07))
    axes.set_title(title, loc="left", size=11)
    return figure
