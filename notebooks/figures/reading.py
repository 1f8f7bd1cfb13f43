"""Pictures of reading: what GPUs consume, what storage delivers, the steps of a batch, rates, memory, start-up, resume.

Most draw results that `benchmarks` has written as JSON.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, repeat
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.draw import GREY, IDLE, INK, LINES, Lines, canvas, curves, panels, two_digits

OURS, OTHERS = LINES[1], LINES[0]
PEERS = (LINES[0], LINES[2], LINES[3], INK, GREY)
DASHES = [
    ("--", "s"),
    ("-.", "^"),
    (":", "D"),
    ((0, (5, 1)), "v"),
    ((0, (1, 1)), "P"),
    ((0, (3, 1, 1, 1, 1, 1)), "X"),
]
WORKERS = ", 2 workers"
UNDER = {"facecolor": "white", "lw": 0, "pad": 0.5}  # a number hides the line behind it
MARKS: dict[str, dict[str, Any]] = {
    "consumed": {"marker": "s", "ms": 8, "color": LINES[2]},
    "measured": {"marker": "o", "ms": 9, "color": OTHERS},
    "computed": {"marker": "o", "ms": 9, "color": OTHERS, "mfc": "white", "mew": 1.5},
    "limit": {"marker": "|", "ms": 26, "color": GREY, "mew": 2.5},
}


def hierarchy(rungs: Mapping[str, Sequence[tuple[str, float, str]]], title: str) -> Figure:
    """Tokens per second on one logarithmic axis, a line for each place; what the first line spans is shaded for all.

    Args:
        rungs: by name, (text, tokens per second, one of `MARKS`) of each mark.
        title: of the picture.
    """
    figure, axes = canvas(0.72 * len(rungs) + 0.9)
    for row, marks in enumerate(rungs.values()):
        rates = [rate for _, rate, kind in marks if kind != "limit"]
        for text, rate, kind in marks:
            style = MARKS[kind] | ({"color": OURS} if text == "nanoset_ref" else {})
            axes.plot(rate, row, **style)
            x, y, side = rate, row - 0.33, "center"
            if kind == "limit":
                x, y, side = 1.45 * rate, row, "left"
            elif any(rate < other < 3 * rate for other in rates):  # room for the next name
                x, side = 1.15 * rate, "right"
            axes.text(x, y, text, ha=side, va="center", size=9.5, color=style["color"])
    consumed = [rate for _, rate, _ in next(iter(rungs.values()))]
    axes.axvspan(min(consumed), max(consumed), color=IDLE, zorder=0)
    axes.set(
        xscale="log",
        xlim=(1e4, 4e10),
        xlabel="tokens per second",
        title=title,
        ylim=(len(rungs) - 0.6, -0.6),
    )
    axes.set(yticks=range(len(rungs)), yticklabels=rungs)
    return figure


def steps(microseconds: Mapping[str, Mapping[str, float]], title: str) -> Figure:
    """Bars of the steps of a batch, one below the other, each reader in its colour: {reader: {step: microseconds}}."""
    figure, axes = canvas(0.27 * sum(len(parts) + 1 for parts in microseconds.values()) + 0.7)
    names, headings = [], []
    for reader, parts in microseconds.items():
        headings.append(len(names))
        names.append(reader)
        places = [len(names) + place for place in range(len(parts))]
        bars = axes.barh(places, [*parts.values()], 0.7, color=_colours([reader]))
        axes.bar_label(bars, fmt=two_digits, padding=3)
        names += parts
    axes.set(xlabel="microseconds per batch of 8", title=title)
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    for heading in headings:
        axes.get_yticklabels()[heading].set_weight("bold")
    return figure


def _colours(names: Iterable[str]) -> list[str]:
    ours = ("nanoset_ref", "gather alone")
    return [OURS if name.startswith(ours) else OTHERS for name in names]


def rates(tokens: Mapping[str, Mapping[str, Sequence[float]]], limit: str, title: str) -> Figure:
    """Million tokens per second, a panel per sequence length: dots at medians, each with its number beside it.

    Args:
        tokens: sequence length -> candidate -> rate in each round. A line spans the middle half of the rounds. A
            candidate that ends in `WORKERS` is an open dot in the row of the same candidate without workers.
        limit: a candidate that is no loader, drawn as a line.
        title: of the picture.
    """
    titled = {f"S = {int(length):,}": candidates for length, candidates in tokens.items()}
    if len(titled) == 1:
        titled = {"": next(iter(titled.values()))}
    first = next(iter(titled.values()))
    names = sorted(first.keys() - {limit}, key=lambda name: np.median(first[name]))
    rows = {
        name: row for row, name in enumerate(name for name in names if not name.endswith(WORKERS))
    }
    figure, places = panels(titled, 0.3 * len(rows) + 1.25, sharey=True, headline=title)
    for axes, candidates in places:
        yardstick = float(np.median(candidates[limit]))
        for name, row in rows.items():
            _draw_rates(axes, row, name, candidates, yardstick)
        axes.vlines(yardstick, -0.7, len(rows) - 0.7, color=GREY, lw=1.5, ls="--", zorder=0)
        axes.text(
            yardstick,
            len(rows) - 0.35,
            f"{limit}: {two_digits(yardstick)}",
            ha="center",
            color=GREY,
            size=9.5,
        )
        axes.set(xscale="log", xlabel="million tokens per second", ylim=(-0.7, len(rows)))
        axes.margins(x=0.12)
        axes.set_yticks([*rows.values()], [*rows])
    return figure


def _draw_rates(
    axes: Axes,
    row: int,
    name: str,
    candidates: Mapping[str, Sequence[float]],
    yardstick: float,
) -> None:
    """The dots of one reader: the number of the slower one stands left of it, of the faster one right of it.

    Where the number on the right would lie on the line of the yardstick, each stands left of its dot;
    one above the other left of both, if there is no room between the dots.
    """
    found = {way: candidates[way] for way in (name, name + WORKERS) if way in candidates}
    (colour,), fastest = _colours([name]), max(found, key=lambda way: np.median(found[way]))
    best = np.median(found[fastest])
    crossing = best < yardstick < 1.7 * best
    lowest = min(np.quantile(rounds, 0.25) for rounds in found.values())
    slower = [np.quantile(rounds, 0.75) for way, rounds in found.items() if way != fastest]
    is_roomy = 1.4 * max(slower, default=0) < np.quantile(found[fastest], 0.25)
    for way, rounds in found.items():
        low, middle, high = np.quantile(rounds, [0.25, 0.5, 0.75])
        axes.hlines(row, low, high, colors=colour)
        fill = "white" if way.endswith(WORKERS) else colour
        axes.scatter(middle, row, facecolor=fill, edgecolor=colour, s=34, zorder=3)
        place, shift, align = (high, (7, 0), "left") if way == fastest else (low, (-7, 0), "right")
        if crossing and is_roomy:
            place, shift, align = low, (-7, 0), "right"
        elif crossing:
            lift = 6 if way == fastest else -6
            place, shift, align = lowest, (-7, lift if len(found) > 1 else 0), "right"
        style: dict[str, Any] = {"va": "center", "size": 9.5, "color": colour, "bbox": UNDER}
        style |= {"textcoords": "offset points", "ha": align}
        axes.annotate(two_digits(middle), (place, row), shift, **style)


def memory(ways: Mapping[str, Lines], allowed: float, headline: str) -> Figure:
    """MiB resident against seconds while a huge file is read, a panel per way; lines are named in the first."""
    limits, labels = {"ylim": (0, 1.2 * allowed)}, {"xlabel": "seconds", "ylabel": "MiB resident"}
    figure = curves(ways, 2.9, colours=PEERS, headline=headline, **limits, **labels)
    for axes in figure.axes:
        axes.axhline(allowed, color=INK, lw=0.8, ls="--")
    figure.axes[0].text(0, allowed, " the memory allowed", va="bottom")
    for (name, (x, y)), colour in zip(next(iter(ways.values())).items(), PEERS, strict=False):
        figure.axes[0].text(x[-1], y[-1] - 25, name, ha="right", va="top", color=colour)
    return figure


def against_samples(contents: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Seconds against the number of samples, on logarithmic axes, one panel below the other; names right of the lines.

    Args:
        contents: title -> way -> number of samples (as text) -> seconds. Ways that begin with nanoset_ref stand out;
            each other way has a dash and a mark of its own, in all panels.
    """
    others = dict.fromkeys(
        way for ways in contents.values() for way in ways if not way.startswith("nanoset_ref")
    )
    looks = dict(zip(others, zip(cycle(DASHES), cycle(PEERS), repeat("white"))))
    figure, places = panels(contents, 5.6, rows=len(contents), sharex=True)
    for axes, ways in places:
        height = 0.0
        for name in sorted(ways, key=lambda way: list(ways[way].values())[-1]):
            samples, seconds = [int(n) for n in ways[name]], list(ways[name].values())
            (dash, mark), colour, inside = looks.get(name, (("-", "o"), OURS, OURS))
            lighter = {"color": colour, "marker": mark, "ms": 5, "mfc": inside}
            on_top = 3 if name in looks else 2  # where two curves coincide, both are seen
            width = 1.5 if name in looks else 4
            axes.plot(samples, seconds, ls=dash, lw=width, zorder=on_top, **lighter)
            height = max(seconds[-1], 3.6 * height)  # no name on another
            axes.plot(
                [1.15 * samples[-1], 1.6 * samples[-1]], [seconds[-1], height], color=colour, lw=0.7
            )
            axes.plot(2 * samples[-1], height, ls="", **lighter)
            axes.text(2.6 * samples[-1], height, name, va="center", size=9.5, color=colour)
        axes.set(ylabel="seconds", xscale="log", yscale="log", xlim=(700, 4e10), ylim=(3e-6, 900))
        axes.set_xticks([10**power for power in range(3, 9)])
        axes.spines.bottom.set_bounds(1e3, 1e8)
        axes.minorticks_off()
    places[-1][0].set_xlabel("samples", x=0.34)  # below the middle of the numbers
    return figure
