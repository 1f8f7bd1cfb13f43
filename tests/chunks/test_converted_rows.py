"""Chunks converted to what both kinds of dataset read: each row once, again when it changed, nothing half-written."""

import errno
import json
import os

import numpy as np
import pytest
from chunk_helpers import FACTS, say, write_chunks

from nanoset_ref.chunks import ManifestError, chunks_to_tokens, validate
from nanoset_ref.chunks.chunk_conversion import chunk_tokens
from nanoset_ref.chunks.chunk_manifest import FileEntry
from nanoset_ref.chunks.row_format import format_row
from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron import MMapIndexedDataset, NanosetBuilder, NanosetConfig
from nanoset_ref.provenance import where
from nanoset_ref.tokens import TokenFile, TokenFileError, verify


@pytest.mark.parametrize("suffix", [".bin", ".ds", "_input_ids.npy"])
def test_chunks_without_rows_become_no_file(tmp_path, suffix):
    (tmp_path / "e.jsonl").touch()
    with pytest.raises(ValueError, match=r"e\.jsonl .*no row"):
        chunks_to_tokens(tmp_path / "e.jsonl", tmp_path / f"e{suffix}", vocab_size=9)
    assert os.listdir(tmp_path) == ["e.jsonl"]


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
