"""The tool as its users call it, and what they call it on."""

import json
import mmap

import pytest
from bucket_server import server_of_process

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


@pytest.fixture
def demo(run, corpus, tmp_path, monkeypatch):
    """A folder with the demo's config and its token files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "datasets").symlink_to(corpus)
    (tmp_path / "tokens.yaml").write_text(run("train", "--example", "tokens")[1])
    return tmp_path


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
