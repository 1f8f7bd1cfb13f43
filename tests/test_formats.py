"""The same documents in every format, and the choice of documents to hold out."""

import contextlib
import errno
import itertools
import json
import pickle
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from file_kinds import write_shard
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.io.files import write_together
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.tokens import (
    TokenFile,
    TokenFileError,
    TokenFileWriter,
    convert,
    convert_parts,
    open_tokens,
    split,
    verify,
    without_companions,
)
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder
from nanoset_ref.tokens.content import content_hash, document_blocks
from nanoset_ref.tokens.verification import write_seal

DOCUMENTS = [[5, 6, 7], [], [8], list(range(100, 140)), [9, 9]]


def written(path, documents, dtype="uint16", **facts):
    with TokenFileWriter(path, dtype=dtype, **facts) as writer:
        for document in documents:
            writer.write_document(document)
    return open_tokens(path)


@pytest.fixture
def source(tmp_path):
    return written(
        tmp_path / "a_input_ids.npy",
        DOCUMENTS,
        vocab_size=500,
        eos_token_id=9,
        tokenizer="t",
    )


def as_lists(documents):
    return [
        documents.tokens[a:b].tolist()
        for a, b in itertools.pairwise(documents.require_document_offsets())
    ]


def rows_of(path, windows):
    """Three rows of four tokens, a document each."""
    documents = [[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 0, 0]]
    return written(path, documents, windows=windows, row_length=4)


@pytest.mark.parametrize("first", ["rows", "text"])
@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_rows_and_text_that_is_not_cut_into_rows_are_not_merged(
    tmp_path, first, suffix
):
    rows = rows_of(tmp_path / "rows.npy", "disjoint")
    text = convert([written(tmp_path / "t.npy", DOCUMENTS)], tmp_path / f"text{suffix}")
    sources = [rows, text] if first == "rows" else [text, rows]
    with pytest.raises(
        ValueError, match="one file cannot hold rows of several lengths"
    ):
        convert(sources, tmp_path / "merged.npy")
    assert not (tmp_path / "merged.npy").exists()


@pytest.mark.parametrize("suffix", [".bin", ".ds"])
def test_padding_is_not_copied_into_a_format_that_does_not_record_it(tmp_path, suffix):
    rows = rows_of(tmp_path / "rows.npy", "padded")
    with pytest.raises(ValueError, match="would count in the loss: convert to .npy"):
        convert([rows], tmp_path / f"rows{suffix}")
    assert convert([rows], tmp_path / "copy.npy").windows == "padded"


def test_only_the_last_of_merged_files_of_rows_may_end_within_a_row(tmp_path):
    whole = rows_of(tmp_path / "whole.npy", "disjoint")
    more = written(tmp_path / "more.npy", [[7] * 6], windows="disjoint", row_length=4)
    with pytest.raises(ValueError, match="more.npy ends with 2 tokens of a row of 4"):
        convert([more, whole], tmp_path / "torn.npy")
    merged = convert([whole, more], tmp_path / "merged.npy")
    assert (merged.row_length, merged.num_tokens) == (4, 18)


def test_what_a_copy_does_not_keep_is_warned_of(tmp_path, caplog):
    rows = rows_of(tmp_path / "rows.npy", "disjoint")
    convert([rows], tmp_path / "same.npy")
    datatrove = convert([rows], tmp_path / "rows.ds")
    with write_together(), TokenFileWriter(tmp_path / "l.npy", dtype="uint16") as made:
        made.write([1, 2, 3, 4, 5], [2, 3])
        made.write_labels(["", "code"], [0, 1])
    with MMapIndexedDatasetBuilder(tmp_path / "a.bin", multimodal=True) as builder:
        builder.add_document(np.arange(3), [1, 2], [0, 1])
    assert caplog.text == ""
    pair = MMapIndexedDataset(tmp_path / "a")
    for source, target, lost in (
        (rows, "rows.bin", "the disjoint windows"),
        (datatrove, "again.npy", "the disjoint windows"),
        (open_tokens(made.path), "copy.npy", "the labels of documents"),
        (
            open_tokens(made.path),
            "l.ds",
            "the labels of documents and the overlapping windows",
        ),
        (pair, "p.npy", "the sequences of documents and modes"),
    ):
        convert([source], tmp_path / target)
        assert f"{target} does not keep {lost} of {source.path}" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("modes", [None, [0, 1, 1]])
def test_sequences_of_a_pair_are_kept_or_refused(tmp_path, modes):
    with MMapIndexedDatasetBuilder(
        tmp_path / "a.bin", np.uint16, multimodal=modes is not None
    ) as builder:
        builder.add_document(np.arange(6), [1, 2, 3], modes)
        builder.add_document(np.arange(4), [1, 2, 1], modes)
    pair = MMapIndexedDataset(tmp_path / "a")
    with MMapIndexedDatasetBuilder(tmp_path / "e.bin", np.uint16) as builder:
        builder.add_document([], [])  # of no sequence
        builder.add_document([5, 6], [2])
    empty = MMapIndexedDataset(tmp_path / "e")
    assert as_lists(convert([empty], tmp_path / "f.bin", dtype="int32")) == [[], [5, 6]]
    for options in ({"dtype": "int32"}, {"chosen": [np.array([1])]}):
        with pytest.raises(
            ValueError, match="documents of several sequences, which only"
        ):
            convert([pair], tmp_path / "b.bin", **options)
    assert as_lists(convert([pair], tmp_path / "c.npy")) == as_lists(pair)


@pytest.mark.parametrize("route", list(itertools.permutations([".npy", ".bin", ".ds"])))
def test_a_round_trip_through_every_format_gives_the_same_documents(
    source, tmp_path, route
):
    documents = source
    for number, suffix in enumerate(route):
        documents = convert([documents], tmp_path / f"step{number}{suffix}")
        assert as_lists(documents) == DOCUMENTS
        assert content_hash(documents) == content_hash(source)
    assert (
        as_lists(convert([source, documents], tmp_path / "twice.ds")) == DOCUMENTS * 2
    )


def test_a_converted_token_file_is_the_same_file(source, tmp_path):
    copy = convert([source], tmp_path / "b.npy")
    for suffix in (".npy", ".json", ".documents.npy"):
        assert (
            source.path.with_suffix(suffix).read_bytes()
            == copy.path.with_suffix(suffix).read_bytes()
        )
    assert verify(copy).endswith("ids below 500, checksum as recorded")


def test_datatrove_files_equal_those_of_datatrove(golden, tmp_path):
    """Back from our token file to .ds: byte for byte what datatrove wrote, but for the tokenizer's name."""
    original = golden / "datatrove" / "plain" / "00000_unshuffled.ds"
    convert([convert([open_tokens(original)], tmp_path / "a.npy")], tmp_path / "b.ds")
    assert (tmp_path / "b.ds").read_bytes() == original.read_bytes()
    assert (tmp_path / "b.ds.index").read_bytes() == original.with_name(
        original.name + ".index"
    ).read_bytes()
    ours, theirs = (
        (p.with_name(p.name + ".metadata")).read_text()
        for p in (tmp_path / "b.ds", original)
    )
    assert (
        ours.split("\n")[1:3] == theirs.split("\n")[1:] and len(ours.split("\n")) == 4
    )


def test_a_ds_file_says_its_tokenizer(source, tmp_path):
    assert convert([source], tmp_path / "b.ds").facts == {"tokenizer": "t"}
    (tmp_path / "b.ds.metadata").write_text("Unknown Tokenizer|2\n46\n46 T")
    assert open_tokens(tmp_path / "b.ds").facts == {}


def test_megatron_files_keep_documents_of_several_sequences(golden, tmp_path):
    corpus = golden / "megatron" / "corpora" / "merged_u16"
    again = convert(
        [convert([open_tokens(corpus)], tmp_path / "a.npy")], tmp_path / "b.bin"
    )
    assert as_lists(again) == as_lists(open_tokens(corpus))
    assert again.num_documents == MMapIndexedDataset(corpus).num_documents


def test_a_pair_is_no_raw_file(source, tmp_path):
    """Its .idx knows the dtype, so its ids are not taken for uint16."""
    path = convert([source], tmp_path / "b.bin", dtype="int32").path
    with pytest.raises(
        TokenFileError,
        match=r"b\.bin is the \.bin of a Megatron pair.*open it with nanoset_ref\.open_tokens",
    ):
        TokenFile(path)
    with pytest.raises(
        TokenFileError,
        match=r"token_dtype=uint16 contradicts the file, which has int32",
    ):
        Nanoset(path, None, 4, 4, token_dtype="uint16")
    expected = Nanoset(source, None, 4, 4).read(np.arange(4))
    for name in (path, path.with_suffix(""), path.with_suffix(".idx")):
        assert np.array_equal(
            Nanoset.from_config(str(name), 4, 4).read(np.arange(4)), expected
        )


def test_an_open_file_of_another_dtype_is_refused(source):
    opened = open_tokens(source.path)
    message = f"token_dtype=int32 contradicts the file, which has {opened.dtype}"
    with pytest.raises(TokenFileError, match=message):
        Nanoset([opened], None, 4, token_dtype="int32")
    assert len(Nanoset([opened], None, 4, 3, token_dtype=opened.dtype)) == 3


def test_of_a_folder_with_every_format_only_the_token_files_are_read(source, tmp_path):
    """Each file of it is named, and each alone."""
    with write_together(), TokenFileWriter(tmp_path / "b.npy", dtype="uint16") as made:
        made.write([1, 2], [2])
        made.write_labels(["web"], [0])
    wide = [convert([source], tmp_path / f"c{end}") for end in (".bin", ".ds", ".npy")]
    raw = tmp_path / "raw_input_ids.npy"
    raw.write_bytes(source.path.read_bytes())
    write_seal(open_tokens(raw, eos_token_id=9))
    shard = write_shard(tmp_path / "d.bin", range(9))
    write_seal(open_tokens(shard))
    files = {source.path, made.path, raw, shard, *(file.path for file in wide)}
    everything = [str(path) for path in sorted(tmp_path.iterdir())]
    assert len(everything) == 7 + 13
    assert set(without_companions(everything)) == {str(path) for path in files}
    opened = []
    for path in everything:
        with contextlib.suppress(TokenFileError):
            opened.append(open_tokens(path).path)
    idx = tmp_path / "c.bin"  # either name of a pair opens it
    assert sorted(opened) == sorted([*files, idx])


@pytest.mark.parametrize("kind", [".npy", "raw", ".bin", ".ds", ".ds alone", "llm.c"])
@pytest.mark.parametrize("stored", ["uint16", "int32"])
@pytest.mark.parametrize("asked_for", ["uint16", "uint32", "int32", "int16", "float32"])
def test_no_dtype_is_read_as_another_one(tmp_path, kind, stored, asked_for):
    """uint32 is int32: ids are below 2**31. A file that records no dtype has the one asked for."""
    source = written(tmp_path / "a.npy", [[5, 6, 7, 8]], dtype=stored)
    path = tmp_path / "b.npy"
    if kind == "llm.c":
        magic, version = (20240520, 1) if stored == "uint16" else (20240801, 7)
        path = write_shard(tmp_path / "b.bin", [5, 6, 7, 8], magic, version, stored)
    elif kind == "raw":
        path.write_bytes(source.path.read_bytes())
    else:
        path = convert([source], tmp_path / f"b{kind.split()[0]}").path
    if kind == ".ds alone":
        path.with_name("b.ds.metadata").unlink()
    same = asked_for.replace("uint32", "int32")
    if same == stored or (kind in ("raw", ".ds alone") and same in ("uint16", "int32")):
        file = open_tokens(path, asked_for)
        assert file.dtype == same
        assert file.tokens.tobytes() == source.tokens.tobytes()
    else:
        with pytest.raises(TokenFileError, match="_dtype|token_size"):
            open_tokens(path, asked_for)


@pytest.mark.parametrize("recorded", [None, 0, 9])
@pytest.mark.parametrize("given_id", [None, 0, 9])
def test_an_eos_id_beside_a_manifest_agrees_with_it(tmp_path, recorded, given_id):
    path = written(tmp_path / "a.npy", [[5, 9]], eos_token_id=recorded).path
    if {recorded, given_id} == {0, 9}:
        for read in (open_tokens, TokenFile, verify):
            with pytest.raises(
                TokenFileError,
                match=f"eos_token_id={given_id} contradicts the manifest, .* {recorded}",
            ):
                read(path, eos_token_id=given_id)
    else:
        assert (
            open_tokens(path, eos_token_id=given_id).facts["eos_token_id"] == recorded
        )


@pytest.mark.parametrize("eos", [50256, 7, None])
@pytest.mark.parametrize("tokens", [[50256, 1, 2, 50256, 3], [1, 7, 50256, 1], [7] * 9])
def test_documents_of_a_shard_begin_with_their_id(tmp_path, tokens, eos):
    """They are found by it, so no boundary can contradict the ids, at either end."""
    path = write_shard(tmp_path / "a.bin", tokens)
    documents = len(open_tokens(path, eos_token_id=eos).document_offsets) - 1
    for file in (path, open_tokens(path, eos_token_id=eos)):
        said = verify(file, eos_token_id=eos)
        assert said.startswith(f"{len(tokens)} tokens in {documents} documents")


@pytest.mark.parametrize("suffix", ["_input_ids.npy", ".bin", ".ds"])
def test_a_link_without_the_companions_of_its_target_is_refused(
    source, tmp_path, suffix
):
    """int32 ids would be read as twice as many uint16 ids."""
    (tmp_path / "linked").mkdir()
    path = convert([source], tmp_path / f"wide{suffix}", dtype="int32").path
    link = tmp_path / "linked" / path.name
    link.symlink_to(path)
    with pytest.raises(TokenFileError, match=f"is a link to {path}, whose dtype is in"):
        open_tokens(link)
    for companion in tmp_path.glob("wide*"):
        if companion != path:
            (link.parent / companion.name).symlink_to(companion)
    assert as_lists(open_tokens(link)) == DOCUMENTS
    whole = tmp_path / "folder"
    whole.symlink_to(tmp_path)
    assert as_lists(open_tokens(whole / path.name)) == DOCUMENTS


@pytest.mark.parametrize("suffix", ["_input_ids.npy", ".bin", ".ds"])
def test_a_companion_that_is_a_link_to_nothing_is_no_missing_companion(
    source, tmp_path, suffix
):
    """int32 ids would be read as twice as many uint16 ids, or without their documents."""
    path = convert([source], tmp_path / f"wide{suffix}", dtype="int32").path
    for companion in tmp_path.glob("wide*"):
        if companion == path or companion.suffix == ".seal":
            continue
        aside = tmp_path / "aside"
        companion.rename(aside)
        companion.symlink_to(tmp_path / "gone")
        with pytest.raises(FileNotFoundError, match="a link to a file that does not"):
            open_tokens(path).require_document_offsets()
        companion.unlink()
        aside.rename(companion)
    assert as_lists(open_tokens(path)) == DOCUMENTS


def test_a_token_file_is_not_named_like_the_boundaries_of_another(source, tmp_path):
    owner = written(tmp_path / "owner.npy", [[1, 2], [3]])
    boundaries = tmp_path / "owner.documents.npy"
    before = boundaries.read_bytes()
    with pytest.raises(ValueError, match=r"files named .*documents.npy hold document"):
        convert([source], boundaries, overwrite=True)
    assert boundaries.read_bytes() == before
    verify(owner)


def test_a_link_to_raw_ids_is_read_like_them(source, tmp_path):
    raw = tmp_path / "raw_input_ids.npy"
    raw.write_bytes(source.path.read_bytes())
    link = tmp_path / "link_input_ids.npy"
    link.symlink_to(raw)
    assert open_tokens(link).tokens.tolist() == source.tokens.tolist()
    link.unlink()
    link.symlink_to(source.path)
    assert TokenFile(link, "uint16").num_tokens == source.num_tokens


def test_sources_of_different_tokenizers_are_refused(source, tmp_path):
    other = written(tmp_path / "b.npy", [[1]], tokenizer="another")
    with pytest.raises(
        ValueError, match=r"b\.npy has tokenizer='another', the others 't'"
    ):
        convert([source, other], tmp_path / "c.npy")


def test_ids_that_do_not_fit_the_target_are_refused_and_nothing_is_left(tmp_path):
    wide = written(tmp_path / "a.npy", [[1, 70000]], dtype="int32")
    before = sorted(tmp_path.iterdir())
    for suffix in (".npy", ".bin", ".ds"):
        with pytest.raises(ValueError, match="70000"):
            convert([wide], tmp_path / f"b{suffix}", dtype="uint16")
    assert sorted(tmp_path.iterdir()) == before
    assert as_lists(convert([wide], tmp_path / "b.ds")) == [[1, 70000]]


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_what_was_damaged_on_the_way_or_cannot_be_opened_does_not_stay(
    source, tmp_path, monkeypatch, suffix
):
    with (
        monkeypatch.context() as patch,
        pytest.raises(TokenFileError, match="do not hold what was written"),
    ):
        patch.setattr(
            "nanoset_ref.tokens.conversion.content_hash", lambda file: "something else"
        )
        convert([source], tmp_path / f"b{suffix}")
    with (
        monkeypatch.context() as patch,
        pytest.raises(FileNotFoundError, match="nothing"),
    ):
        patch.setattr(
            "nanoset_ref.tokens.conversion.open_tokens",
            lambda path: open_tokens(tmp_path / "nothing"),
        )
        convert([source], tmp_path / f"b{suffix}")
    for name in ("b", f"b{suffix}"):
        with pytest.raises(FileNotFoundError):
            open_tokens(tmp_path / name)
    convert([source], tmp_path / f"b{suffix}")


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_a_source_is_never_its_own_target(source, tmp_path, suffix):
    there = convert([source], tmp_path / f"b{suffix}")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        ValueError, match="is read and cannot be written at the same time"
    ):
        convert([source, there], tmp_path / f"b{suffix}", overwrite=True)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_raw_bin_file_is_not_replaced_by_a_pair(source, tmp_path):
    """It lacks the index that a pair has: a raw token file, or a shard of llm.c."""
    np.arange(9, dtype="<u2").tofile(tmp_path / "b.bin")
    before = (tmp_path / "b.bin").read_bytes()
    with pytest.raises(FileExistsError, match="b.bin exists and is left unchanged"):
        convert([source], tmp_path / "b.bin")
    assert (tmp_path / "b.bin").read_bytes() == before
    assert not list(tmp_path.glob("b.idx*")) and not list(tmp_path.glob(".*"))
    convert([source], tmp_path / "b.bin", overwrite=True)
    assert as_lists(open_tokens(tmp_path / "b.bin")) == DOCUMENTS


@pytest.mark.parametrize("reverse", [False, True])
def test_a_merged_file_ends_its_documents_with_eos_if_all_of_its_sources_do(
    tmp_path, reverse
):
    closed = written(
        tmp_path / "a.npy", [[5, 9], [6, 9]], eos_token_id=9, appended_eod=True
    )
    open_ended = convert([written(tmp_path / "b.npy", [[7, 8]])], tmp_path / "b.bin")
    both = [closed, open_ended][:: -1 if reverse else 1]
    assert convert([closed], tmp_path / "one.npy").facts["appended_eod"] is True
    merged = convert(both, tmp_path / "all.npy")
    assert merged.facts["appended_eod"] is False
    verify(merged)


@pytest.mark.parametrize("ids", [[1, 2, 3], [3, 2, 1]])
@pytest.mark.parametrize("lengths", [[1, 2], [1, 1, 0, 1]])
@pytest.mark.parametrize("labels", [None, ["new", "newer"]])
def test_labels_of_an_earlier_file_are_not_read(tmp_path, ids, lengths, labels):
    """Neither for the same ids in other documents, nor for the same documents."""

    def write(ids, lengths, labels):
        numbers = np.arange(len(lengths)) % 2
        path = tmp_path / "a.npy"
        with (
            write_together(),
            TokenFileWriter(path, dtype="uint16", overwrite=True) as writer,
        ):
            writer.write(ids, lengths)
            if labels:
                writer.write_labels(labels, numbers)
        file = open_tokens(path)
        file.check_content()
        return [file.label_of(document) for document in range(len(lengths))]

    assert write([1, 2, 3], [1, 2], ["old", "older"]) == ["old", "older"]
    wanted = (labels or [None, None]) * 2
    assert write(ids, lengths, labels) == wanted[: len(lengths)]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.documents.npy", np.arange(1, 5)),
        ("a.documents.npy", np.zeros(3, np.int32)),
        ("a.documents.npy", np.zeros((2, 2), np.int64)),
        ("a.documents.npy", np.empty(0, np.int64)),
        ("a.documents.npy", None),
        ("a.sources.npz", {"x": np.arange(3)}),
        ("a.sources.npz", None),
    ],
)
def test_a_foreign_file_with_a_companions_name_is_never_replaced(
    tmp_path, name, content, overwrite
):
    foreign = tmp_path / name
    if content is None:
        foreign.write_text("mine")
    elif isinstance(content, dict):
        np.savez(foreign, **content)
    else:
        np.save(foreign, content)
    before = foreign.read_bytes()
    with (
        pytest.raises(
            FileExistsError, match=f"{name} was written by another program|exists"
        ),
        write_together(),
        TokenFileWriter(
            tmp_path / "a.npy", dtype="uint16", overwrite=overwrite
        ) as writer,
    ):
        writer.write([1, 2, 3], [1, 2])
        writer.write_labels(["web"], [0, 0])
    assert foreign.read_bytes() == before
    assert [*tmp_path.iterdir()] == [foreign]


def test_labels_are_those_of_documents_that_exist(tmp_path):
    with write_together(), TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as made:
        made.write([1, 2, 3], [1, 2])
        made.write_labels(["web", "books"], [1, 0])
    file = open_tokens(made.path)
    assert [file.label_of(k) for k in (0, 1, None)] == ["books", "web", None]
    for document in (-1, 2):
        with pytest.raises(IndexError, match=f"document {document} is not one of 2"):
            file.label_of(document)
    labels = tmp_path / "a.sources.npz"
    labels.write_bytes(b"of another program")
    with pytest.raises(TokenFileError, match="npz was not written with its token file"):
        open_tokens(made.path).label_of(0)
    with pytest.raises(TokenFileError, match="is missing or has changed"):
        verify(open_tokens(made.path))


def test_a_damaged_source_gets_no_new_checksum(source, tmp_path):
    source.path.write_bytes(source.path.read_bytes()[::-1])
    with pytest.raises(
        TokenFileError, match="the content has changed since its checksum was recorded"
    ):
        convert([source], tmp_path / "b.npy")
    assert not list(tmp_path.glob("b.*"))


@pytest.mark.parametrize("closed", [True, False])
def test_raw_ids_are_cut_behind_the_end_of_document_id(tmp_path, closed):
    lists = [[5, 9], [9], [6, 7, 9]] + ([] if closed else [[8]])
    np.concatenate(lists).astype("<u2").tofile(tmp_path / "raw.npy")
    raw = open_tokens(tmp_path / "raw.npy", eos_token_id=9)
    assert as_lists(raw) == lists
    assert raw.facts == {"eos_token_id": 9, "appended_eod": closed}
    assert as_lists(convert([raw], tmp_path / "b.npy")) == lists


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "a_input_ids.documents.npy",
            b"",
            "a_input_ids.documents.npy is missing, or is not a file of document boundaries",
        ),
        ("b.ds.metadata", b"", "must begin with <tokenizer>"),
        ("b.ds.metadata", b"gpt2|many\n", "got 'many'"),
        ("b.ds.index", None, r"records no document boundaries"),
        ("b.ds.index", b"\x2e" + bytes(8), "does not end with the 46 tokens"),
        ("b.ds.index", b"\x01" + bytes(7), "does not end with the 46 tokens"),
    ],
)
def test_what_stands_beside_a_file_is_checked(source, tmp_path, file, content, message):
    convert([source], tmp_path / "b.ds")
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(TokenFileError, match=message):
        verify(tmp_path / ("b.ds" if file.startswith("b") else "a_input_ids.npy"))


def test_boundaries_that_do_not_decrease_are_known(source):
    """Also where an older manifest has no seal."""
    path, manifest = (
        source.path.with_suffix(".documents.npy"),
        source.path.with_suffix(".json"),
    )
    np.save(path, np.load(path)[[0, 2, 3, 1, 4, 5]])
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"seal": None}))
    with pytest.raises(TokenFileError, match="do not ascend"):
        verify(source.path)
    with pytest.raises(
        TokenFileError, match=r"boundaries of a_input_ids\.npy; name that file"
    ):
        open_tokens(path)


@pytest.mark.parametrize("eos", [None, 2])
def test_boundaries_that_others_wrote_are_checked_against_the_ids(
    golden, tmp_path, eos
):
    """datatrove leaves no checksum, but each document ends with an EOS."""
    for path in (golden / "datatrove/plain").iterdir():
        shutil.copy(path, tmp_path)
    path, index = (
        tmp_path / "00000_unshuffled.ds",
        tmp_path / "00000_unshuffled.ds.index",
    )
    assert "checksum" not in verify(path, eos_token_id=eos)
    ends = np.fromfile(index, dtype="<u8")
    ends[7] -= 1
    index.write_bytes(ends.tobytes())
    with pytest.raises(
        TokenFileError,
        match=f"the document that ends at {ends[7]} has no EOS id 2 there",
    ):
        verify(path, eos_token_id=eos)


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_files_that_were_replaced_are_not_read_for_those_that_were_opened(
    source, tmp_path, suffix
):
    opened = convert([source], tmp_path / f"b{suffix}")
    waiting, dataset = open_tokens(opened.path), Nanoset(opened, None, 4, 4)
    travelled = pickle.dumps(dataset), pickle.dumps(opened)
    assert as_lists(pickle.loads(travelled[1])) == DOCUMENTS
    convert([source], tmp_path / f"b{suffix}", overwrite=True)
    for read in (
        lambda: pickle.loads(travelled[0])[0],
        lambda: pickle.loads(travelled[1]).tokens,
        lambda: Nanoset(waiting, None, 4, 4)[0],
    ):
        with pytest.raises(
            TokenFileError, match="was replaced or changed after it was opened"
        ):
            read()
    with pytest.raises(TokenFileError, match="was replaced"):
        _ = waiting.tokens
    assert opened.tokens[0] == 5, "what is mapped stays"


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_a_full_disk_leaves_both_old_files_of_a_split(
    source, tmp_path, monkeypatch, suffix
):
    parts = {
        tmp_path / f"{name}{suffix}": [part]
        for name, part in zip("xy", split(source, 2), strict=True)
    }
    for written, [part] in zip(
        convert_parts([source], parts), parts.values(), strict=True
    ):
        assert as_lists(written) == [DOCUMENTS[d] for d in part]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    parts_written = iter(range(2))

    def full(source, chosen):
        if next(parts_written):
            raise OSError(errno.ENOSPC, "No space left on device")
        return document_blocks(source, chosen)

    monkeypatch.setattr("nanoset_ref.tokens.conversion.document_blocks", full)
    with pytest.raises(OSError, match="No space left"):
        convert_parts(
            [source], {path: [np.array([0])] for path in parts}, overwrite=True
        )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_bad_requests(source, tmp_path):
    convert([source], tmp_path / "there.bin")
    for sources, name, options, error, message in (
        ([], "b.npy", {}, ValueError, "at least one file"),
        (
            [source],
            "b.parquet",
            {},
            ValueError,
            r"suffix must be one of .* got 'b\.parquet'",
        ),
        ([source], "there.bin", {}, FileExistsError, "exists and is left unchanged"),
        ([source], "b.bin", {"dtype": "float32"}, ValueError, "got '?float32'?$"),
        ([source], "b.ds", {"dtype": "uint8"}, ValueError, "got '?uint8'?$"),
    ):
        with pytest.raises(error, match=message):
            convert(sources, tmp_path / name, **options)
    assert not list(tmp_path.glob("b.*"))
    np.arange(5, dtype="<u2").tofile(tmp_path / "raw.npy")
    with pytest.raises(TokenFileError, match="records no document boundaries"):
        verify(tmp_path / "raw.npy")


def test_what_is_held_out_may_be_a_number_of_numpy_and_is_a_number(source):
    for number, python in ((np.float32(0.5), 0.5), (np.int64(2), 2)):
        assert np.array_equal(split(source, number)[1], split(source, python)[1])
    with pytest.raises(ValueError, match="held_out must be an integer of at least 0"):
        split(source, "2")


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.integers(0, 5))
def test_held_out_documents_and_the_rest_are_a_partition(count, share, seed):
    documents = SimpleNamespace(require_document_offsets=lambda: np.arange(count + 1))
    expected = round(share * count)
    if not 0 < expected < count:
        with pytest.raises(
            ValueError, match="hold out at least 1, and leave at least 1"
        ):
            split(documents, share, seed=seed)
        return
    rest, held_out = split(documents, share, seed=seed)
    assert len(held_out) == expected
    assert sorted([*rest.tolist(), *held_out.tolist()]) == list(range(count))
    assert all(np.all(np.diff(part) > 0) for part in (rest, held_out))
    assert np.array_equal(split(documents, share, seed=seed)[1], held_out)


def test_a_seed_that_leaves_a_part_without_tokens_is_named(tmp_path):
    documents = written(tmp_path / "a.npy", [[], [], [1], [2, 3]])
    refused = 0
    for seed in range(20):
        expected = np.random.default_rng(seed).choice(4, 2, replace=False)
        if {*expected.tolist()} in ({0, 1}, {2, 3}):
            refused += 1
            with pytest.raises(ValueError, match=f"seed={seed}.*take another seed"):
                split(documents, 2, seed=seed)
        else:
            assert split(documents, 2, seed=seed)[1].tolist() == sorted(expected)
    assert 0 < refused < 20


def test_rows_are_not_torn_apart(tmp_path):
    source = written(
        tmp_path / "a.npy", [range(3), range(5)], windows="disjoint", row_length=4
    )
    with pytest.raises(ValueError, match="break up rows of 4 tokens"):
        convert([source], tmp_path / "b.npy", chosen=[np.array([0])])
    assert convert([source], tmp_path / "b.npy").facts["row_length"] == 4


def test_small_blocks_give_the_same(source, tmp_path, monkeypatch):
    monkeypatch.setattr("nanoset_ref.tokens.content.BLOCK_IDS", 3)
    assert as_lists(convert([source], tmp_path / "b.bin")) == DOCUMENTS
    assert [
        ids.tolist() for ids, _ in document_blocks(source, np.array([0, 2, 4]))
    ] == [
        [5, 6, 7],
        [8, 9, 9],
    ]
