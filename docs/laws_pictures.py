"""Draws the pictures of docs/laws_of_loading.md: docs/images/laws/NAME.svg, one for each law.

    python docs/laws_pictures.py

A picture has lanes of cells. A cell is a row of the data (or a token, or a source); a gap ends a
step. Cells are light under dark type, and labels gray, so that they can be read on white and on
black.
"""

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "notebooks"))

from figures.draw import COLOURS, INK, RED  # noqa: E402 (the palette of the course)

FOLDER = ROOT / "docs" / "images" / "laws"
CELL, GAP, LINE, LEFT, TOP = 30, 10, 40, 130, 12  # pixels
WIDTH = 640
GRAY = "#787878"  # can be read on white and on black
FILLS = dict(zip(" +*%!.", (*COLOURS[:4], COLOURS[6], COLOURS[5]), strict=True))
STYLE = (
    f"text{{font:14px sans-serif;fill:{INK};text-anchor:middle}}"
    f".l{{fill:{GRAY};text-anchor:start}}.m{{fill:{GRAY}}}"
)


class Lane(NamedTuple):
    """A line of cells.

    Args:
        label: stands on the left.
        cells: words, such as "3 0 | 2 !1 -4": "|" ends a step; "!" marks a wrong cell, "+", "*" and
            "%" another source or rank, "-" a cell that is missing, "." one that was still to come;
            "~" is an empty place, "..." a part that is not drawn.
        note: stands behind the cells.
    """

    label: str
    cells: str
    note: str = ""


PICTURES = {
    "once": [
        Lane("right", "3 0 2 4 1"),
        Lane("wrong", "3 0 2 !3 1", "row 3 twice, row 4 never"),
    ],
    "ranks": [
        Lane("rank 0", "4 1 | 0 5"),
        Lane("rank 1", "+2 +3 | -", "no batch: rank 0 waits forever"),
    ],
    "order": [
        Lane("1 rank", "5 1 4 0 | 2 3 6 7"),
        Lane("2 ranks, right", "5 1 +4 +0 | 2 3 +6 +7", "the same rows at each step"),
        Lane("2 ranks, wrong", "5 4 !2 !6 | !1 !0 +3 +7", "other rows"),
    ],
    "workers": [
        Lane("no worker", "0 1 | 2 3"),
        Lane("2 workers, right", "0 1 | +2 +3"),
        Lane("2 workers, wrong", "0 1 | !0 !1", "each worker reads everything"),
    ],
    "repeat": [
        Lane("a process", "4 2 0 1 3"),
        Lane("another, right", "4 2 0 1 3"),
        Lane("another, wrong", "!1 !3 !4 !0 !2", "drawn from a generator of the process"),
    ],
    "seed": [
        Lane("seed 0", "4 2 0 1 3"),
        Lane("seed 1, right", "1 4 3 0 2", "another order of the same rows"),
        Lane("seed 1, wrong", "1 4 3 !5 2", "other rows"),
    ],
    "epochs": [
        Lane("epoch 0", "3 1 0 4 2"),
        Lane("epoch 1, right", "2 4 1 0 3"),
        Lane("epoch 1, wrong", "!3 !1 !0 !4 !2", "the same order again"),
    ],
    "resume": [
        Lane("never stopped", "5 1 | 4 0 | 2 3"),
        Lane("resumed, right", "5 1 | 4 0 | *2 *3"),
        Lane("resumed, wrong", "5 1 | 4 0 | !4 !0", "step 2 reads what step 1 should have"),
    ],
    "killed": [
        Lane("never killed", "5 1 | 4 0 | 2 3"),
        Lane("killed, right", "5 1 | 4 0 | *2 *3"),
        Lane("killed, wrong", "5 1 | 4 0 | !5 !1", "the state died with the process"),
    ],
    "elastic": [
        Lane("2 ranks, stopped", "5 1 +4 +0"),
        Lane("4 ranks, right", "~ ~ ~ ~ | 2 +3 *6 %7", "a color for each rank"),
        Lane("4 ranks, wrong", "~ ~ ~ ~ | !4 !0 *6 %7", "4 and 0 twice, 2 and 3 never"),
    ],
    "weights": [
        Lane("shares", "a a +b *c", "2 : 1 : 1"),
        Lane("right", "a +b a *c a *c a +b", "in every prefix"),
        Lane("wrong", "a !a !a !a +b *c +b *c", "only at the end"),
    ],
    "complete": [
        Lane("two sources", "0 1 2 +3 +4", "2 : 1"),
        Lane("right", "1 0 +4 2 0 +3 1 2"),
        Lane("wrong", "1 0 +4 2 0 !4 1 2", "4 again before 3 came"),
    ],
    "spread": [
        Lane("in the file", "0 1 2 3 4 5 6 7 8 9"),
        Lane("right", "7 2 9 0 5 3 8 1 6 4"),
        Lane("wrong", "!1 !0 !2 !4 !3 !5 !6 !8 !7 !9", "still in file order"),
    ],
    "owned": [
        Lane("delivered", "3 7 | +1 +4"),
        Lane("held, right", "3 7 | +1 +4"),
        Lane("held, wrong", "!1 !4 | +1 +4", "one buffer, handed out twice"),
    ],
    "data": [
        Lane("in the file", "8 9 10 11 | +12 +13 +14 +15", "two rows"),
        Lane("right", "+12 +13 +14 +15 | 8 9 10 11"),
        Lane("wrong", "!10 !11 !12 !13", "a row of neither"),
    ],
    "refuses": [
        Lane("before", "3 0 | 2 1 | .5 .4", "stopped; 5 and 4 were to come"),
        Lane("7 rows, right", "~ ~ | ~ ~ |", "refused: 6 rows have become 7"),
        Lane("7 rows, wrong", "~ ~ | ~ ~ | !6 !2", "goes on in another order"),
    ],
    "length": [
        Lane("len(loader) = 3", "3 0 | 2 1 | 5 4"),
        Lane("wrong", "3 0 | 2 1 | - -", "two batches come"),
    ],
    "masks": [
        Lane("tokens", "8 9 10 0 0", "0 is padding"),
        Lane("right", "1 1 1 0 0"),
        Lane("wrong", "1 1 1 !1 0", "the loss counts padding"),
    ],
    "growth": [
        Lane("1,024 rows", "*", "until the first batch"),
        Lane("65,536, right", "*"),
        Lane("65,536, wrong", "! ! ! ! ! ! ... !", "64 times as long"),
    ],
}  # fmt: skip


def draw(law: str, lanes: list[Lane]) -> str:
    """The picture as SVG."""
    height = 2 * TOP + LINE * len(lanes) - (LINE - CELL)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(words(law))}</title><style>{STYLE}</style>",
    ]
    for number, lane in enumerate(lanes):
        parts += draw_lane(lane, TOP + LINE * number)
    return "\n".join([*parts, "</svg>", ""])


def draw_lane(lane: Lane, y: int) -> list[str]:
    parts = [f'<text class="l" x="8" y="{y + 20}">{escape(lane.label)}</text>']
    x = LEFT
    for word in lane.cells.split():
        if word == "|":
            x += GAP
            continue
        parts += draw_cell(word, x, y)
        x += CELL + 2
    if lane.note:
        parts.append(
            f'<text class="l" x="{x + GAP}" y="{y + 20}">{escape(lane.note)}</text>'
        )
    return parts


def draw_cell(word: str, x: int, y: int) -> list[str]:
    kind = word[0] if word[0] in "+*%!-.~" else " "
    text = "..." if word == "..." else word.lstrip("+*%!-.~")
    box = f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="3"'
    label = f'<text x="{x + CELL // 2}" y="{y + 20}">{text}</text>' if text else ""
    if kind == "~":
        return []
    if word == "...":
        return [label.replace("<text", '<text class="m"')]
    if kind == "-":
        dashes = f'fill="none" stroke="{RED}" stroke-width="2" stroke-dasharray="4 3"'
        gray = label.replace("<text", '<text class="m"')
        return [f"{box} {dashes}/>{gray}"]
    edge = f' stroke="{RED}" stroke-width="2"' if kind == "!" else ""
    return [f'{box} fill="{FILLS[kind]}"{edge}/>{label}']


def words(law: str) -> str:
    """The text in place of the picture."""
    lanes = []
    for lane in PICTURES[law]:
        said = [step for step in map(step_in_words, lane.cells.split("|")) if step]
        note = f" ({lane.note})" if said and lane.note else lane.note
        lanes.append(f"{lane.label}: {', then '.join(said)}{note}")
    return f"{'; '.join(lanes)}."


def step_in_words(cells: str) -> str:
    """The cells of a step: "3 0", "a bar of 2 cells" where they have no text, "none" where one is missing."""
    if "..." in cells:
        return "a long bar, not drawn in full"
    found = [cell.lstrip("+*%!") for cell in cells.split() if cell[0] != "."]
    texts = ["none" if cell.startswith("-") else cell for cell in found if cell != "~"]
    if texts and not any(texts):
        return f"a bar of {len(texts)} cell{'s' * (len(texts) > 1)}"
    return " ".join(texts)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for law, lanes in PICTURES.items():
        (FOLDER / f"{law}.svg").write_text(draw(law, lanes))


if __name__ == "__main__":
    sys.exit(main())
