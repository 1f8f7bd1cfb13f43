"""Labels and document boundaries beside a token file: its own, checked, and never another program's."""

import json
import shutil

import numpy as np
import pytest

from nanoset_ref.io.files import write_together
from nanoset_ref.tokens import (
    TokenFileError,
    TokenFileWriter,
    convert,
    open_tokens,
    verify,
)


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
        with pytest.raises(
            IndexError, match=f"there is no document {document}: there are 2"
        ):
            file.label_of(document)
    labels = tmp_path / "a.sources.npz"
    labels.write_bytes(b"of another program")
    with pytest.raises(TokenFileError, match="npz was not written with its token file"):
        open_tokens(made.path).label_of(0)
    with pytest.raises(TokenFileError, match="is missing or has changed"):
        verify(open_tokens(made.path))


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
def test_companions_of_a_file_are_checked(source, tmp_path, file, content, message):
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
