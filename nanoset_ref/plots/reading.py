"""Pictures of reading: what the steps of a batch cost, rates beside other systems, memory, start-up and resume.

All of them draw results that `benchmarks` has written as JSON.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from nanoset_ref.plots._draw import grid, half_framed, swatches

OURS, OTHERS, LIMIT = "#e6550d", "#9ecae1", "#d9d9d9"
STEPS = ("#756bb1", "#9ecae1", "#fdae6b", "#bcbddc", "#a1d99b", "#bdbdbd", "#3182bd", "#e6550d", "#31a354")
LINES = ("#3182bd", "#31a354", "#756bb1", "#636363", "#9ecae1", "#fdae6b", "#a1d99b")


def steps(microseconds: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Bars of the steps of a batch, a panel per sequence length, the reader that takes longer first.

    Args:
        microseconds: sequence length -> reader -> step -> microseconds per batch.
    """
    figure, panels = grid(9, 1.2 * len(microseconds) + 1, rows=len(microseconds))
    named = [step for readers in microseconds.values() for costs in readers.values() for step in costs]
    colours = dict(zip(dict.fromkeys(named), STEPS, strict=False))
    for axes, (length, readers) in zip(panels, microseconds.items(), strict=True):
        names = sorted(readers, key=lambda name: sum(readers[name].values()))
        for row, name in enumerate(names):
            left = 0.0
            for step, cost in readers[name].items():
                axes.barh(row, cost, left=left, color=colours[step])
                left += cost
            axes.text(left, row, f"  {left:.0f} µs", va="center", size=9)
        axes.set_yticks(range(len(names)), names)
        axes.set_title(f"sequence length {int(length):,}", size=9, loc="left")
        axes.margins(x=0.1)
        half_framed(axes)
    panels[-1].set_xlabel("microseconds per batch of 8")
    figure.legend(swatches(*colours.values()), list(colours), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def rates(tokens: Mapping[str, Mapping[str, Sequence[float]]], references: Sequence[str] = ()) -> Figure:
    """Million tokens per second, a panel per sequence length: bars at medians, a line over the middle half of rounds.

    Args:
        tokens: sequence length -> candidate -> rate in each round.
        references: candidates that are no loaders, drawn in grey.
    """
    height = 0.27 * max(map(len, tokens.values())) + 0.9
    figure, panels = grid(11, height, columns=len(tokens), sharey=True)
    first = next(iter(tokens.values()))
    names = sorted(first, key=lambda name: statistics.median(first[name]))
    for axes, (length, candidates) in zip(panels, tokens.items(), strict=True):
        for row, name in enumerate(names):
            low, middle, high = statistics.quantiles(candidates[name], n=4)
            colour = OURS if name.startswith("nanoset_ref") else LIMIT if name in references else OTHERS
            axes.barh(row, middle, color=colour)
            axes.plot([low, high], [row, row], color="black", lw=0.8)
            axes.text(max(high, middle) * 1.1, row, f"{middle:,.0f}", va="center", size=7)
        half_framed(axes, xscale="log", xlabel="million tokens per second")
        axes.set_title(f"sequence length {int(length):,}", size=9)
        axes.set_yticks(range(len(names)), names, size=8)
        axes.set_xlim(right=axes.get_xlim()[1] * 3)
    return figure


def memory(result: Mapping[str, Any]) -> Figure:
    """Resident memory while a huge file is read, a panel per way: anonymous below, file-backed above.

    Args:
        result: of benchmarks.memory.
    """
    ways: Mapping[str, Sequence[Mapping[str, float]]] = result["ways"]
    figure, panels = grid(9, 2.8, columns=len(ways), sharey=True)
    for axes, (way, points) in zip(panels, ways.items(), strict=True):
        seconds = [point["seconds"] for point in points]
        anonymous, files = ([point[kind] for point in points] for kind in ("anonymous_mib", "file_mib"))
        axes.stackplot(seconds, anonymous, files, colors=[OURS, OTHERS], labels=["anonymous", "file-backed"])
        axes.axhline(result["allowed_mib"], color="black", lw=0.8, ls="--")
        axes.set_title(f"{way}: {points[-1]['rows'] / seconds[-1]:,.0f} rows a second", size=9)
        half_framed(axes, xlabel="seconds")
    figure.axes[0].set_ylabel("MiB resident")
    figure.axes[0].text(0, result["allowed_mib"], " the memory allowed", va="bottom", size=8)
    figure.axes[-1].legend(loc="center right", fontsize=8, frameon=False)
    return figure


def against_samples(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Seconds against the number of samples, on logarithmic axes, a panel per title.

    Args:
        panels: title -> way -> number of samples (as text) -> seconds. Ways that begin with nanoset_ref stand out.
    """
    figure, places = grid(5.2 * len(panels), 4, columns=len(panels))
    for axes, (title, ways) in zip(places, panels.items(), strict=True):
        colours = iter(LINES)
        for number, (name, points) in enumerate(ways.items()):
            ours = name.startswith("nanoset_ref")
            axes.loglog(
                [int(samples) for samples in points],
                list(points.values()),
                marker="o",
                ms=7 if ours else 3.5,
                lw=4 if ours else 1.2,
                ls="-" if number == 0 or not ours else ":",
                color=OURS if ours else next(colours),
                alpha=0.6 if ours else 1,
                label=name,
            )
        axes.set_title(title, size=10)
        half_framed(axes, xlabel="samples", ylabel="seconds")
        axes.legend(fontsize=7, frameon=False)
    return figure
