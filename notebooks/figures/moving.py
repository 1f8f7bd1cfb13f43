"""Figures that move: rows of boxes for every setting of some controls.

Python computes all settings, and the page only picks one. `Moving.html` needs no network. Where no script may run
(GitHub, an untrusted notebook), it shows a PNG of its first setting: an address of the form `data:image/png` is what
nbconvert writes for every picture of an output, so a page that shows pictures at all shows this one too.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from figures.cells import Cell, heads, picture
from figures.draw import INK, RED

PIXELS = 750  # of width, as every picture of the course
ROW, HIGH = 28, 23  # pixels from one row to the next, and of a box
LOOKS: dict[str, dict[str, Any]] = {
    "": {},
    "lost": {"edgecolor": RED, "ls": "--", "lw": 1.2},
    "thick": {"edgecolor": INK, "lw": 2.5},
}


class Box(NamedTuple):
    """A rectangle with a text in its middle. It may be "lost", with a dashed edge, or "thick", with a strong one."""

    left: float
    text: object = ""
    colour: str = ""
    width: float = 1
    look: str = ""


class State(NamedTuple):
    """What a setting shows: a sentence that says what to see, rows of boxes by name, texts above them by place."""

    says: str
    rows: Mapping[str, Sequence[Box]]
    heads: Mapping[float, str] = {}


class Moving:
    """A figure with controls.

    Args:
        controls: by name, the settings of each: numbers make a slider, words a list.
        state: what a setting shows, from one choice per control; called for each combination.
        start: the setting that is shown first.
        length: of the rows; None: of the longest one of each setting.
        gliding: boxes with the same text are the same and glide to their new place; no setting has a text twice.
    """

    def __init__(
        self,
        controls: Mapping[str, Sequence[Any]],
        state: Callable[..., State],
        start: Sequence[Any],
        *,
        length: float | None = None,
        gliding: bool = False,
    ):
        self.controls, self.start, self.length, self.gliding = (
            controls,
            tuple(start),
            length,
            gliding,
        )
        self.states = {choice: state(*choice) for choice in product(*controls.values())}
        rows = [row for shown in self.states.values() for row in shown.rows.items()]
        self._left = 7 * max(len(name) for name, _ in rows) + 8
        self._top = 18 * any(shown.heads for shown in self.states.values())
        self._colours = [
            "none",
            *dict.fromkeys(box.colour for _, row in rows for box in row if box.colour),
        ]

    def still(self) -> Figure:
        """The first setting as a picture."""
        state = self.states[self.start]
        rows = {
            name: [
                Cell(box.left, str(box.text), box.colour or "none", box.width, LOOKS[box.look])
                for box in row
            ]
            for name, row in state.rows.items()
        }
        figure, axes = picture(rows, ROW / 100, room=0.3 + 0.25 * bool(state.heads))
        axes.set(xlim=(-0.05, self._length(state)), title=state.says)
        heads(axes, state.heads, size=9)
        return figure

    def html(self, alt: str, still: bytes) -> str:
        """The figure as a part of a page.

        Args:
            alt: what the still picture shows.
            still: the first setting as a PNG, which the script replaces by the figure that moves.
        """
        frames: dict[str, int] = {}  # equal ones once
        order = [
            frames.setdefault(_json(self._frame(state)), len(frames))
            for state in self.states.values()
        ]
        highest = max(len(state.rows) for state in self.states.values())
        figure = {
            "controls": [
                [name, not isinstance(it[0], str), [*map(str, it)]]
                for name, it in self.controls.items()
            ],
            "start": [
                list(it).index(choice) for it, choice in zip(self.controls.values(), self.start)
            ],
            "size": [PIXELS, self._top + ROW * highest + 1],
            "top": self._top,
            "row": ROW,
            "height": HIGH,
            "gliding": self.gliding,
            "looks": list(LOOKS),
            "colours": self._colours,
            "order": order,
        }
        shown = ",\n".join(frames)
        embedded = f'{_json(figure)[:-1]},"frames":[\n{shown}]}}'.replace("<", "\\u003c")
        image = f'<img alt="{escape(alt)}" width="{PIXELS}" src="data:image/png;base64,{b64encode(still).decode()}">'
        data = f'<script type="application/json">{embedded}</script>'
        script = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
        return f'<div class="moving">\n{image}\n{data}\n</div>\n{script}'

    def _length(self, state: State) -> float:
        return self.length or max(
            box.left + box.width for row in state.rows.values() for box in row
        )

    def _frame(self, state: State) -> tuple[str, list[Any], list[Any]]:
        """What is said; x, y, anchor and text of each name and head; x, row, width, text, colour, look of each box."""
        unit = (PIXELS - 2 - self._left) / self._length(state)
        middle = self._top + HIGH // 2
        texts = [
            (self._left - 8, middle + ROW * row, "end", name) for row, name in enumerate(state.rows)
        ]
        texts += [
            (self._left + round(unit * x), 8, "middle", text) for x, text in state.heads.items()
        ]
        boxes = [
            self._box(row, box, unit)
            for row, boxes in enumerate(state.rows.values())
            for box in boxes
        ]
        return state.says, texts, boxes

    def _box(self, row: int, box: Box, unit: float) -> list[Any]:
        left, right = round(unit * box.left), round(unit * (box.left + box.width))
        found = [
            self._left + left,
            row,
            max(1, right - left - 2),
            box.text,
            self._colours.index(box.colour or "none"),
        ]
        return [*found, list(LOOKS).index(box.look)] if box.look else found


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
