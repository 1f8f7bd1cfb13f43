"""Notebook 17's blocks at two widths: all that was to be run is stored, and the page says what came."""

import json
from itertools import product

import numpy as np
from notebook_text import page_17

from benchmarks import order_blocks
from benchmarks.order_pieces import Run
from benchmarks.order_statistics import holm
from benchmarks.small_model import SIZES
from course import order_runs, order_two_widths


def test_every_run_of_both_widths_is_stored_with_its_machine() -> None:
    for size, path in order_blocks.RESULTS.items():
        stored = json.loads(path.read_text())
        wanted = [
            run
            for text in order_blocks.TEXTS
            for run in order_blocks.wanted(size, text)
        ]
        assert [Run(*run["run"]) for run in stored["runs"]] == wanted
        assert len(wanted) == 4 * 2 * 10
        assert stored["sizes"] == {size: vars(SIZES[size])}
        assert stored["machine"].keys() >= {"cpu", "cores", "torch"}
        assert stored["command"] == "python -m benchmarks.order_blocks --real FOLDER"
    narrow, wide = (SIZES[size] for size in order_blocks.RESULTS)
    assert wide.width == 2 * narrow.width


def test_the_twenty_comparisons_are_corrected_together() -> None:
    found = [it for mine in order_blocks.outcomes().values() for it in mine]
    assert len(found) == 20
    assert [it.holm for it in found] == holm([it.p for it in found])
    costs = order_runs.cost_of_blocks("small", "real")
    assert [*costs] == [*order_blocks.WAYS]
    for way, cost in costs.items():
        assert order_runs.blocks_found()["small", "real", way].mean == cost.mean()


def test_notebook_17_says_what_blocks_cost_at_both_widths() -> None:
    page = page_17()
    assert "cost even more than one, with a star on both texts." in page
    for shares in order_two_widths.shares_saved(10).values():
        assert max(shares) < 0
    shares = order_two_widths.shares_saved(100)
    said = {
        text: " and ".join(dict.fromkeys(f"{share:.0%}" for share in mine))
        for text, mine in shares.items()
    }
    assert (
        f"save {said['corpus']} on the course's corpus and {said['real']} on real text."
    ) in page
    found = order_runs.blocks_found()
    assert len(found) == 20 and all(it.has_star for it in found.values())
    for size, text in product(order_blocks.RESULTS, order_blocks.TEXTS):
        costs = order_runs.cost_of_blocks(size, text).values()
        one, ten, hundred = (it.mean() for it in costs)
        assert ten > one > 2 * hundred
    for size in order_blocks.RESULTS:
        one, ten, hundred = order_runs.cost_of_blocks(size, "corpus").values()
        assert len(one) == len(ten) == len(hundred) == 10
        assert np.max(hundred) < np.min(one) and np.max(hundred) < np.min(ten)
