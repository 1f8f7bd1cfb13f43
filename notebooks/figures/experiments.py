"""Pictures of trained models: losses with the range of their seeds, and what an order costs, seed by seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from figures.draw import GREY, IDLE, INK, LINES, RED, panels

# by name: x [points], values [seeds, points]
Bands = Mapping[str, tuple[Sequence[float], ArrayLike]]


def bands(
    contents: Mapping[str, Bands],
    title: str,
    ylabel: str = "held-out loss, nats per token",
    **options: Any,
) -> Figure:
    """Means of the seeds as marks, with a bar from the smallest to the largest; thin lines lead the eye.

    Args:
        contents: by title, by name, (x, values [seeds, points]); one or two names, black and red. They stand at the
            ends of the lines in the last panel.
        title: of the picture.
        ylabel: of the first panel.
        options: of `Axes.set`, for all panels.
    """
    figure, places = panels(contents, 3.4, sharey=True, headline=title)
    names = list(dict.fromkeys(name for lines in contents.values() for name in lines))
    colours = dict(zip(names, (INK, RED), strict=False))
    markers = dict(zip(names, "os", strict=False))
    for axes, lines in places:
        for name, (x, values) in lines.items():
            seeds = np.asarray(values, dtype=float)
            axes.vlines(
                x, seeds.min(axis=0), seeds.max(axis=0), color=colours[name], alpha=0.35, lw=6
            )
            axes.plot(
                x, seeds.mean(axis=0), color=colours[name], lw=1.2, marker=markers[name], ms=5
            )
        axes.set(**{"xlabel": "thousand tokens read", **options})
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    places[0][0].set_ylabel(ylabel)
    _name_ends(places[-1][0], places[-1][1], colours)
    return figure


def _name_ends(axes: Axes, lines: Bands, colours: Mapping[str, str]) -> None:
    """Each name right of its line's end; names that would touch are pushed apart."""
    low, high = axes.get_ylim()
    ends = {name: float(np.asarray(values)[:, -1].mean()) for name, (_, values) in lines.items()}
    height = np.inf
    for name in sorted(lines, key=lambda name: -ends[name]):  # from the highest down
        height = min(ends[name], height - 0.085 * (high - low), high)
        style: dict[str, Any] = {"color": colours[name], "va": "center", "weight": "bold"}
        axes.annotate(name, (1.02, height), xycoords=("axes fraction", "data"), **style)


def differences(
    contents: Mapping[str, Mapping[str, tuple[Sequence[float], bool | None]]],
    title: str,
    reference: str,
    missing: str = "",
) -> Figure:
    """How much more loss than the reference each way has: a dot per seed, a bar at their mean, a panel per title.

    Args:
        contents: by title, by way, the difference of each seed, in nats per token, and whether it has a star. A cost
            with a star is red, a gain with a star blue, one without a star gray, and one that was not tested (None)
            black. The mean stands at the right.
        title: of the picture. All panels have one scale.
        reference: what the differences are taken from.
        missing: said in the row of a way that a panel does not have.
    """
    ways = list(dict.fromkeys(way for found in contents.values() for way in found))
    figure, places = panels(
        contents, 0.34 * len(ways) + 1.2, sharex=True, sharey=True, headline=title
    )
    figure.supxlabel(f"extra nats per token, compared with {reference}", size="medium")
    for axes, found in places:
        for way, (losses, has_star) in found.items():
            row, seeds = ways.index(way), np.asarray(losses)
            colour = _colour(float(seeds.mean()), has_star)
            axes.plot(seeds, [row] * len(seeds), "o", ms=6, color=colour, alpha=0.45, mew=0)
            axes.plot([seeds.mean()] * 2, [row - 0.3, row + 0.3], color=colour, lw=2.5)
            place = _at_row(axes, colour) | {"textcoords": "offset points"}
            axes.annotate(f"{seeds.mean():+z.2f}", (1, row), (-8, 0), ha="right", **place)
            axes.annotate("\u2217" if has_star else "", (1, row), (-7, 0), ha="left", **place)
        for row, way in enumerate(ways):
            if way not in found:
                said = _at_row(axes, GREY) | {"bbox": {"fc": "white", "ec": "none", "pad": 1}}
                axes.annotate(missing, (0.98, row), ha="right", **said)
        axes.axvline(0, color=GREY, lw=1)
        axes.grid(axis="y", alpha=0.25)
        axes.tick_params(axis="y", length=0)
        axes.set(yticks=range(len(ways)), yticklabels=ways)
        axes.spines.left.set_visible(False)
    low, high = places[0][0].get_xlim()
    ticks = [tick for tick in places[0][0].get_xticks() if low <= tick <= high]
    places[0][0].set_xticks(ticks)
    places[0][0].set_xlim(low, high + 0.3 * (high - low))  # room for the column of means
    places[0][0].set_ylim(len(ways) - 0.5, -0.5)
    return figure


def _at_row(axes: Axes, colour: str) -> dict[str, Any]:
    """For text in a row: x as a share of the panel's width, y as the row's number."""
    place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "size": 9.5}
    return place | {"va": "center", "color": colour}


def _colour(mean: float, has_star: bool | None) -> str:
    """Red for a cost with a star, blue for a gain with one, gray without one, black if it was not tested."""
    if has_star is None:
        return INK
    return GREY if not has_star else RED if mean > 0 else LINES[0]


def intervals(
    contents: Mapping[str, Mapping[str, tuple[float, float, str] | None]], title: str
) -> Figure:
    """Differences with their intervals, a row each, a panel per title; a panel without a row leaves it empty.

    Args:
        contents: by title, by row, (mean, half of the interval, a mark). A row with a mark has a full dot;
            one with None is a heading. Of a row's name only what follows a bar (|) is shown. Mean and half
            interval stand at the right, as numbers.
        title: of the picture.
    """
    rows = list(dict.fromkeys(row for found in contents.values() for row in found))
    labels = [row.rpartition("| ")[2] for row in rows]
    headings = {row for found in contents.values() for row in found if found[row] is None}
    figure, places = panels(contents, 0.185 * len(rows) + 1, sharey=True, headline=title)
    for axes, found in places:
        axes.set_xlabel("extra nats per token")
        for name, interval in found.items():
            if interval is None:
                continue
            mean, reach, mark = interval
            row = rows.index(name)
            colour = _colour(mean, bool(mark))
            axes.hlines(row, mean - reach, mean + reach, color=colour, lw=2)
            axes.plot(mean, row, "o", ms=5, color=colour, mfc=colour if mark else "white")
            left = mean < 0  # a mark stands beyond the interval's end, away from zero
            axes.annotate(
                mark,
                (mean - reach if left else mean + reach, row),
                (-4 if left else 4, -1),
                textcoords="offset points",
                color=colour,
                ha="right" if left else "left",
                va="center",
            )
            said: dict[str, Any] = {"ha": "right", "va": "center", "size": 9, "color": colour}
            numbers = f"{mean:+z.3f} \u00b1 {reach:.3f}"
            axes.text(1, row, numbers, transform=axes.get_yaxis_transform(), **said)
        axes.axvline(0, color=INK, lw=0.8)  # inside the panel, whatever the rows are
        low, high = axes.get_xlim()
        axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= high])
        # room for marks, and for the numbers
        axes.set_xlim(low - 0.06 * (high - low), high + 0.6 * (high - low))
        axes.spines.left.set_visible(False)
        axes.set(yticks=range(len(rows)), yticklabels=labels)
        axes.tick_params(axis="y", labelsize=9, length=0)
        reach = -2 if axes is places[0][0] else -0.2  # the first band lies behind the names, too
        for row, name in enumerate(rows):
            if name in headings:
                _band(axes, row, reach)
        for label in axes.get_yticklabels():
            is_heading = label.get_text() in headings
            label.set_weight("bold" if is_heading else "normal")
    places[0][0].set_ylim(len(rows) - 0.4, -0.6)
    return figure


def _band(axes: Axes, row: int, reach: float) -> None:
    """A gray band behind a row, from so many widths of the panel to its right edge."""
    band = Rectangle((reach, row - 0.5), 1 - reach, 1, color=IDLE, clip_on=False, zorder=-1, lw=0)
    band.set_transform(axes.get_yaxis_transform())
    band.set_in_layout(False)
    axes.add_patch(band)
