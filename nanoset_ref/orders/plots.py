"""Pictures and tables of an order, for notebooks.

matplotlib is imported when a picture is drawn. A long order is not read completely: it is cut into
60 bins of equal length, and the first 4,096 positions of each are counted; the title says so.
A picture of 10**12 samples takes as long as one of a million.
"""

import io
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.extras import extra
from nanoset_ref.io.html_table import html_table
from nanoset_ref.io.types import Array, Float64Array, Int64Array
from nanoset_ref.orders.base import Order

# label, sources and color of sources that are drawn as one
Group = tuple[str, list[int], str]
NUM_BINS = 60
MAX_COUNTED = 4096  # positions of a bin, at most
MAX_SHOWN = 7  # sources that have a color of their own; the others are drawn as one
# on white each has a contrast of 4.5 or more, and each differs from its neighbors in lightness, too
COLORS = ("#005a8f", "#bf5200", "#00795a", "#8e4585", "#1a76b5", "#8a6d00", "#b3261e")
REST = "#6b6b6b"
INK = "#222222"
MAX_CHARACTERS = 26  # of a name


def new_figure(width: float, height: float) -> Any:
    """A matplotlib Figure, in inches, that a notebook displays.

    Raises:
        ImportError: matplotlib is missing; the message names the extra.
    """
    with extra("lab", "a picture"):
        from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png")
            return image.getvalue()

    return NotebookFigure(figsize=(width, height), dpi=100, layout="constrained")


def draw_sources(
    sources_at: Callable[[Int64Array], Array],
    positions: range,
    names: Sequence[str],
    sizes: Int64Array,
    shares: Float64Array | None,
    title: str,
) -> Any:
    """Draw the share of each source along a range of positions, and how often each is read in it.

    Args:
        sources_at: maps positions, int64 [n], to the numbers of their sources, integers [n].
        positions: consecutive ones, at least one.
        names: of the sources.
        sizes: int64 [sources], samples in one epoch of each.
        shares: float64 [sources], summing to 1, that the order promises, drawn as white lines, or
            None.
        title: a line on how many positions were counted is added.

    Returns:
        A matplotlib Figure, 750 pixels wide, with two charts.
    """
    if not positions:
        raise ValueError("there is nothing to draw: the order has no positions")
    num_bins = min(NUM_BINS, len(positions))
    # Python's integers: the product may exceed int64
    offsets = [len(positions) * n // num_bins for n in range(num_bins + 1)]
    edges = positions.start + np.array(offsets, dtype=np.int64)  # [bins + 1]
    counts = _count(sources_at, edges, len(names))
    fractions = counts / counts.sum(axis=1, keepdims=True)
    # an estimate where not every position was counted
    read = fractions * np.diff(edges)[:, None]
    groups = _groups(names, read.sum(axis=0))
    bars_height = 0.24 * len(groups)
    figure = new_figure(7.5, 4.3 + bars_height)
    heights = [2.2, 0.6 + bars_height]
    top, bottom = figure.subplots(2, 1, height_ratios=heights)
    how = "every position counted"
    if counts.sum() < len(positions):
        how = f"{counts.sum():,} of them counted, in {NUM_BINS} bins"
    figure.suptitle(
        f"{title}\n{len(positions):,} positions, {how}", fontsize=11, color=INK
    )
    _draw_shares(top, edges, fractions, groups, shares)
    _draw_passes(bottom, read.sum(axis=0), groups, sizes)
    return figure


def draw_order(order: Order, names: Sequence[str] | None) -> Any:
    """`draw_sources` of an order; names of its sources, or None for their numbers."""
    if not names:
        numbers = range(len(order.dataset_lengths))
        names = [f"source {number}" for number in numbers]
    shares = None
    if order.keeps_shares:
        shares = order.dataset_weights
    return draw_sources(
        lambda positions: order.lookup(positions)[0],
        range(order.first_position, order.num_samples),
        names,
        order.dataset_lengths,
        shares,
        f"order {order.name!r}, seed {order.random_seed}",
    )


def order_table(order: Order) -> str:
    """`html_table` of an order."""
    facts = {
        "order": order.name,
        "samples": order.num_samples,
        "samples in an epoch": order.samples_per_epoch,
        "epochs": order.num_samples / order.samples_per_epoch,
        "seed": order.random_seed,
    }
    lengths = order.dataset_lengths.tolist()
    shares = order.dataset_weights.tolist()
    numbers = range(len(lengths))
    rows = list(zip(numbers, lengths, shares, strict=True))
    head = "source", "samples", "share"
    return html_table(type(order).__name__, facts, head, rows)


def _count(
    sources_at: Any,
    edges: Int64Array,
    sources: int,
) -> Int64Array:
    """Positions of each source that were counted in each bin: int64 [bins, sources]."""
    counts = []
    for start, next_start in itertools.pairwise(edges):
        stop = min(next_start, start + MAX_COUNTED)
        read = sources_at(np.arange(start, stop))
        counts.append(np.bincount(read, minlength=sources))
    return np.array(counts)


def _groups(names: Sequence[str], read: Float64Array) -> list[Group]:
    """The sources that are read most, in their own order, and all others as one group."""
    shown = MAX_SHOWN
    if len(names) == shown + 1:
        shown -= 1  # the others are at least two
    most = np.argsort(-read, kind="stable")[:shown]
    groups: list[Group] = []
    others = []
    for source, name in enumerate(names):
        if source in most:
            color = COLORS[len(groups)]
            groups.append((name, [source], color))
        else:
            others.append(source)
    if others:
        groups.append((f"{len(others):,} others", others, REST))
    return groups


def _draw_shares(
    axes: Any,
    edges: Int64Array,
    fractions: Float64Array,
    groups: list[Group],
    shares: Float64Array | None,
) -> None:
    """Stack the fractions [bins, sources] of the groups."""
    floor = np.zeros(len(fractions))
    promised = 0.0
    promise = ""
    widths = np.diff(edges)
    for label, sources, color in groups:
        height = fractions[:, sources].sum(axis=1)
        look = {"color": color, "label": _end_of_name(label), "align": "edge", "lw": 0}
        axes.bar(edges[:-1], height, widths, floor, **look)
        floor = floor + height
        if shares is not None:
            promise = "\n (white: as promised)"
            promised += shares[sources].sum()
            axes.axhline(promised, color="white", lw=1, ls="--")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1)
    axes.set_ylabel(f"share of samples{promise}")
    axes.set_xlabel("position in the global order")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        fontsize=8,
        frameon=False,
        reverse=True,
    )


def _draw_passes(
    axes: Any,
    read: Float64Array,
    groups: list[Group],
    sizes: Int64Array,
) -> None:
    """A bar for each group: how often it is read, from the samples read [sources]."""
    longest = 1.0
    places = range(len(groups) - 1, -1, -1)
    for place, (_, sources, color) in zip(places, groups, strict=True):
        samples = sizes[sources].sum()
        passes = read[sources].sum() / max(samples, 1)
        axes.barh(place, passes, 0.7, color=color)
        text = f" {passes:,.2f} x {samples:,} samples"
        axes.text(passes, place, text, va="center", fontsize=8, color=INK)
        longest = max(longest, passes)
    axes.axvline(1, color=INK, lw=1, ls=":")
    labels = [_end_of_name(label) for label, _, _ in groups]
    axes.set_yticks(places, labels, fontsize=8)
    axes.set_xlim(0, longest * 1.6)  # space for the text
    axes.set_xlabel("how often a source is read (dotted: once)")
    axes.spines[["top", "right"]].set_visible(False)


def _end_of_name(name: str) -> str:
    """The end of a long name, which distinguishes files."""
    if len(name) <= MAX_CHARACTERS:
        return name
    return f"...{name[3 - MAX_CHARACTERS :]}"
