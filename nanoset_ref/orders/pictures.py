"""Pictures and tables of an order or a dataset, for notebooks; matplotlib is imported when one is drawn.

A long order is not read through: it is cut into 60 stretches of equal length, and the first 4,096 positions of each are
counted. The title says so. A picture of 10**12 samples takes as long as one of a million.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra

STRETCHES = 60
COUNTED = 4096  # positions of a stretch, at most
MOST_SHOWN = 7  # sources that have a color of their own; the others are one
# on white each has a contrast of 4.5 or more, and each differs from its neighbors in lightness, too
COLORS = ("#005a8f", "#bf5200", "#00795a", "#8e4585", "#1a76b5", "#8a6d00", "#b3261e")
REST, INK = "#6b6b6b", "#222222"
MOST_EPOCHS = 12  # that are told apart
MOST_ROWS = 20  # of a table


def new_figure(width: float, height: float) -> Any:
    """A matplotlib Figure of inches that a notebook shows; ImportError, with the extra's name, without matplotlib."""
    with extra("lab", "a picture"):
        from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png")
            return image.getvalue()

    return Shown(figsize=(width, height), dpi=100, layout="constrained")


def draw_sources(
    sources_at: Callable[[NDArray[np.int64]], NDArray[Any]],
    positions: range,
    names: Sequence[str],
    sizes: NDArray[np.int64],
    shares: NDArray[np.float64] | None,
    title: str,
) -> Any:
    """Two charts: the share of each source along a range of positions, and how often each is read in it.

    Args:
        sources_at: the number of the source at each position, integers [n] of int64 [n].
        positions: consecutive ones, at least one.
        names, sizes: of the sources; samples in one epoch of each, int64.
        shares: that the order promises, float64 of the sum 1, drawn as white lines; None: it promises none.
        title: what is drawn; a line on what was counted is added.

    Returns:
        A matplotlib Figure, 750 pixels wide.
    """
    if not positions:
        raise ValueError("there is nothing to draw: the order has no positions")
    edges, counts, counted = _count(sources_at, positions, len(names))
    read = (
        counts / counts.sum(axis=1, keepdims=True) * np.diff(edges)[:, None]
    )  # samples, expected where not counted
    groups = _groups(names, read.sum(axis=0))
    figure = new_figure(7.5, 4.3 + 0.24 * len(groups))
    top, bottom = figure.subplots(2, 1, height_ratios=[2.2, 0.6 + 0.24 * len(groups)])
    how = "every position counted"
    if counted < len(positions):
        how = f"{counted:,} of them counted, in {STRETCHES} stretches"
    figure.suptitle(f"{title}\n{len(positions):,} positions, {how}", fontsize=11, color=INK)
    _draw_shares(top, edges, read, groups, shares)
    _draw_passes(bottom, _by_epoch(edges, read, int(sizes.sum())), groups, sizes)
    return figure


def _by_epoch(
    edges: NDArray[np.int64], read: NDArray[np.float64], epoch: int
) -> NDArray[np.float64]:
    """Samples of each source in each epoch of the order, [epochs, sources]; one row where there are too many epochs."""
    ends = [*range((edges[0] // epoch + 1) * epoch, edges[-1], epoch), edges[-1]]
    if len(ends) > MOST_EPOCHS:
        ends = ends[-1:]
    total = np.vstack([np.zeros(read.shape[1]), np.cumsum(read, axis=0)])
    upto = np.array([np.interp(ends, edges, source) for source in total.T]).T
    return np.diff(upto, axis=0, prepend=0)


def _count(
    sources_at: Any, positions: range, sources: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Edges of the stretches, int64 [n + 1]; sources counted in each, int64 [n, sources]; positions looked up."""
    stretches = min(STRETCHES, len(positions))
    edges = positions.start + np.array(
        [len(positions) * n // stretches for n in range(stretches + 1)], dtype=np.int64
    )
    counts = np.zeros((stretches, sources), dtype=np.int64)
    for number in range(stretches):
        stop = min(edges[number + 1], edges[number] + COUNTED)
        found = sources_at(np.arange(edges[number], stop))
        counts[number] = np.bincount(found, minlength=sources)
    return edges, counts, int(counts.sum())


def _groups(names: Sequence[str], read: NDArray[np.float64]) -> list[tuple[str, list[int], str]]:
    """(label, sources, color): those that are read most, in their own order, and the others as one."""
    most = sorted(np.argsort(-read, kind="stable")[:MOST_SHOWN].tolist())
    if len(names) == MOST_SHOWN + 1:
        most = most[:-1]
    groups = [(names[source], [source], COLORS[place]) for place, source in enumerate(most)]
    others = [source for source in range(len(names)) if source not in most]
    if others:
        groups.append((f"{len(others):,} others", others, REST))
    return groups


def _draw_shares(
    axes: Any, edges: NDArray[np.int64], read: NDArray[np.float64], groups: Any, shares: Any
) -> None:
    widths = np.diff(edges)
    found = read / widths[:, None]
    floor = np.zeros(len(widths))
    promised = 0.0
    for label, sources, color in groups:
        height = found[:, sources].sum(axis=1)
        axes.bar(
            edges[:-1],
            height,
            widths,
            floor,
            align="edge",
            color=color,
            lw=0,
            label=shortened(label),
        )
        floor = floor + height
        if shares is not None:
            promised += shares[sources].sum()
            axes.axhline(promised, color="white", lw=1, ls="--")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1)
    promise = "" if shares is None else " (white: as promised)"
    axes.set_ylabel(f"share of samples\n{promise}".rstrip())
    size, unit = unit_of(edges[-1])
    axes.set_xlabel(f"position in the global order{', in ' if unit else ''}{unit}")
    axes.xaxis.set_major_formatter(lambda place, _: f"{place / size:,g}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8, frameon=False, reverse=True)


def _draw_passes(
    axes: Any, read: NDArray[np.float64], groups: Any, sizes: NDArray[np.int64]
) -> None:
    """A bar for each group of sources: how often it is read, from the samples in each epoch, [epochs, sources]."""
    places, longest = list(range(len(groups)))[::-1], 1.0
    for place, (_, sources, color) in zip(places, groups, strict=True):
        samples = sizes[sources].sum()
        passes = read[:, sources].sum(axis=1) / max(samples, 1)
        begins = np.cumsum(passes) - passes
        axes.barh(place, passes, left=begins, color=color, height=0.7, edgecolor="white", lw=1)
        end = passes.sum()
        text = f" {end:,.2f} x {said(samples)} samples"
        axes.text(end, place, text, va="center", fontsize=8, color=INK)
        longest = max(longest, end)
    axes.axvline(1, color=INK, lw=1, ls=":")
    axes.set_yticks(places, [shortened(label) for label, *_ in groups], fontsize=8)
    axes.set_xlim(0, longest * 1.6)  # room for the words
    parts = "; a part of a bar is an epoch of the order" if len(read) > 1 else ""
    axes.set_xlabel(f"how often a source is read (dotted: once{parts})")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def unit_of(number: float) -> tuple[int, str]:
    """In which unit a number is short: (10**6, "millions"); (1, "") for one below a million."""
    for size, unit in ((10**12, "trillions"), (10**9, "billions"), (10**6, "millions")):
        if number >= size:
            return size, unit
    return 1, ""


def said(number: float) -> str:
    """12345.0 -> "12,345"; 12821451823.0 -> "about 12.8 billion"."""
    size, unit = unit_of(number)
    return f"about {number / size:,.4g} {unit[:-1]}" if unit else f"{number:,.0f}"


def shortened(name: str, most: int = 26) -> str:
    """The end of a long name, which tells files apart."""
    return name if len(name) <= most else f"...{name[3 - most :]}"


def html_table(
    caption: str, facts: Mapping[str, Any], head: Sequence[str] = (), rows: Sequence[Any] = ()
) -> str:
    """A small table for notebooks: facts by name, then rows under a head; text is escaped, numbers get commas."""
    lines = [
        f"<tr><th style='text-align:left'>{_text(name)}</th>{_cell(value)}</tr>"
        for name, value in facts.items()
    ]
    table = [f"<table><caption>{_text(caption)}</caption>{''.join(lines)}</table>"]
    if head:
        lines = [f"<tr>{''.join(f'<th>{_text(name)}</th>' for name in head)}</tr>"]
        lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS]]
        if len(rows) > MOST_ROWS:
            lines.append(
                f"<tr><td colspan='{len(head)}'>and {len(rows) - MOST_ROWS:,} others</td></tr>"
            )
        table.append(f"<table>{''.join(lines)}</table>")
    return "".join(table)


def _cell(value: Any) -> str:
    side = "right" if isinstance(value, (int, float)) else "left"
    return f"<td style='text-align:{side}'>{_text(value)}</td>"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return html.escape(str(value))
