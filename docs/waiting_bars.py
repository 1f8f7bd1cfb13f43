"""How bars beside what is wanted are drawn: a bar has its name above it and its number behind it; a limit is a line."""

import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from figures.draw import COLOURS, GREY, INK, LINES, RED

OURS, OTHERS = LINES[0], COLOURS[5]
WIDTH, MARGIN = 5.6, 0.14  # inches
NUMBER = 1.35  # the room behind the longest bar
STEP, BAR = 0.47, 0.19  # from bar to bar, and the height of one
LETTER = 0.08  # the width of one, about


class Bar(NamedTuple):
    """A measured figure; `said` stands behind it in place of the number."""

    label: str
    value: float
    is_ours: bool = True
    said: str = ""


class Limit(NamedTuple):
    """A line: what is wanted, or what a bar is compared with."""

    label: str
    value: float


class Panel(NamedTuple):
    """Bars of one scale.

    Args:
        heading: what is measured, with its unit.
        bars: from top to bottom.
        limits: the lines, from left to right.
        say: the number behind a bar.
        most: where the scale ends; a longer bar is cut there. None: at the longest.
    """

    heading: str
    bars: list[Bar]
    limits: list[Limit]
    say: Callable[[float], str]
    most: float | None = None

    @property
    def height(self) -> float:
        return 0.3 + 0.2 * len(self.limits) + STEP * len(self.bars) + 0.1


def digits(value: float) -> str:
    """Two digits: 0.80, 4.9, 130."""
    return (
        f"{value:#.2g}".removesuffix(".")
        if value < 99.5
        else f"{float(f'{value:.2g}'):,.0f}"
    )


def seconds(value: float) -> str:
    return f"{digits(1000 * value)} ms" if value < 0.1 else f"{digits(value)} s"


def draw(title: str, panels: list[Panel]) -> Figure:
    """A picture, written from top to bottom in inches from the upper left corner."""
    lines = textwrap.wrap(title, 58)
    height = 0.2 + 0.25 * len(lines) + sum(panel.height for panel in panels)
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    y = 0.08
    for line in lines:
        y += 0.25
        write(axes, MARGIN, y, line, size=14, weight="bold")
    y += 0.05
    for panel in panels:
        draw_panel(axes, y, panel)
        y += panel.height
    return figure


def draw_panel(axes: Axes, y: float, panel: Panel) -> None:
    """The heading, the names of the lines, and the bars; a line is drawn beside its name and across each bar."""
    write(axes, MARGIN, y + 0.2, panel.heading, color=GREY)
    values = [bar.value for bar in panel.bars] + [limit.value for limit in panel.limits]
    most = panel.most or max(values)
    scale = (WIDTH - 2 * MARGIN - NUMBER) / most
    y += 0.3
    lines = sorted(MARGIN + scale * limit.value for limit in panel.limits)
    for limit in panel.limits:
        y += 0.2
        x = MARGIN + scale * limit.value
        draw_line(axes, x, y - 0.12, y + 0.03)
        side = "left" if limit.value < 0.55 * most else "right"
        shift = 0.04 if side == "left" else -0.04
        write(axes, x + shift, y, limit.label, ha=side, color=RED)
    for bar in panel.bars:
        y += STEP
        draw_bar(axes, y, bar, scale, most, panel.say, lines)
        for x in lines:
            draw_line(axes, x, y - BAR - 0.03, y + 0.03)


def draw_line(axes: Axes, x: float, top: float, bottom: float) -> None:
    """White on both sides, so that it can be seen on a bar in gray as well."""
    axes.vlines(x, top, bottom, color="white", lw=4, zorder=2)
    axes.vlines(x, top, bottom, color=RED, lw=1.4, zorder=3)


def draw_bar(
    axes: Axes,
    y: float,
    bar: Bar,
    scale: float,
    most: float,
    say: Callable[[float], str],
    lines: list[float],
) -> None:
    """A bar whose lower edge is at y; its number stands behind a line that would run through it."""
    length = scale * min(bar.value, most)
    color = OURS if bar.is_ours else OTHERS
    write(axes, MARGIN, y - BAR - 0.06, bar.label)
    box = Rectangle((MARGIN, y - BAR), length, BAR, facecolor=color, edgecolor=GREY)
    box.set(linewidth=0.5 if length else 0)
    axes.add_patch(box)
    if bar.value > most:
        write(axes, MARGIN + length - 0.3, y - 0.03, "//", color="white", weight="bold")
    number = bar.said or say(bar.value)
    place = MARGIN + length + 0.07
    for x in lines:
        if place - 0.1 < x < place + LETTER * len(number):
            place = x + 0.07
    write(axes, place, y - 0.035, number)


def write(
    axes: Axes, x: float, y: float, words: str, size: float = 11, **style: Any
) -> None:
    style.setdefault("color", INK)
    axes.text(x, y, words, size=size, va="baseline", **style)
