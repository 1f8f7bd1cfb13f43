"""Token files: what is written comes back, and what does not hold together is refused."""

import dataclasses
import functools
import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref import Nanoset, Schedule, when
from nanoset_ref.io.files import write_together
from nanoset_ref.io.paths import checksum
from nanoset_ref.tokens import (
    DOCUMENTS_SUFFIX,
    MANIFEST_SUFFIX,
    TokenFile,
    TokenFileError,
    TokenFileWriter,
    companions,
    open_tokens,
    token_dtype_for,
    verify,
)
from nanoset_ref.tokens.document_blocks import content_hash
from nanoset_ref.tokens.verification import write_seal


def write(path, documents=((0, 1, 2), (), (3, 4)), dtype="uint16", **options):
    with TokenFileWriter(path, dtype=dtype, **options) as writer:
        for document in documents:
            writer.write_document(document)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a_input_ids.npy"


def test_the_ids_are_raw_little_endian_without_header(path):
    assert write(path, [[1, 256], [65535]]).read_bytes() == b"\x01\x00\x00\x01\xff\xff"
    write(path, [[1, 70000]], dtype="int32", overwrite=True)
    assert path.read_bytes() == b"\x01\x00\x00\x00\x70\x11\x01\x00"


def test_the_manifest_says_what_the_file_is_and_boundaries_are_a_real_npy(path):
    file = TokenFile(
        write(
            path,
            vocab_size=50,
            tokenizer="gpt2",
            eos_token_id=4,
            added_special_tokens=True,
        )
    )
    said = {
        "dtype": "uint16",
        "num_tokens": 5,
        "num_documents": 3,
        "tokenizer": "gpt2",
        "vocab_size": 50,
    }
    said |= {
        "eos_token_id": 4,
        "appended_eod": False,
        "added_special_tokens": True,
        "windows": "overlapping",
    }
    found = json.loads(path.with_suffix(MANIFEST_SUFFIX).read_text())
    assert found | {"sources": None} == dataclasses.asdict(file.manifest)
    assert found == found | said | {"row_length": None, "format_version": 1}
    assert verify(path) == "5 tokens in 3 documents, ids below 50, checksum as recorded"
    assert repr(file).endswith("a_input_ids.npy', uint16, 5 tokens, 3 documents)")
    offsets = np.load(path.with_suffix(DOCUMENTS_SUFFIX), allow_pickle=False)
    assert offsets.dtype == np.int64
    assert offsets.tolist() == file.document_offsets.tolist() == [0, 3, 3, 5]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"vocab_size": True}, "vocab_size must be an integer of at least 0, got True"),
        ({"eos_token_id": 1.0}, "eos_token_id must be an integer"),
        ({"eos_token_id": 50256}, r"50256 is outside \[0, 100\), the vocabulary"),
        (
            {"eos_token_id": 70_000, "vocab_size": None},
            r"70000 is outside \[0, 65536\), the vocabulary and uint16",
        ),
    ],
)
def test_a_wrong_description_fails_before_anything_is_written(path, field, message):
    with pytest.raises(ValueError, match=message):
        TokenFileWriter(path, dtype="uint16", **{"vocab_size": 100} | field)


def test_counts_may_be_numbers_of_numpy(path):
    with TokenFileWriter(
        path, dtype="uint16", vocab_size=np.int64(100), eos_token_id=np.uint16(99)
    ) as writer:
        writer.write_document([1, 99])
    manifest = TokenFile(path).manifest
    assert (manifest.vocab_size, manifest.eos_token_id) == (100, 99)


def test_an_eos_id_that_is_given_is_checked_whatever_the_manifest_says(path):
    with TokenFileWriter(
        path, dtype="uint16", eos_token_id=5, appended_eod=False
    ) as writer:
        for _ in range(10):
            writer.write_document([1, 2, 3])
    verify(path)
    with pytest.raises(TokenFileError, match="that ends at 3 has no EOS id 5 there"):
        verify(path, eos_token_id=5)


@given(
    st.lists(
        st.lists(st.integers(0, 65535), max_size=20), min_size=1, max_size=20
    ).filter(any),
    st.booleans(),
)
def test_many_documents_at_once_equal_one_by_one(tmp_path_factory, documents, wide):
    folder = tmp_path_factory.mktemp("t")
    dtype = "int32" if wide else "uint16"
    one = write(folder / "one.npy", documents, dtype)
    with TokenFileWriter(folder / "many.npy", dtype=dtype) as writer:
        writer.write(
            np.concatenate([np.array(d, dtype=np.int64) for d in documents]),
            [len(d) for d in documents],
        )
    for suffix in (".npy", ".json", ".documents.npy"):
        assert (
            one.with_suffix(suffix).read_bytes()
            == (folder / "many").with_suffix(suffix).read_bytes()
        )
    assert TokenFile(one).tokens.tolist() == sum(documents, [])
    assert TokenFile(one).document_offsets.tolist() == [
        0,
        *np.cumsum([len(d) for d in documents]),
    ]


def test_dtype_by_vocabulary_size():
    assert [token_dtype_for(n).str for n in (1, 50257, 65536, 65537, 128256)] == [
        "<u2",
        "<u2",
        "<u2",
        "<i4",
        "<i4",
    ]
    with pytest.raises(ValueError, match="got 0"):
        token_dtype_for(0)


def test_without_a_manifest_the_default_is_uint16_and_token_dtype_decides(path):
    np.arange(6, dtype="<i4").tofile(path)
    assert TokenFile(path).tokens.tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    for dtype in ("int32", np.int32):
        assert TokenFile(path, dtype).tokens.tolist() == [0, 1, 2, 3, 4, 5]
    assert TokenFile(path).document_offsets is None


@pytest.mark.parametrize(
    ("ids", "lengths", "vocab_size", "dtype", "message"),
    [
        ([50], [1], 50, "uint16", r"token id 50 is outside \[0, 50\)"),
        ([-1], [1], None, "uint16", r"token id -1 is outside \[0, 65536\)"),
        ([65536], [1], None, "uint16", r"token id 65536 is outside \[0, 65536\)"),
        ([2**31], [1], None, "int32", r"outside \[0, 2147483648\)"),
        ([0.5], [1], None, "uint16", "integers, got 1-d float64"),
        ([[1, 2]], [2], None, "uint16", "1-d array of integers, got 2-d"),
        ([1, 2], [3], None, "uint16", "add up to 3, but there are 2"),
        ([], [0, 0], None, "uint16", "nothing was written"),
    ],
)
def test_a_failed_write_leaves_nothing(
    path, tmp_path, ids, lengths, vocab_size, dtype, message
):
    writer = TokenFileWriter(path, dtype=dtype, vocab_size=vocab_size)
    with pytest.raises(TokenFileError, match=message), writer:
        writer.write(ids, lengths)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten_unasked(path):
    write(path)
    with pytest.raises(FileExistsError, match="exists and is left unchanged"):
        write(path, [[9]])
    assert TokenFile(path).num_tokens == 5
    write(path, [[9]], overwrite=True)
    assert TokenFile(path).tokens.tolist() == [9]
    path.unlink()
    with pytest.raises(FileExistsError, match=r"\.json exists and is left unchanged"):
        write(path)  # perhaps a file of somebody else
    for companion in path.parent.glob(f"{path.stem}.*"):
        companion.unlink()
    with (
        pytest.raises(FileExistsError),
        TokenFileWriter(path, dtype="uint16") as writer,
    ):
        writer.write_document([1, 2, 3])
        write(path)
    assert "checksum as recorded" in verify(path), (
        "what came meanwhile is left as it is"
    )


@pytest.mark.parametrize(
    ("content", "dtype", "message"),
    [
        (b"", None, "is empty"),
        (b"\0" * 7, None, "truncated, or of another dtype than uint16"),
        (b"\0" * 8, "float32", "must be one of .* got float32"),
        (b"\0" * 8, ">u2", "must be one of .*, little-endian; got >u2"),
        (b"\0" * 8, "junk", "must be one of .*, little-endian; got junk"),
        (5, ">u2", "token_dtype=>u2 contradicts the manifest, which says uint16"),
        (b"\x93NUMPY" + b"\0" * 130, None, r"NumPy header.*astype\('uint16'\)\.tofile"),
        (5, "int32", "token_dtype=int32 contradicts the manifest, which says uint16"),
        (4, None, "holds 4 ids, but its manifest says 5"),
    ],
)
def test_files_without_ids_or_with_wrong_ones_are_refused(
    path, content, dtype, message
):
    """The content is bytes without a manifest, or how many ids are left of a file with one."""
    with pytest.raises(FileNotFoundError, match=r"no token file at .*a_input_ids\.npy"):
        TokenFile(path)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        os.truncate(write(path), 2 * content)
    with pytest.raises(TokenFileError, match=message):
        TokenFile(path, dtype)


@pytest.mark.parametrize("dtype", ["junk", 7, "float32", "int64", ">u2"])
def test_a_dtype_that_no_ds_file_has_is_refused_by_its_rule(tmp_path, dtype):
    path = tmp_path / "a.ds"
    path.write_bytes(b"\0" * 8)
    message = f"token_dtype must be one of .*, little-endian; got {dtype}"
    with pytest.raises(TokenFileError, match=message):
        open_tokens(path, dtype)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "JSON"),
        ("[]", "not a manifest"),
        ('{"dtype": "uint16"}', "num_tokens"),
        ({"new": 1}, "argument 'new'"),
        ({"dtype": "uint8"}, "got 'uint8'"),
        ({"num_tokens": -5}, "num_tokens must be"),
        ({"format_version": 9}, "format_version must be one of .* got 9"),
        ({"windows": "round"}, "windows must be"),
        ({"windows": "disjoint"}, "row_length goes with"),
    ],
)
def test_a_broken_manifest_is_named(path, change, message):
    if not isinstance(change, str):
        change = json.dumps(
            {"dtype": "uint16", "num_tokens": 5, "num_documents": 3, "checksum": ""}
            | change
        )
    write(path).with_suffix(MANIFEST_SUFFIX).write_text(change)
    with pytest.raises(TokenFileError, match=rf"a_input_ids\.json.*{message}"):
        TokenFile(path)


def test_boundaries_of_another_file_are_refused(path):
    documents = write(path).with_suffix(DOCUMENTS_SUFFIX)
    for offsets in ([0, 3, 5], [0, 3, 3, 6], [1, 3, 3, 5], [0.0, 3.0, 3.0, 5.0]):
        np.save(documents, offsets)
        with pytest.raises(
            TokenFileError, match=r"must hold 4 int64 offsets from 0 to 5"
        ):
            TokenFile(path).require_document_offsets()
    documents.unlink()
    with pytest.raises(TokenFileError, match="is missing"):
        TokenFile(path).require_document_offsets()


@given(st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_samples_are_those_whose_tokens_are_all_there(
    tmp_path_factory, num_tokens, length, disjoint
):
    path = tmp_path_factory.mktemp("t") / "a.npy"
    np.zeros(num_tokens, dtype="<u2").tofile(path)
    file, stride = TokenFile(path), length + disjoint
    assert file.stride(length, disjoint) == stride
    count = len(
        [first for first in range(0, num_tokens, stride) if first + length < num_tokens]
    )
    if count or disjoint:
        assert file.num_samples(length, disjoint) == count
    else:
        with pytest.raises(
            TokenFileError,
            match=f"holds {num_tokens} tokens; one .* needs {length + 1}",
        ):
            file.num_samples(length)


def test_disjoint_rows_are_read_as_they_were_cut(path):
    file = TokenFile(write(path, [range(12)], windows="disjoint", row_length=4))
    assert (file.num_samples(3), file.stride(3)) == (3, 4)
    with pytest.raises(
        TokenFileError, match="cut into rows: read it with sequence_length=3"
    ):
        file.num_samples(5)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_manifest_replaces_nothing_but_a_manifest(tmp_path, overwrite):
    text = tmp_path / "corpus.json"
    text.write_text('{"text": "a document"}')
    with pytest.raises(
        FileExistsError,
        match=r"corpus\.json is not a manifest .* a manifest would replace it",
    ):
        write(tmp_path / "corpus.npy", overwrite=overwrite)
    assert (text.read_text(), sorted(tmp_path.iterdir())) == (
        '{"text": "a document"}',
        [text],
    )


@pytest.mark.parametrize("offsets", [[0, -5, 7, 13], [0, 9, 7, 13]])
def test_boundaries_that_decrease_are_refused_wherever_they_are_read(path, offsets):
    """Opening reads none of them."""
    write(path, [range(4), range(4), range(5)])
    np.save(path.with_suffix(DOCUMENTS_SUFFIX), np.array(offsets, dtype=np.int64))
    rows = Nanoset(path, None, 4, 3, order="identity")
    assert rows[0]["input_ids"].tolist() == [0, 1, 2, 3, 0]
    reads = [
        lambda: rows.starts(np.arange(1)),
        lambda: rows.spans(0),
        lambda: when(rows, Schedule(), 1),
        lambda: content_hash(rows.files[0]),
        lambda: rows.files[0].documents_checksum,
        lambda: pickle.loads(pickle.dumps(rows)).spans(0),
    ]
    for read in reads:
        with pytest.raises(TokenFileError, match="document boundaries do not ascend"):
            read()


def test_a_worker_does_not_check_boundaries_again(path, monkeypatch):
    rows = Nanoset(write(path, [range(4), range(5)]), None, 4, 2)
    assert len(rows.spans(0) + rows.spans(1)) == 3
    travelled = pickle.loads(pickle.dumps(rows))
    monkeypatch.setattr(
        companions, "require_ascending", lambda *_: pytest.fail("checked again")
    )
    assert travelled.spans(1) == rows.spans(1)


def test_only_regular_files_are_token_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    for name in ("pipe.npy", ""):
        with pytest.raises(ValueError, match="is not a regular file; name the files"):
            TokenFile(tmp_path / name)


def test_a_seal_keeps_the_checksum_of_a_file_that_holds_none(path):
    """Only where it is asked for, and beside the file."""
    np.arange(20, dtype=np.uint16).tofile(path)
    file = TokenFile(path)
    assert file.checksum is None and not file.check_content()
    write_seal(file)
    assert sorted(it.name for it in path.parent.iterdir()) == [
        path.name,
        f"{path.name}.seal",
    ]
    assert (
        TokenFile(path).checksum == checksum(path) and TokenFile(path).check_content()
    )
    assert Nanoset(path, None, 4, 2).plan["files"][0]["known_by"] == "content"
    np.arange(1, 21, dtype=np.uint16).tofile(path)
    with pytest.raises(TokenFileError, match="the content has changed"):
        TokenFile(path).check_content()


@pytest.mark.parametrize("damage", ["a flipped byte", "missing"])
def test_labels_that_are_damaged_or_missing_fail_the_check_of_the_content(path, damage):
    """The ids are still read: nothing but `label_of` needs labels."""
    with write_together(), TokenFileWriter(path, dtype="uint16") as writer:
        writer.write([1, 2, 3], [1, 2])
        writer.write_labels(["web", "books"], [1, 0])
    labels = path.with_suffix(".sources.npz")
    assert TokenFile(path).check_content()
    content = bytearray(labels.read_bytes())
    labels.unlink()
    if damage == "a flipped byte":
        content[len(content) // 2] ^= 1
        labels.write_bytes(content)
    file = TokenFile(path)
    for check in (file.check_content, functools.partial(verify, file)):
        with pytest.raises(TokenFileError, match="npz is missing or has changed"):
            check()
    assert file.tokens.tolist() == [1, 2, 3]
    if damage == "missing":
        assert file.label_of(0) is None
    else:
        with pytest.raises(TokenFileError, match="npz was not written with its"):
            file.label_of(0)


@pytest.mark.parametrize("length", [0, -5])
def test_samples_have_at_least_a_token(path, length):
    with pytest.raises(
        ValueError, match=f"sequence_length must be at least 1, got {length}"
    ):
        TokenFile(write(path)).num_samples(length)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"vocab_size": 300, "eos_token_id": 0}, []),
        ({"vocab_size": None, "eos_token_id": None}, []),
        (
            {"vocab_size": 200, "eos_token_id": 0},
            ["a.npy has vocab_size 300", "has 200"],
        ),
        ({"vocab_size": 300, "eos_token_id": 9}, ["eos_token_id 0", "b.npy has 9"]),
    ],
)
def test_files_of_other_vocabularies_in_one_blend_are_a_warning(
    tmp_path, caplog, other, words
):
    facts = {"vocab_size": 300, "eos_token_id": 0}
    for name, recorded in {"a": facts, "b": other, "c": facts}.items():
        with TokenFileWriter(
            tmp_path / f"{name}.npy", dtype="uint16", **recorded
        ) as file:
            file.write_document(range(1, 20))
    Nanoset([tmp_path / f"{name}.npy" for name in "abc"], None, 4, 9)
    warnings = [
        record.getMessage() for record in caplog.records if record.levelno >= 30
    ]
    assert len(warnings) == bool(words)
    assert all(word in warnings[0] for word in words)
