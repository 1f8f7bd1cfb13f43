"""Notebook 17's control on real text that no run reads: it is stored, its texts are pinned, the page says what came."""

import hashlib
import json

from notebook_text import page_17

from benchmarks import order_unread, real_text
from benchmarks.order_arms import FEWER
from benchmarks.order_pieces import Run
from benchmarks.order_statistics import holm
from course import order_runs


def test_every_run_is_stored_and_its_rows_are_of_the_pinned_texts() -> None:
    stored = json.loads(order_unread.RESULTS.read_text())
    arms = ["all samples", *FEWER, order_unread.AGAIN]
    assert [Run(*run["run"]) for run in stored["runs"]] == [
        Run("small", "real", "unread", arm, seed)
        for seed in order_unread.SEEDS
        for arm in arms
    ]
    assert stored["unread_text"] == order_unread.TEXTS
    assert {*order_unread.TEXTS.values()} < real_text.SOURCES.keys()
    for run in stored["runs"]:
        assert {*run["held_out"]} == {"wikitext", *order_unread.MEASURED}
    known = {
        run["run"][4]
        for name in ("order_matters", "order_again", "order_few")
        for run in order_runs.results(name)["runs"]
    }
    assert not known & {*order_unread.SEEDS}


def test_the_twelve_comparisons_are_corrected_together() -> None:
    found = order_unread.outcomes()
    assert len(found) == 12
    assert [it.holm for it in found] == holm([it.p for it in found])
    costs = order_runs.cost_among_few(
        "real", FEWER[0], "shakespeare", name="order_unread"
    )
    assert len(costs) == 10
    assert order_runs.unread_found()[FEWER[0], "shakespeare"].mean == costs.mean()


def test_notebook_17_says_that_the_control_fails_on_real_text_too() -> None:
    page, found = page_17(), order_runs.unread_found()
    first = [found[FEWER[0], source] for source in order_unread.MEASURED]
    plays, novel, code = (f"{it.mean:.2f}" for it in first)
    assert (
        f"first 116 cost Shakespeare {plays} nats; a novel and C++ that no run reads "
        f"lose {novel} and {code}, all with a star."
    ) in page
    assert all(it.has_star and it.mean > 0 for it in first)
    own = order_runs.beyond_unread("unread_code")
    said = f"{own.mean():.2f} \u00b1 {order_runs.reach(own):.2f}"
    assert f"loses {said} nats more than the C++" in page
    assert own.mean() > order_runs.reach(own)
    spread, unread = (found[FEWER[2], it].mean for it in order_unread.MEASURED[:2])
    assert f"116 cost it {spread:.2f}, no more than the novel, {unread:.2f} (" in page
    less = order_runs.beyond_unread("unread_novel", FEWER[2])
    assert abs(less.mean()) < order_runs.reach(less)
    assert f"C++ loses {first[2].mean / first[0].mean:.0%} of it" in page
    again = [found[order_unread.AGAIN, it] for it in order_unread.MEASURED]
    assert not any(it.has_star for it in again)


def test_real_text_may_end_its_lines_in_two_characters(tmp_path, monkeypatch) -> None:
    """The novel does; a function ends at a line of one brace."""
    assert real_text.cut("CHAPTER I\nA.\nCHAPTER II.\nB.\n", real_text.CHAPTER) == [
        "CHAPTER I\nA.",
        "CHAPTER II.\nB.",
    ]
    assert real_text.cut("f {\n  {\n  }\n}\n\ng {\n}\n", real_text.FUNCTION) == [
        "f {\n  {\n  }\n}",
        "g {\n}",
    ]
    raw = b"CHAPTER I\r\nA.\r\n"
    known = real_text.SOURCES["botchan.jsonl"]._replace(
        raw=hashlib.sha256(raw).hexdigest(),
        documents=real_text.digest(["CHAPTER I\nA."]),
    )
    monkeypatch.setitem(real_text.SOURCES, "botchan.jsonl", known)
    real_text.write(raw, tmp_path / "botchan.jsonl")
    assert real_text.documents_of_file(tmp_path / "botchan.jsonl") == ["CHAPTER I\nA."]
