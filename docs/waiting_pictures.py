"""Draws docs/waiting.svg out of `benchmarks/results/waiting*.json`: what a user waits for, beside the limits.

    python docs/waiting_figure.py

tests/test_waiting.py draws it again and compares the words.
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "notebooks")]

import figures  # noqa: E402, F401 (registers the typeface of the course)

INK, SOFT, OURS, OTHERS, LIMIT = "#1c2127", "#59626c", "#0b5c8f", "#b9c3cc", "#a33c13"
Bar = tuple[str, float, bool]  # label, value, whether it is ours


def result(name: str) -> dict[str, Any]:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found["rows"]


def commands() -> list[Bar]:
    rows = result("waiting")
    names = [
        "inspect",
        "verify",
        "where, stateless",
        "when, stateless",
        "audit, nanotron",
        "estimate",
    ]
    return [(name, rows[name]["of_import_torch"], True) for name in names]


def first_batch() -> list[Bar]:
    rows = result("waiting")
    torch = rows["import torch"]["cpu_seconds"]
    bars = []
    for order in ("stateless", "nanotron"):
        for cache in ("cached", "empty cache"):
            row = rows[f"first batch + 0, {order}, {cache}"]
            bars.append(
                (f"{order}, {cache}", max(0.0, row["cpu_seconds"] - torch), True)
            )
    return bars


def text() -> list[Bar]:
    rows = result("waiting_tokenizing")
    bars = [
        (
            "import torch, to compare",
            rows["import torch"]["work_seconds"]["median"],
            False,
        )
    ]
    for kind, end in (("JSON lines", ""), (".zst", ", zst"), ("Parquet", ", Parquet")):
        ours = rows[f"nanoset_ref{end}"]["work_seconds"]["median"]
        theirs = rows[f"encode_files + writing{end}"]["work_seconds"]["median"]
        bars += [
            (f"{kind}: encode_files + writing", theirs, False),
            (f"{kind}: preprocess", ours, True),
        ]
    return bars


def elastic() -> list[Bar]:
    bars = []
    for name, row in result("waiting_elastic").items():
        if "refused" not in row:
            wrong = row["samples_lost"] + row["samples_read_twice"]
            label = f"{name}: {wrong:,.0f} samples wrong" if wrong else f"{name}: exact"
            bars.append((label, row["seconds_to_first_batch"], name == "nanoset_ref"))
    return bars


def refused() -> str:
    names = [
        name for name, row in result("waiting_elastic").items() if "refused" in row
    ]
    return "refused: " + ", ".join(names)


def many_files() -> list[Bar]:
    bars = []
    for name, row in result("waiting_runs").items():
        if "files" in name:
            is_ours = "-Core" not in name and "OLMo" not in name
            label = name.replace("10^6 of 2,000 files: ", "2,000: ")
            bars.append((label, row["seconds"][0], is_ours))
    return bars


def steps() -> list[Bar]:
    rows = result("waiting_runs")
    return [
        (name, 100 * row["share"][0], True)
        for name, row in rows.items()
        if "share" in row
    ]


PANELS = [
    (
        "A command answers before torch is imported",
        "import torch = 1",
        commands,
        True,
        "",
    ),
    (
        "The first batch comes with the imports",
        "seconds after import torch",
        first_batch,
        False,
        "",
    ),
    (
        "Text is tokenized at its encoder's own speed",
        "seconds for 313 MB",
        text,
        False,
        "",
    ),
    (
        "2 ranks become 3 after a kill",
        "seconds to the first batch",
        elastic,
        False,
        refused,
    ),
    (
        "Many files open under ulimit -n 1024",
        "seconds to the first batch",
        many_files,
        False,
        "",
    ),
    ("A step of 20 ms hardly waits for data", "% of the time", steps, False, ""),
]


def draw() -> Figure:
    figure = Figure(figsize=(9.6, 10.2))
    grid = figure.subplots(3, 2)
    for axes, (title, unit, bars, beside_torch, note) in zip(
        grid.flat, PANELS, strict=True
    ):
        panel(axes, title, unit, bars(), beside_torch)
        if note:
            axes.text(0, -0.32, note(), transform=axes.transAxes, color=SOFT, size=8.5)
    figure.subplots_adjust(
        left=0.235, right=0.975, top=0.955, bottom=0.06, wspace=0.95, hspace=0.5
    )
    return figure


def panel(
    axes: Axes, title: str, unit: str, bars: list[Bar], beside_torch: bool
) -> None:
    """Bars from top to bottom with their numbers, and a line where `import torch` ends."""
    largest = max(max(value for _, value, _ in bars), float(beside_torch))
    for number, (label, value, is_ours) in enumerate(bars):
        axes.barh(number, value, 0.62, color=OURS if is_ours else OTHERS)
        said = f"{value:.2g}" if value else "none measured"
        axes.text(value + 0.02 * largest, number, said, va="center", size=9, color=INK)
        axes.text(
            -0.02 * largest, number, label, va="center", ha="right", size=9, color=INK
        )
    if beside_torch:
        axes.axvline(1, color=LIMIT, lw=1.3)
        axes.text(1, -0.75, "import torch ", color=LIMIT, size=8.5, ha="right")
    axes.set(xlim=(0, 1.2 * largest), ylim=(max(len(bars), 6) - 0.4, -1.1), yticks=[])
    axes.set_title(
        title, loc="left", size=10.5, weight="bold", color=INK, x=-0.85, y=1.02
    )
    axes.set_xlabel(unit, size=8.5, color=SOFT)
    axes.tick_params(labelsize=8, colors=SOFT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def save(folder: Path) -> None:
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "nanoset_ref"}):
        draw().savefig(
            folder / "waiting.svg", metadata={"Date": None}, facecolor="white"
        )


if __name__ == "__main__":
    save(ROOT / "docs")
