"""Pictures of runs that stop and go on: the timeline of a crash, and the losses with and without one."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from nanoset_ref.plots._colours import COLOURS, INK
from nanoset_ref.plots._draw import canvas, cell, frameless, half_framed, swatches

DONE, LOST = COLOURS[0], COLOURS[4]
STAGES = ("#eaf3fb", "#feeddd", "#eaf6e8", "#f1eef6")


def timeline(attempts: Sequence[tuple[int, int]], checkpoints: Sequence[int], last: int) -> Figure:
    """The steps of a run in the order they were done, one row per start of the command.

    Args:
        attempts: per start, its first and its last step. Steps that a later start did again are drawn as lost.
        checkpoints: steps after which one was written.
        last: of the run.
    """
    figure, axes = canvas(0.34 * last + 1.6, 0.62 * len(attempts) + 1.0)
    for row, (first, stop) in enumerate(attempts):
        axes.text(0.8, row + 0.4, f"start {row + 1}", ha="right", va="center")
        kept = attempts[row + 1][0] - 1 if row + 1 < len(attempts) else last
        for step in range(first, stop + 1):
            colour = DONE if step <= kept else LOST
            cell(axes, step, row, 0.92, 0.8, colour, str(step), lw=0.6)
            if step in checkpoints and step <= kept:
                axes.plot([step + 0.96], [row + 0.4], marker="D", color=INK, ms=5, zorder=3)
        if stop < last:
            axes.text(stop + 1.3, row + 0.4, "killed", ha="left", va="center", color="#a50f15")
            axes.annotate(
                "", (kept + 1.0, row + 1.0), (stop + 1.0, row + 0.85), arrowprops={"arrowstyle": "->", "color": INK}
            )
    (diamond,) = axes.plot([], [], marker="D", color=INK, ls="none", ms=5)
    axes.legend(
        [*swatches(DONE, LOST), diamond],
        ["counts", "lost, done again", "checkpoint"],
        ncols=3,
        frameon=False,
        fontsize=9,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
    )
    frameless(axes, xlim=(-1.2, last + 2.5), ylim=(len(attempts) + 0.1, -0.2))
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
    for (name, (first, last)), colour in zip(stages.items(), STAGES * len(stages), strict=False):
        axes.axvspan(first - 0.5, last + 0.5, color=colour, zorder=0)
        axes.text((first + last) / 2, 0.97, name, ha="center", va="top", size=9, transform=axes.get_xaxis_transform())
    styles: list[dict[str, Any]] = [{"color": INK, "lw": 1.4}] + [
        {"ls": "none", "marker": marker, "ms": 5, "mfc": "none"} for marker in "osD^"
    ]
    for (name, (steps, values)), style in zip(runs.items(), styles, strict=False):
        axes.plot(steps, values, label=name, **style)
    for step, text in events.items():
        axes.axvline(step + 0.5, color="#a50f15", ls="--", lw=1)
        axes.text(step + 0.6, 0.03, text, size=8, color="#a50f15", transform=axes.get_xaxis_transform(), rotation=90)
    half_framed(axes, xlabel="step", ylabel="loss")
    axes.margins(x=0.01)
    figure.legend(frameon=False, loc="outside lower center", ncols=len(runs))
    return figure
