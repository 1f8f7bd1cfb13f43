"""The commands: preprocess, merge, index. What they write is what Megatron-Core would read and write."""

import json
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref.cli import main as nanoset_ref_main
from nanoset_ref.megatron import (
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.megatron.index.index_command import main as index_main
from nanoset_ref.megatron.index.index_command import parse_data_path
from nanoset_ref.megatron.preprocess import main as preprocess_main
from nanoset_ref.megatron.preprocess import preprocess_corpus
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.tokenizer import load_tokenizer

EOS = 2  # of the golden tokenizer


@pytest.fixture(autouse=True)
def _keep_the_signal_handler():
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def run(capsys):
    """Run a command in this process; returns what it prints or, if it is to fail, its error."""

    def call(main, *arguments, fails=False):
        code = main([str(argument) for argument in arguments])
        output, errors = capsys.readouterr()
        assert (code > 0) == fails, errors
        return errors if fails else output

    return call


@pytest.fixture
def corpus(tmp_path):
    texts = [f"document {i}: " + "words and words " * (i % 7) for i in range(200)]
    texts[3] = ""
    path = tmp_path / "my_corpus.json"
    path.write_text(
        "".join(
            json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(texts)
        )
    )
    return path, texts


@pytest.mark.parametrize("append_eod", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_files_are_those_that_upstreams_tool_would_write(
    golden, tmp_path, corpus, append_eod, workers
):
    """One sequence per document with its EOD; a document without tokens gets neither."""
    path, texts = corpus
    (counts,) = preprocess_corpus(
        path,
        tmp_path / "out" / "mine",
        tokenizer_type="HuggingFaceTokenizer",
        tokenizer_model=golden / "tokenizer",
        append_eod=append_eod,
        json_keys="text",
        workers=workers,
    ).values()
    tokenizer = load_tokenizer(golden / "tokenizer")
    with MMapIndexedDatasetBuilder(tmp_path / "expected.bin", np.uint16) as builder:
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += [EOS] if append_eod and ids else []
            builder.add_document(ids, [len(ids)] if ids else [])
    for suffix in ("bin", "idx"):
        written = (tmp_path / "out" / f"mine_text_document.{suffix}").read_bytes()
        assert written == (tmp_path / f"expected.{suffix}").read_bytes()
    assert counts.documents == 200
    found = MMapIndexedDataset(tmp_path / "out" / "mine_text_document")
    assert (len(found), found.num_documents) == (199, 200)
    assert counts.tokens == len(found.tokens)


def test_the_command_of_the_documentation(golden, tmp_path, corpus, run):
    arguments = (
        *("--input", corpus[0], "--output-prefix", tmp_path / "my-llama2-dataset"),
        *(
            "--tokenizer-type",
            "Llama2Tokenizer",
            "--tokenizer-model",
            golden / "tokenizer" / "tokenizer.json",
        ),
        *("--append-eod", "--workers", 1, "--json-key", "text"),
    )
    prefix = tmp_path / "my-llama2-dataset_text_document"
    assert run(preprocess_main, *arguments).startswith(f"{prefix}: 200 documents, ")
    own = (
        "--tokenizer-name-or-path",
        golden / "tokenizer",
        "--append-eod",
        "--num-workers=1",
        "--column",
        "text",
    )
    run(
        preprocess_main, "--input", corpus[0], "--output-prefix", tmp_path / "own", *own
    )
    assert (tmp_path / "own_text_document.bin").read_bytes() == Path(
        f"{prefix}.bin"
    ).read_bytes()
    assert MMapIndexedDataset(prefix)[0][-1] == EOS
    said = run(
        preprocess_main,
        *arguments,
        "--tokenizer-model",
        tmp_path / "no tokenizer",
        fails=True,
    )
    assert f"{prefix}.idx exists and is left unchanged; --overwrite" in said
    assert run(preprocess_main, *arguments, "--overwrite").startswith(
        f"{prefix}: 200 documents, "
    )


def test_preprocessing_refuses_bad_input(golden, tmp_path, corpus, run):
    def fails(*options, input=corpus[0], type="HuggingFaceTokenizer"):
        where = (
            "--input",
            input,
            "--output-prefix",
            tmp_path / "out",
            "--tokenizer-type",
            type,
        )
        return run(
            preprocess_main,
            *where,
            "--tokenizer-model",
            golden / "tokenizer",
            *options,
            fails=True,
        )

    assert "invalid choice: 'BertWordPieceLowerCase'" in fails(
        type="BertWordPieceLowerCase"
    )
    assert "columns" in fails("--json-key", "body")
    bad = tmp_path / "bad.json"
    bad.write_text('{"text": "a"}\n{"text": \n')
    assert f"{bad}:2" in fails(input=bad)
    special = tmp_path / "special.json"
    special.write_text('{"text": "a"}\n{"text": "a</s>"}\n')
    assert f"{special}:2: the document holds the" in fails(
        "--special-tokens", "refuse", input=special
    )
    empty = tmp_path / "empty.json"
    empty.write_text('{"text": ""}\n')
    assert "the input has no tokens" in fails(input=empty)
    assert not list(tmp_path.glob("out*"))


def test_the_one_merge_keeps_the_sequences_of_pairs(tmp_path, write_corpus, run):
    one, two = write_corpus([[2, 3], [1]], "one"), write_corpus([[3]], "two")

    def merge(*paths, fails=False):
        return run(nanoset_ref_main, "merge", *paths, fails=fails)

    assert "3 documents, 9 tokens (uint16)" in merge(
        one, f"{two}.bin", f"{two}.idx", tmp_path / "all.bin"
    )
    merged = MMapIndexedDataset(tmp_path / "all")
    assert merged.sequence_lengths.tolist() == [2, 3, 1, 3]
    assert merged.document_indices.tolist() == [0, 2, 3, 4]
    assert "all.idx exists and is left unchanged; --overwrite" in merge(
        one, two, tmp_path / "all.bin", fails=True
    )
    assert "no token file at" in merge(
        tmp_path / "nothing", tmp_path / "x.bin", fails=True
    )


def test_indexes_are_built_ahead_and_found(tmp_path, write_corpus, run, monkeypatch):
    monkeypatch.setattr("nanoset_ref.io.mmap_limit.MAX_READ_BYTES", 0)
    one, two, cache = (
        write_corpus([[50]] * 4, "one"),
        write_corpus([[30]] * 4, "two"),
        tmp_path / "cache",
    )
    common = ("--split", "1,1,0", "--path-to-cache", cache, "--sequence-length")
    assert "no split has a sample of 999 tokens" in run(
        index_main, "--data-path", one, *common, 999, fails=True
    )
    said = run(index_main, "--data-path", one, *common, 2**40, fails=True)
    assert said.endswith(
        "error: sequence_length must be below 2**31, got 1099511627776\n"
    )
    where = ("--data-path", f"{one}=1", f"{two}=3", *common, 4)
    counts = ("--split-num-samples", 40, 9, "none")
    for words in (
        where,
        (*where, *counts),
        ("--data-path", 1, one, 3, two, *common, 4),
    ):
        said = run(index_main, *words, fails=True)
        assert said.startswith(
            "nanoset_ref.megatron.index: error: weights need --split-num-samples TRAIN VALID TEST"
        )
    built = run(index_main, *where, "--split-num-samples", 40, 9, 0)
    assert built.startswith("BlendedNanoset(train: 40 samples")
    before = sorted(cache.iterdir())
    fields = {
        "random_seed": 1234,
        "sequence_length": 4,
        "split": "1,1,0",
        "split_num_samples": (40, 9, 0),
    }
    mapped, fresh = (
        NanosetBuilder(
            NanosetConfig(data_path={one: 1, two: 3}, path_to_cache=folder, **fields)
        ).build()[0]
        for folder in (cache, None)
    )
    assert sorted(cache.iterdir()) == before
    for index in (mapped.dataset_index, mapped.datasets[0].sample_index):
        assert isinstance(index.base, np.memmap)
    assert mapped.read(np.arange(40)).tolist() == fresh.read(np.arange(40)).tolist()


def test_forms_of_a_data_path_on_the_command_line():
    assert parse_data_path(["a", "b"]) == ["a", "b"]
    assert parse_data_path(["a=3", "b=0.5", "a=1"]) == [3.0, "a", 0.5, "b", 1.0, "a"]
    with pytest.raises(ValueError, match="give every file a weight or none"):
        parse_data_path(["a=3", "b"])


def test_a_file_whose_name_ends_in_a_number_is_no_weight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("crawl=2024", "both", "both=3", "pair=7.idx"):
        (tmp_path / name).touch()
    assert parse_data_path(["crawl=2024", "pair=7"]) == ["crawl=2024", "pair=7"]
    assert parse_data_path(["crawl=2024=0.5", "other=2"]) == [
        0.5,
        "crawl=2024",
        2.0,
        "other",
    ]
    with pytest.raises(
        ValueError,
        match="both=3 and both both exist: write both=3=1 for the first .*, or both=3.0 for the sec",
    ):
        parse_data_path(["both=3"])
    assert parse_data_path(["both=3=1", "both=3.0"]) == [1.0, "both=3", 3.0, "both"]
    with pytest.raises(ValueError, match="a weight is a number, got '1.2.3'"):
        parse_data_path(["both=1.2.3"])
    signed = "https://host/a.npy?Expires=3600"
    assert parse_data_path([signed]) == [signed]
    assert parse_data_path([f"{signed}=2", "s3://b/a.npy=1"]) == [
        2.0,
        signed,
        1.0,
        "s3://b/a.npy",
    ]


def test_all_outputs_are_checked_before_the_first_column_is_tokenized(golden, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "one", "title": "two"}\n')
    (tmp_path / "out_title_document.idx").write_text("mine")
    with pytest.raises(FileExistsError, match="out_title_document.idx exists"):
        preprocess_corpus(
            tmp_path / "in.jsonl",
            tmp_path / "out",
            tokenizer_model=golden / "tokenizer",
            json_keys=["text", "title"],
        )
    assert not list(tmp_path.glob("out_text*"))


def test_an_error_in_one_column_leaves_no_pair_of_another(golden, tmp_path):
    good, bad = '{"text": "one", "title": "two"}\n', '{"text": "one", "title": 5}\n'
    (tmp_path / "in.jsonl").write_text(good + bad)
    call = partial(
        preprocess_corpus,
        tmp_path / "in.jsonl",
        tmp_path / "new" / "out",
        tokenizer_model=golden / "tokenizer",
        json_keys=["text", "title"],
    )
    with pytest.raises(InputError, match="in.jsonl:2: .*title"):
        call()
    assert os.listdir(tmp_path / "new") == []
    (tmp_path / "in.jsonl").write_text(good)
    assert [counts.documents for counts in call().values()] == [1, 1]
    names = {path.name for path in (tmp_path / "new").glob("*.idx")}
    assert names == {"out_text_document.idx", "out_title_document.idx"}


@pytest.mark.parametrize("json_keys", [[], ["text", "text"]])
def test_json_keys_are_different_columns(golden, tmp_path, json_keys):
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(ValueError, match="one or more different columns, got"):
        preprocess_corpus(
            tmp_path / "in.jsonl",
            tmp_path / "out",
            tokenizer_model=golden / "tokenizer",
            json_keys=json_keys,
        )
    assert [*tmp_path.iterdir()] == [tmp_path / "in.jsonl"]


def test_several_columns_leave_out_no_documents(tmp_path):
    """Each would leave out its own lines, and document n of one would not be that of another."""
    (tmp_path / "a.jsonl").write_text('{"text": "a", "title": 5}\n')
    with pytest.raises(ValueError, match="other lines in each column of .*title"):
        preprocess_corpus(
            tmp_path / "a.jsonl",
            tmp_path / "a",
            tokenizer_model="unused",
            json_keys=["text", "title"],
            on_error="skip",
        )
    assert os.listdir(tmp_path) == ["a.jsonl"]
