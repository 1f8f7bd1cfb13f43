"""A picture of workers that read ahead."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from figures.cells import Cell, picture
from figures.draw import COLOURS

STATES = {"delivered": COLOURS[2], "asked for": COLOURS[0], "later": "white"}


def reading_ahead(sizes: Sequence[int], delivered: int, asked: int, num_workers: int) -> Figure:
    """The first blocks of a run, one column each, in the row of the worker that reads them.

    Args:
        sizes: batches in each block.
        delivered: batches that the training loop has got.
        asked: batches in the blocks that the workers have been asked for.
        num_workers: rows.
    """
    rows: dict[str, list[Cell]] = {f"worker {worker}": [] for worker in range(num_workers)}
    first = 0
    for block, size in enumerate(sizes):
        end = first + size
        state = "delivered" if end <= delivered else "asked for" if end <= asked else "later"
        rows[f"worker {block % num_workers}"].append(Cell(block, f"batches: {size}\n{state}", STATES[state]))
        first = end
    return picture(rows, 0.55, size=9.5)[0]
