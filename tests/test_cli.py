"""nanoset-ref as its users call it: every subcommand, text and JSON, good input and bad."""

import json

import numpy as np
import pytest
import yaml
from test_nanoset import write_range

from nanoset_ref.cli import build_parser, main
from nanoset_ref.corpus import prepare_corpus
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.preprocess import preprocess
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
        code = main([str(argument) for argument in arguments])
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
    _, found, _ = run("when", *data, "--text", "zyzzyva quokka")
    assert found == "it is not read in this run\n"


def test_where_looks_into_megatron_style_data(run, corpus, tmp_path):
    run("convert", ids_of(corpus), tmp_path / "m.bin")
    code, text, _ = run("where", "--data", tmp_path / "m", *LAYOUT, "--step", 1, "--json")
    assert code == 0
    row = json.loads(text)[0]
    part = row["parts"][0]
    data = ("--data", tmp_path / "m", *LAYOUT)
    _, text, _ = run("when", *data, "--document", part["document"], "--json")
    assert row["slot"]["position"] in [found["position"] for found in json.loads(text)]


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
    code, out, error = run(*arguments)
    assert (code, out) == (1, "")
    assert message in error
    assert error.startswith(f"nanoset-ref {arguments[0]}: error: ") and error.count("\n") == 1


def test_a_wrong_command_line_is_exit_code_2(capsys):
    for arguments in ([], ["fly"], ["show", "--data", "x"], ["show", "--position", "1", "--step", "2"]):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
    assert "usage: nanoset-ref" in capsys.readouterr().err


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
