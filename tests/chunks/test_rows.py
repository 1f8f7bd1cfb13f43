"""Rows: written, read, validated, and converted to what both kinds of dataset read."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.chunks import ManifestError, chunks_to_tokens, validate
from nanoset_ref.chunks.chunk_conversion import chunk_tokens
from nanoset_ref.chunks.chunk_manifest import ChunkManifest, FileEntry, RowFacts
from nanoset_ref.chunks.row_format import format_row, read_row, row_files
from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron import MMapIndexedDataset, NanosetBuilder, NanosetConfig
from nanoset_ref.provenance import where
from nanoset_ref.tokens import TokenFile, TokenFileError, verify

FACTS = {"tokenizer": "t", "vocab_size": 300, "eos_token_id": 7, "concat_tokens": 5}


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_lines_are_those_of_json_dumps(dtype):
    for ids, rest in (
        ([0, 1, 10], {}),
        ([65535, 99], {}),
        ([7], {}),
        ([1, 2, 0], {"document_lengths": [1, 1]}),
    ):
        expected = json.dumps({"token_ids": ids, "source": 'a/"ü"', **rest}) + "\n"
        assert (
            format_row(np.array(ids, dtype=dtype), 'a/"ü"', *rest.values())
            == expected.encode()
        )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"token_ids": [1, 2], "source": "a"}', ([1, 2], "a", None)),
        (b'{"token_ids": [0], "source": "a]", "more": [1, 2]}', ([0], "a]", None)),
        (b'{"token_ids":[1,2],"source":null}', ([1, 2], None, None)),
        (b'{"more": [1], "source": "[b", "token_ids": [3]}\r', ([3], "[b", None)),
        (b' {"token_ids" : [ 7 ] }', ([7], None, None)),
        (b'{"token_ids": [2147483647]}', ([2147483647], None, None)),
        (
            b'{"token_ids": [1, 2, 3, 0], "source": "a", "document_lengths": [1, 2]}',
            ([1, 2, 3, 0], "a", [1, 2]),
        ),
    ],
)
def test_a_row_is_read_however_it_is_written(line, expected):
    ids, *rest = read_row(line, len(expected[0]), None)
    assert (ids.tolist(), *rest) == expected


BAD_IDS = [
    *b'1, 2,|,1|01|1 2|-1|1.0|1e2|true, 1|"1"|2147483648|[1]|1], [2|1,, 2|null'.split(
        b"|"
    ),
    b"9" * 18,
    b"9" * 30,
]
BAD = [b'{"token_ids": [%b]}' % ids for ids in BAD_IDS]
BAD += b'|  |{bad|[1]|[|{}|"token_ids"|{"token_ids": 1}|{"token_ids": []}|{"token_ids": [1, 2]'.split(
    b"|"
)
BAD += b'{"token_ids": [1, |{"token_ids": [1]}x|{"token_ids": [1], "token_ids": [2, 3]}'.split(
    b"|"
)
BAD += b'{"token_ids": [1], "source": 5}|{"token_ids": {"token_ids": [1]}}'.split(b"|")
BAD += [b'{"token_ids": [1], "source": "\xff"}', b"[" * 10**5]
BAD += [
    b'{"token_ids": [1, 2], "document_lengths": %b}' % it
    for it in (b"[]", b"[1, 2]", b"[0]", b"[true]", b"3", b"[1.0]")
]


@pytest.mark.parametrize("line", BAD)
def test_what_is_no_row_is_refused_in_a_line(line):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        read_row(line, None, None)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1), st.booleans())
def test_what_is_written_is_read(ids, compact):
    line = json.dumps(
        {"token_ids": ids, "source": "s"},
        separators=(",", ":") if compact else (", ", ": "),
    ).encode()
    assert read_row(line, len(ids), None)[0].tolist() == ids
    for wrong in ((len(ids) + 1, None), (None, max(ids) or 1)):
        if wrong != (None, 1):
            with pytest.raises(ValueError, match=r"expected|not below"):
                read_row(line, *wrong)


def write_chunks(root, sizes, row_length=5, facts=FACTS):
    """Chunk files of rows that count on from 0; returns the rows [all, row_length]."""
    rows = np.arange(sum(sizes) * row_length).reshape(-1, row_length)
    (root / "train").mkdir(parents=True)
    files, first = {}, 0
    for i, size in enumerate(sizes):
        path = root / f"train/train_{i}.jsonl"
        path.write_bytes(
            b"".join(format_row(row, "a") for row in rows[first : first + size])
        )
        files[f"train/{path.name}"] = FileEntry.of(path, size)
        first += size
    if facts is not None:
        say(root, facts, complete=True, files=files)
    return rows


def say(folder, facts=FACTS, **content):
    """Write a manifest, of a run that is not finished."""
    ChunkManifest(
        format="nanoset_ref.chunks/2", settings={}, facts=RowFacts(**facts), **content
    ).write(folder)


@pytest.mark.parametrize("suffix", [".bin", ".ds", "_input_ids.npy"])
def test_chunks_without_rows_become_no_file(tmp_path, suffix):
    (tmp_path / "e.jsonl").touch()
    with pytest.raises(ValueError, match=r"e\.jsonl .*no row"):
        chunks_to_tokens(tmp_path / "e.jsonl", tmp_path / f"e{suffix}", vocab_size=9)
    assert os.listdir(tmp_path) == ["e.jsonl"]


def test_files_whose_names_have_one_number_have_one_order(tmp_path, monkeypatch):
    """Not that of the folder, which depends on how it was copied."""
    names = [tmp_path / name for name in ("train_1.jsonl", "train_01.jsonl")]
    for path in names:
        path.touch()
    for listed in (names, names[::-1]):
        monkeypatch.setattr(Path, "rglob", lambda *_, listed=listed: listed)
        assert row_files(tmp_path) == names[::-1]


def test_a_nanoset_reads_exactly_the_rows_each_once_none_cut(tmp_path):
    rows = write_chunks(tmp_path / "mixed", [3, 2, *[1] * 9])
    path = tmp_path / "mixed_input_ids.npy"
    assert chunks_to_tokens([tmp_path / "mixed/train"], path) == 14
    file = TokenFile(path)
    assert (
        file.tokens.reshape(-1, 5).tolist() == rows.tolist()
    )  # train_2 comes before train_10
    assert (file.dtype, file.manifest.tokenizer, file.manifest.eos_token_id) == (
        np.uint16,
        "t",
        7,
    )
    assert file.document_offsets.tolist() == list(range(0, 71, 5))
    assert (
        sorted(Nanoset(path, None, 4, 14).read(np.arange(14)).tolist()) == rows.tolist()
    )
    with pytest.raises(TokenFileError, match="read it with sequence_length=4"):
        Nanoset(path, None, 3, 14)


@pytest.mark.parametrize("suffix", [".bin", ".ds"])
def test_rows_packed_by_best_fit_are_not_written_where_padding_is_not_marked(
    tmp_path, suffix
):
    rows = [
        format_row(np.array([5, 6, 0, 0]), "a", [2]),
        format_row(np.arange(1, 5), "a", [4]),
    ]
    (tmp_path / "a.jsonl").write_bytes(b"".join(rows))
    with pytest.raises(ValueError, match=f"a {suffix} file does not record it, so it"):
        chunks_to_tokens(tmp_path / "a.jsonl", tmp_path / f"t{suffix}", vocab_size=9)
    assert [*tmp_path.iterdir()] == [tmp_path / "a.jsonl"]
    chunks_to_tokens(tmp_path / "a.jsonl", tmp_path / "t.npy", vocab_size=9)
    assert TokenFile(tmp_path / "t.npy").windows == "padded"
    with pytest.raises(
        TokenFileError, match=r"4 tokens already.*\(sequence_length=3\)"
    ):
        PackedNanoset(tmp_path / "t.npy", None, 3, pad_id=0)


def test_labels_are_kept_from_chunks_to_where(tmp_path):
    """Each row's own, for these ids only; and one folder is no list of letters."""
    labels, folder, path = (
        ["web", "books", "web", None],
        tmp_path / "mixed",
        tmp_path / "x_input_ids.npy",
    )
    folder.mkdir()
    lines = [
        json.dumps({"token_ids": [i] * 5} | ({"source": name} if name else {}))
        for i, name in enumerate(labels)
    ]
    (folder / "a.jsonl").write_text("\n".join(lines))
    assert [
        found.ok for found in validate(str(folder), num_tokens=5, sources="web")
    ] == [False]
    assert chunks_to_tokens(str(folder), path, vocab_size=9) == 4
    origins = where(Nanoset(path, None, 4, 4), Schedule(micro_batch_size=4), 1)
    assert {it.sample: it.labels for it in origins} == {
        0: ("web",),
        1: ("books",),
        2: ("web",),
        3: (),
    }
    sources = tmp_path / "x_input_ids.sources.npz"
    content = sources.read_bytes()
    assert verify(path).endswith("checksum as recorded")
    for damage in (content[:-9], bytes([content[0] ^ 1]) + content[1:], None):
        sources.unlink(missing_ok=True)
        if damage is not None:
            sources.write_bytes(damage)
        with pytest.raises(
            TokenFileError, match="sources.npz is missing or has changed"
        ):
            verify(path)
    sources.write_bytes(content[:-9])
    not_its_own = pytest.raises(TokenFileError, match="npz was not written with its")
    with not_its_own:
        TokenFile(path).label_of(0)
    (folder / "a.jsonl").write_text("\n".join(lines[::-1]))
    chunks_to_tokens(folder, path, vocab_size=9, overwrite=True)
    assert TokenFile(path).label_of(3) == "web"
    sources.write_bytes(content)
    with not_its_own:
        TokenFile(path).label_of(3)


def rewrite(path, rows, mtime):
    path.write_bytes(b"".join(format_row(row, "a") for row in rows))
    os.utime(path, ns=(mtime, mtime))
    say(
        path.parents[1],
        complete=True,
        files={f"train/{path.name}": FileEntry.of(path, len(rows))},
    )


@pytest.mark.parametrize("age", [-(10**15), 0, 10**15])
def test_a_chunk_that_was_replaced_is_converted_again_however_old_it_claims_to_be(
    tmp_path, age
):
    rows = write_chunks(tmp_path, [4])
    path = tmp_path / "train/train_0.jsonl"
    before = chunk_tokens(path, None)
    assert np.array_equal(before.tokens, rows.ravel())
    rewrite(path, rows[::-1], before.path.stat().st_mtime_ns + age)
    after = chunk_tokens(path, None)
    assert np.array_equal(after.tokens, rows[::-1].ravel())
    inode = after.path.stat().st_ino
    os.utime(path)
    assert chunk_tokens(path, None).path.stat().st_ino == inode, (
        "the same content is not converted again"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train_0_input_ids.npy", b"short"),
        ("train_0_input_ids.made_of", b""),
    ],
)
def test_a_converted_chunk_that_is_damaged_is_converted_again(tmp_path, name, content):
    write_chunks(tmp_path, [4])
    path = tmp_path / "train/train_0.jsonl"
    before = chunk_tokens(path, None).tokens.tolist()
    (tmp_path / "train/token_files" / name).write_bytes(content)
    assert chunk_tokens(path, None).tokens.tolist() == before


def test_a_chunk_is_converted_again_for_another_vocabulary_and_for_another_tokenizer(
    tmp_path,
):
    rows = write_chunks(tmp_path, [4], facts=None)
    path = tmp_path / "train/train_0.jsonl"
    assert [chunk_tokens(path, size).dtype.name for size in (300, 70_000, 300)] == [
        "uint16",
        "int32",
        "uint16",
    ]
    rewrite(path, rows, 10**18)
    assert chunk_tokens(path, 300).facts["tokenizer"] == FACTS["tokenizer"]


def test_a_file_in_the_place_of_the_converted_chunk_that_was_not_made_of_it_stays(
    tmp_path,
):
    write_chunks(tmp_path, [4])
    place = tmp_path / "train/token_files/train_0_input_ids.npy"
    place.parent.mkdir()
    place.write_bytes(b"mine")
    with pytest.raises(
        FileExistsError, match="train_0_input_ids.npy was not made from train_0.jsonl"
    ):
        chunk_tokens(tmp_path / "train/train_0.jsonl", None)
    assert place.read_bytes() == b"mine"


def test_a_converted_chunk_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    rows = write_chunks(tmp_path, [4])
    path = tmp_path / "train/train_0.jsonl"

    def refuse(path, *args, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "mkdir", refuse)
        with pytest.raises(
            OSError, match=r"cannot be written \(Read-only.*: allow writing there"
        ):
            chunk_tokens(path, None)
    chunk_tokens(path, None)
    monkeypatch.setattr(type(path), "mkdir", refuse)
    assert np.array_equal(chunk_tokens(path, None).tokens, rows.ravel())
    rewrite(path, rows[::-1], 10**18)
    with pytest.raises(OSError, match="a chunk is converted before it is read"):
        chunk_tokens(path, None)


def test_labels_that_find_no_room_are_an_error_and_the_old_set_stays(
    tmp_path, monkeypatch
):
    write_chunks(tmp_path / "old", [2])
    write_chunks(tmp_path / "new", [3])
    chunks_to_tokens(tmp_path / "old", tmp_path / "x_input_ids.npy")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("x*")}
    assert len(before) == 4

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        chunks_to_tokens(tmp_path / "new", tmp_path / "x_input_ids.npy", overwrite=True)
    assert {
        path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()
    } == before


def test_every_row_is_a_document_of_the_megatron_pair(tmp_path):
    rows = write_chunks(tmp_path / "mixed", [3, 2])
    assert chunks_to_tokens([tmp_path / "mixed/train"], tmp_path / "pair.bin") == 5
    pair = MMapIndexedDataset(tmp_path / "pair")
    assert [pair[i].tolist() for i in range(len(pair))] == rows.tolist()
    assert pair.document_indices.tolist() == [0, 1, 2, 3, 4, 5]
    assert pair[0].dtype == np.uint16
    options = {
        "random_seed": 1,
        "sequence_length": 5,
        "add_extra_token_to_sequence": False,
        "split": "1,0,0",
    }
    train, _, _ = NanosetBuilder(
        NanosetConfig(data_path=str(tmp_path / "pair"), **options)
    ).build()
    assert sorted(train.read(np.arange(len(train))).tolist()) == rows.tolist()


def test_some_chunks_can_be_converted_with_ids_that_need_four_bytes(tmp_path):
    rows = write_chunks(
        tmp_path / "mixed", [3, 2, 1], facts=FACTS | {"vocab_size": 70000}
    )
    chunks_to_tokens(
        [tmp_path / f"mixed/train/train_{i}.jsonl" for i in (2, 0)],
        tmp_path / "x_input_ids.npy",
    )
    file = TokenFile(tmp_path / "x_input_ids.npy")
    assert (file.dtype, file.tokens.reshape(-1, 5).tolist()) == (
        np.int32,
        rows[[5, 0, 1, 2]].tolist(),
    )


def test_without_a_manifest_the_vocabulary_must_be_given(tmp_path):
    write_chunks(tmp_path / "plain", [2], facts=None)
    with pytest.raises(ValueError, match="give vocab_size"):
        chunks_to_tokens([tmp_path / "plain"], tmp_path / "x_input_ids.npy")
    assert (
        chunks_to_tokens(
            [tmp_path / "plain"], tmp_path / "x_input_ids.npy", vocab_size=10
        )
        == 2
    )
    with pytest.raises(FileExistsError):
        chunks_to_tokens(
            [tmp_path / "plain"], tmp_path / "x_input_ids.npy", vocab_size=10
        )


@pytest.mark.parametrize("output", ["x_input_ids.npy", "x.bin"])
def test_bad_lines_are_named_and_what_was_there_stays(tmp_path, output):
    write_chunks(tmp_path / "mixed", [2, 2], facts=None)
    chunks_to_tokens([tmp_path / "mixed"], tmp_path / output, vocab_size=300)
    there = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    path = tmp_path / "mixed/train/train_1.jsonl"
    for line, message in (
        ('{"token_ids": [1, 2]}', "2 token_ids, expected 5"),
        ('{"token_ids": [1, 2, 3, 4, 300]}', "an id is not below 300"),
        ("{bad", "not JSON: "),
        (
            '{"token_ids": [1, 2, 3, 4, 5], "document_lengths": [3]}',
            "rows with and without document_lengths",
        ),
    ):
        path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
        with pytest.raises(ValueError, match=rf"train_1.jsonl:2: {message}"):
            chunks_to_tokens(
                [tmp_path / "mixed"], tmp_path / output, vocab_size=300, overwrite=True
            )
        assert {
            file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()
        } == there


def test_chunks_of_different_tokenizers_or_of_an_unfinished_mix_are_not_converted(
    tmp_path,
):
    write_chunks(tmp_path / "a", [2])
    write_chunks(tmp_path / "b", [2], facts=FACTS | {"tokenizer": "other"})
    write_chunks(tmp_path / "c", [2])
    say(tmp_path / "c")
    for chunks, output, error, message in (
        ("ab", "x.bin", ManifestError, "do not go together"),
        ("a", "x.txt", ValueError, "suffix must be one of .*'x.txt'"),
        ("c", "x_input_ids.npy", ManifestError, "not finished"),
    ):
        with pytest.raises(error, match=message):
            chunks_to_tokens(
                [tmp_path / name / "train" for name in chunks], tmp_path / output
            )
    assert not list(tmp_path.glob("x*"))


def test_golden_failing_lines(golden, tmp_path):
    path = tmp_path / "x.jsonl"
    for case in json.loads((golden / "amber/amber.json").read_text())["validate"]:
        lines = [
            json.dumps({"token_ids": list(range(it))}) if isinstance(it, int) else it
            for it in case["lines"]
        ]
        path.write_text("".join(line + "\n" for line in lines))
        [report] = validate([path])
        assert report.bad_lines == case["failed_sorted"]
        assert f"Lines: {report.lines}" == case["total"]


def test_every_kind_of_error_is_named_with_its_lines_and_samples_are_counted_per_source(
    tmp_path,
):
    path = tmp_path / "x.jsonl"
    rows = [
        ([1, 2], "a"),
        ([1], "a"),
        ([8, 9], "a"),
        ([1, 2], "b"),
        ([1, 2], None),
        ([1], "a"),
    ]
    lines = [json.dumps({"token_ids": ids, "source": source}) for ids, source in rows]
    path.write_text("\n".join([*lines, "{bad", "[]"]))
    [report] = validate([path], num_tokens=2, vocab_size=9, sources=["a"])
    assert not report.ok and report.bad_lines == [2, 3, 4, 5, 6, 7, 8]
    assert report.errors == {
        "1 token_ids, expected 2": [2, 6],
        "an id is not below 9": [3],
        "source 'b', expected one of ['a']": [4],
        "source None, expected one of ['a']": [5],
        "not JSON: unexpected character, expected a string key": [7],
        'not an object with a list of ids "token_ids"': [8],
    }
    assert str(report).startswith(
        f"{path}: 8 lines, 7 bad\n  1 token_ids, expected 2: line 2, 6\n"
    )
    [report] = validate([path], num_tokens=2)
    assert report.sources == {"a": 2, "b": 1, None: 1}
    assert str(report).endswith("\n  a: 2\n  b: 1\n  (no source): 1")


def test_expectations_come_from_the_manifest_above_the_first_file(tmp_path):
    write_chunks(tmp_path / "mixed", [2], facts=FACTS | {"vocab_size": 9})
    (tmp_path / "x.jsonl").write_bytes(format_row(np.zeros(2049, dtype=np.uint16), "a"))
    first, second = validate(
        [tmp_path / "mixed/train/train_0.jsonl", tmp_path / "x.jsonl"]
    )
    assert first.errors == {"an id is not below 9": [2]}
    assert second.errors == {"2049 token_ids, expected 5": [1]}
    assert validate([tmp_path / "x.jsonl"])[0].ok
    with pytest.raises(ValueError, match="has no .jsonl file"):
        validate(
            [
                tmp_path / "mixed/train",
                (tmp_path / "empty").mkdir() or tmp_path / "empty",
            ]
        )
    with pytest.raises(FileNotFoundError):
        validate([tmp_path / "missing.jsonl"])


def test_files_that_are_not_as_the_manifest_says_and_unfinished_folders_are_found(
    tmp_path,
):
    write_chunks(tmp_path, [2, 2])
    first, second = sorted((tmp_path / "train").iterdir())
    content = first.read_bytes()
    assert all(report.ok for report in validate([tmp_path]))
    for other in (
        second.read_bytes(),
        content[: len(content) // 2 + 1],
    ):  # as many lines; fewer
        first.write_bytes(other)
        changed, unchanged = validate([tmp_path])
        assert (
            "changed: its checksum differs from the manifest's" in changed.errors
            and unchanged.ok
        )
    first.unlink()
    for folder in (tmp_path, tmp_path / "train"):
        there, gone = validate([folder])
        assert (there.path.name, there.ok) == (second.name, True)
        assert (gone.path, gone.errors) == (
            first,
            {"missing, though the manifest lists it": []},
        )
    assert [report.ok for report in validate([second])] == [True]
    say(tmp_path)
    there, folder = validate([tmp_path / "train"])
    assert there.ok
    assert (folder.path, list(folder.errors)) == (
        tmp_path,
        ["not finished: run again the command that makes it"],
    )
