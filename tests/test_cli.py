"""nanoset-ref as its users call it: every subcommand, text and JSON, good input and bad."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml
from test_nanoset import write_range

from nanoset_ref.cli import build_parser, files, main
from nanoset_ref.corpus import prepare_corpus
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.preprocess import preprocess
from nanoset_ref.tokenise.encode import load_tokenizer
from nanoset_ref.tokens import TokenFile


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The embedded stories, tokenised; two token files of them."""
    folder = tmp_path_factory.mktemp("c")
    corpus = prepare_corpus(folder)
    for domain in ("stories", "programs"):
        preprocess(
            corpus.domains[domain], folder / domain, corpus.tokenizer, append_eod=True, backend="hf", progress=False
        )
    return folder


@pytest.fixture
def run(capsys):
    """Call the command: (exit code, standard output, standard error)."""

    def call(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code
        return (code, *capsys.readouterr())

    return call


def ids_of(folder, domain="stories"):
    return folder / f"{domain}_input_ids.npy"


# ---- files


def test_inspect_counts_and_draws(run, corpus, tmp_path):
    code, text, _ = run("inspect", ids_of(corpus), "--png", tmp_path / "lengths.png")
    file = TokenFile(ids_of(corpus))
    assert code == 0
    assert f"{file.num_tokens:,} tokens (uint16) in {file.manifest.num_documents:,} documents" in text
    assert f"at the end of {file.manifest.num_documents:,} documents" in text
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
    code, text, _ = run("inspect", ids_of(corpus), "--json")
    assert json.loads(text)["num_tokens"] == file.num_tokens


def test_convert_there_and_back(run, corpus, tmp_path):
    contents = []
    source = ids_of(corpus)
    for target in ("a.bin", "a.ds", "a.npy"):
        code, text, _ = run("convert", source, tmp_path / target, "--json")
        assert code == 0
        contents.append(json.loads(text)[0]["content"])
        source = tmp_path / target
    assert len(set(contents)) == 1
    assert (tmp_path / "a.npy").read_bytes() == ids_of(corpus).read_bytes()


def test_what_a_glob_names_is_merged_and_verified(run, corpus, tmp_path):
    names = sorted(path for path in corpus.glob("*_input_ids*.npy"))
    assert len(names) == 4, "token files and their boundaries"
    code, text, _ = run("verify", *names, "--json")
    assert (code, len(json.loads(text))) == (0, 2)
    assert run("merge", *names, tmp_path / "both.npy")[0] == 0
    _, text, _ = run("verify", ids_of(corpus).with_suffix(".documents.npy"))
    assert "holds the document boundaries of stories_input_ids.npy" in text


def test_raw_ids_and_a_tokenizer_become_a_described_file(run, corpus, tmp_path):
    """Nanotron's own files have no manifest: the end-of-document id gives the documents back."""
    original = TokenFile(ids_of(corpus))
    (tmp_path / "raw.npy").write_bytes(original.path.read_bytes())
    said = ("--eos-token-id", original.manifest.eos_token_id)
    assert run("inspect", tmp_path / "raw.npy")[0] == 1
    assert f"in {original.manifest.num_documents:,} documents" in run("inspect", tmp_path / "raw.npy", *said)[1]
    assert run("verify", tmp_path / "raw.npy", *said)[0] == 0
    name = ("--tokenizer", original.manifest.tokenizer)
    assert run("convert", tmp_path / "raw.npy", tmp_path / "a.npy", *said, *name)[0] == 0
    assert TokenFile(tmp_path / "a.npy").manifest == original.manifest
    run("convert", tmp_path / "a.npy", tmp_path / "b.bin")
    assert run("convert", tmp_path / "b.bin", tmp_path / "c.npy", *name)[0] == 0
    assert TokenFile(tmp_path / "c.npy").manifest == original.manifest


def test_a_split_that_fails_leaves_neither_file(run, corpus, tmp_path, monkeypatch):
    real, calls = files.convert, []

    def fails_the_second_time(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(files, "convert", fails_the_second_time)
    code, _, error = run("split", ids_of(corpus), tmp_path / "a.npy", tmp_path / "b.npy", "--held-out", 3)
    assert (code, error) == (1, "nanoset-ref split: error: No space left on device\n")
    assert not list(tmp_path.iterdir())


def test_merge_and_split(run, corpus, tmp_path):
    code, text, _ = run("merge", ids_of(corpus), ids_of(corpus, "programs"), tmp_path / "both.npy")
    assert code == 0
    both = TokenFile(tmp_path / "both.npy").manifest.num_documents
    assert f"{both:,} documents" in text
    for held_out, expected in (("0.25", round(0.25 * both)), ("7", 7)):
        arguments = ("--held-out", held_out, "--overwrite", "--json")
        code, text, _ = run("split", tmp_path / "both.npy", tmp_path / "train.npy", tmp_path / "valid.npy", *arguments)
        assert [it["documents"] for it in json.loads(text)] == [both - expected, expected]


def test_verify_passes_good_files_and_names_what_is_wrong_with_others(run, corpus, tmp_path):
    code, text, _ = run("verify", ids_of(corpus))
    assert code == 0
    assert "checksum as in the manifest" in text
    run("convert", ids_of(corpus), tmp_path / "a.npy")
    run("convert", ids_of(corpus), tmp_path / "b.bin")
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[::-1])
    code, text, _ = run("verify", tmp_path / "a.npy", tmp_path / "b.bin", tmp_path / "nothing.npy")
    assert code == 1
    assert [line.split()[0] for line in text.splitlines()] == ["BROKEN", "ok", "BROKEN"]
    assert "the content has changed" in text and "no token file at" in text
    code, text, _ = run("verify", tmp_path / "b.bin", "--vocab-size", 10)
    assert code == 1
    assert "outside the vocabulary of 10 ids" in text


# ---- runs

LAYOUT = ("--sequence-length", 32, "--dp-size", 2, "--micro-batch-size", 2, "--batch-accumulation", 2)


def test_show_decodes_what_is_asked(run, corpus):
    documents = [json.loads(line)["text"] for line in (corpus / "stories.jsonl").read_text().splitlines()]
    code, text, _ = run("show", "--data", ids_of(corpus), "--sequence-length", 32, "--document", 3)
    assert code == 0
    assert documents[3] in text
    nanoset = Nanoset(ids_of(corpus), None, 32, 100)
    _, first, _ = run("show", "--data", ids_of(corpus), "--num-samples", 100, *LAYOUT, "--position", 0, "--json")
    _, sample, _ = run("show", "--data", ids_of(corpus), *LAYOUT, "--sample", nanoset.order[0][1], "--json")
    assert json.loads(first)[0]["text"] == json.loads(sample)[0]["text"]
    _, step, _ = run("show", "--data", ids_of(corpus), "--num-samples", 100, *LAYOUT, "--step", 1, "--json")
    assert len(json.loads(step)) == 8
    assert json.loads(step)[0]["text"] == json.loads(first)[0]["text"]


@pytest.mark.parametrize("order", ["nanotron", "stateless"])
def test_when_answers_what_where_says(run, corpus, order):
    data = ("--data", f"{ids_of(corpus)}=3", f"{ids_of(corpus, 'programs')}=1", "--order", order, *LAYOUT)
    code, text, _ = run("where", *data, "--step", 5, "--json")
    assert code == 0
    rows = json.loads(text)
    assert len(rows) == 8
    for row in rows[:3]:
        document = row["parts"][0]["document"]
        _, text, _ = run("when", *data, "--document", document, "--source", row["source"], "--json")
        slots = [{name: found[name] for name in row["slot"]} for found in json.loads(text)]
        assert row["slot"] in slots
    _, text, _ = run("where", *data, "--step", 5, "--text")
    assert text.count("position") == 8


def test_a_piece_of_text_is_found_in_the_run(run, corpus):
    text = json.loads((corpus / "stories.jsonl").read_text().splitlines()[5])["text"]
    piece = " ".join(text.split()[:8])
    data = ("--data", ids_of(corpus), ids_of(corpus, "programs"), *LAYOUT)
    code, found, _ = run("when", *data, "--text", piece, "--json")
    assert code == 0
    assert {"source": 0, "document": 5}.items() <= json.loads(found)[0].items()
    code, found, error = run("when", *data, "--text", "zyzzyva quokka")
    assert (code, found) == (1, "")
    assert "no document holds 'zyzzyva quokka'" in error
    _, found, _ = run("when", *data, "--text", piece, "--num-samples", 0)
    assert found == "it is not read in this run\n"


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_a_text_is_read_where_its_own_tokens_are(run, corpus, tmp_path, suffix):
    """The oracle: pieces cut anywhere from the text, found by plain search; and the rows that a step shows."""
    documents = [json.loads(line)["text"] for line in (corpus / "stories.jsonl").read_text().splitlines()]
    run("convert", ids_of(corpus), tmp_path / f"a{suffix}")
    file = TokenFile(ids_of(corpus))
    data = ("--data", tmp_path / f"a{suffix}", "--sequence-length", 16, "--tokenizer", file.manifest.tokenizer)
    decode = load_tokenizer(file.manifest.tokenizer).decode
    for document, first, length in [(0, 3, 40), (4, 17, 25), (9, 30, 60)]:
        piece = documents[document][first : first + length].strip()
        code, text, error = run("when", *data, "--text", piece, "--json")
        assert code == 0, error
        found = json.loads(text)
        holding = {number for number, text in enumerate(documents) if piece in text}
        assert {row["document"] for row in found} == holding
        for row in found:
            _, text, _ = run("where", *data, "--step", row["step"], "--json")
            start, stop = row["tokens"]
            ids = file.tokens[file.document_offsets[row["document"]] :][start:stop].tolist()
            assert piece in decode(ids)
            assert piece not in decode(ids[1:]) and piece not in decode(ids[:-1])
            parts = [part for part in json.loads(text)[0]["parts"] if part["document"] == row["document"]]
            assert any(max(part["start"], start) < min(part["stop"], stop) for part in parts)


def test_where_looks_into_megatron_style_data(run, corpus, tmp_path):
    run("convert", ids_of(corpus), tmp_path / "m.bin")
    code, text, _ = run("where", "--data", tmp_path / "m", *LAYOUT, "--step", 1, "--json")
    assert code == 0
    row = json.loads(text)[0]
    part = row["parts"][0]
    for name in ("m.bin", "m.idx"):
        assert run("where", "--data", tmp_path / name, *LAYOUT, "--step", 1, "--json")[1] == text
    data = ("--data", tmp_path / "m", *LAYOUT)
    _, text, _ = run("when", *data, "--document", part["document"], "--json")
    assert row["slot"]["position"] in [found["position"] for found in json.loads(text)]


@pytest.mark.parametrize("weights", [("", ""), ("=3", "=1")])
def test_audit_proves_megatron_style_runs(run, corpus, tmp_path, weights):
    """The oracle: every row's origin, counted."""
    data = ["--data"]
    for domain, weight in zip(("stories", "programs"), weights, strict=True):
        run("convert", ids_of(corpus, domain), tmp_path / f"{domain}.bin")
        data.append(f"{tmp_path / domain}{weight}")
    data += ["--num-samples", 3000] if weights[0] else []
    code, text, _ = run("audit", *data, *LAYOUT, "--json")
    report = json.loads(text)
    assert (code, report["ok"]) == (0, True)
    (leg,) = report["legs"]
    _, text, _ = run("where", *data, "--sequence-length", 32, "--dp-size", 8 * leg["num_steps"], "--step", 1, "--json")
    rows = json.loads(text)
    for number, source in enumerate(leg["sources"]):
        mine = [row for row in rows if row["source"] == number]
        assert source["read"] == source["distinct"] == len({row["sample"] for row in mine})
        assert source["repetitions"] >= len({row["epoch"] for row in mine})
        assert source["share"] == len(mine) / len(rows)
    assert run("audit", *data, *LAYOUT)[1].endswith("every law holds\n")


def test_audit_proves_a_run_and_says_what_another_plan_would_do(run, corpus, tmp_path):
    data = ("--data", ids_of(corpus), ids_of(corpus, "programs"), *LAYOUT)
    code, text, _ = run("audit", *data, "--workers", 4)
    assert code == 0
    assert text.endswith("every law holds\n")
    nanoset = Nanoset([ids_of(corpus), ids_of(corpus, "programs")], None, 32, 100)
    state = {"consumed_train_samples": 64, "plan": nanoset.plan}
    (tmp_path / "state.json").write_text(json.dumps(state))
    _, text, _ = run("audit", *data, "--state", tmp_path / "state.json")
    assert text.endswith("continuing at 64 reads exactly what the saved plan would have read\n")
    _, text, _ = run("audit", *data, "--order", "stateless", "--state", tmp_path / "state.json", "--json")
    assert json.loads(text)["continuation"]["exact"] is False


def test_a_yaml_file_names_the_run(run, corpus, tmp_path):
    stage = {"data": {"dataset": {"dataset_path": str(ids_of(corpus))}, "num_loading_workers": 0, "seed": 1}}
    config = {
        "data_stages": [
            {"name": "first", "start_training_step": 1, **stage},
            {"name": "second", "start_training_step": 4, **stage},
        ],
        "tokens": {"sequence_length": 32, "train_steps": 6, "micro_batch_size": 2, "batch_accumulation_per_replica": 1},
        "parallelism": {"dp": 2},
        "model": {"model_config": {"model_type": "gpt2", "vocab_size": 8192, "n_positions": 64}},
        "checkpoints": {"checkpoints_path": str(tmp_path / "checkpoints"), "checkpoint_interval": 5},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    code, text, _ = run("audit", "--config", tmp_path / "run.yaml")
    assert code == 0
    assert "first: 3 steps" in text and "second: 3 steps" in text
    record = {"first_position": 0, "consumed_train_samples": 4, "plan": Nanoset(ids_of(corpus), None, 32, 12, 1).plan}
    for name, expected in (("second", "continuing at 4 reads exactly"), ("third", "saved in the stage 'third'")):
        state = {
            "step": 4,
            "state": {"data": {"step": 4, "stages": [record | {"name": "first"}, record | {"name": name}]}},
        }
        (tmp_path / "state.json").write_text(json.dumps(state))
        code, text, error = run("audit", "--config", tmp_path / "run.yaml", "--state", tmp_path / "state.json")
        assert code == (name == "third")
        assert expected in text + error
    _, text, _ = run("where", "--config", tmp_path / "run.yaml", "--step", 4, "--json")
    assert [row["slot"]["position"] for row in json.loads(text)] == [0, 2, 1, 3], "the second stage starts over"
    code, _, error = run("where", "--config", tmp_path / "run.yaml", "--step", 7)
    assert (code, error) == (1, "nanoset-ref where: error: step 7 is not one of this run's steps 1 to 6\n")


# ---- what can go wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["where", "--step", "1"], "say which run is meant"),
        (["where", "--data", "a=1", "b", "--step", "1"], "give every file a weight or none"),
        (["where", "--data", "nothing.npy", "--step", "1"], "no token file at nothing.npy"),
        (["where", "--data", "raw.npy", "m.bin", "--step", "1"], "token files or .bin/.idx pairs, not both"),
        (["where", "--data", "m.bin=1", "--step", "1"], "give --num-samples"),
        (["where", "--data", "raw.npy=x", "--step", "1"], "the weight of raw.npy must be a number"),
        (["where", "--data", "raw.npy", "--sequence-length", "50", "--step", "1"], "one sample of sequence_length=50"),
        (["where", "--data", "raw.npy", "--sequence-length", "9", "--dp-size", "9", "--step", "1"], "has no steps"),
        (["where", "--config", "raw.npy", "--data", "raw.npy", "--step", "1"], "leave out --data, or --config"),
        (["where", "--config", "nothing.yaml", "--step", "1"], "nothing.yaml: No such file"),
        (["where", "--config", "raw.npy", "--step", "1"], "raw.npy"),
        (["where", "--config", "broken.yaml", "--step", "1"], "broken.yaml"),
        (["when", "--data", "raw.npy", "--sequence-length", "4", "--text", " "], "does not say its tokenizer"),
        (["audit", "--data", "raw.npy", "--sequence-length", "4", "--state", "raw.npy"], "raw.npy: not a data state"),
        (
            ["audit", "--data", "raw.npy", "--sequence-length", "4", "--state", "list.json"],
            "list.json: not a data state",
        ),
        (
            ["audit", "--data", "raw.npy", "--sequence-length", "4", "--state", "half.json"],
            "KeyError: 'sequence_length'",
        ),
        (["audit", "--data", "m.bin", "--sequence-length", "4", "--state", "half.json"], "reads .bin/.idx pairs"),
        (["inspect", "m.bin", "--png", "nofolder/a.png"], "the folder nofolder does not exist"),
        (["verify", "m.bin", "--png"], "unrecognized arguments: --png; see nanoset-ref verify --help"),
        (["verify", "m.bin", "--vocab-size", "0"], "must be at least 1, got 0"),
        (["show", "--data", "raw.npy", "--position", "-1"], "must be at least 0, got -1"),
        (["convert", "m.bin", "a.npy", "--dtype", "wide"], "a dtype of integers, such as uint16 or int32, got 'wide'"),
        (["convert", "m.bin", "a.npy", "--dtype", "float32"], "a dtype of integers"),
        (["split", "m.bin", "a.npy", "b.txt", "--held-out", "1"], "suffix must be one of"),
        (["split", "m.bin", "a.npy", "m.idx", "--held-out", "1"], "suffix must be one of"),
        (["split", "m.bin", "a.npy", "raw.npy", "--held-out", "1"], "raw.npy exists"),
        (["split", "m.bin", "a.npy", "a.npy", "--held-out", "1"], "two files, got a.npy for both"),
        (["split", "m.bin", "a.npy", "b.npy", "--held-out", "nan"], "a share such as 0.01 or a number of documents"),
        (["split", "m.bin", "a.npy", "b.npy", "--held-out", "1.5"], "lies between 0 and 1, got 1.5"),
        (["split", "m.bin", "a.npy", "b.npy", "--held-out", "9"], "9 asks for 9"),
        (["inspect", "nothing.npy"], "no token file at nothing.npy"),
        (["inspect", "raw.npy"], "raw.npy has no manifest beside it"),
        (["show", "--data", "raw.npy", "--sequence-length", "4", "--position", "0"], "does not say its tokenizer"),
        (["show", "--data", "raw.npy", "--sequence-length", "4", "--sample", "99"], "there is no sample 99"),
        (["show", "--data", "raw.npy", "--sequence-length", "4", "--sample", "0", "--source", "3"], "no file 3"),
        (["show", "--data", "raw.npy", "--sequence-length", "4", "--position", "1000"], "position 1000 is outside"),
        (["when", "--data", "raw.npy", "--sequence-length", "4", "--document", "0"], "no manifest"),
        (["audit", "--data", "raw.npy", "--sequence-length", "4", "--order", "random"], "there is no order 'random'"),
        (["audit", "--data", "raw.npy", "--sequence-length", "4", "--dp-size", "0"], "dp_size must be at least 1"),
        (
            ["audit", "--data", "raw.npy", "--sequence-length", "4", "--micro-batch-size", "99"],
            "num_steps must be at least 1",
        ),
        (["convert", "raw.npy", "b.npy"], "no manifest beside it"),
        (["split", "raw.npy", "a.npy", "b.npy", "--held-out", "0.5"], "no manifest beside it"),
    ],
)
def test_bad_input_is_one_line_on_standard_error(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_range(tmp_path / "raw.npy", 41)
    assert run("convert", "raw.npy", "m.bin", "--eos-token-id", 7)[0] == 0
    (tmp_path / "broken.yaml").write_text("a: [1\nb: 2\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "half.json").write_text('{"consumed_train_samples": 1, "plan": {"files": [{}]}}')
    before = sorted(tmp_path.iterdir())
    code, out, error = run(*arguments)
    assert (code in (1, 2), out) == (True, "")
    assert message in error
    assert error.startswith(f"nanoset-ref {arguments[0]}: error: ") and error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_wrong_command_line_is_exit_code_2(capsys):
    for arguments in ([], ["fly"], ["show", "--data", "x"], ["show", "--position", "1", "--step", "2"]):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
        message = capsys.readouterr().err
        assert message.startswith("nanoset-ref") and message.endswith("--help\n") and message.count("\n") == 1


def test_every_subcommand_has_help(capsys):
    (commands,) = [action for action in build_parser()._actions if hasattr(action, "choices") and action.choices]
    for name in commands.choices:
        with pytest.raises(SystemExit) as error:
            main([name, "--help"])
        assert error.value.code == 0
        assert len(capsys.readouterr().out) > 200


def test_split_targets_may_not_exist(run, corpus, tmp_path):
    np.arange(3).tofile(tmp_path / "train.npy")
    code, _, error = run("split", ids_of(corpus), tmp_path / "train.npy", tmp_path / "valid.npy", "--held-out", "3")
    assert code == 1
    assert "train.npy exists; remove it" in error


def test_a_reader_that_leaves_and_a_full_disk_are_no_traceback(corpus):
    command = [sys.executable, "-m", "nanoset_ref.cli", "where", "--data", ids_of(corpus), *LAYOUT, "--step", "1"]
    command = [str(argument) for argument in command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        told = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert (told.returncode, told.stderr) == (1, "nanoset-ref where: error: No space left on device\n")


def test_an_interrupt_is_one_line(run, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "open_documents", lambda *_: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have what they put behind ignore it
    try:
        code, out, error = run("convert", ids_of(corpus), tmp_path / "a.npy")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out, error) == (1, "", "nanoset-ref convert: error: interrupted; nothing was written\n")


def test_a_ds_file_is_read_with_its_own_width_of_ids(run, corpus, tmp_path):
    run("convert", ids_of(corpus), tmp_path / "a.ds", "--dtype", "uint32")
    tokenizer = ("--tokenizer", TokenFile(ids_of(corpus)).manifest.tokenizer)
    document = json.loads((corpus / "stories.jsonl").read_text().splitlines()[3])["text"]
    _, text, _ = run("show", "--data", tmp_path / "a.ds", "--sequence-length", 32, "--document", 3, *tokenizer)
    assert document in text
