"""Pictures of where batches come from: a step, the readings of documents, passes over the sources."""

from collections.abc import Sequence

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from figures.cells import colour_of, picture, side_by_side
from figures.draw import COLOURS, INK, canvas, curves, half_framed, key

Parts = Sequence[tuple[str, int]]  # document, tokens


def step(rows: Sequence[tuple[str, int, Parts]], files: Sequence[str]) -> Figure:
    """The rows of a step as bars cut at document boundaries.

    Args:
        rows: (name, number of the file, [(document, tokens), ...]) of each row.
        files: names of the files; the colour of a bar is its file, every second document is paler.
    """
    drawn = {}
    for name, file, parts in rows:
        shades = [to_rgba(colour_of(file), alpha) for alpha in (1, 0.55)]
        drawn[name] = side_by_side(((text, shades[k % 2], size) for k, (text, size) in enumerate(parts)), room=8)
    length = sum(tokens for _, tokens in rows[0][2])
    figure, axes = picture(drawn, 0.42, room=0.7, gap=0)
    axes.set(xlabel="token of the row", xticks=range(0, length, 20))
    key(figure, dict(zip(files, COLOURS, strict=False)), "upper center")
    return figure


def readings(lanes: Sequence[tuple[str, ArrayLike, int]], steps: int) -> Figure:
    """When documents are read: a mark per reading, one lane per document.

    Args:
        lanes: (name, steps at which it is read, number of its colour).
        steps: length of the run.
    """
    figure, axes = canvas(0.4 * len(lanes) + 0.7)
    for height, (_, at, colour) in enumerate(lanes):
        axes.axhline(height, color="#dddddd", lw=0.8, zorder=0)
        axes.eventplot(at, lineoffsets=height, linelengths=0.6, lw=4, color=colour_of(colour))
    axes.set_yticks(range(len(lanes)), [name for name, _, _ in lanes])
    half_framed(axes, xlim=(0, steps + 1), ylim=(len(lanes) - 0.4, -0.6), xlabel="optimizer step")
    return figure


def passes(contents: Sequence[tuple[str, Sequence[ArrayLike]]], names: Sequence[str], changes: Sequence[int]) -> Figure:
    """Different samples of each file that have been read, as a share of the file, along a run whose plan changes.

    Args:
        contents: (title, [share [N] of each file]).
        names: of the files.
        changes: positions at which the plan changes.
    """
    lines = {title: {name: [share] for name, share in zip(names, shares, strict=True)} for title, shares in contents}
    labels = {"xlabel": "position in the run", "ylabel": "different samples read, share of the file"}
    figure = curves(lines, 3.2, legend="lower right", ylim=(0, 1.05), **labels)
    for axes in figure.axes:
        for change in changes:
            axes.axvline(change, color=INK, ls="--", lw=0.8)
    return figure
