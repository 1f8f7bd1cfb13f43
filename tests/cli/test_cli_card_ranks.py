"""nanoset-ref with a run card and other ranks: the same rows at the same steps, in the layout that was asked for."""

import json

import numpy as np
import pytest

from nanoset_ref.provenance import (
    Card,
)


def test_other_ranks_read_the_same_rows_at_the_same_steps(ask, run):
    words = "where", "--run", "pythia-1.4b", 7
    rows = ask(*words)
    others = ask(
        *words, "--dp-size", 16, "--micro-batch-size", 32, "--batch-accumulation", 2
    )
    assert [row["position"] for row in others] == [row["position"] for row in rows]
    assert (rows[600]["dp_rank"], rows[600]["micro_batch"]) == (37, 0)
    assert (others[600]["dp_rank"], others[600]["micro_batch"]) == (2, 1)
    error = run(*words, "--dp-size", 3)[2]
    assert "a step of pythia-1.4b has 1024 rows" in error and "and is 3" in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--dp-size 1", "a step of pythia-1.4b has 1024 rows"),
        ("--dp-size 1024 --first-step 5", "come from the card; drop them"),
        ("--dp-size 1024 --consumed-train-samples 1024", "come from the card"),
    ],
)
def test_ranks_that_contradict_a_card_are_refused(run, options, said):
    code, _, error = run("where", "7", "--run", "pythia-1.4b", *options.split())
    assert code == 1 and said in error


@pytest.mark.parametrize("given", [None, "strided", "contiguous"])
def test_other_ranks_have_the_layout_that_is_given_or_else_that_of_the_card(run, given):
    """Pythia's is contiguous."""
    options = ["--dp-size", "16", "--micro-batch-size", "64", "--json"]
    if given:
        options += ["--layout", given]
    code, rows, _ = run("where", "7", "--run", "pythia-1.4b", *options)
    assert code == 0
    ranks = [row["dp_rank"] for row in json.loads(rows)]
    number = np.arange(1024)
    expected = number % 16 if given == "strided" else number // 64
    assert ranks == expected.tolist()


def test_a_layout_alone_spreads_the_rows_over_the_ranks_of_the_card(run, tmp_path):
    words = "where", "7", "--run", "pythia-1.4b", "--layout", "strided"
    code, rows, _ = run(*words, "--json")
    card = Card.load("pythia-1.4b")
    dp_size = card.stages[0]["dp_size"]
    assert code == 0
    assert [row["dp_rank"] for row in json.loads(rows)] == [
        k % dp_size for k in range(1024)
    ]
    unknown = {"layout": None, "dp_size": None, "micro_batch_size": None}
    stages = [stage | unknown for stage in card.facts["stages"]]
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card.facts | {"stages": stages}))
    code, _, error = run(*words[:3], path, *words[4:])
    assert code == 1 and "does not know the ranks of the run: with --layout" in error


def test_ranks_that_do_not_fit_a_step_name_what_their_product_must_be(run):
    asked = "where", "--run", "pythia-1.4b", "41007", "--micro-batch-size", "64"
    code, _, error = run(*asked, "--dp-size", "8")
    assert code == 1
    assert "has 1024 rows: dp_size * micro_batch_size * batch_accumulation" in error
    assert "must be that number, and is 512" in error
    fitting = "--dp-size", "8", "--batch-accumulation-per-replica", "2"
    assert run(*asked, *fitting)[0] == 0
