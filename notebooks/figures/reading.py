"""Pictures of reading: what the steps of a batch cost, rates beside other systems, memory, start-up and resume.

All of them draw results that `benchmarks` has written as JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from figures.draw import COLOURS, GREY, LINES, draw_lines, half_framed, key, panels, stacked

OURS, OTHERS, LIMIT = LINES[1], COLOURS[0], COLOURS[5]
STEPS = (LINES[3], *COLOURS[:4], "#bdbdbd", LINES[0], LINES[1], LINES[2])


def steps(microseconds: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Bars of the steps of a batch, a panel per sequence length, the reader that takes longer first.

    Args:
        microseconds: sequence length -> reader -> step -> microseconds per batch.
    """
    titled = {f"sequence length {int(length):,}": readers for length, readers in microseconds.items()}
    figure, places = panels(titled, 1.2 * len(titled) + 1, rows=len(titled))
    named = [step for readers in titled.values() for costs in readers.values() for step in costs]
    colours = dict(zip(dict.fromkeys(named), STEPS, strict=False))
    for axes, readers in places:
        slowest_first = sorted(readers.items(), key=lambda item: -sum(item[1].values()))
        stacked(axes, dict(slowest_first), colours, "µs")
    places[-1][0].set_xlabel("microseconds per batch of 8")
    key(figure, colours, columns=4)
    return figure


def rates(tokens: Mapping[str, Mapping[str, Sequence[float]]], references: Sequence[str] = ()) -> Figure:
    """Million tokens per second, a panel per sequence length: bars at medians, a line over the middle half of rounds.

    Args:
        tokens: sequence length -> candidate -> rate in each round.
        references: candidates that are no loaders, drawn in grey.
    """
    titled = {f"sequence length {int(length):,}": candidates for length, candidates in tokens.items()}
    first = next(iter(titled.values()))
    names = sorted(first, key=lambda name: np.median(first[name]))
    figure, places = panels(titled, 0.27 * len(names) + 0.9, sharey=True)
    for axes, candidates in places:
        low, middle, high = np.quantile([candidates[name] for name in names], [0.25, 0.5, 0.75], axis=1)
        colours = [
            OURS if name.startswith("nanoset_ref") else LIMIT if name in references else OTHERS for name in names
        ]
        bars = axes.barh(names, middle, color=colours, xerr=[middle - low, high - middle], error_kw={"lw": 0.8})
        axes.bar_label(bars, fmt="{:,.0f}", size=7, padding=2)
        half_framed(axes, xscale="log", xlabel="million tokens per second")
        axes.set_xlim(right=axes.get_xlim()[1] * 3)
    return figure


def memory(result: Mapping[str, Any]) -> Figure:
    """Resident memory while a huge file is read, a panel per way: anonymous below, file-backed above.

    Args:
        result: of benchmarks.memory.
    """
    titled = {f"{way}: {_rows_per_second(points):,.0f} rows a second": points for way, points in result["ways"].items()}
    figure, places = panels(titled, 2.8, sharey=True)
    for axes, points in places:
        seconds, anonymous, files = ([p[name] for p in points] for name in ("seconds", "anonymous_mib", "file_mib"))
        axes.stackplot(seconds, anonymous, files, colors=[OURS, OTHERS], labels=["anonymous", "file-backed"])
        axes.axhline(result["allowed_mib"], color="black", lw=0.8, ls="--")
        half_framed(axes, xlabel="seconds")
    figure.axes[0].set_ylabel("MiB resident")
    figure.axes[0].text(0, result["allowed_mib"], " the memory allowed", va="bottom", size=8)
    figure.axes[-1].legend(loc="center right", fontsize=8, frameon=False)
    return figure


def _rows_per_second(points: Sequence[Mapping[str, float]]) -> float:
    return points[-1]["rows"] / points[-1]["seconds"]


def against_samples(contents: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Seconds against the number of samples, on logarithmic axes, a panel per title.

    Args:
        contents: title -> way -> number of samples (as text) -> seconds. Ways that begin with nanoset_ref stand out.
    """
    figure, places = panels(contents, 4)
    for axes, ways in places:
        lines = {name: [[int(n) for n in points], list(points.values())] for name, points in ways.items()}
        ours = {name: line for name, line in lines.items() if name.startswith("nanoset_ref")}
        for (name, line), dashes in zip(ours.items(), ("-", ":"), strict=False):
            draw_lines(axes, {name: line}, [OURS], marker="o", ms=7, lw=4, ls=dashes, alpha=0.6)
        others = {name: line for name, line in lines.items() if name not in ours}
        draw_lines(axes, others, (LINES[0], *LINES[2:], GREY, *COLOURS), marker="o", ms=3.5, lw=1.2)
        half_framed(axes, xlabel="samples", ylabel="seconds", xscale="log", yscale="log")
        axes.legend(fontsize=7, frameon=False)
    return figure
