"""nanoset-ref with run cards: the answers need no file, and with files they are those of the run itself."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import FILES, ids_of

from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.nanoset_config import NanosetConfig
from nanoset_ref.provenance import Card, card_of_segments, segments_of_card, where
from nanoset_ref.tokens import TokenFileWriter, open_tokens


def test_a_step_of_pythia_is_one_range_of_a_published_file(run, ask):
    lines = run("where", "--run", "pythia-1.4b", 41007)[1].splitlines()
    assert lines[:3] == [
        "step 41,007 of pythia-1.4b reads 1,024 rows, one after another: document.bin bytes "
        "172075610112:172079806464",
        "    https://huggingface.co/datasets/EleutherAI/pile-standard-pythia-preshuffled/resolve/main/"
        "document-00005-of-00020.bin bytes 22075610112:22079806464",
        "rank 0 micro-batch 0 row 0: position 41990144, epoch 0, document.bin sample 41990144, bytes "
        "172075610112:172075614210",
    ]
    assert len(lines) == 1026
    page = Path(__file__).parents[2] / "docs" / "cards.md"
    assert "\n".join(lines[:3]) in page.read_text(encoding="utf-8")
    rows = ask("where", "--run", "pythia-1.4b", "--step", 41007)
    assert ask("when", "--run", "pythia-1.4b", "--sample", rows[9]["sample"]) == [
        rows[9]
    ]
    asked = ask(
        "when", "--run", "pythia-1.4b", "--byte-range", 172075610112, 172075614211
    )
    assert asked == rows[:2]


def test_bytes_that_cross_a_row_are_answered_by_two_lines_as_on_the_page(run, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "cards.md"
    text = page.read_text(encoding="utf-8")
    shown = text[text.index("query\tstage") :].partition("```")[0]
    asked = shown.splitlines()[1].split("\t")[0]
    (tmp_path / "questions.txt").write_text(f"{asked}\n")
    words = "when", "--run", "pythia-1.4b", "--bulk", tmp_path / "questions.txt"
    assert run(*words)[1] == shown


def test_a_card_with_its_files_answers_as_the_config_does(run, ask, demo):
    for step in (3, 12, 20):
        by_card = ask("where", "--run", "demo", *FILES, "--step", step)
        by_config = ask("where", "--config", "tokens.yaml", "--step", step)
        for row in by_card + by_config:
            row["path"] = row["path"].rpartition("/")[2]
        assert by_card == by_config
        alone = ask("where", "--run", "demo", step)
        assert [(row["path"], row["sample"]) for row in alone] == [
            (row["path"], row["sample"]) for row in by_config
        ]
    asked = "--document", 91
    steps = [row["step"] for row in ask("when", "--run", "demo", *FILES, *asked)]
    assert (
        steps
        == [row["step"] for row in ask("when", "--config", "tokens.yaml", *asked)]
        != []
    )
    shown = ask("show", "--run", "demo", *FILES, "--step", 12)
    assert [row["text"] for row in shown] == [
        row["text"] for row in ask("show", "--config", "tokens.yaml", "--step", 12)
    ]
    assert run("audit", "--run", "demo", *FILES)[1].endswith("every law holds\n")


@pytest.mark.parametrize(
    "question",
    ["where 3", "show --step 3", "when --document 3", "audit", "replay 3"],
)
def test_files_of_the_same_size_with_other_ids_are_not_those_of_a_card(
    run, demo, question
):
    stories = open_tokens(FILES[1])
    Path("other").mkdir()
    other = Path("other") / Path(FILES[1]).name
    with TokenFileWriter(other, dtype=stories.dtype) as writer:
        writer.write_document(stories.tokens[::-1].copy())
    words = *question.split(), "--run", "demo", "--data"
    code, _, error = run(*words, other, FILES[2])
    assert code == 1
    assert "other/stories_input_ids.npy has the checksum xxh3_128:" in error
    assert "stories_input_ids.npy of demo has xxh3_128:875f3ab2d9" in error
    assert run(*words, *FILES[1:])[0] == 0


def test_a_run_is_replayed_row_by_row(run, ask, demo):
    files = FILES[1:]
    batches = [*Card.load("demo").replay(9, files)]
    assert len(batches) == 12, "steps 9 to 20; the second stage begins at step 11"
    for step, batch in zip(range(9, 21), batches, strict=True):
        rows = ask("where", "--run", "demo", *FILES, "--step", step)
        for row, ids in zip(
            sorted(rows, key=lambda it: it["slot"]["position"]), batch, strict=True
        ):
            spans = [(part["first_byte"], part["end_byte"]) for part in row["parts"]]
            content = Path(row["path"]).read_bytes()
            read = b"".join(content[first:last] for first, last in spans)
            assert np.frombuffer(read, np.uint16).tolist() == ids.tolist()
    words = "replay", "--run", "demo", *FILES, "--step"
    assert ask(*words, 10, "--steps", 2) == [
        {"step": 10, "rows": batches[1].tolist()},
        {"step": 11, "rows": batches[2].tolist()},
    ]
    first = run(*words, 10)[1].splitlines()[0]
    assert first == " ".join(map(str, batches[1][0].tolist()))
    code, text, _ = run(*words, 10, "--steps", 3, "--output", "rows.npy")
    assert code == 0 and "rows of 129 ids, steps 10 to 12" in text
    assert np.array_equal(np.load("rows.npy"), np.concatenate(batches[1:4]))
    assert run(*words, 10, "--output", "rows.npy")[0] == 1, "it exists"
    assert (
        "step 21 is not one of this run's steps 1 to 20"
        in run(*words, 20, "--steps", 2)[2]
    )
    with pytest.raises(IndexError, match="step 21 is not one of the steps"):
        Card.load("demo").replay(21, files)
    with pytest.raises(
        ValueError, match="the files of demo are .*, in this order; got"
    ):
        Card.load("demo").replay(1, files[::-1])


def test_other_files_than_those_of_the_card_are_refused(run, demo):
    error = run("where", "--run", "demo", FILES[0], FILES[2], FILES[1], "--step", 1)[2]
    assert (
        "the files of demo are ['stories_input_ids.npy', 'programs_input_ids.npy'], in this order"
        in error
    )


def test_documents_that_were_shuffled_are_read_from_their_pair(
    run, ask, corpus, tmp_path
):
    tokenizer = "--tokenizer", corpus / "tokenizer"
    run("convert", ids_of(corpus), tmp_path / "pile.bin")
    config = NanosetConfig(
        random_seed=3,
        sequence_length=32,
        data_path=[str(tmp_path / "pile")],
        split="1,0,0",
        split_num_samples=(5000, 0, 0),  # more than an epoch
        separate_final_epoch=False,
    )
    rows = NanosetBuilder(config).build(["train"])[0]
    order = {"name": "megatron", "seed": 3, "samples": 5000, "probes": {}}
    facts = Card.load("polypythias-seed3").facts
    probes = {str(k * 79): [0, rows.origin(k * 79).sample] for k in range(64)}
    order |= {"options": {"separate_final_epoch": False}, "probes": probes}
    stage = facts["stages"][0] | {"steps": 10, "batch_size": 64, "dp_size": 2}
    window = {"row_length": 33, "stride": 32}
    card = Card(facts | {"orders": [order], "stages": [stage], "window": window})
    (segment,) = segments_of_card(card, [str(tmp_path / "pile")], open_tokens)
    schedule = Schedule(micro_batch_size=32, dp_size=2, layout="contiguous")
    assert where(segment.dataset, segment.schedule, 9) == where(rows, schedule, 9)
    (tmp_path / "card.json").write_text(json.dumps(card.facts))
    named = "--run", tmp_path / "card.json", "--data", tmp_path / "pile.idx"
    questions = ["where", "--step", 9], ["when", "--document", 2]
    answers = [ask(*question, *named) for question in questions]
    (tmp_path / "pile.bin").unlink()
    assert [ask(*question, *named) for question in questions] == answers
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "pile.idx").rename(tmp_path / "elsewhere" / "own.idx")
    own = *named[:3], moved
    samples = [row["sample"] for row in answers[0]]
    assert [row["sample"] for row in ask(*questions[0], *own)] == samples
    completion = "card", "complete", tmp_path / "card.json", "--output", tmp_path / "a"
    assert "wherever it lies, to where, when or audit (--data)" in run(*completion)[2]
    named = own
    assert "own.bin" in run("show", "--step", 9, *named, *tokenizer)[2]
    error = run("where", "--run", tmp_path / "card.json", 9)[2]
    assert "give its .idx, or the .bin/.idx pair (--data)" in error
    order["probes"]["79"] = [0, -1 % 5000]
    with pytest.raises(
        ValueError, match="these are not the files of polypythias-seed3: position 79"
    ):
        segments_of_card(card, [str(moved)], open_tokens)
    with pytest.raises(
        ValueError, match="run: cards and bulk queries compute rows that"
    ):
        card_of_segments([segment], "x", "2026-11")


def test_a_file_has_one_number_in_all_stages(run, ask, demo):
    """The second stage reads other files, in another order: --source names the same file there."""
    text = (demo / "tokens.yaml").read_text()
    stories, programs = FILES[1:]
    text = text.replace(
        f"{stories}: 0.7, {programs}: 0.3", f"{programs}: 0.7, {stories}: 0.3"
    )
    (demo / "tokens.yaml").write_text(text)
    run("card", "tokens.yaml", "--name", "a", "--date", "2026-11", "--output", "a.json")
    card = "--run", "a.json", *FILES
    for row in ask("where", "--step", 12, *card):
        document = row["parts"][0]["document"]
        number = [stories, programs].index(row["path"])
        asked = "when", "--document", document, "--source", number
        for named in (card, ("--config", "tokens.yaml")):
            found = ask(*asked, *named)
            assert row["slot"] in [{k: it[k] for k in row["slot"]} for it in found]
            assert {it["source"] for it in found} == {number}
            words = *asked[1:], *named, "--tokenizer", "datasets/tokenizer"
            first = run("show", *words)[1].splitlines()[0]
            assert first.startswith(f"--- document {document}, ")
            assert first.endswith(row["path"])
    assert "there is no file 2: there are 2" in run(*asked[:4], 2, *card)[2]
