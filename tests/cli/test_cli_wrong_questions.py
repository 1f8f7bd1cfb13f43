"""nanoset-ref with options that a run cannot have: one line that says the way out."""

import pytest
from cli_helpers import FILES

from nanoset_ref.cli.run_options import RunOptions


def test_a_tokenizer_of_a_card_that_cannot_be_loaded_may_be_named(tmp_path):
    with pytest.raises(ValueError, match=r"no tokenizer to load.*--tokenizer$"):
        RunOptions(run="demo").chosen_tokenizer(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("where --run demo --seed 1234 3", "--seed is fixed by --run; drop one"),
        ("where --run demo --seed 7 3", "--seed is fixed by --run; drop one"),
        ("where --run demo --config x.yaml 3", "name a run"),
        ("where --config x.yaml --seed 7 3", "--seed is fixed by --config; drop one"),
        (
            "audit --config x.yaml --token-dtype int32",
            "--token-dtype is fixed by --config",
        ),
        (
            "replay --config x.yaml 3 --dp-size 2",
            "determines ranks, batches and first steps",
        ),
        ("estimate --config x.yaml --layout contiguous", "the config determines ranks"),
        ("audit --config x.yaml --dp-size 1", "the config determines ranks"),
        ("audit --config x.yaml --num-loading-workers 0", "belongs to --data alone"),
        ("estimate --config x.yaml --num-loading-workers 2", "belongs to --data"),
        ("audit --run demo --num-loading-workers 0", "belongs to --data alone"),
        (
            "audit --data a.npy --data b.npy",
            "--data is given twice; give it once, with",
        ),
        ("where --run demo", "give the step once: as a number"),
        ("where --data a.npy --sizes b.json --step 3", "--sizes belongs to a card"),
        ("when --data a.npy --sample 3", "--sample and --byte-range need a run card"),
        ("when --run demo --text x", "this needs the token files of demo"),
        (
            "when --run demo --sample 3 --document 3",
            "exactly one of --document, --text, --sample",
        ),
        ("when --run demo --bulk x --json", "--bulk writes a table with tabs"),
        ("show --run demo --position 3", "this needs the token files of demo"),
        (
            "compare demo demo --sizes a b c",
            "--sizes takes one file for each card, got 3",
        ),
        ("estimate --run demo", "estimate takes --config or --data, not --run"),
    ],
)
def test_a_wrong_question_is_told_the_way_out(run, line, said):
    code, _, error = run(*line.split())
    assert code == 2 and said in error


def test_a_number_may_have_commas_as_the_answers_have(run, demo):
    (demo / "few.npy").write_bytes(bytes(range(250)) * 100)
    words = "--data", "few.npy", "--sequence-length", 4
    code, answer, _ = run("where", "1,007", *words)
    assert code == 0 and answer == run("where", 1007, *words)[1]
    assert run("where", 1, *words, "--dp-size", "1,000")[0] == 0
    for wrong in ("1,0", "10,07", "1,0070", ",007", "1,007,", "-1,007"):
        code, _, error = run("where", wrong, *words)
        assert (code == 2 and f"{wrong!r}" in error) or wrong.startswith("-")


def test_a_step_that_stands_behind_data_is_missing(run, demo):
    for command in ("where", "replay"):
        error = run(command, "--run", "demo", *FILES, 12)[2]
        assert "give the step once: as a number before --data, or as --step" in error
