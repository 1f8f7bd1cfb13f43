"""Copies and merged files: what one file cannot hold is refused or said, and no other file is replaced."""

import numpy as np
import pytest
from format_helpers import DOCUMENTS, as_lists, written

from nanoset_ref.io.files import write_together
from nanoset_ref.tokens import (
    TokenFileError,
    TokenFileWriter,
    convert,
    open_tokens,
    verify,
)
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder


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


def test_a_copy_warns_of_what_it_drops(tmp_path, caplog):
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


def test_a_token_file_is_not_named_like_the_boundaries_of_another(source, tmp_path):
    owner = written(tmp_path / "owner.npy", [[1, 2], [3]])
    boundaries = tmp_path / "owner.documents.npy"
    before = boundaries.read_bytes()
    with pytest.raises(ValueError, match=r"files named .*documents.npy hold document"):
        convert([source], boundaries, overwrite=True)
    assert boundaries.read_bytes() == before
    verify(owner)


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
def test_outputs_that_are_damaged_or_cannot_be_opened_are_removed(
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


def test_a_damaged_source_gets_no_new_checksum(source, tmp_path):
    source.path.write_bytes(source.path.read_bytes()[::-1])
    with pytest.raises(
        TokenFileError, match="the content has changed since its checksum was recorded"
    ):
        convert([source], tmp_path / "b.npy")
    assert not list(tmp_path.glob("b.*"))


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


def test_rows_are_not_torn_apart(tmp_path):
    source = written(
        tmp_path / "a.npy", [range(3), range(5)], windows="disjoint", row_length=4
    )
    with pytest.raises(ValueError, match="break up rows of 4 tokens"):
        convert([source], tmp_path / "b.npy", chosen=[np.array([0])])
    assert convert([source], tmp_path / "b.npy").facts["row_length"] == 4
