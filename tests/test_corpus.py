"""The embedded corpus: the same bytes everywhere, made by the generator, and every text in it keeps its word."""

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import zstandard
from transformers import AutoTokenizer

from corpus_generator import FORMAT, VOCAB_SIZE
from nanoset_ref.chunks.corpus import DATA, TextCorpus, prepare_corpus

# sha256 of every file of format 1; a change here needs a new FORMAT
DIGESTS = {
    "arithmetic.jsonl": "a329add4bffe04ca329d0ba79d68bfe098e9bd8e7f77b4fe129f6fd218219617",
    "corpus.json": "1949853a3d13f50f1f079b671b35c4d4f033d607a123e1943aa52900a6c37233",
    "programs.jsonl": "a7a20e4786108d586fb6e82d6f09a60343077899a74315fb1b5f424792316137",
    "stories.jsonl": "eee011ae0f625f3f369aba6a8e44558bd0b85ec20e1481432ddadf09e8691764",
    "tokenizer/tokenizer.json": "2b81cf8e38f26bd87cf94341c4494442ed6fa754d281bcb24268f5bb4959810d",
    "tokenizer/tokenizer_config.json": "102d6b3842809243548daa7dc8e1058552597a7fc15ccd90cc2b3f265d7ee177",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TextCorpus:
    return prepare_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def documents(corpus: TextCorpus) -> dict[str, list[dict]]:
    lines = {
        name: path.read_text(encoding="utf-8").splitlines()
        for name, path in corpus.domains.items()
    }
    return {name: [json.loads(line) for line in found] for name, found in lines.items()}


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in files
    }


def test_every_byte_is_pinned_and_the_command_says_where_it_is(tmp_path) -> None:
    assert FORMAT == 1
    command = [sys.executable, "-m", "nanoset_ref.chunks.corpus", "here"]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    names = ["stories.jsonl", "arithmetic.jsonl", "programs.jsonl", "tokenizer"]
    assert result.stdout.splitlines() == [
        f"{Path(name).stem}: here/{name}" for name in names
    ]
    assert digests(tmp_path / "here") == DIGESTS


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_generator_makes_these_bytes_with_any_hash_seed_and_number_of_threads(
    tmp_path, threads: str
) -> None:
    environment = os.environ | {
        "PYTHONHASHSEED": threads,
        "RAYON_NUM_THREADS": threads,
        "LC_ALL": "C",
    }
    command = [sys.executable, "-m", "corpus_generator", str(tmp_path / "made")]
    folder = Path(__file__).parent.parent / "notebooks"
    subprocess.run(command, cwd=folder, env=environment, check=True)
    made, shipped = (
        zstandard.decompress(path.read_bytes()) for path in (tmp_path / "made", DATA)
    )
    assert made == shipped


def test_a_second_call_writes_nothing_and_an_interrupted_one_is_repaired(
    tmp_path,
) -> None:
    corpus = prepare_corpus(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert prepare_corpus(str(tmp_path)) == corpus
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    (tmp_path / "corpus.json").unlink()
    corpus.domains["stories"].unlink()
    prepare_corpus(tmp_path)
    assert digests(tmp_path) == DIGESTS
    corpus.domains["programs"].unlink()
    prepare_corpus(tmp_path)
    assert digests(tmp_path) == DIGESTS
    corpus.domains["programs"].unlink()
    corpus.domains["stories"].write_text("edited")
    prepare_corpus(tmp_path)
    assert corpus.domains["stories"].read_text() == "edited"
    assert corpus.domains["programs"].is_file()


def value(expression: str) -> Fraction:
    """+, -, * and / over integers, exactly."""
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", expression))


def test_every_sum_is_right(documents: dict[str, list[dict]]) -> None:
    count = 0
    for row in documents["arithmetic"]:
        found = re.findall(r"([\d +*/-]*\d) = ([\d +*/-]*\d)", row["text"])
        assert len(found) == row["text"].count("="), row["text"]
        for left, right in found:
            assert value(left.strip(" -")) == value(right), (row["id"], left, right)
        count += len(found)
    assert count > 9_000


def test_every_program_runs_and_says_what_it_prints(
    documents: dict[str, list[dict]],
) -> None:
    asserts = 0
    for row in documents["programs"]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(row["text"], row["id"], "exec"), {})
        asserts += row["text"].count("\nassert ")
        assert [printed.getvalue().strip()] == [
            row["text"].partition("  # ")[2].strip()
        ], row["id"]
    assert asserts > 2_500


def test_the_tokenizer_loads_gives_texts_back_and_lengths_are_heavy_tailed(
    corpus: TextCorpus, documents
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(corpus.tokenizer)
    assert (len(tokenizer), tokenizer.eos_token_id) == (VOCAB_SIZE, 0)
    for rows in documents.values():
        texts = [row["text"] for row in rows] + ["\x00 naïve 東京 🐈\r\n\t  "]
        ids = tokenizer(texts)["input_ids"]
        assert tokenizer.batch_decode(ids[-20:]) == texts[-20:]
        lengths = sorted(map(len, ids))
        assert (
            lengths[0] <= 12
            and 30 <= lengths[len(lengths) // 2] <= 120
            and lengths[-1] > 3500
        )


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "programs.jsonl").write_text("mine")
    with pytest.raises(
        FileExistsError, match="programs.jsonl exists and is not part of the corpus"
    ):
        prepare_corpus(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["programs.jsonl"]
    assert (tmp_path / "programs.jsonl").read_text() == "mine"


@pytest.mark.parametrize("mine", ["[1]", '{"format": 1}', "no JSON", ""])
def test_nor_is_one_with_the_name_of_the_corpus_list(tmp_path: Path, mine: str) -> None:
    (tmp_path / "corpus.json").write_text(mine)
    (tmp_path / "stories.jsonl").write_text("mine")
    with pytest.raises(FileExistsError, match="is not part of the corpus"):
        prepare_corpus(tmp_path)
    assert (tmp_path / "corpus.json").read_text() == mine
    assert (tmp_path / "stories.jsonl").read_text() == "mine"
