"""Pictures of orders: greedy choices, readings, epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.draw import GREY, HEADLINE, INK, RED, SOURCES, panels


def greedy_choice(weights: Mapping[str, float], chosen: Sequence[int]) -> Figure:
    """How far each source is behind its share before and after each step, and the dot where it gives a sample."""
    chosen = np.asarray(chosen)
    figure, places = panels(
        dict.fromkeys(weights, 0), 3.6, rows=len(weights), sharex=True, sharey=True
    )
    steps = np.arange(len(chosen))
    for dataset, ((axes, _), (source, weight)) in enumerate(
        zip(places, weights.items(), strict=True)
    ):
        fill, line = SOURCES[source]
        given = (chosen == dataset).astype(int)
        before = weight * np.maximum(steps, 1) - (np.cumsum(given) - given)
        x, y = np.repeat(steps, 2), np.ravel([before, before - given], "F")
        axes.fill_between(x, y, color=fill, alpha=0.6, lw=0)
        axes.plot(x, y, color=line, lw=1.5)
        axes.scatter(steps[given > 0], before[given > 0], 45, [line], zorder=3, clip_on=False)
        axes.axhline(0, color=INK, lw=0.8)
        axes.set_title(f"{source}, {weight:.0%}", size=10.5, color=line)
        axes.set(yticks=(-0.5, 0, 0.5), ylim=(-0.9, 0.6), xticks=steps)
    places[1][0].set_ylabel("samples behind its share")
    places[-1][0].set_xlabel("position t")
    figure.suptitle("The source that is furthest behind gives the next sample", **HEADLINE)
    return figure


def times_read(counts: Mapping[str, ArrayLike], title: str) -> Figure:
    """How often each sample is read, from the beginning of each file to its end, and what is never read.

    Args:
        counts: by source, the readings of each of its samples; those never read are the last ones.
        title: the takeaway.
    """
    figure, places = panels(
        dict(counts), 1.15 * len(counts) + 0.6, rows=len(counts), sharex=True, sharey=True
    )
    longest, total = (
        max(map(np.size, counts.values())),
        sum(np.sum(found) for found in counts.values()),
    )
    top = 1.05 * max(np.max(found) for found in counts.values())
    for axes, (source, found) in zip((axes for axes, _ in places), counts.items(), strict=True):
        found, (fill, line) = np.asarray(found), SOURCES[source]
        read, size = int((found > 0).sum()), len(found)
        axes.fill_between(np.arange(size + 1), [*found, 0], step="post", color=fill, lw=0)
        axes.step(np.arange(read + 1), [*found[:read], 0], where="post", color=line, lw=1.5)
        often = " or ".join(str(count) for count in np.unique(found[:read]))
        axes.text(read / 2, 0.4, f"{often} times", ha="center", va="bottom", size=10)
        if read < size:
            axes.axvspan(read, size, color="#fae4e1", lw=0)
            never = f"never read: {size - read:,} of {size:,}  "
            axes.text(size, 0.7 * top, never, ha="right", color=RED, size=11.5, weight="bold")
        axes.set_title(f"{source}: {np.sum(found) / total:.1%} of the run", size=10.5, color=line)
        axes.set(xlim=(0, longest), ylim=(0, top))
    places[len(counts) // 2][0].set_ylabel("times read")
    places[-1][0].set_xlabel("sample, from the beginning of its file to the end")
    figure.suptitle(title, **HEADLINE)
    return figure


def epochs(runs: Mapping[str, ArrayLike], samples_per_epoch: int, followed: int) -> Figure:
    """Which of 33 samples is read at each position, over several epochs, and where the middle one is.

    Args:
        runs: by title, the sample at each position.
        samples_per_epoch: positions from one vertical line to the next.
        followed: the sample whose dots are large; its 16 neighbors on either side are shown, too.
    """
    figure, places = panels(runs, 3, sharey=True)
    for axes, samples in places:
        samples = np.asarray(samples)
        shown = np.flatnonzero(abs(samples - followed) <= 16)
        axes.plot(
            shown,
            samples[shown],
            ls="none",
            marker="o",
            ms=4,
            alpha=0.5,
            color=SOURCES["stories"][1],
        )
        found = np.flatnonzero(samples == followed)
        axes.plot(
            found, samples[found], ls="none", marker="o", ms=7, color=SOURCES["arithmetic"][1]
        )
        above = followed + 19.5  # a strip without dots, for the distances
        axes.vlines(found, followed, above, color=SOURCES["arithmetic"][1], lw=1, ls=":")
        for begin, end in pairwise(found.tolist()):
            both: dict[str, Any] = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (begin, above), (end, above), arrowprops=both)
            place = (begin + end) / 2, above + 0.5
            axes.text(*place, f"{end - begin}", ha="center", va="bottom", weight="bold")
        for number, edge in enumerate(range(0, len(samples), samples_per_epoch)):
            axes.vlines(edge, followed - 20, followed + 17.5, color=GREY, lw=0.8)
            axes.text(
                edge + samples_per_epoch / 2,
                followed - 17,
                f"epoch {number + 1}",
                ha="center",
                va="top",
                size=9.5,
            )
        axes.set(xlabel="position", ylim=(followed - 20, followed + 23))
    first = figure.axes[0]
    first.set_ylabel("sample")
    first.set_yticks(range(followed - 16, followed + 17, 8))
    first.get_yticklabels()[2].set(color=SOURCES["arithmetic"][1], weight="bold")
    return figure
