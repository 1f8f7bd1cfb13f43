"""The tool as its users call it, and what they call it on."""

import json

import pytest

from nanoset_ref.chunks.corpus import prepare_corpus
from nanoset_ref.cli import main
from nanoset_ref.preprocess import preprocess


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The embedded stories, tokenised; two token files of them."""
    folder = tmp_path_factory.mktemp("c")
    corpus = prepare_corpus(folder)
    for domain in ("stories", "programs"):
        preprocess(
            corpus.domains[domain],
            folder / domain,
            corpus.tokenizer,
            append_eod=True,
            backend="hf",
            progress=False,
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


@pytest.fixture
def ask(run):
    """Call the command with --json: what it answers."""

    def ask(*arguments):
        code, text, error = run(*arguments, "--json")
        assert code == 0, error
        return json.loads(text)

    return ask


@pytest.fixture
def stories(corpus):
    """The texts of the embedded stories."""
    return [
        json.loads(line)["text"]
        for line in (corpus / "stories.jsonl").read_text().splitlines()
    ]
