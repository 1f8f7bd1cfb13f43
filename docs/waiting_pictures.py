"""Draws the pictures of docs/waiting.md out of `benchmarks/results/waiting*.json`: docs/waiting/NAME.svg.

    python docs/waiting_pictures.py

A function for each panel; `waiting_bars` draws them. tests/test_waiting_page.py draws the pictures again and
compares the words.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import rc_context

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "docs"), str(ROOT / "notebooks")]

from waiting_bars import Bar, Limit, Panel, digits, draw, seconds  # noqa: E402

import figures  # noqa: E402, F401 (registers the typeface of the course)

FOLDER = ROOT / "docs" / "waiting"
OF_TORCH = "User and system time of the process, in imports of torch"


def result(name: str) -> dict[str, Any]:
    """A result of benchmarks."""
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def rows_of(name: str) -> dict[str, Any]:
    rows: dict[str, Any] = result(name)["rows"]
    return rows


# ---- the panels


def bars_of_commands(names: dict[str, str]) -> list[Bar]:
    rows = rows_of("waiting")
    return [Bar(label, rows[name]["of_import_torch"]) for name, label in names.items()]


def commands() -> Panel:
    names = {
        "--help": "--help",
        "a wrong option": "a wrong option",
        "inspect": "inspect",
        "verify": "verify",
        "show": "show, tokenizer of the class PreTrainedTokenizerFast",
        "show, transformers": "show, of GPT-2's class: transformers loads it",
    }
    limits = [Limit("wanted: half of it at most", 0.5), Limit("import torch", 1)]
    return Panel(OF_TORCH, bars_of_commands(names), limits, digits)


def questions() -> Panel:
    names = {
        "where, stateless": "where, order stateless",
        "where, nanotron": "where, order nanotron",
        "when, stateless": "when, order stateless",
        "audit, stateless": "audit, order stateless",
        "audit, stateless, empty cache": "the same, with an empty cache of kernels",
        "audit, nanotron": "audit, order nanotron",
        "compare": "compare, two cards of Pythia",
        "where --run": "where --run pythia-1.4b",
        "when --run": "when --run pythia-1.4b",
        "audit --run": "audit --run pythia-1.4b",
    }
    limits = [Limit("wanted: import torch at most", 1)]
    return Panel(OF_TORCH, bars_of_commands(names), limits, digits, 1.1)


def imports() -> Panel:
    rows = rows_of("waiting")
    name = "from nanoset_ref import Nanoset"
    bars = [Bar(name, rows[name]["of_import_torch"])]
    return Panel(OF_TORCH, bars, [Limit("import torch", 1)], digits)


def first_batch() -> Panel:
    rows = rows_of("waiting")
    names = {
        "first batch of 1 TB, stateless, cached": "1 TB, stateless",
        "first batch of 1 TB, stateless, empty cache": "1 TB, stateless, empty cache of kernels",
        "first batch + 0, nanotron, cached": "400 MB, nanotron, whose epoch is built",
        "first batch + 0, nanotron, empty cache": "400 MB, nanotron, empty cache of kernels",
        "first batch + 200, stateless, cached": "400 MB, stateless, and 200 batches more",
    }
    bars = [
        Bar(label, rows[name]["seconds_after_imports"]) for name, label in names.items()
    ]
    limits = [
        Limit("wanted for 1 TB", 0.1),
        Limit("wanted with an empty cache", 1),
    ]
    heading = "Seconds from the end of the imports to the batch"
    return Panel(heading, bars, limits, seconds)


def text() -> Panel:
    rows = rows_of("waiting_tokenizing")
    processes = {
        "one process": "",
        "two workers": ", 2 workers",
        "two ranks of torchrun": ", 2 ranks",
    }
    bars = []
    for kind, end in (("JSON lines", ""), (".zst", ", zst"), ("Parquet", ", Parquet")):
        for label, name in processes.items():
            speed = rows[f"nanoset_ref{end}{name}"]["speed_of_limit"]["median"]
            bars.append(Bar(f"{kind}, {label}", speed))
    limits = [
        Limit("wanted: 0.8", 0.8),
        Limit("gigatoken's encode_files + writing", 1),
    ]
    heading = "Speed of the work, as a share of the limit's in the same round"
    return Panel(heading, bars, limits, digits)


def text_beside() -> Panel:
    """The tokenizers library: what it does alone, and in four programs."""
    rows = rows_of("waiting_tokenizing")
    size = result("waiting_tokenizing")["text"]["small_bytes"]
    names = {
        "nanoset_ref, hf": "preprocess --backend hf",
        "datasets.map, 2 processes": "datasets.map 5.2.0, two processes",
        "datatrove DocumentTokenizer": "datatrove's DocumentTokenizer 0.10.1",
        "Megatron preprocess_data, 2 workers, its imports included": "Megatron-LM 0.16.1, preprocess_data, 2 workers",
    }
    speeds = {
        name: size / 1e6 / row["work_seconds"]["median"] for name, row in rows.items()
    }
    bars = [
        Bar(label, speeds[f"a sixteenth: {name}"], "nanoset_ref" in name)
        for name, label in names.items()
    ]
    alone = speeds["a sixteenth: encode_batch_fast alone"]
    limits = [Limit("encode_batch_fast alone, ids thrown away", alone)]
    return Panel("The tokenizers library, MB of text per second", bars, limits, digits)


def starts(names: dict[str, str], wanted: float, most: float | None) -> Panel:
    """The first batch of many files."""
    rows = rows_of("waiting_runs")
    bars = [
        Bar(
            label, rows[name]["seconds"][0], "Core" not in label and "OLMo" not in label
        )
        for name, label in names.items()
    ]
    heading = "Seconds from the end of the imports to the first batch"
    return Panel(heading, bars, [Limit(f"wanted: {wanted:g} s", wanted)], seconds, most)


def many_files() -> Panel:
    names = {
        "2,000 files": "2,000 files, 10\N{SUPERSCRIPT ONE}\N{SUPERSCRIPT ZERO} samples, stateless",
        "10^6 of 2,000 files: nanotron": "2,000 files, a million samples, nanotron",
        "10^6 of 2,000 files: OLMo-core": "the same, OLMo-core 3.0.0",
        "10^6 of 2,000 files: nanoset_ref, .bin/.idx": "2,000 .bin/.idx pairs, a million samples",
        "10^6 of 2,000 files: Megatron-Core, fast cache": "the same, Megatron-Core 0.16.1, fast cache",
        "2,000 files, forgotten": "2,000 files that the system has forgotten",
    }
    return starts(names, 0.1, None)


def very_many_files() -> Panel:
    names = {
        "100,000 files": "100,000 files, 10\N{SUPERSCRIPT ONE}\N{SUPERSCRIPT ZERO} samples, stateless",
        "100,000 files, forgotten": "100,000 files that the system has forgotten",
        "10^6 of 100,000 files: nanotron": "100,000 files, a million samples, nanotron",
    }
    return starts(names, 1, None)


def resumes() -> Panel:
    versions = result("waiting_elastic")["versions"]
    bars = []
    refusing = []
    for name, row in rows_of("waiting_elastic").items():
        label = f"{name} {versions.get(name, '')}".strip()
        if "refused" in row:
            refusing.append(label)
            continue
        lost, twice = row["samples_lost"], row["samples_read_twice"]
        label += f": {lost:,} lost, {twice:,} read twice" if twice else ": each once"
        bars.append(Bar(label, row["seconds_to_first_batch"], name == "nanoset_ref"))
    bars.append(Bar(", ".join(refusing), 0, False, "refused by their loaders"))
    limits = [Limit("wanted: 0.2 s", 0.2)]
    heading = "Seconds to the first batch, without the start of the process"
    return Panel(heading, bars, limits, seconds)


def answers() -> Panel:
    rows = rows_of("waiting_runs")
    names = {
        "where, a terabyte": "where, two files of 500 GB",
        "where --run": "where --run pythia-1.4b, 0.6 TB",
        "when --run": "when --run pythia-1.4b",
        "where --run, 10^10 rows": "where, a step of 2,048 of 10\u00b9\u2070 shuffled rows",
        "when --run, 10^10 rows": "when, a card of 10\u00b9\u2070 rows",
    }
    bars = [
        Bar(label, rows[f"beyond the start: {name}"]["seconds"][0])
        for name, label in names.items()
    ]
    heading = "Seconds of the answer, without Python's start and imports"
    return Panel(heading, bars, [Limit("wanted: 50 ms", 0.05)], seconds)


def bulk() -> Panel:
    row = rows_of("waiting_runs")["when --bulk, a million"]
    bars = [Bar("when --run pythia-1.4b --bulk", row["seconds"][0])]
    heading = "Seconds of a process that answers a million questions"
    return Panel(heading, bars, [Limit("wanted: 10 s", 10)], seconds)


def steps() -> Panel:
    names = {
        "nothing": "no loader: a call that returns a number",
        "four views of tensors in memory": "no loader: four views of kept tensors, cut at each step",
        "four views, cut for 64 batches at once": "no loader: the same, cut for 64 steps at once",
        "in this process": "read in the process",
        "thread": "read ahead by a thread",
        "2 workers": "two workers",
        "in this process, cold": "in the process, page cache empty",
        "thread, cold": "by a thread, page cache empty",
        "thread, bucket": "by a thread, a bucket that answers after 20 ms",
    }
    rows = rows_of("waiting_runs")
    bars = []
    for name, label in names.items():
        median, mean = rows[name]["median_share"][0], rows[name]["share"][0]
        said = f"{digits(100 * median)} %, mean {digits(100 * mean)}"
        bars.append(Bar(label, 100 * median, "no loader" not in label, said))
    heading = "Share of a step of 20 ms spent waiting: the median step"
    return Panel(heading, bars, [Limit("wanted: 0.1 %", 0.1)], digits)


def rows_of_text() -> Panel:
    bars = []
    for name, row in rows_of("waiting_text_rows").items():
        size, _, backend = name.partition(", ")
        if backend == "gigatoken":
            bars.append(Bar(f"documents of {size}", row["milliseconds"]))
    heading = "Milliseconds per micro-batch of 8 rows of 2,048 tokens, two cores"
    return Panel(heading, bars, [Limit("wanted: less than 20 ms", 20)], digits)


# ---- of the overview


def some_questions() -> Panel:
    panel = questions()
    bars = [
        bar
        for bar in panel.bars
        if bar.label.endswith(("stateless", "kernels", "Pythia"))
    ]
    heading = "Commands: user and system time, in imports of torch"
    return panel._replace(heading=heading, bars=bars)


def some_text() -> Panel:
    panel = text()
    bars = [bar for bar in panel.bars if bar.label.endswith("one process")]
    heading = "Text to token files: speed, as a share of the limit's"
    return panel._replace(heading=heading, bars=bars)


def some_resumes() -> Panel:
    heading = "2 ranks become 3 after a kill: seconds to the first batch"
    return resumes()._replace(heading=heading)


# name of the file -> title, which says what was found, and panels
PICTURES: dict[str, tuple[str, list[Callable[[], Panel]]]] = {
    "commands": (
        "A command takes a fifth of an import of torch, unless its tokenizer needs transformers",
        [commands],
    ),
    "questions": (
        "Where, when and compare take a fifth of an import of torch, audit up to three quarters",
        [questions],
    ),
    "first_batch": (
        "The first batch of a terabyte comes a few milliseconds after the imports",
        [imports, first_batch],
    ),
    "text": ("Text becomes tokens at the speed of its encoder", [text, text_beside]),
    "many_files": (
        "2,000 .npy files open within 0.1 s in the stateless order, 100,000 in more than the wanted second",
        [many_files, very_many_files],
    ),
    "resume": ("2 ranks become 3 after a kill, and read each sample once", [resumes]),
    "terabyte": (
        "A question about a terabyte is answered in milliseconds",
        [answers, bulk],
    ),
    "steps": (
        "The median step of 20 ms waits 0.1 % of it, the mean step longer",
        [steps],
    ),
    "rows_of_text": (
        "Rows tokenized when they are read: fast enough for short documents only",
        [rows_of_text],
    ),
    "overview": (
        "Most commands answer within a third of an import of torch; a resume takes "
        + seconds(resumes().bars[0].value),
        [some_questions, some_text, some_resumes],
    ),
}


def save(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    options = {"svg.fonttype": "path", "svg.hashsalt": "nanoset_ref"}
    for name, (title, panels) in PICTURES.items():
        figure = draw(title, [panel() for panel in panels])
        with rc_context(options):
            path = folder / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    save(FOLDER)
