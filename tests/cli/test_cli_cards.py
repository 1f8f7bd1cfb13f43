"""nanoset-ref with run cards: the answers need no file, and with files they are those of the run itself."""

import hashlib
import json
import mmap
import re
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from bucket_server import server_of_process
from cli_parts import ids_of
from test_nanoset import write_range

from nanoset_ref import train
from nanoset_ref.cli.run_options import RunOptions
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.nanoset_config import NanosetConfig
from nanoset_ref.orders.others import OLMoCoreOrder
from nanoset_ref.preprocess import load_tokenizer
from nanoset_ref.provenance import (
    Card,
    RunSegment,
    card_of_segments,
    fetch_rows,
    segments_of_card,
    where,
)
from nanoset_ref.tokens import TokenFileWriter, open_tokens


@pytest.fixture
def demo(run, corpus, tmp_path, monkeypatch):
    """A folder with the demo's config and its token files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "datasets").symlink_to(corpus)
    (tmp_path / "tokens.yaml").write_text(run("train", "--example", "tokens")[1])
    return tmp_path


FILES = "--data", "datasets/stories_input_ids.npy", "datasets/programs_input_ids.npy"


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
    assert "empty is a folder: give the config of the run" in error


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


@pytest.fixture
def public(tmp_path):
    """A server, and a folder whose files it has under their paths: `serve(path, size, {byte: content})`."""
    server = server_of_process()
    server.reset()

    def serve(path, size, contents):
        file = tmp_path / path.replace("/", "_")
        with open(file, "wb") as out:
            out.truncate(size)  # sparse
            for place, content in contents.items():
                out.seek(place)
                out.write(content)
        with open(file, "rb") as opened:
            server.keep(path, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))

    yield server, serve
    server.objects.clear()


@pytest.mark.parametrize(("part", "expected"), [(3, 30_000_000_000), (20, 78_336_000)])
@pytest.mark.parametrize("difference", [-4098, 4098])
def test_a_published_file_of_another_size_is_refused(
    public, part, expected, difference
):
    """Cut elsewhere, or another file: its bytes would be other rows."""
    server, serve = public
    sample = part * 30_000_000_000 // 4098 + 1
    card = Card.load("pythia-1.4b")
    url = card.sources[0]["parts"]["url"].format(part)
    size = expected + difference
    serve(url.removeprefix("https://huggingface.co"), size, {})
    mirror = f"http://127.0.0.1:{server.port}"
    with pytest.raises(
        ValueError, match=f"{size:,} bytes, but the card pythia-1.4b says {expected:,}"
    ):
        fetch_rows(card, card.when(sample), mirror)


def test_a_step_of_pythia_is_shown_where_it_is_public(run, ask, demo, corpus, public):
    server, serve = public
    card = Card.load("pythia-1.4b")
    rows = card.where(7150)  # which begins in one part of the file and ends in the next
    ids = np.arange(1024 * 2049).astype(np.uint16).reshape(1024, 2049) % 900
    parts = card.published(0, rows[0].first_byte, rows[-1].end_byte)
    assert len(parts) == 2 and parts[1][1] == 0
    content = ids.tobytes()
    for url, first, last in parts:
        here, content = content[: last - first], content[last - first :]
        serve(url.removeprefix("https://huggingface.co"), 30_000_000_000, {first: here})
    mirror = f"http://127.0.0.1:{server.port}"
    assert np.array_equal(fetch_rows(card, rows, mirror), ids)
    assert np.array_equal(next(card.replay(7150, mirror=mirror)), ids)
    words = "replay", "--run", "pythia-1.4b", "--mirror", mirror, "--step", 7150
    code, said, _ = run(*words, "--output", corpus / "rows.npy", "--overwrite")
    assert code == 0 and "1,024 rows of 2,049 ids, steps 7150 to 7150" in said
    assert np.array_equal(np.load(corpus / "rows.npy"), ids)
    words = (
        "show",
        "--run",
        "pythia-1.4b",
        "--mirror",
        mirror,
        "--tokenizer",
        corpus / "tokenizer",
    )
    server.sent = 0
    found = ask(*words, "--step", 7150)
    assert server.sent < 1.1 * ids.nbytes
    tokenizer = load_tokenizer(str(corpus / "tokenizer"))
    assert [row["text"] for row in found] == [
        tokenizer.decode(row.tolist()) for row in ids
    ]
    text = run(*words, "--sample", rows[5].sample)[1]
    assert (
        text
        == f"--- rank 0 micro-batch 0 row 5: position {rows[5].position}, epoch 0, "
        + (
            f"document.bin sample {rows[5].sample}, bytes {rows[5].first_byte}:{rows[5].end_byte}\n"
            f"{found[5]['text']}\n"
        )
    )
    error = run(*words, "--step", 19000)[2]
    assert error.count("\n") == 1 and "does not exist" in error
    assert (
        "does not say where stories_input_ids.npy is public"
        in run("show", "--run", "demo", "--step", 3)[2]
    )


def test_a_step_of_olmo_is_read_from_its_files_by_ranges(public):
    server, serve = public
    facts = Card.load("olmo-2-32b").facts
    names = [f"https://olmo-data.org/part-{k}.npy" for k in range(3)]
    stages = [facts["stages"][0] | {"steps": 1, "batch_size": 8}]
    orders = [facts["orders"][0] | {"options": {"chunk_size": 2, "batch_size": 8}}]
    listed = facts["listed"] | {"files": 3}
    facts |= {"listed": listed, "stages": stages, "orders": orders}
    sizes = [(name, (5 + k) * 4096 * 4) for k, name in enumerate(names)]
    for number, (name, size) in enumerate(sizes):
        ids = np.arange(size // 4, dtype=np.uint32) + 100_000 * number
        serve(name.removeprefix("https://olmo-data.org"), size, {0: ids.tobytes()})
    card = Card(facts, sizes)
    rows = card.where(1)
    found = fetch_rows(card, rows, f"http://127.0.0.1:{server.port}")
    assert found.dtype == np.uint32
    firsts = [100_000 * row.source + 4096 * row.sample for row in rows]
    assert np.array_equal(found, np.add.outer(firsts, np.arange(4096)))


def test_many_questions_are_answered_in_a_table(run, ask, demo):
    with_mark = "\ufeff91\n0:3\n1:7\n"  # as some editors save it
    (demo / "bulk.txt").write_text(with_mark, encoding="utf-8")
    code, text, error = run("when", "--run", "demo", *FILES, "--bulk", "bulk.txt")
    lines = [line.split("\t") for line in text.splitlines()]
    assert code == 0 and not error
    assert lines[0][:4] == ["query", "stage", "step", "position"]
    for question, document in (("91", 91), ("0:3", 3)):
        asked = ask("when", "--config", "tokens.yaml", "--document", document)
        found = sorted(
            [int(line[2]), int(line[3])] for line in lines if line[0] == question
        )
        assert found == sorted([row["step"], row["position"]] for row in asked)
    (demo / "bytes.txt").write_text("1000-1258\n")
    text = run("when", "--run", "demo", "--bulk", "bytes.txt")[1]
    asked = ask("when", "--run", "demo", "--byte-range", 1000, 1258)
    assert [int(line.split("\t")[3]) for line in text.splitlines()[1:]] == [
        row["position"] for row in asked
    ]
    (demo / "binary").write_bytes(b"\xff\xfe\x00")
    for words in (["when", "--bulk", "binary"], ["skip", "binary"]):
        error = run(*words, "--run", "demo", *FILES)[2]
        assert (
            "a line is [SOURCE:]DOCUMENT, [SOURCE:]FIRST_BYTE-END_BYTE, a text" in error
        )
    error = run("when", "--run", "demo", "--bulk", "bulk.txt")[2]
    assert "91: document numbers and passages need the token files: give" in error


def test_texts_and_ids_are_looked_for_in_all_files_at_once(
    run, ask, demo, stories, monkeypatch
):
    """Each text as --text finds it alone: one that step 1 reads, and the beginning of another."""
    tokenizer = open_tokens(FILES[1]).facts["tokenizer"]
    named = "--tokenizer", tokenizer
    rows = ask("where", "--run", "demo", *FILES, "--step", 1)
    begun = [part for row in rows for part in row["parts"] if part["start"] == 0]
    numbers = max(begun, key=lambda part: part["stop"])["document"], 3
    pieces = [stories[number][:40].strip() for number in numbers]
    encode = load_tokenizer(tokenizer).encode
    ids = encode(" ".join(["", *pieces[0].split(" ")[1:-1]]), add_special_tokens=False)
    lines = [*map(json.dumps, [*pieces, ids, "zyzzyva quokka xyst"])]
    (demo / "passages.txt").write_text("\n".join(lines))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    words = "--run", "demo", *FILES, *named
    code, text, error = run("when", *words, "--bulk", "passages.txt")
    assert code == 0 and "documents searched" in error
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    found = {line: {row[3] for row in rows if row[0] == line} for line in lines}
    for line, piece in zip(lines, pieces, strict=False):
        asked = ask("when", *words, "--text", piece)
        assert found[line] == {str(row["position"]) for row in asked}
    assert found[lines[2]] and not found[lines[3]]
    assert run("skip", "passages.txt", *words)[0] == 0


def test_a_run_without_some_documents(run, ask, demo):
    (demo / "bulk.txt").write_text("\ufeff91\n", encoding="utf-8")
    one, two = ask("skip", "bulk.txt", "--run", "demo", *FILES)
    steps = {
        row["step"] for row in ask("when", "--run", "demo", *FILES, "--document", 91)
    }
    assert one["steps"] + two["steps"] == len(steps)
    first = min(steps)
    code, text, _ = run("skip", "bulk.txt", "--run", "demo", *FILES)
    assert code == 0 and f"from step {first} on later rows move forward, by" in text
    (demo / "none.txt").write_text("1:0\n")
    assert (
        "stage stories: reads none of these rows, and stays as it is"
        in run("skip", "none.txt", "--run", "demo", *FILES)[1]
    )


def test_other_files_than_those_of_the_card_are_refused(run, demo):
    error = run("where", "--run", "demo", FILES[0], FILES[2], FILES[1], "--step", 1)[2]
    assert (
        "the files of demo are ['stories_input_ids.npy', 'programs_input_ids.npy'], in this order"
        in error
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
    assert "a step of pythia-1.4b has 1024 rows" in error and "gives 3" in error


def test_audit_says_what_a_card_lacks_and_what_is_broken(run, ask, tmp_path):
    code, text, _ = run("audit", "--run", "pythia-1.4b")
    assert (
        code == 0 and "64 of 64 probes agree" in text and "inferred: a part has" in text
    )
    code, text, _ = run("audit", "--run", "olmo-2-32b")
    assert (
        code == 1
        and "  LACKS   order 0 cannot be computed" in text
        and "1122 files" in text
    )
    facts = Card.load("pythia-1.4b").facts
    path = tmp_path / "wrong.json"
    probes = facts["orders"][0]["probes"] | {"0": [0, 1]}
    stages = [facts["stages"][0] | {"first_position": 5, "steps": 100}]
    orders = [facts["orders"][0] | {"probes": probes}]
    path.write_text(json.dumps(facts | {"orders": orders, "stages": stages}))
    code, text, _ = run("audit", "--run", path)
    assert code == 1 and "BROKEN  order 0 (identity): 63 of 64 probes agree" in text
    assert (
        "BROKEN  stage run reads positions 5 to 102,405 of order 0, which was read up to 0: rows"
        in text
    )


def test_audit_of_a_card_names_samples_and_draws_the_spread(ask, run):
    found = ask("audit", "--run", "demo")
    (twice,) = found["uneven"]
    assert twice["how"] == "more often" and twice["first"] == [[0, 466, 2]]
    assert len(Card.load("demo").when(466)) == 2
    assert [[it["file"] for it in stage] for stage in found["spread"]] == [[0], [0, 1]]
    text = run("audit", "--run", "demo")[1]
    assert "through its file: 1 sample: stories_input_ids.npy sample 466 (2x)" in text
    text = run("audit", "--run", "modded-nanogpt-sub3min")[1]
    shard = next(line for line in text.splitlines() if "000001.bin" in line)
    assert shard.endswith("|" + 9 * "\u2588" + 55 * " " + "|"), (
        "the first shard is read first"
    )


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_sizes_are_asked_of_the_servers_and_complete_a_card(
    run, ask, tmp_path, line_end
):
    facts = Card.load("olmo-2-32b").facts
    names = "".join(
        f"web,files/{{TOKENIZER}}/{k % 3}.npy{line_end}" for k in range(4)
    ).encode()  # one of them twice
    (tmp_path / "names.txt").write_bytes(names)
    digest = hashlib.sha256(names).hexdigest()
    card = tmp_path / "card.json"
    listed = facts["listed"] | {"files": 4, "sha256": digest}
    stages = [facts["stages"][0] | {"steps": 10}]
    card.write_text(json.dumps(facts | {"listed": listed, "stages": stages}))
    folder = tmp_path / "files" / "allenai" / "dolma2-tokenizer"
    folder.mkdir(parents=True)
    rows = [3001, 2000, 4001, 3001]  # of which whole pairs are read
    for k in range(3):
        with open(folder / f"{k}.npy", "wb") as file:
            file.truncate(rows[k] * 4096 * 4)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}"
        words = (
            "card",
            "complete",
            card,
            "--names",
            tmp_path / "names.txt",
            "--mirror",
            mirror,
        )
        finished = tmp_path / "finished.json"
        both = (
            "--output",
            finished,
            "--card-output",
            tmp_path / "files/../finished.json",
        )
        error = run(*words, *both)[2]
        assert f"--output and --card-output are two files, got {finished} for" in error
        assert not finished.exists()
        code, text, _ = run(
            *words, "--output", tmp_path / "sizes.json", "--card-output", finished
        )
        assert code == 0 and "sizes.json: the sizes of 4 files" in text
        (folder / "1.npy").unlink()
        error = run(*words, "--output", tmp_path / "other.json")[2]
        assert (
            "1.npy: HTTP Error 404" in error and not (tmp_path / "other.json").exists()
        )
        server.shutdown()
    asked = "--run", card, "--sizes", tmp_path / "sizes.json"
    first = ask("where", *asked, 1)
    assert first[0]["path"].startswith(
        "https://olmo-data.org/files/allenai/dolma2-tokenizer/"
    )
    order = OLMoCoreOrder(rows, None, 2048, 34521, chunk_size=2, batch_size=2048)
    expected = [
        [source, sample] for source, sample in map(order.__getitem__, range(2048))
    ]
    assert [[row["source"], row["sample"]] for row in first] == expected
    assert ask("where", "--run", finished, *asked[2:], 1) == first
    assert len(json.loads(finished.read_text())["orders"][0]["probes"]) == 64
    text = run("audit", "--run", finished, *asked[2:])[1]
    assert "64 of 64 probes agree; 20,480 positions" in text
    text = run("audit", *asked)[1]
    assert "order 0 (olmo_core): no probes confirm the sizes; 20,480 positions" in text
    sizes = json.loads((tmp_path / "sizes.json").read_text())
    sizes[1][1] -= 4096 * 4  # too small for a pair of rows: no row changes
    (tmp_path / "changed.json").write_text(json.dumps(sizes))
    changed = "--sizes", tmp_path / "changed.json"
    assert ask("where", "--run", card, *changed, 1)
    error = run("where", "--run", finished, *changed, 1)[2]
    assert "are not the sizes that the card olmo-2-32b was completed with" in error
    found = ask("when", *asked, "--sample", 7)
    assert {row["source"] for row in found} == {0, 3}, "the first file is listed twice"
    (tmp_path / "names.txt").write_bytes(names + b"#")
    assert "the card says " + digest in run(*words, "--output", tmp_path / "a.json")[2]
    error = run("card", "complete", "demo", "--output", tmp_path / "a.json")[2]
    assert "the card demo lists no files" in error
    listed = listed | {"url": "https://127.0.0.1:9/list.txt"}
    card.write_text(json.dumps(facts | {"listed": listed, "stages": stages}))
    error = run("card", "complete", card, "--output", tmp_path / "a.json")[2]
    assert "list.txt" in error and "give a copy of this list (--names)" in error


def test_a_tokenizer_of_a_card_that_cannot_be_loaded_may_be_named(tmp_path):
    with pytest.raises(ValueError, match=r"no tokenizer to load.*--tokenizer$"):
        RunOptions(run="demo").chosen_tokenizer(str(tmp_path / "none"))


def test_two_cards_are_compared_by_the_rows_they_read(run, ask, tmp_path):
    code, text, _ = run("compare", "pythia-1.4b", "pythia-6.9b")
    assert code == 0 and "read the same rows in all 143,000 steps" in text, (
        "on other ranks"
    )
    facts = Card.load("demo").facts
    path = tmp_path / "other.json"
    orders = [facts["orders"][0], facts["orders"][1] | {"seed": 7, "probes": {}}]
    path.write_text(json.dumps(facts | {"orders": orders}))
    code, text, _ = run("compare", "demo", path)
    assert code == 1
    assert "orders[1] (stateless).seed: first 1234, second 7" in text
    assert "from step 11 on they read different rows: 4 of that step differ" in text
    sources = [source | {"name": "moved.npy"} for source in facts["sources"]]
    sources[0]["checksum"] = None
    path.write_text(json.dumps(facts | {"sources": sources}))
    code, text, _ = run("compare", "demo", path)
    assert code == 0 and "read the same rows in all" in text
    doubled = Card.load("pythia-1.4b").facts
    stage = doubled["stages"][0] | {"batch_size": 2048, "steps": 71_500}
    stage |= {"layout": None, "dp_size": None, "micro_batch_size": None}
    path.write_text(json.dumps(doubled | {"stages": [stage]}))
    for pair in (("pythia-1.4b", path), (path, "pythia-1.4b")):
        text = run("compare", *pair)[1]
        assert (
            "from step 1 on they read different rows: 1,024 of that step differ" in text
        )
    path.write_text(json.dumps(doubled | {"stages": [stage | {"first_step": 5}]}))
    text = run("compare", path, "pythia-1.4b-deduped")[1]
    assert "from step 5 on they read different rows: 2,048 of that step differ" in text
    path.write_text(json.dumps(doubled | {"stages": [stage | {"first_step": 200_000}]}))
    code, text, _ = run("compare", path, "pythia-1.4b")
    assert code == 1 and "cannot be computed: they have no step in common" in text
    shorter = doubled | {"window": {"row_length": 1025, "stride": 1024}}
    path.write_text(json.dumps(shorter))
    assert "from step 1 on they" in run("compare", path, "pythia-1.4b")[1]
    code, text, _ = run("compare", "pythia-1.4b", "pythia-1.4b-deduped")
    assert code == 1 and "from step 1 on they read different rows" in text
    code, text, _ = run("compare", "polypythias-seed1", "polypythias-seed2")
    assert (
        code == 1
        and "the first step that differs cannot be computed: polypythias-seed1" in text
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("where --run demo --seed 1234 3", "--seed is fixed by the card; drop it"),
        ("where --run demo --seed 7 3", "--seed is fixed by the card; drop it"),
        ("where --run demo --config x.yaml 3", "name a run"),
        ("where --config x.yaml --seed 7 3", "--seed is fixed by the config; drop it"),
        ("audit --config x.yaml --token-dtype int32", "--token-dtype is fixed by the"),
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


def test_a_mirror_is_an_address(run, corpus):
    words = "--run", "pythia-1.4b", "--mirror", "localhost:8000"
    named = "--tokenizer", corpus / "tokenizer"
    for command in (("show", "--sample", 3, *named), ("replay", 3)):
        error = run(*command, *words)[2]
        assert "a mirror is an address such as http://localhost:8000" in error
        assert "'localhost:8000'" in error


def test_a_step_that_stands_behind_data_is_missing(run, demo):
    for command in ("where", "replay"):
        error = run(command, "--run", "demo", *FILES, 12)[2]
        assert "give the step once: as a number before --data, or as --step" in error


def test_a_pair_in_a_bucket_is_read_as_one_on_the_disk(run, ask, demo, public):
    server, _ = public
    run("convert", FILES[1], "stories.bin")
    for name in ("stories.bin", "stories.idx"):
        server.keep(f"/bucket/{name}", Path(name).read_bytes())
    url = f"http://127.0.0.1:{server.port}/bucket/stories.bin"
    for options in ((), ("--order", "stateless")):
        words = "--sequence-length", 128, "--step", 3, *options
        found = [ask("where", "--data", path, *words) for path in ("stories.bin", url)]
        samples = [[row["sample"] for row in rows] for rows in found]
        assert samples[0] == samples[1]


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


@pytest.mark.parametrize(
    ("sources", "longer", "expected"),
    [
        ("ab", False, "read the same rows in all 10 steps"),
        ("ba", False, "from step 1 on they read different rows: 2 of that step differ"),
        ("ac", False, "read the same rows in all 10 steps\n    if b.npy and c.npy are"),
        ("abc", True, "read the same rows in all 10 steps"),
    ],
)
def test_files_without_checksums_are_told_apart_by_their_names(
    run, tmp_path, sources, longer, expected
):
    """Files of one size; a longer run may read another file after the steps of the shorter one."""
    for name in "abc":
        write_range(tmp_path / f"{name}.npy", 41)

    def card(name, letters, stages):
        rows = Nanoset([tmp_path / f"{it}.npy" for it in letters[:2]], None, 4, 20)
        made = [RunSegment("one", rows, Schedule(micro_batch_size=2), 10)]
        if stages:
            more = Nanoset(tmp_path / f"{letters[2]}.npy", None, 4, 10)
            after = Schedule(micro_batch_size=2, first_step=11)
            made.append(RunSegment("two", more, after, 5))
        facts = card_of_segments(made, name=name, date="2026-11").facts
        (tmp_path / f"{name}.json").write_text(json.dumps(facts))
        return tmp_path / f"{name}.json"

    one, two = card("one", "ab", False), card("two", sources, longer)
    for pair in ((one, two), (two, one)):
        code, text, error = run("compare", *pair)
        if pair == (two, one):
            expected = expected.replace("b.npy and c.npy", "c.npy and b.npy")
        assert expected in text, error
        assert code == ("different" in text)


def test_cards_whose_orders_differ_in_name_alone_do_not_read_the_same_rows(
    run, tmp_path
):
    write_range(tmp_path / "a.npy", 401)
    paths = []
    for name in ("nanotron", "stateless"):
        rows = Nanoset(tmp_path / "a.npy", None, 4, 100, order=name)
        segment = RunSegment("run", rows, Schedule(micro_batch_size=4), 25)
        facts = card_of_segments([segment], name="toy", date="2026-11").facts
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(facts))
    code, text, _ = run("compare", *paths)
    assert code == 1
    assert ".kind: first 'nanotron', second 'stateless'" in text
    assert "from step 1 on they read different rows: 4 of that step differ" in text
