"""Reading text: every document once and in order, however the input is cut up, and every bad input by its name."""

import gzip
import json
import pickle
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.preprocess import text_formats
from nanoset_ref.preprocess.json_lines import DocumentError, InputError
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.tokens import TokenFileWriter


def write_lines(path, texts, column="text"):
    path.write_text(
        "".join(
            json.dumps({"id": k, column: text}) + "\n" for k, text in enumerate(texts)
        )
    )
    return path


def write_kind(path, texts):
    """A file of the kind that its suffix names."""
    write_lines(path, texts)
    content = path.read_bytes()
    half = len(content) // 2  # two members, two frames: as files put together with cat
    if pack := {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(
        path.suffix
    ):
        path.write_bytes(pack(content[:half]) + pack(content[half:]))
    if path.suffix == ".parquet":
        table = pa.table({"text": texts, "id": range(len(texts))})
        pq.write_table(table, path, row_group_size=7)
    return path


def texts_of(source):
    return [document.text for document in source.documents()]


TEXTS = [f"document {k} " + "é\n" * (k % 7) for k in range(50)]


@settings(deadline=None, max_examples=60)
@given(
    lines=st.lists(
        st.sampled_from(["", " ", '{"text": "a"}', '{"text": "' + "long " * 20 + '"}']),
        max_size=20,
    ),
    last_newline=st.booleans(),
    block_bytes=st.integers(2, 60),
)
def test_every_line_belongs_to_one_block_whatever_its_size(
    tmp_path_factory, lines, last_newline, block_bytes
):
    content = "\n".join(lines) + "\n" * last_newline
    expected = [json.loads(line)["text"] for line in lines if line.strip()]
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_text(content)
    if not content:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_formats, "BLOCK_BYTES", block_bytes)
        source = open_text(path)
        blocks = list(source.blocks())
        documents = [document for block in blocks for document in block.documents()]
    assert [document.text for document in documents] == expected
    where = [f"{path}:{number}" for number, line in enumerate(lines, 1) if line.strip()]
    assert [document.file_and_line for document in documents] == where
    assert sum(block.num_bytes for block in blocks) == source.num_bytes == len(content)


@pytest.mark.parametrize(
    "suffix", [".json", ".jsonl", ".jsonl.gz", ".json.zst", ".parquet"]
)
def test_every_kind_of_file_gives_the_same_documents(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 100)
    path = write_kind(tmp_path / f"a{suffix}", TEXTS)
    source = pickle.loads(pickle.dumps(open_text(path)))  # as a worker process gets it
    assert texts_of(source) == TEXTS
    assert [document.file_and_line for document in source.documents()] == [
        f"{path}:{k + 1}" for k in range(50)
    ]
    assert len(list(source.blocks())) > 1


def test_a_saved_dataset_and_a_folder_with_their_splits(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 100)
    train, test = (
        datasets.Dataset.from_dict({"text": texts}) for texts in (TEXTS, ["x"])
    )
    train.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=train, test=test).save_to_disk(tmp_path / "two")
    source = pickle.loads(pickle.dumps(open_text(tmp_path / "one")))
    assert texts_of(source) == TEXTS
    assert len(list(source.blocks())) > 1
    assert [document.file_and_line for document in source.documents()][
        -1
    ] == f"{tmp_path / 'one'}:50"
    assert texts_of(open_text(tmp_path / "two", split="test")) == ["x"]
    with pytest.raises(
        InputError, match="written by save_to_disk has no configurations, got 'en'"
    ):
        open_text(tmp_path / "one", config="en")
    with pytest.raises(
        InputError, match=r"name one of its splits \['train', 'test'\], got None"
    ):
        open_text(tmp_path / "two")
    with pytest.raises(
        InputError, match=r"no column 'body'; the columns here are \['text'\]"
    ):
        texts_of(open_text(tmp_path / "one", column="body"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "plain").mkdir()
    write_lines(tmp_path / "plain" / "train.jsonl", TEXTS)
    write_lines(tmp_path / "plain" / "test.jsonl", ["x", "y"])
    assert texts_of(open_text(tmp_path / "plain", split="test")) == ["x", "y"]


def test_folders_globs_and_lists_have_one_order(tmp_path):
    for name in (
        "b.jsonl",
        "a.json",
        "deep/c.jsonl",
        ".hidden.jsonl",
        ".ipynb_checkpoints/a.jsonl",
        "readme.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_lines(tmp_path / name, [name])
    assert texts_of(open_text(tmp_path)) == ["a.json", "b.jsonl", "deep/c.jsonl"]
    assert texts_of(open_text(str(tmp_path / "*.json*"))) == ["a.json", "b.jsonl"]
    assert texts_of(open_text([tmp_path / "b.jsonl", tmp_path / "deep"])) == [
        "b.jsonl",
        "deep/c.jsonl",
    ]
    assert texts_of(open_text(tmp_path / "b.jsonl", split="train")) == ["b.jsonl"]


def test_a_folder_says_which_links_it_does_not_read_and_reads_no_manifest(
    tmp_path, caplog
):
    for folder in ("elsewhere", "in"):
        (tmp_path / folder).mkdir()
    write_lines(tmp_path / "elsewhere/b.jsonl", ["b"])
    write_lines(tmp_path / "in/a.jsonl", ["a"])
    (tmp_path / "in/c.jsonl").symlink_to(tmp_path / "elsewhere/b.jsonl")
    (tmp_path / "in/gone.jsonl").symlink_to("nowhere")
    (tmp_path / "in/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/other").symlink_to("nowhere")
    write_lines(tmp_path / "in/d_input_ids.json", ["no token file stands beside it"])
    (tmp_path / "in/t_input_ids.npy").write_bytes(b"")
    (tmp_path / "in/t_input_ids.json").write_text('{\n "dtype": "uint16"\n}')
    with TokenFileWriter(tmp_path / "in/train.npy", dtype="uint16") as writer:
        writer.write_document([1, 2])
    write_lines(tmp_path / "in/vectors.json", ["e"])
    (tmp_path / "in/vectors.npy").write_bytes(b"no ids")
    expected = ["a", "b", "no token file stands beside it", "e"]
    assert texts_of(open_text(tmp_path / "in")) == expected
    links = caplog.records[:]
    assert texts_of(open_text(f"{tmp_path}/in/*.json*")) == expected
    assert [record.getMessage().partition("/in/")[2] for record in links] == [
        "gone.jsonl is a link to a missing file and is skipped",
        "more is a link to a folder and is skipped",
    ]


def test_a_document_has_its_text_in_the_first_column_that_it_has_whatever_others_have(
    tmp_path,
):
    lines = [
        {"content": "one"},
        {"text": "two", "content": "no"},
        {"content": "three"},
        {"body": "four"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    pq.write_table(pa.table({"content": ["five"], "id": [5]}), tmp_path / "b.parquet")
    source = open_text(tmp_path, column=("text", "content"), on_error="skip")
    blocks = list(source.blocks())
    texts = [document.text for block in blocks for document in block.documents()]
    assert texts == ["one", "two", "three", "five"]
    (batch,) = blocks[0].batches()
    assert batch.read().skipped == {"missing column": 1}
    message = "a.jsonl:4: no column 'text' or 'content'; the columns here are ..body.."
    with pytest.raises(DocumentError, match=message):
        texts_of(open_text(tmp_path, column=("text", "content")))


def test_a_tokenizer_is_tried_on_documents_from_all_over_the_input(tmp_path):
    for number in range(60):
        write_lines(
            tmp_path / f"{number:02}.jsonl", [f"{number} {k}" for k in range(50)]
        )
    (tmp_path / "03.jsonl").write_text(
        '{"text": "3 0"}\nnot json\n'
    )  # the run will say so
    tried = [text.split() for text in open_text(tmp_path).probe_texts()]
    assert [int(part) for part, number in tried if number == "0"] == list(
        range(0, 60, 3)
    )
    assert len(tried) == 19 * 25 + 1


BAD_LINES = [
    (
        "invalid JSON",
        b'{"text": "a"',
        r"not JSON \(Expecting ',' delimiter at character 12\); every line must be one",
    ),
    (
        "invalid JSON",
        b'{"text": "\xff"}',
        "not JSON .'utf-8' codec can't decode byte 0xff in position 10",
    ),
    (
        "not an object",
        b'[{"text": "a"}]',
        "one JSON object, got a list; a JSON array becomes JSON lines with: jq",
    ),
    (
        "invalid JSON",
        b"{",
        r"several lines: jq -c \.\); preprocess --on-error skip leaves out a",
    ),
    (
        "missing column",
        b'{"body": "a", "id": 1}',
        r"no column 'text'; the columns here are \['body', 'id'\]",
    ),
    (
        "not a string",
        b'{"text": null}',
        "got NoneType: .* .preprocess --on-error skip.$",
    ),
    (
        "lone surrogate",
        b'{"text": "a\\ud800"}',
        "lone surrogate '\\\\ud800' at character 1",
    ),
]


@pytest.mark.parametrize(("kind", "line", "message"), BAD_LINES)
def test_a_bad_line_is_an_error_with_file_and_line_or_skipped_and_counted(
    tmp_path, kind, line, message
):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "good"}\n\n' + line + b"\n")
    with pytest.raises(DocumentError, match=f"{path}:3: .*{message}") as caught:
        texts_of(open_text(path))
    assert caught.value.reason == kind
    (block,) = open_text(path, on_error="skip").blocks()
    assert [document.text for document in block.documents()] == ["good"]
    (batch,) = block.batches()
    assert batch.read().skipped == {kind: 1}


def test_files_of_common_writers_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        b'\xef\xbb\xbf{"text": "mark"}\r',
        b'{"text": "n", "score": NaN}',
        b"  ",
        b'{"text": "\\ud83d\\ude00"}',
    ]
    path.write_bytes(b"\n".join(lines))
    assert texts_of(open_text(path)) == ["mark", "n", "😀"]


def test_inputs_that_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("empty.jsonl", "a.csv"):
        (tmp_path / name).touch()
    (tmp_path / "nothing").mkdir()
    for wrong, options, error, message in [
        ("empty.jsonl", {}, InputError, "the input is empty"),
        ([], {}, InputError, "an empty list: the input is empty"),
        ("a.csv", {}, InputError, "unknown type of file; known types are .json, "),
        ("b.jsonl", {}, FileNotFoundError, "no such file"),
        ("nothing", {}, FileNotFoundError, "no file matches; known types are .json, "),
        ("*.jsonl.gz", {}, FileNotFoundError, "no file matches"),
        (
            "nobody/has-this-dataset",
            {},
            InputError,
            "neither a file, a folder nor a dataset that loads",
        ),
        (
            "empty.jsonl",
            {"split": "test"},
            InputError,
            "no splits other than 'train', got 'test'",
        ),
        ("a.jsonl", {"on_error": "ignore"}, ValueError, 'must be "raise" or "skip"'),
        (
            "empty.jsonl",
            {"config": "en"},
            InputError,
            "files have no configurations, got 'en'; leave it out",
        ),
    ]:
        with pytest.raises(error, match=message):
            open_text(wrong, **options)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_or_damaged_archive_is_named_and_so_is_a_bomb_before_it_fills_the_memory(
    tmp_path, monkeypatch, suffix
):
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    path = tmp_path / f"a.jsonl{suffix}"
    for broken in (
        pack(write_lines(tmp_path / "plain", TEXTS).read_bytes())[:-9],
        b"hello",
    ):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=f"a.jsonl{suffix}: damaged: "):
            texts_of(open_text(path))
    monkeypatch.setattr(text_formats, "MAX_LINE_BYTES", 5_000)
    path.write_bytes(pack(b'{"text": "good"}\n{"text": "' + b"x" * 2_000_000))
    with pytest.raises(
        InputError,
        match=f"a.jsonl{suffix}:2: unpacks to 5,000 bytes or more; unpack the file to read",
    ):
        texts_of(open_text(path))


def test_a_parquet_column_is_told_from_a_field_of_a_struct(tmp_path):
    structs = [{"b": "no"}, {"b": "neither"}]
    table = pa.table({"a": structs, "a.b": ["one", "two"]})
    pq.write_table(table, tmp_path / "a.parquet")
    texts = texts_of(open_text(tmp_path / "a.parquet", column="a.b"))
    assert texts == ["one", "two"]


@pytest.mark.parametrize("log", [27, 28, 31])
def test_a_window_that_pyarrow_refuses_is_named_with_the_way_out(tmp_path, log):
    path = tmp_path / "a.jsonl.zst"
    line = b'{"text": "one"}\n'
    # RFC 8878: a frame without its size, with a window of 2^log bytes and one raw block
    block = (len(line) << 3 | 1).to_bytes(3, "little") + line
    path.write_bytes(bytes([0x28, 0xB5, 0x2F, 0xFD, 0, (log - 10) << 3]) + block)
    if log == 27:
        assert texts_of(open_text(path)) == ["one"]
        return
    rule = "a.jsonl.zst: its window is above 128 MiB; unpack it with zstd -d --long=31"
    with pytest.raises(InputError, match=rule):
        texts_of(open_text(path))


def test_of_two_columns_with_one_name_none_is_guessed(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["x", "y", "x"]), path)
    assert texts_of(open_text(path, column="y")) == ["b"]
    rule = r"a.parquet: several columns have the name 'x'; rename all but one"
    with pytest.raises(InputError, match=rule):
        texts_of(open_text(path, column="x"))


def test_parquet_without_rows_or_the_column_or_damaged(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": []}, schema=pa.schema([("text", pa.string())])), path
    )  # as Spark leaves them
    pq.write_table(pa.table({"text": ["b"]}), tmp_path / "b.parquet")
    assert texts_of(open_text(tmp_path)) == ["b"]
    path.write_bytes(b"hello")
    with pytest.raises(InputError, match=r"a.parquet: damaged: "):
        texts_of(open_text(path))
    pq.write_table(pa.table({"text": ["a"]}), path, store_schema=False)
    before, _, after = path.read_bytes().partition(b"text")
    path.write_bytes(before + b"\x8dext" + after)
    with pytest.raises(InputError, match=r"a.parquet: damaged: 'utf-8'"):
        texts_of(open_text(path))
    for value, kind in ((None, "NoneType"), (b'{"text": "inner"}', "bytes")):
        pq.write_table(pa.table({"body": ["a"], "text": [value]}), path)
        with pytest.raises(
            DocumentError,
            match=rf"a.parquet:1: column 'text' must hold a string in UTF-8, got {kind}: convert the",
        ):
            texts_of(open_text(path))
    with pytest.raises(
        InputError,
        match=r"a.parquet: no column 'x'; the columns here are \['body', 'text'\]",
    ):
        texts_of(open_text(path, column="x"))
    pq.write_table(
        pa.table({"text": [f"{k} " * 50 for k in range(100)]}),
        path,
        use_dictionary=False,
    )
    content = path.read_bytes()
    path.write_bytes(content[:60] + b"\xff" * 140 + content[200:])
    with pytest.raises(InputError, match=r"a\.parquet, row group 0: damaged"):
        texts_of(open_text(path))


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "coded"])
def test_a_value_of_a_table_that_is_not_utf_8_is_named_or_left_out(tmp_path, kind):
    values = pa.array([b"one", b"\xb2", None, b"", b"caf\xc3\xa9"])
    strings = values.cast(pa.string(), safe=False)
    coded = strings.dictionary_encode()
    column = coded if kind == "coded" else strings.cast(kind, safe=False)
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    rule = r"a\.parquet:2: column 'text' must hold a string in UTF-8, got bytes"
    with pytest.raises(DocumentError, match=rule):
        texts_of(open_text(tmp_path / "a.parquet"))
    source = open_text(tmp_path / "a.parquet", on_error="skip")
    assert texts_of(source) == ["one", "", "café"]


def test_damaged_statistics_of_parquet_do_not_end_the_process(tmp_path):
    """pyarrow 26.0 aborts when it is asked for facts about such a column; reading it is an error."""
    path = tmp_path / "a.parquet"
    schema = pa.schema([pa.field("text", pa.string(), nullable=False)])
    pq.write_table(pa.table({"text": ["a", "b"]}, schema=schema), path)
    content = path.read_bytes()
    histograms = (
        b"\x19\x06\x19\x06"  # of repetition and definition levels, one value each
    )
    assert content.count(histograms) >= 1
    path.write_bytes(content.replace(histograms, b"\x19\x26\x19\x06"))
    script = (
        "import sys; from nanoset_ref.preprocess.text import open_text; "
        "list(open_text(sys.argv[1]).documents())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert re.search(r"InputError: .*a\.parquet.*damaged: .*histogram", ended.stderr)


@pytest.mark.parametrize("when", ["opened", "under way"])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"])
@pytest.mark.parametrize("change", ["another file", "lines appended"])
def test_a_file_that_changes_after_it_was_opened_is_an_error(
    tmp_path, monkeypatch, suffix, when, change
):
    """Never documents of two versions, or a part of one: the rest of a line, or fewer lines."""
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 60)
    path = write_kind(tmp_path / f"a{suffix}", TEXTS)
    later = write_kind(
        tmp_path / f"later{suffix}", ["longer " + text for text in TEXTS * 2]
    )
    source = open_text(str(path))
    documents = source.documents()
    if when == "under way":
        next(documents)
    if change == "another file":
        later.replace(path)
    else:
        with open(path, "ab") as file:
            file.write(later.read_bytes())
    with pytest.raises(
        InputError, match="was replaced or changed while it was read|damaged"
    ):
        list(documents)


def test_a_file_that_two_inputs_stand_for_is_read_twice_with_a_warning(
    tmp_path, caplog
):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name}"}}\n')
    pattern = f"{tmp_path}/*.jsonl"
    open_text(pattern)
    assert not caplog.records
    source = open_text([pattern, tmp_path])
    assert [document.text for document in source.documents()] == ["a", "b"] * 2
    (record,) = caplog.records
    assert "a.jsonl is read again" in record.getMessage()
