"""docs/real_runs.md: its computed numbers follow from its published ones, and those are the cards'."""

import re
from pathlib import Path

import pytest

from nanoset_ref import Card

PAGE = (Path(__file__).parent.parent / "docs" / "real_runs.md").read_text(
    encoding="utf-8"
)
TABLE = [line for line in PAGE.splitlines() if line.startswith("| ")]
ROWS = {
    line.split("|")[1].strip(" *"): [cell.strip() for cell in line.split("|")[2:-1]]
    for line in TABLE
}
LLAMA, OLMO, SMOL = range(3)
DAY = 86_400
MEBI = 2**20


def numbers(row: str, run: int) -> list[float]:
    """All numbers of a cell, without its sources."""
    cell = re.sub(r"\[[^]]*\]", "", ROWS[row][run])
    return [
        float(found.replace(",", ""))
        for found in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)
    ]


def first(row: str, run: int) -> float:
    return numbers(row, run)[0]


def speed(run: int) -> float:
    """Tokens/s of the cluster."""
    gpus = first("GPUs (H100)", run)
    each = first("speed of a GPU", run)
    if run == LLAMA:
        each *= 1e12 / (6 * 405e9)
    return gpus * each


def tokens(run: int) -> float:
    return first("tokens read", run) * 1e12


@pytest.mark.parametrize("run", range(3))
def test_rates_follow_from_gpus(run: int) -> None:
    rate = speed(run)
    assert f"{rate / 1e6:.2f} M" in ROWS["tokens/s, whole cluster"][run]
    read = rate * first("bytes of an id", run)
    assert f"{read / 1e6:.1f} MB/s" in ROWS["ids read, whole cluster"][run]
    share = read / first("GPUs (H100)", run) * 8
    assert f"{share / 1e3:.3g} kB/s" in ROWS["ids read, 8 GPUs' share"][run]
    assert f"*{tokens(run) / rate / DAY:.0f}*" in ROWS["days, without stops"][run]


def test_steps_and_tokens_agree() -> None:
    for run in (OLMO, SMOL):
        batch = first("batch, in tokens", run)
        assert first("steps", run) * batch / 1e12 == pytest.approx(
            first("tokens read", run), abs=5e-4
        )
        samples = first("steps", run) * batch / first("row", run) / 1e9
        assert f"*{samples:.2f} billion*" in ROWS["samples read"][run]
    assert first("batch, in tokens", OLMO) == 2048 * 4096
    assert first("batch, in tokens", SMOL) == 576 * 4096
    early, late = 252e6, 2.87e12
    steps = (
        early / (4 * MEBI)
        + (late - early) / (8 * MEBI)
        + (15.6e12 - late) / (16 * MEBI)
    )
    assert f"about {steps / 1e6:.1f} million" in ROWS["steps"][LLAMA]
    assert f"{15.6e12 / 8192 / 1e9:.1f} billion" in ROWS["samples read"][LLAMA]


def test_token_files_and_failures_follow() -> None:
    assert f"{15.6 * 4:.1f} TB" in ROWS["token files"][LLAMA]
    assert f"{3.9 * 4:.1f} TB" in ROWS["token files"][OLMO]
    held = first("token files", SMOL) / first("bytes of an id", SMOL)
    assert f"*{held:.0f} T ids of 4 bytes*" in ROWS["token files"][SMOL]
    assert f"(*{held:.0f} of {first('tokens read', SMOL):.1f} T*)" in PAGE
    total, days, unplanned, *_ = numbers("failures", LLAMA)
    assert (total, days, unplanned) == (466, 54, 419)
    assert f"one every {days * 24 / unplanned:.1f} hours" in ROWS["failures"][LLAMA]


def test_the_sentences_follow() -> None:
    times = 2e12 / (speed(LLAMA) * 4)
    assert f"*{round(times, -3):,.0f} times*" in PAGE
    rows = speed(SMOL) / 4096
    assert f"*{round(rows, -2):,.0f} rows per second*" in PAGE
    ranks = first("GPUs (H100)", LLAMA) / (
        8 * 16
    )  # data-parallel: tensor 8 x pipeline 16 GPUs each
    assert ranks == 128 and f"*{speed(LLAMA) * 4 / ranks / 1e3:.0f} kB/s* each" in PAGE
    index = first("steps", SMOL) * 576 * 16
    assert f"*{index / 1e9:.1f} GB*" in PAGE
    dollars = first("steps", SMOL) * 576 * 0.40 / 1e6  # a request for each row
    assert f"${round(dollars, -1):,.0f} of requests" in (
        Path(__file__).parent.parent / "docs" / "speed.md"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(("run", "name"), [(OLMO, "olmo-2-32b"), (SMOL, "smollm3-3b")])
def test_the_cards_say_the_same(run: int, name: str) -> None:
    stages = Card.load(name).facts["stages"]
    assert sum(stage["steps"] for stage in stages) == first("steps", run)
    row = first("row", run)
    assert {stage["batch_size"] * row for stage in stages} == {
        first("batch, in tokens", run)
    }


def test_every_published_number_has_a_source() -> None:
    for row, cells in ROWS.items():
        for cell in cells:
            is_computed = "*" in cell
            assert is_computed or "[" in cell or row in ("", "---"), (row, cell)
    for source in set(re.findall(r"\[([LOS]\d)", "".join(TABLE))):
        assert (
            f"[{source}]" in PAGE.split("## Sources")[1]
            or f"{source} " in PAGE.split("## Sources")[1]
        )
