"""nanoset-ref card: the card of a config or a checkpoint has the stages of that run, whatever happened to them."""

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import torch
from cli_helpers import FILES

from nanoset_ref import train
from nanoset_ref.provenance import (
    Card,
)


def test_the_shipped_demo_is_the_card_of_its_config(run, demo):
    words = "card", "tokens.yaml", "--name", "demo", "--date", "2026-11"
    code, text, _ = run(*words)
    assert code == 0
    other = {"links": 0, "loader": 0}
    assert json.loads(text) | other == Card.load("demo").facts | other
    loader = {"name": "nanoset_ref", "version": version("nanoset_ref")}
    assert json.loads(text)["loader"] == loader
    assert run(*words, "--output", "demo.json")[0] == 0
    assert Card.load("demo.json").where(12) == Card.load("demo").where(12)
    assert "--overwrite" in run(*words, "--output", "demo.json")[2]


def test_a_checkpoint_has_the_card_of_its_run(run, demo):
    """From the newest checkpoint of a folder, or from one; without the YAML file."""
    words = "--name", "a", "--date", "2026-11"
    given = (demo / "tokens.yaml").read_text()
    short = given.replace("train_steps: 20", "train_steps: 12")
    (demo / "run.yaml").write_text(short.replace("val: 10", "val: 11"))
    assert train.main(["--config", "run.yaml"]) == 0
    card = run("card", "run.yaml", *words)[1]
    (demo / "run.yaml").unlink()
    assert run("card", "checkpoints/tokens", *words)[1] == card
    assert run("card", "checkpoints/tokens/step-00000011", *words)[1] == card
    (demo / "latest").symlink_to("checkpoints/tokens/step-00000012")
    assert run("card", "latest", *words)[1] == card
    assert json.loads(card)["stages"][1]["steps"] == 2
    step = "--step", "12"
    (demo / "a.json").write_text(card)
    named = run("where", "--config", "checkpoints/tokens", *step)[1]
    asked = run("where", "--run", "a.json", *FILES, *step)[1]
    assert named.replace(f"{demo}/", "") == asked
    # train skips what is half copied, or has changed
    (demo / "checkpoints/tokens/step-99999999").mkdir()
    changed = demo / "checkpoints/tokens/step-00000012/state.json"
    changed.write_text(changed.read_text().replace("1234", "4321"))
    assert run("card", "checkpoints/tokens", *words)[1] == card
    (demo / "empty").mkdir()
    error = run("card", "empty", *words)[2]
    assert "empty: a folder without a checkpoint that records its config: give" in error
    error = run("card", "empty", *words, "--loader", "nanotron")[2]
    assert "empty is a folder or Python script: give the config of" in error


def test_the_card_of_a_run_whose_batch_changed_says_what_it_read(run, demo):
    """Its config has the last batch size; the checkpoint has when it began."""
    given = (demo / "tokens.yaml").read_text()
    for steps, size in ((4, 2), (8, 3), (12, 4)):
        config = given.replace("train_steps: 20", f"train_steps: {steps}")
        config = config.replace("micro_batch_size: 4", f"micro_batch_size: {size}")
        (demo / "run.yaml").write_text(config)
        assert train.main(["--config", "run.yaml", "--log-samples"]) == 0
    card = run("card", "checkpoints/tokens", "--name", "a", "--date", "2026-11")[1]
    (demo / "a.json").write_text(card)
    named = "--config", "checkpoints/tokens"
    assert "every law holds" in run("audit", *named)[1]
    for line in train.read_metrics("checkpoints/tokens/metrics.jsonl"):
        step = "--step", str(line["step"])
        read = sorted(position for position, _ in line["samples"][0])
        for words in (named, ("--run", "a.json", *FILES)):
            text = run("where", *words, *step)[1]
            assert [*map(int, re.findall(r"position (\d+)", text))] == read


def test_a_stage_that_is_done_stays_what_it_was(run, corpus, demo):
    (demo / "datasets").unlink()  # a link to the folder of all tests
    shutil.copytree(corpus, demo / "datasets")
    given = (demo / "tokens.yaml").read_text()
    (demo / "run.yaml").write_text(given.replace("train_steps: 20", "train_steps: 12"))
    assert train.main(["--config", "run.yaml"]) == 0
    named = "where", "--config", "checkpoints/tokens", "--step", "3"
    before = run(*named)[1]
    stories = demo / "datasets" / "stories_input_ids.npy"
    programs = demo / "datasets" / "programs_input_ids.npy"
    edited = given.replace(
        f"dataset_path: datasets/{stories.name}",
        f"dataset_path: datasets/{programs.name}",
    )
    (demo / "run.yaml").write_text(edited)
    assert train.main(["--config", "run.yaml"]) == 1
    assert (
        not torch.distributed.is_initialized()
    )  # the next run of this process needs its own
    assert run(*named)[1] == before
    for suffix in (".npy", ".json", ".documents.npy"):
        shutil.copy(programs.with_suffix(suffix), stories.with_suffix(suffix))
    assert "saved under another plan" in run(*named)[2]


def test_an_output_that_is_read_is_left_as_it_is(run, demo):
    """Also with --overwrite: a run that lost a token file cannot be asked anything again."""
    run(
        "card",
        "tokens.yaml",
        "--name",
        "demo",
        "--date",
        "2026-11",
        "--output",
        "own.json",
    )
    replay = "replay", "--run", "own.json", *FILES, "--step", 10
    make_card = "card", "tokens.yaml", "--name", "demo", "--date", "2026-11"
    for words, output in (
        (replay, FILES[2]),
        (replay, "own.json"),
        (make_card, "tokens.yaml"),
        (make_card, FILES[2]),
        (("card", "complete", "own.json"), "own.json"),
    ):
        before = Path(output).read_bytes()
        code, _, error = run(*words, "--output", output, "--overwrite")
        assert (code, Path(output).read_bytes()) == (1, before)
        assert "is read and cannot be written at the same time" in error


def test_stages_that_read_on_in_an_order_share_it_and_the_audit_holds(run, demo):
    """Stages 1, 3 and 4 read one file, the last from its beginning; stage 2 reads the other one."""
    stories, programs = FILES[1:]
    stage = "  - {name: %s, start_training_step: %d, data: {dataset: {dataset_path: %s, reuse: %s}}}\n"
    stages = [
        ("one", 1, stories, "continue"),
        ("two", 3, programs, "continue"),
        ("three", 5, stories, "continue"),
        ("four", 7, stories, "restart"),
    ]
    _, _, rest = (demo / "tokens.yaml").read_text().partition("\ntokens:")
    text = "data_stages:\n" + "".join(map(stage.__mod__, stages)) + "\ntokens:" + rest
    (demo / "tokens.yaml").write_text(text)
    run("card", "tokens.yaml", "--name", "a", "--date", "2026-11", "--output", "a.json")
    found = Card.load("a.json")
    size = found.stages[0]["batch_size"]
    starts = [(stage["order"], stage["first_position"]) for stage in found.stages]
    assert starts == [(0, 0), (1, 0), (0, 2 * size), (2, 0)]
    assert run("audit", "--run", "a.json")[0] == 0
    for step in (1, 4, 6, 8):
        named = [("--run", "a.json", *FILES), ("--config", "tokens.yaml")]
        one, two = (run("replay", str(step), *words) for words in named)
        assert one == two and one[0] == 0


def test_stages_that_continue_each_other_are_in_the_card(run, ask, demo):
    """In the stateless order a later stage goes on from what the earlier ones have read."""
    text = (demo / "tokens.yaml").read_text()
    text = text.replace("dataset: {", "dataset: {order: stateless, ")
    text = text.replace("reuse: restart", "reuse: continue")
    (demo / "tokens.yaml").write_text(text)
    code, _, error = run(
        *("card", "tokens.yaml", "--name", "a", "--date", "2026-11"),
        *("--output", "a.json"),
    )
    assert (code, error) == (0, "")
    first_of_second = Card.load("a.json").stages[1]["first_position"]
    assert first_of_second > 0
    probes = Card.load("a.json").facts["orders"][1]["probes"]
    assert min(map(int, probes)) == first_of_second
    assert run("audit", "--run", "a.json")[0] == 0
    for step in (1, 12):
        asked = [
            ask("where", "--step", step, *named)
            for named in (("--run", "a.json"), ("--config", "tokens.yaml"))
        ]
        of_card, of_config = (
            [(row["sample"], Path(row["path"]).name) for row in rows] for rows in asked
        )
        assert of_card == of_config
