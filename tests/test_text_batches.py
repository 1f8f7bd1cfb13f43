"""Batches of text, parsed and encoded as a whole, against a loop over lines with Python's json."""

import codecs
import dataclasses
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanoset_ref.preprocess import (
    Encoder,
    load_tokenizer,
    open_tokenizer,
    preprocess,
    text_blocks,
    text_formats,
)
from nanoset_ref.preprocess.json_lines import DocumentError, InputError, texts_of_lines
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.tokens import TokenFile

SURROGATE = "\ud800"


def per_line(content, columns=("text",)):
    """[(line, text or the kind of error)] of JSON lines, one line at a time."""
    found = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.removeprefix(codecs.BOM_UTF8).strip():
            found.append((number, of_line(line, columns)))
    return found


def of_line(line, columns):
    try:
        value = json.loads(line.decode().lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return ValueError("invalid JSON")
    if not isinstance(value, dict):
        return ValueError("not an object")
    chosen = [value[column] for column in columns if column in value]
    if not chosen:
        return ValueError("missing column")
    if not isinstance(chosen[0], str):
        return ValueError("not a string")
    if SURROGATE in chosen[0]:
        return ValueError("lone surrogate")
    return chosen[0]


TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(
        ["", " ", "</s>", "a<s>b</s>", "\u2028", "\x85", "\r\n", "\\", '"', "é" * 40]
    ),
)
GOOD = st.builds(
    lambda text, ascii, before, after: (
        before + b'"text": ' + json.dumps(text, ensure_ascii=ascii).encode()
    ).join([b"{", after]),
    TEXTS,
    st.booleans(),
    st.sampled_from(
        [b"", b'"id": 1, ', b'"a": {"text": "no"}, ', b'"text": "first", ']
    ),
    st.sampled_from(
        [b"}", b', "x": [{}, 1.5e3, null]}', b', "te\\u0078t": "last"}', b"} ", b"}\r"]
    ),
)
ODD = st.sampled_from(
    [
        b"",
        b" ",
        b"\r",
        b"{bad",
        b"[]",
        b"{}",
        b"5",
        b'{"body": "b"}',
        b'{"text": null}',
        b'{"text": 5}',
        b'{"text": ["a"]}',
        b'{"text": "\\ud800"}',
        b'{"x": "\\ud800", "text": "kept"}',
        b'{"text": "\xff"}',
        b'{"text": "a", "x": "\xff"}',
        b'{"text": "a"} {"text": "b"}',
        b'{"text": "a"}, {"text": "b"}',
        b'{"text": "a", "x": [{}',
        b"{}]}",
        b'{"text": "a", "x": 01}',
        b'{"text": "a", "x": NaN}',
        b'{"text": "a", "x": "\\q"}',
        b'{"text": "a", "x": "\x01"}',
        b'{"text": "a",}',
        codecs.BOM_UTF8 + b'{"text": "mark"}',
        codecs.BOM_UTF8,
        codecs.BOM_UTF8 + b"\r",
        b' {"text": "space"}',
    ]
)
LINES = st.lists(st.one_of(GOOD, GOOD, GOOD, ODD), min_size=1, max_size=12)
PACK = {"jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.zst": zstandard.compress}


def documents_of(source):
    """[(place, text)] and {kind: number} of what the batches hold."""
    found, skipped = [], Counter()
    for block in source.blocks():
        for batch in block.batches():
            read = batch.read()
            skipped.update(read.skipped)
            first = block.first_number()
            found += [
                (first + row, text)
                for row, text in zip(read.document_numbers, read.texts, strict=True)
            ]
            names = [batch.file_and_line(index) for index in range(len(read.texts))]
            assert names == [
                f"{block.part.path}:{first + row}" for row in read.document_numbers
            ]
    return found, skipped


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines=LINES,
    last_newline=st.booleans(),
    block_bytes=st.sampled_from([1, 7, 40, 100, 1 << 20]),
    columns=st.sampled_from(
        [("text",), ("text", "body"), ("body", "text"), ('"', "text")]
    ),
    kind=st.sampled_from(list(PACK)),
)
def test_batches_hold_what_a_loop_over_lines_finds(
    tmp_path_factory, lines, last_newline, block_bytes, columns, kind
):
    content = b"\n".join(lines) + b"\n" * last_newline
    expected = per_line(content, columns)
    texts = [(line, text) for line, text in expected if isinstance(text, str)]
    wrong = [
        (line, str(error)) for line, error in expected if not isinstance(error, str)
    ]
    path = tmp_path_factory.mktemp("batches") / f"a.{kind}"
    path.write_bytes(PACK[kind](content))
    if not path.stat().st_size:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_formats, "BLOCK_BYTES", block_bytes)
        found, skipped = documents_of(open_text(path, column=columns, on_error="skip"))
        assert found == texts
        assert skipped == Counter(kind for _, kind in wrong)
        strict = open_text(path, column=columns)
        if not wrong:
            assert documents_of(strict) == (texts, {})
            return
        with pytest.raises(DocumentError, match=f"{path}:{wrong[0][0]}: ") as caught:
            documents_of(strict)
        assert caught.value.reason == wrong[0][1]


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b'{"text": "a"}\n{"text": "b"}', ["a", "b"]),
        (b'{"text": "a"}\r\n{"text": "b"}\r\n', ["a", "b"]),
        (b'{"text": "a"}\n\n', None),
        (b'{"text": "a"} {"text": "b"}\n', None),
        # two objects in one line, and one in two: as many objects as lines
        (b'{"text": "a"}{"text": "b"}\n{"text":\n"c"}\n', None),
        (b'{"text": "a"},{"text": "b"}\n{"text": "c", "x": [{}\n{}]}\n', None),
        (b'{"text": "a", "x": [{},\n{}]}\r\n{"text": "b"}{"text": "c"}\r\n', None),
        (b"", None),
    ],
)
def test_lines_are_parsed_at_once_only_where_each_is_one_object(data, texts):
    assert texts_of_lines(data, ("text",)) == texts


def test_plain_lines_are_not_parsed_one_by_one(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "id": 1}\n' * 1000)
    pq.write_table(
        pa.table({"text": ["a"] * 1000}), tmp_path / "b.parquet", row_group_size=500
    )
    monkeypatch.setattr(text_blocks, "text_of", None)
    for source in (path, tmp_path / "b.parquet"):
        found, _ = documents_of_blocks(open_text(source))
        assert found == ["a"] * 1000


def documents_of_blocks(source):
    documents = list(source.documents())
    return [document.text for document in documents], documents


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines=LINES,
    on_error=st.sampled_from(["raise", "skip"]),
    special_tokens=st.sampled_from(["keep", "split", "refuse"]),
    backend=st.sampled_from(["hf", "gigatoken"]),
    block_bytes=st.sampled_from([30, 100, 1 << 20]),
)
def test_any_number_of_workers_writes_what_a_loop_over_lines_writes(
    golden, tmp_path_factory, lines, on_error, special_tokens, backend, block_bytes
):
    folder = tmp_path_factory.mktemp("workers")
    path = folder / "a.jsonl"
    path.write_bytes(b"\n".join(lines))
    found = [text for _, text in per_line(path.read_bytes())]
    texts = [text for text in found if isinstance(text, str)]
    tokenizer = load_tokenizer(golden / "tokenizer")
    split = special_tokens == "split"
    options = {"add_special_tokens": False, "split_special_tokens": split}
    documents = [tokenizer(text, **options)["input_ids"] for text in texts]
    fails = not texts or (on_error == "raise" and len(texts) < len(found))
    if special_tokens == "refuse":
        fails = fails or any(token < 3 for ids in documents for token in ids)
    said = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_formats, "BLOCK_BYTES", block_bytes)
        for workers in (1, 2, 3):
            made = written(
                path,
                folder / f"{workers}",
                golden / "tokenizer",
                append_eod=True,
                num_workers=workers,
                on_error=on_error,
                special_tokens=special_tokens,
                backend=backend,
            )
            said.add(made if isinstance(made, str) else str(made[1:]))
            assert isinstance(made, str) == fails
            if not fails:
                assert made[0] == [[*ids, 2] for ids in documents]
    assert len(said) == 1  # the same message, or the same counts


def test_any_number_of_workers_writes_the_values_of_a_table(
    golden, tmp_path, monkeypatch
):
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 60)
    texts = ["a", "", "b\0c", "\0", None, "d" * 100, "</s>", "e\nf", "é"] * 4
    pq.write_table(pa.table({"text": texts, "id": range(36)}), tmp_path / "a.parquet")
    options = {"append_eod": True, "on_error": "skip"}
    made = [
        written(
            tmp_path / "a.parquet",
            tmp_path / f"{workers}",
            golden / "tokenizer",
            num_workers=workers,
            **options,
        )
        for workers in (1, 2, 3)
    ]
    whole = load_tokenizer(golden / "tokenizer")
    kept = [text for text in texts if text is not None]
    assert made[0][0] == [
        [*whole(text, add_special_tokens=False)["input_ids"], 2] for text in kept
    ]
    assert made[0][1] == {"not a string": 4}
    assert made[0] == made[1] == made[2]


def written(path, prefix, tokenizer, **options):
    """(the documents, the counts) of a token file; or the message of an error."""
    if not path.stat().st_size:
        return "empty"
    try:
        counts = preprocess(path, prefix, tokenizer, progress=False, **options)
    except InputError as error:
        return str(error)
    file = TokenFile(f"{prefix}_input_ids.npy")
    documents = np.split(file.tokens, file.document_offsets[1:-1])
    kinds = (counts.skipped, counts.special_tokens, counts.special_documents)
    return [ids.tolist() for ids in documents], *kinds


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_command_loads_no_torch_transformers_or_pandas(golden, tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": ["a"]}), path)
    else:
        path.write_text('{"text": "a"}\n')
    program = f"""if True:
        import sys
        from nanoset_ref.preprocess import main
        words = "--input {path} --output-prefix {tmp_path}/a --append-eod --num-workers 2"
        code = main([*words.split(), "--tokenizer-name-or-path", {str(golden / "tokenizer")!r}])
        print(code, sorted({{"torch", "transformers", "numba", "pandas"}} & sys.modules.keys()))
    """
    run = [sys.executable, "-c", program]
    ended = subprocess.run(run, capture_output=True, text=True)
    assert ended.stdout.endswith("\n0 []\n"), ended.stderr


@pytest.fixture(params=["golden", "gpt2"])
def folder(request, golden, real_text):
    return {"golden": golden / "tokenizer", "gpt2": real_text / "gpt2"}[request.param]


def definition(text):
    """A tokenizer.json, less the post-processor, where transformers fills in one that adds nothing."""
    content = json.loads(text)
    del content["post_processor"]
    return content


def test_a_tokenizer_file_is_what_transformers_makes_of_it(folder):
    ours, theirs = open_tokenizer(folder), load_tokenizer(folder)
    assert type(ours) is not type(theirs)
    assert definition(ours.backend_tokenizer.to_str()) == definition(
        theirs.backend_tokenizer.to_str()
    )
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        assert getattr(ours, name) == getattr(theirs, name)
        assert getattr(ours, f"{name}_id") == getattr(theirs, f"{name}_id")
    assert {*ours.all_special_tokens} == {*theirs.all_special_tokens}
    one, other = Encoder(ours, append_eod=True), Encoder(theirs, append_eod=True)
    assert one.identity == other.identity
    configs = [one.worker_config, other.worker_config]
    assert definition(configs[0].pop("tokenizer")) == definition(
        configs[1].pop("tokenizer")
    )
    assert configs[0] == configs[1]
    assert (
        one.special_token_counts.token_by_id == other.special_token_counts.token_by_id
    )


def test_a_tokenizer_file_encodes_and_decodes_as_transformers_does(folder):
    ours, theirs = open_tokenizer(folder), load_tokenizer(folder)
    end = theirs.eos_token
    for text in (
        "",
        " a  b\n",
        f"café {end}, it 's  . {end}{end}",
        "\N{PILE OF POO}",
        "x" * 9,
    ):
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special_tokens=False) == ids
        for cut in range(len(ids) + 1):
            assert ours.decode(ids[:cut]) == theirs.decode(ids[:cut])
        loose = theirs.decode(ids, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, clean_up_tokenization_spaces=False) == loose


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer_class": "LlamaTokenizer"},
        {"add_bos_token": True},
        {"eos_token": "no such token"},
        {"added_tokens_decoder": {}},
    ],
)
def test_a_config_that_changes_the_tokenizer_is_left_to_transformers(
    golden, tmp_path, change
):
    for name in os.listdir(golden / "tokenizer"):
        (tmp_path / name).write_bytes((golden / "tokenizer" / name).read_bytes())
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    assert "transformers" not in type(open_tokenizer(tmp_path)).__module__
    path.write_text(json.dumps(config | change))
    assert "transformers" in type(open_tokenizer(tmp_path)).__module__
    path.write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text("{}")
    assert "transformers" in type(open_tokenizer(tmp_path)).__module__


def test_a_batch_leaves_out_the_rows_before_one(tmp_path, monkeypatch):
    lines = ['{"text": "a"}', '{"text": "b"}', "", '{"text": "c"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"text": ["a", "b", "x", "c"]}), tmp_path / "a.parquet")
    for name, rest in (("a.jsonl", ["b", "c"]), ("a.parquet", ["b", "x", "c"])):
        (block,) = open_text(tmp_path / name).blocks()
        batch = dataclasses.replace(next(block.batches()), skip_before=1)
        assert batch.read().texts == rest
        assert batch.file_and_line(0) == f"{tmp_path / name}:2"
        assert list(islice(batch.read().document_numbers, 1)) == [1]
