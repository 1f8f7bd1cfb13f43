"""What a test says of the experiments about order, and that they go on piece by piece, on text with known checksums."""

import hashlib
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks import order_pieces, real_text
from benchmarks.order_statistics import (
    RESULTS,
    findings,
    holm,
    sign_flips,
    t_of,
    table,
    two_sided,
)
from benchmarks.small_model import SIZES
from benchmarks.small_text import documents_of, prepare_text

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


def test_the_committed_results_are_tested_question_by_question() -> None:
    result = json.loads(RESULTS.read_text())
    found = findings(result)
    assert len(found) == len({(it.text, it.question) for it in found})
    by_label = {(it.text, it.question.label): it for it in found}
    control = by_label["corpus", "blend, Nanotron: unread source (control)"]
    assert control.question.sources == ("arithmetic",)
    runs = [it for it in result["runs"] if it["run"][1:3] == ["corpus", "blend"]]
    last = {tuple(it["run"][3:]): it["held_out"]["arithmetic"][-1] for it in runs}
    more = [last["nanotron", seed] - last["stateless", seed] for seed in range(5)]
    assert control.mean == pytest.approx(np.mean(more))
    assert min(more) > 0 and control.holm > 0.05, (
        "the signs agree, the test is not convinced"
    )
    lines = table(found).splitlines()
    assert len(lines) == 1 + len({it.question.label for it in found})


# what notebook 17 says, the comparisons that it means, and in how many texts they have a star
SAID = [
    ("keeping sources apart", ["in file order", "sources apart, each shuffled"], 2),
    ("buffers up to 1,000", ["buffer 10", "buffer 100", "buffer 1,000"], 2),
    ("file order within a blend", ["blended, each in file order"], 2),
    ("sixteen epochs", ["16 epochs"], 2),
    ("the best source first", ["first fifth, falling rate: better source"], 2),
    ("or last at a constant rate", ["last fifth, constant rate: better source"], 2),
    ("a constant against a falling", ["spread out, constant - falling rate"], 2),
    ("**On one**: eight epochs", ["8 epochs"], 1),
    ("shuffling sixteen epochs anew", ["16 epochs, anew - same order"], 1),
    ("Nanotron's blend", ["blend, Nanotron: small source"], 1),
    ("**On none**: a buffer of 10,000", ["buffer 10,000"], 0),
    ("up to four epochs", ["2 epochs", "4 epochs"], 0),
    (
        "Arithmetic, which no run read, has no star",
        ["blend, Nanotron: unread source (control)"],
        0,
    ),
]


def test_the_page_says_what_survives() -> None:
    found = findings(json.loads(RESULTS.read_text()))
    page = (
        Path(__file__).parents[1] / "notebooks/17_does_the_order_matter.ipynb"
    ).read_text()
    for words, labels, stars in SAID:
        assert words in page
        for label in labels:
            p = [it.holm for it in found if it.question.label == label]
            assert p, label
            assert sum(value < 0.05 for value in p) == stars, label
    assert f"makes {len(found)} comparisons" in page


def test_a_stopped_series_goes_on_with_the_runs_that_are_missing(
    tmp_path: Path, capsys
) -> None:
    documents = {
        name: texts[:30]
        for name, texts in documents_of("corpus", tmp_path, None).items()
    }
    prepare_text(documents, tmp_path / "smallest" / "corpus", SIZES["smallest"])
    words = [
        "--size",
        "smallest",
        "--text",
        "corpus",
        "--seeds",
        "1",
        "--folder",
        str(tmp_path),
    ]
    available = [
        arm for arm in order_pieces.ARMS if arm != "buffer 1,000"
    ]  # 160 samples
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_pieces, "ARMS", available)
        order_pieces.main([*words, "--pieces", "1"])
        assert capsys.readouterr().out.endswith("1 of 4 runs are finished\n")
        (first,) = (tmp_path / "pieces").iterdir()
        content, changed = first.read_bytes(), first.stat().st_mtime_ns
        output = tmp_path / "all.json"
        order_pieces.main([*words, "--output", str(output)])
    assert (first.read_bytes(), first.stat().st_mtime_ns) == (content, changed)
    found = json.loads(output.read_text())["runs"]
    assert [run["run"][3] for run in found] == available
    assert found[0] == json.loads(content)


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
