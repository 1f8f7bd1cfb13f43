"""Draws the cheat sheet: docs/cheat_sheet.svg and docs/cheat_sheet.pdf, one A4 page.

    python docs/cheat_sheet.py

The titles of the laws come from docs/laws.md, and the worked numbers from `nanoset_ref.plain`;
tests/test_cheat_sheet.py draws the page again and compares its words.
"""

import math
import re
import sys
import textwrap
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "notebooks")]

import figures  # noqa: E402, F401 (registers the typeface of the course)
from figures.draw import COLOURS  # noqa: E402
from nanoset_ref import plain  # noqa: E402

WIDTH, HEIGHT = 595, 842  # points of an A4 page
MARGIN = 30
INK, SOFT, ACCENT, PAPER = "#222222", "#5f5f5f", "#0067a5", "#eef3f7"

SENTENCE = (
    "A run is a sequence of positions: an order names the sample at each, rows read it,",
    "a schedule says who reads it when, a collator turns it into model inputs.",
)
FORMATS = [
    ("file", "holds", "records", "read by"),
    (".npy + .json", "ids, nothing else", "dtype, vocabulary, checksum, documents", "NumPy, this package"),
    (".bin + .idx", "ids | lengths, offsets, documents", "dtype, documents", "Megatron-Core, GPT-NeoX"),
    (".ds + .ds.index", "ids | ends of documents", "bytes of an id, in .ds.metadata", "datatrove, Nanotron"),
    (".jsonl chunks", "rows of ids as text", "manifest.json: lines, checksums", "LLM360's way"),
]  # fmt: skip
GLOSSES = {  # by the number of the law; the others are about the package's house, not about loading
    1: "What stands at position k: by files, weights, S, seed and order alone.",
    2: "Rank r of D reads c + r, c + r + D, ...; TP, CP and PP ranks share their rows.",
    3: "consumed_train_samples: global, in samples, counted when a batch is delivered.",
    4: "Beside it: what is read, by content. A resume with anything else is refused.",
    5: "A resume after 10¹² samples costs what one after ten costs.",
    6: "Killed at any moment: the old file or the new one.",
    7: "Write into a batch: no other batch changes.",
    10: "Never by the order of calls: drawing once more changes nothing.",
}
ROWS = [
    ("a row", "S + 1 ids: the inputs are its first S, the labels its last S."),
    (
        "of T tokens",
        "(T - 1) // S rows that overlap by one id, or T // (S + 1) disjoint ones; "
        "the rest of the file is never read.",
    ),
    (
        "masks",
        "the loss leaves out padding; position ids begin again at each document; "
        "cu_seqlens are the documents' ends, after a 0.",
    ),
    (
        "zig-zag",
        "context-parallel rank r of cp gets pieces r and 2 cp - 1 - r of 2 cp "
        "(cp = 4: rank 1 has pieces 1 and 6).",
    ),
]


def law_titles() -> dict[int, str]:
    """The titles of docs/laws.md, by their numbers."""
    page = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (\d+)\. (.+)$", page, re.MULTILINE)
    return {int(number): title for number, title in titles}


def resume_lines() -> list[str]:
    """The arithmetic of a resume, worked with plain.py."""
    dp_size, rows, accumulation = 4, 2, 3
    batch = dp_size * rows * accumulation
    consumed = 10 * batch
    left = plain.positions_left(1000, consumed, dp_size, rows)
    micro_batches = plain.micro_batches_of_rank(left, 1, dp_size, rows)[:accumulation]
    fewer = plain.micro_batches_of_rank(left, 1, 2, 4)[:accumulation]
    step, micro, rank, row = plain.slot(250 - consumed, dp_size, rows, accumulation)
    return [
        f"D = {dp_size} ranks, B = {rows} rows, A = {accumulation} micro-batches: "
        f"a step reads G = D·B·A = {batch} samples.",
        f"10 steps are done: c = 10 G = {consumed}. That number is the whole state.",
        f"Step 11 reads positions {consumed} to {consumed + batch - 1}: rank r reads c + r, c + r + D, ...",
        f"Rank 1: {spelled(micro_batches)}.",
        f"Now on 2 ranks of 4 rows. Rank 1: {spelled(fewer)}.",
        "The same 24 samples: none is skipped, none is read twice.",
        f"Back: position 250 is {250 - consumed} after c, and "
        f"{250 - consumed} = {micro}·{dp_size * rows} + {row}·{dp_size} + {rank}:",
        f"step {10 + step}, micro-batch {micro}, row {row}, rank {rank}.",
    ]


def spelled(micro_batches: list[list[int]]) -> str:
    return " | ".join(" ".join(map(str, batch)) for batch in micro_batches)


def numbers() -> list[tuple[str, str, str]]:
    """(the number, what it is, its source)."""
    N, S = 10**7, 2048
    never = (1 - S / N) ** (N / S)  # no crop of an epoch's worth holds the token
    row = 2 * (2048 + 1)
    return [
        ("2 or 4 bytes", "an id: 2 up to 65,536 ids, else 4; 1 T tokens are 2 or 4 TB", "arithmetic"),
        ("10.8 MB/s", "ids that all 16,384 GPUs of Llama 3 405B read together", "docs/real_runs.md"),
        ("21.5 MB/s", "the same for SmolLM3's 384 GPUs: 1,300 rows a second", "docs/real_runs.md"),
        ("3.1 hours", "between unplanned stops of Llama 3 405B", "arXiv:2407.21783, 3.3.4"),
        (f"{never:.0%}", "of tokens are never read in one epoch's worth of random crops (1/e)", "arithmetic"),
        ("16 bytes", "per position of the run, in each process: Nanosets of 2024", "Nanotron 2e36d6f"),
        ("12 + 4 bytes", "a sample (16 from 2³² - 2 on) + a document: Megatron's indexes", "Megatron-Core 0.16.1"),
        ("150 bytes", "per file: the stateless order, for any number of samples", "orders/stateless.py"),
        ("1.7 samples", "farthest a source is from its share, every 64 positions", "orders/stateless.py"),
        (f"{row:,} bytes", f"a row of 2,048 + 1 ids: {math.ceil(row / 4096)} pages of the disk at least", "arithmetic"),
        ("6 P operations", "a token costs in a model of P parameters, roughly", "arXiv:2001.08361"),
    ]  # fmt: skip


class Sheet:
    """A page that is written from top to bottom, in points from its upper left corner."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        self.axes.axis("off")

    def write(self, x: float, y: float, text: str, size: float = 8.6, **style) -> None:
        style.setdefault("color", INK)
        self.axes.text(
            x, y, text.replace("$", r"\$"), size=size, va="baseline", **style
        )

    def heading(self, x: float, y: float, text: str) -> None:
        self.write(x, y, text, 11.5, weight="bold", color=ACCENT)

    def panel(self, y: float, height: float) -> None:
        box = Rectangle(
            (MARGIN - 8, y), WIDTH - 2 * MARGIN + 16, height, color=PAPER, zorder=0
        )
        self.axes.add_patch(box)


def draw() -> Figure:
    sheet = Sheet()
    sheet.write(MARGIN, 50, "How tokens reach the GPUs", 21, weight="bold")
    sheet.write(
        WIDTH - MARGIN, 50, "nanoset_ref, November 2026", 8.6, color=SOFT, ha="right"
    )
    sheet.panel(62, 38)
    for k, line in enumerate(SENTENCE):
        sheet.write(MARGIN, 78 + 14 * k, line, 10.8, style="italic")
    draw_laws(sheet, 122)
    draw_ranks(sheet, 122)
    draw_resume(sheet, 342)
    draw_rows(sheet, 486)
    draw_formats(sheet, 567)
    draw_numbers(sheet, 665)
    return sheet.figure


def draw_laws(sheet: Sheet, y: float) -> None:
    sheet.heading(MARGIN, y, "Laws of this package (docs/laws.md)")
    titles = law_titles()
    for k, (number, gloss) in enumerate(GLOSSES.items()):
        line = y + 19 + 24 * k
        sheet.write(
            MARGIN + 12, line, f"{number}", 10, weight="bold", color=ACCENT, ha="right"
        )
        sheet.write(MARGIN + 20, line, titles[number], 9.4, weight="bold")
        sheet.write(MARGIN + 20, line + 10.5, gloss)


def draw_ranks(sheet: Sheet, y: float) -> None:
    """The step of the worked resume, on four ranks and on two."""
    left = MARGIN + 325
    sheet.heading(left, y, "One order, two layouts")
    y += 18
    for dp_size, rows in ((4, 2), (2, 4)):
        sheet.write(left, y, f"{dp_size} ranks, {rows} rows a micro-batch", color=SOFT)
        y += 5
        for rank in range(dp_size):
            y += 18
            sheet.write(left, y, f"rank {rank}", color=SOFT)
            positions = plain.positions_left(264, 240, dp_size, rows)
            batches = plain.micro_batches_of_rank(positions, rank, dp_size, rows)
            draw_row(sheet, y, left + 30, batches)
        y += 26
    sheet.write(
        left, y - 4, "Positions of step 11. Colors are the four ranks", color=SOFT
    )
    sheet.write(
        left, y + 7, "of the first layout; a gap ends a micro-batch.", color=SOFT
    )


def draw_row(sheet: Sheet, y: float, x: float, batches: list[list[int]]) -> None:
    """The positions of a rank side by side, each in the color of position mod 4."""
    width = 172 / sum(map(len, batches))
    for batch in batches:
        for position in batch:
            box = Rectangle(
                (x, y - 11), width - 1, 15, color=COLOURS[position % 4], lw=0
            )
            sheet.axes.add_patch(box)
            center = x + width / 2 - 0.5
            sheet.write(
                center, y, str(position), 6.6 if width < 20 else 8.6, ha="center"
            )
            x += width
        x += 4


def draw_resume(sheet: Sheet, y: float) -> None:
    sheet.heading(MARGIN, y, "A resume is arithmetic")
    sheet.panel(y + 7, 117)
    for k, line in enumerate(resume_lines()):
        sheet.write(MARGIN, y + 22 + 13.6 * k, line, 8.6)


def draw_rows(sheet: Sheet, y: float) -> None:
    sheet.heading(MARGIN, y, "Rows, and what a rank gets of one")
    for k, (name, meaning) in enumerate(ROWS):
        line = y + 17 + 14.2 * k
        sheet.write(MARGIN + 78, line, name, 9, weight="bold", ha="right")
        sheet.write(MARGIN + 88, line, meaning, 8.6)


def draw_formats(sheet: Sheet, y: float) -> None:
    sheet.heading(MARGIN, y, "Files of token ids")
    columns = MARGIN, MARGIN + 95, MARGIN + 245, MARGIN + 425
    for k, row in enumerate(FORMATS):
        weight = "normal" if k else "bold"
        for x, cell in zip(columns, row, strict=True):
            sheet.write(
                x, y + 17 + 14.5 * k, cell, 8.6, weight=weight, color=INK if k else SOFT
            )


def draw_numbers(sheet: Sheet, y: float) -> None:
    sheet.heading(MARGIN, y, "Numbers to know")
    for k, (number, meaning, source) in enumerate(numbers()):
        line = y + 17 + 14.2 * k
        sheet.write(MARGIN + 78, line, number, 9, weight="bold", ha="right")
        sheet.write(MARGIN + 88, line, textwrap.shorten(meaning, 75), 8.6)
        sheet.write(WIDTH - MARGIN, line, source, 8.6, color=SOFT, ha="right")


def save(folder: Path) -> None:
    """Write cheat_sheet.svg, its words drawn as curves for readers without the typeface, and cheat_sheet.pdf."""
    settings = {
        "svg.fonttype": "path",
        "svg.hashsalt": "cheat sheet",
        "pdf.fonttype": 42,
    }
    with rc_context(settings):
        figure = draw()
        figure.savefig(folder / "cheat_sheet.svg", metadata={"Date": None})
        figure.savefig(folder / "cheat_sheet.pdf", metadata={"CreationDate": None})


if __name__ == "__main__":
    save(ROOT / "docs")
