"""What the tests say of the experiments about order, and that their text has known checksums."""

import hashlib
import json
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from notebook_text import page_17

from benchmarks import order_again, order_clean, order_statistics, real_text
from benchmarks.order_arms import FEWER, LITTLE
from benchmarks.order_pieces import CLEAN
from benchmarks.order_questions import Question
from benchmarks.order_statistics import (
    RESULTS,
    bootstrap,
    findings,
    holm,
    rows_of,
    sign_flips,
    stars_with_both_errors,
    t_of,
    t_test,
    table,
    two_sided,
    with_both_errors,
)
from course import order_comparisons, order_few, order_reach, order_runs, order_tests

# Student's t that leaves 5% outside, by degrees of freedom, from the tables of every textbook
T_TABLE = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    9: 2.262,
    10: 2.228,
    30: 2.042,
}


@pytest.mark.parametrize("freedom", T_TABLE)
def test_students_t_is_that_of_the_tables(freedom: int) -> None:
    assert two_sided(T_TABLE[freedom], freedom) == pytest.approx(0.05, abs=1e-4)
    assert t_of(0.05, freedom) == pytest.approx(T_TABLE[freedom], abs=6e-4)
    assert two_sided(-3.0, freedom) == two_sided(3.0, freedom)
    assert two_sided(0.0, freedom) == 1


@pytest.mark.parametrize(
    "values", [[1, 2, 3, 4, 5], [-3, -4], [5, 4, -1], [0.5, -0.25, 0.125]]
)
def test_sign_flips_are_counted_one_by_one(values: list[float]) -> None:
    ways = [
        abs(np.dot(signs, values)) for signs in product((-1, 1), repeat=len(values))
    ]
    far = [way for way in ways if way >= abs(sum(values)) - 1e-9]
    assert sign_flips(np.array(values)) == len(far) / len(ways)


def test_holm_multiplies_by_the_hypotheses_that_are_left_and_never_falls() -> None:
    assert holm([0.02, 0.001, 0.5, 0.03]) == pytest.approx([0.06, 0.004, 0.5, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_a_mean_of_noise_is_rarely_believed() -> None:
    """With no effect at all, the t-test says 5% of the time what it says 5% of the time."""
    draws = np.random.RandomState(0).randn(4000, 5)
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / np.sqrt(5))
    assert np.mean([two_sided(value, 4) < 0.05 for value in t]) == pytest.approx(
        0.05, abs=0.01
    )


def test_a_detectable_difference_is_found_in_four_of_five_experiments() -> None:
    question = Question("", "", "", "")
    # ten seeds, differences with a deviation of 1
    reach = t_of(0.05, 9) / np.sqrt(10)
    noise = order_statistics.Test(0.5, reach)
    found = order_statistics.Finding("", question, 0.0, noise, noise)
    effect = order_statistics.detectable(found, comparisons=20, seeds=10)
    draws = effect + np.random.RandomState(6).randn(3000, 10)
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / np.sqrt(10))
    assert np.mean(t > t_of(0.05 / 20, 9)) == pytest.approx(0.8, abs=0.05)


def test_the_bootstrap_of_one_row_a_document_is_the_t_test_over_rows() -> None:
    values = np.random.RandomState(1).randn(200, 1) + 0.1
    (found,) = bootstrap([values], [np.arange(200)], np.ones((1, 1)))
    expected = t_test(values[:, 0])
    assert found.p == pytest.approx(expected.p, abs=0.02)
    assert found.reach == pytest.approx(expected.reach, rel=0.03)


def test_the_rows_of_a_document_are_one_draw() -> None:
    few, one = np.random.RandomState(2).randn(30, 1) + 0.5, np.ones((1, 1))
    alone = bootstrap([few], [np.arange(30)], one)
    repeated = bootstrap([np.repeat(few, 4, axis=0)], [np.repeat(range(30), 4)], one)
    assert repeated[0] == pytest.approx(alone[0])


def test_a_mean_of_sources_weighs_them_alike() -> None:
    """A source of 40 documents is certain, one of 20 is noise: half of its interval remains in their mean."""
    certain = np.full((40, 3), 1.0) + 1e-6 * np.random.RandomState(3).randn(40, 3)
    noise = np.repeat(np.random.RandomState(4).randn(20, 1), 3, axis=1)
    shares = np.array([[1, 0, 0.5], [0, 1, 0.5]])
    first, second, both = bootstrap(
        [certain, noise], [np.arange(40), np.arange(20)], shares
    )
    assert first.reach < 1e-5
    assert both.reach == pytest.approx(second.reach / 2, rel=1e-3)
    assert first.p == 1 / order_statistics.RESAMPLES


def test_a_dozen_documents_without_an_effect_are_rarely_believed(monkeypatch) -> None:
    """Rows that share a document share its noise; plain percentiles find an effect in 8.5% of these."""
    monkeypatch.setattr(order_statistics, "RESAMPLES", 2_000)
    random = np.random.RandomState(5)
    documents = np.repeat(range(13), random.randint(1, 20, 13))
    values = random.randn(13, 600)[documents] + random.randn(len(documents), 600)
    found = bootstrap([values], [documents], np.ones((1, 600)))
    p = np.array([it.p for it in found])
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.025)
    assert np.mean(p < 0.5) == pytest.approx(0.5, abs=0.07)


def test_the_committed_results_are_tested_question_by_question() -> None:
    result = json.loads(RESULTS.read_text())
    found = findings()
    assert len(found) == len({(it.text, it.question) for it in found})
    by_label = {(it.text, it.question.label): it for it in found}
    control = by_label["corpus", "blend, Nanotron: unread source"]
    assert control.question.sources == ("arithmetic",)
    runs = [it for it in result["runs"] if it["run"][1:3] == ["corpus", "blend"]]
    last = {tuple(it["run"][3:]): it["held_out"]["arithmetic"][-1] for it in runs}
    seeds = {seed for _, seed in last}
    more = [last["nanotron", seed] - last["stateless", seed] for seed in sorted(seeds)]
    assert control.mean == pytest.approx(np.mean(more))
    assert control.seeds == t_test(np.array(more))
    assert all(it.p == max(it.seeds.p, it.documents.p) <= it.holm for it in found)
    assert len(table(found).splitlines()) == 1 + len(
        {it.question.label for it in found}
    )


def test_the_repetition_was_fixed_beforehand_and_agrees_with_the_first_series() -> None:
    """Six comparisons, each on both texts and with ten seeds that no stored run has."""
    assert len(order_again.CLAIMS) == 6
    first = json.loads(RESULTS.read_text())["runs"]
    assert not {run["run"][4] for run in first} & {*order_again.SEEDS}
    runs = order_again.runs_of_claims()
    assert len(runs) == len(set(runs)) == 2 * 10 * 11
    corrected = {(it.text, it.question.label): it for it in findings()}
    for claim in order_again.CLAIMS:
        for text in order_again.TEXTS:
            found = corrected[text, claim.label]
            assert order_again.agrees(claim, found)
            assert found.has_star == (text in claim.stars)


@pytest.mark.parametrize("path", [order_again.RESULTS, order_again.TEN_ROUNDS])
def test_all_that_was_fixed_was_run_with_either_shuffle_and_is_stored(
    path: Path,
) -> None:
    stored = json.loads(path.read_text())
    runs = [order_again.Run(*run["run"]) for run in stored["runs"]]
    assert runs == order_again.runs_of_claims()
    outcomes = order_again.outcomes(path)
    assert [len(by_text) for by_text in outcomes.values()] == [2] * 6
    together = [it for by_text in outcomes.values() for it in by_text.values()]
    assert [it.holm for it in together] == holm([it.p for it in together])
    for claim, by_text in outcomes.items():
        assert all(it.has_star for it in by_text.values())
        assert all(order_again.agrees(claim, it) for it in by_text.values())


def test_the_larger_batches_have_every_order_of_both_texts() -> None:
    stored = json.loads(RESULTS.with_stem("order_batches").read_text())
    runs = [tuple(run["run"]) for run in stored["runs"]]
    assert len(runs) == len(set(runs)) == 2 * 9 * 5
    known = json.loads(RESULTS.read_text())["texts"]
    for text, sources in stored["texts"].items():
        assert sources == known[text]
        count = sum(it["training_samples"] for it in sources.values())
        documents = sum(
            it["documents_that_samples_begin_in"] for it in sources.values()
        )
        assert stored["rows_of_own_document"][text] > 5 * count / documents


def test_the_rows_are_those_of_the_runs() -> None:
    """Their mean over a source is the loss that its run was measured to end with, but for rounding."""
    result = json.loads(RESULTS.read_text())
    for text, sources in rows_of(RESULTS, result["texts"]).items():
        runs = [run for run in result["runs"] if run["run"][1] == text]
        for source, (losses, documents) in sources.items():
            ends = [run["held_out"][source][-1] for run in runs]
            assert np.abs(losses.mean(axis=1) - ends).max() < 0.002
            assert len(documents) == 128 and (np.diff(documents) >= 0).all()
            count = result["texts"][text][source]["held_out_documents"]
            assert documents.max() < count


def test_the_appendix_of_notebook_17_is_written_from_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a row for each comparison, with its mean, its interval and its star on each text."""
    monkeypatch.chdir(tmp_path)
    text = order_tests.PAGE.read_text(encoding="utf-8")
    assert text == order_tests.page()
    found = findings()
    labels = {it.question.label.replace(" - ", " against ") for it in found}
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    cells = {name: these for name, *these in rows if name in labels}
    assert cells.keys() == labels
    said = [cell for these in cells.values() for cell in these if cell.strip()]
    assert len(said) == len(found)
    stars = sum(cell.endswith("\u2217") for cell in said)
    assert stars == sum(it.has_star for it in found)
    assert f"{stars} of them have a star." in text


def test_notebook_17_counts_its_comparisons() -> None:
    page = page_17()
    assert f"makes {len(findings())} comparisons" in page
    stars = sum(it.has_star for it in findings())
    appendix = order_tests.PAGE.read_text(encoding="utf-8")
    [others] = re.findall(
        r"and (\d+) at other rates and in other batches,\nall of them costs", appendix
    )
    assert (
        f"Of the 158 comparisons {stars} have a star, among them all {others} at other rates and in other batches"
    ) in page
    assert "with both errors added, 114 keep it" in page


def test_notebook_17_lists_all_stored_runs(capsys: pytest.CaptureFixture) -> None:
    order_runs.stored()
    said = capsys.readouterr().out
    listed = [int(number) for number in re.findall(r"(\d+) runs", said)]
    stored = [order_runs.results(name)["runs"] for name in order_comparisons.COMMANDS]
    assert sum(listed) == sum(map(len, stored))


def test_notebook_17_says_what_another_mean_would_change() -> None:
    table, _ = order_reach.weighted()
    rows = [
        [float(number) for number in re.findall(r"[+-]\d\.\d\d", line)]
        for line in table.splitlines()[2:]
    ]
    changes = [
        abs(row[first + 1] - row[first])
        for row in rows
        for first in range(0, len(row), 2)
    ]
    assert f"costs change by up to {max(changes):.2f}" in page_17()


def said(values: np.ndarray) -> str:
    return f"{values.mean():.2f} \u00b1 {t_test(values).reach:.2f}"


def test_notebook_17_says_what_its_failed_control_and_its_rounds_gave() -> None:
    page = page_17()
    few = order_runs.cost_of_few("programs"), order_runs.cost_of_few("arithmetic")
    assert f"seeds +{said(few[1])}, programs +{said(few[0])})" in page
    assert len(few[1]) == 20 and (few[1] > 0).sum() == 19
    one, ten = order_runs.small_in_rounds()["falling"]
    assert ten.mean() > one.mean()  # "they save next to nothing"
    falling = order_runs.ends_in_rounds() - order_runs.ends_of("narrow")[1]
    again = order_runs.finding("corpus", "stateless, shuffled again: unread source")
    assert f"moves it, by {again.mean:.2f} \u00b1 {again.reach:.2f} (no star)" in page
    assert not again.has_star
    assert f"costs {said(falling)} nats, about as much as in the short one" in page


def test_notebook_17_says_which_few_samples_cost_and_why_the_control_fails() -> None:
    page = page_17()
    plays = [
        order_runs.cost_among_few("real", arm, "shakespeare").mean() for arm in FEWER
    ]
    assert (
        f"first 116 cost {plays[0]:.2f}, the next 116 cost {plays[1]:.2f}, "
        f"and 116 spread over the file {plays[2]:.2f} "
    ) in page
    unread, softer = (
        order_runs.cost_among_few("corpus", FEWER[0], "arithmetic", warmest)
        for warmest in (False, True)
    )
    assert unread.min() > 0
    assert f"takes away {1 - softer.mean() / unread.mean():.0%} of the cost" in page
    little = [
        order_runs.cost_among_few("corpus", FEWER[0] + which, "arithmetic")
        for which in LITTLE.values()
    ]
    assert 1 - little[0].mean() / unread.mean() == pytest.approx(2 / 3, abs=0.04)
    assert little[0].mean() > t_test(little[0]).reach and abs(little[1].mean()) < 0.01
    for arm in ("all samples", FEWER[0]):
        losses = order_few.unread_on_its_way(arm)
        assert 2 <= np.argmin(losses) <= 3 and losses[-1] > losses.min() + 0.1
    followed, spread = (
        order_runs.cost_among_few("corpus", arm, "programs") for arm in FEWER[1:]
    )
    assert followed.mean() > 0.1 > 0.03 > spread.mean()


def test_notebook_17_names_the_widest_interval_of_four_epochs_and_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page, found = page_17(), findings()
    for rate, below in {"": "0.08", ", constant rate": "0.09"}.items():
        labels = [f"{epochs} epochs{rate}" for epochs in (2, 4)]
        ends = [it.mean + it.reach for it in found if it.question.label in labels]
        assert float(below) - 0.01 < max(ends) < float(below)
    assert "less than 0.08 at our usual rate and less than 0.09 at a constant" in page
    eight = [it for it in found if it.question.label == "8 epochs"]
    assert all(it.has_star and abs(it.mean - 0.07) < 0.006 for it in eight)
    assert "Eight cost some 0.07 on either text, each with a star" in page
    rows = rows_of(RESULTS, json.loads(RESULTS.read_text())["texts"])
    counts = [
        len(np.unique(it.documents))
        for sources in rows.values()
        for it in sources.values()
    ]
    assert counts == [22, 46, 26, 13, 127]
    assert "22 documents of stories, 46" in order_tests.PAGE.read_text(encoding="utf-8")


class Letters:
    """A tokenizer of one id for each character."""

    def encode(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(ids=[*map(ord, text)])


def test_a_clean_row_shares_no_thirteen_ids_with_the_training_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 70 different characters: the second row begins with the last one of the first."""
    text = "".join(map(chr, range(100, 170)))
    monkeypatch.setattr(order_clean, "WRITTEN", 1)
    monkeypatch.setattr(order_clean, "generated_document", lambda *_: text)
    for shared, kept in (
        (text[60:], [100, 132]),
        (text[20:32], [100, 132]),
        (text[20:33], [132]),
        (text[25:38], [100, 132]),
        (text[32:45], [100]),
    ):
        met = order_clean.windows(order_clean.encoded(shared, Letters()))
        rows, numbers, count = order_clean.clean_rows("stories", Letters(), met)
        assert rows[:, 0].tolist() == kept
        assert (numbers == 0).all() and rows.shape[1] == 33 and count == 2


def test_the_clean_rows_are_those_of_the_same_models() -> None:
    stored = json.loads(order_clean.RESULTS.read_text())
    runs = [order_clean.Run(*run["run"]) for run in stored["runs"]]
    assert runs == order_clean.runs_of_labels()
    names = [*order_clean.SOURCES, *(CLEAN + it for it in order_clean.SOURCES)]
    assert all([*run["held_out"]] == names for run in stored["runs"])
    usual, clean = order_clean.outcomes(), order_clean.outcomes(CLEAN)
    assert [it.question.label for it in usual] == [it.question.label for it in clean]
    assert {it.question.label for it in usual} == {*order_clean.LABELS}
    by_label = {
        it.question.label: [abs(it.mean), abs(there.mean)]
        for it, there in zip(usual, clean, strict=True)
    }
    file_order, epochs, last = (
        by_label[label]
        for label in (
            "in file order",
            "16 epochs",
            "last fifth, constant: better source",
        )
    )
    assert (
        f"file order costs {file_order[1]:.2f} nats ({file_order[0]:.2f} on the usual rows), "
        f"sixteen epochs {epochs[1]:.2f} ({epochs[0]:.2f}), "
        f"and the good source last gains {last[1]:.2f} ({last[0]:.2f})"
    ) in page_17()
    assert all(it.has_star for it in [*usual, *clean])


def test_one_star_falls_when_seeds_and_documents_vary_at_once() -> None:
    """What notebook 17 says of both errors added: section 7 prints it."""
    found = findings()
    stars = [it for it in found if it.has_star]
    both = stars_with_both_errors(found, seeds=10)
    lost = [(it.text, it.question.label) for it in stars if it not in both]
    assert (len(stars), len(both)) == (115, 114)
    assert lost == [("real", "last fifth, falling: the rest")]
    assert all(it in stars for it in both)


def test_errors_of_seeds_and_documents_add_in_squares() -> None:
    """A document error of nothing leaves the t-test; an equal one divides t by the root of two."""
    values = np.random.RandomState(7).randn(10) + 1.0
    seeds, question = t_test(values), Question("", "", "", "")
    error = seeds.reach / t_of(0.05, 9)

    def p_with(document_error: float) -> float:
        documents = order_statistics.Test(0.5, 2 * document_error)
        found = order_statistics.Finding(
            "", question, float(values.mean()), seeds, documents
        )
        return with_both_errors(found, seeds=10)

    assert p_with(0.0) == pytest.approx(seeds.p)
    t = values.mean() / error / np.sqrt(2)
    assert p_with(error) == pytest.approx(two_sided(t, 9))


RAW = " \n = A lobster = \n \n Text . \n = = Description = = \n \n More . \n = Du Fu = \n \n A poet . \n"


def test_real_text_is_cut_where_articles_and_speeches_begin(
    tmp_path: Path, monkeypatch
) -> None:
    articles = real_text.cut(RAW, real_text.ARTICLE)
    assert [article.splitlines()[0].strip() for article in articles] == [
        "= A lobster =",
        "= Du Fu =",
    ]
    raw = b"A:\nYes.\n\n\nB:\nNo.\n"
    path = tmp_path / "shakespeare.jsonl"
    with pytest.raises(ValueError, match="expected 86c4e6aa"):
        real_text.write(raw, path)
    known = real_text.SOURCES[path.name]._replace(raw=hashlib.sha256(raw).hexdigest())
    monkeypatch.setitem(real_text.SOURCES, path.name, known)
    real_text.write(raw, path)
    with pytest.raises(ValueError, match="other documents than the committed results"):
        real_text.documents_of_file(path)
    digest = real_text.digest(["A:\nYes.", "B:\nNo."])
    monkeypatch.setitem(real_text.SOURCES, path.name, known._replace(documents=digest))
    assert real_text.documents_of_file(path) == ["A:\nYes.", "B:\nNo."]
