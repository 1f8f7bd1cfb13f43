"""The .bin/.idx pair: reading, writing, merging, and every way in which files can be wrong."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanoset_ref.cli import main
from nanoset_ref.megatron import (
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
    merge_corpora,
)
from nanoset_ref.tokens import TokenFileError, bin_idx
from nanoset_ref.tokens.bin_idx import DTYPES, HEADER, MAGIC

DOCUMENTS = [[3], [2, 4], [1]]  # tokens 0..9 in four sequences
SEQUENCES = [[0, 1, 2], [3, 4], [5, 6, 7, 8], [9]]


def lists(arrays):
    return [array.tolist() for array in arrays]


@pytest.fixture
def corpus(write_corpus):
    return MMapIndexedDataset(write_corpus(DOCUMENTS))


def test_sequences_slices_and_parts(corpus):
    assert lists([corpus[i] for i in range(4)]) == SEQUENCES == lists(corpus)
    assert corpus[-1].tolist() == [9]
    assert lists(corpus[1:3]) == SEQUENCES[1:3]
    assert lists(corpus[-2:]) == SEQUENCES[-2:]
    assert lists(corpus[::-2]) == SEQUENCES[::-2]
    assert corpus[4:] == []
    assert corpus.get(2, 1, 2).tolist() == [6, 7]
    assert corpus.get(2, 4).tolist() == []
    assert corpus.get(-2, 3).tolist() == [8]


def test_reads_out_of_range_and_writes_raise(corpus):
    for index in (4, -5):
        with pytest.raises(IndexError):
            corpus[index]
    for offset, length in ((-1, 2), (0, 4), (3, 1), (1, -1)):
        with pytest.raises(ValueError, match="outside sequence 0"):
            corpus.get(0, offset, length)
    with pytest.raises(ValueError, match="read-only"):
        corpus[0][0] = 1


def test_a_corpus_travels_to_other_processes(corpus):
    copy = pickle.loads(pickle.dumps(corpus))
    assert (lists(copy), copy.idx_checksum) == (SEQUENCES, corpus.idx_checksum)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(dtype=st.sampled_from(DTYPES), modes=st.booleans(), data=st.data())
def test_every_dtype_comes_back(tmp_path, dtype, modes, data):
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    values = [limits.min, limits.max, 0, 1]
    documents = data.draw(
        st.lists(
            st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=5
        )
    )
    written = []
    with MMapIndexedDatasetBuilder(
        tmp_path / "a.bin", dtype, multimodal=modes, overwrite=True
    ) as builder:
        for lengths in documents:
            for length in lengths:
                written.append(
                    np.array([values[i % 4] for i in range(length)], dtype=dtype)
                )
                builder.add_item(
                    torch.from_numpy(written[-1]) if dtype.kind == "i" else written[-1],
                    length % 2,
                )
            builder.end_document()
    corpus = MMapIndexedDataset(tmp_path / "a")
    if modes:
        assert corpus.sequence_modes.tolist() == [len(ids) % 2 for ids in written]
    assert (corpus.sequence_modes is not None) == modes
    assert all(
        a.dtype == dtype and a.tolist() == b.tolist()
        for a, b in zip(corpus, written, strict=True)
    )
    assert np.diff(corpus.document_indices).tolist() == [
        len(lengths) for lengths in documents
    ]


# ---- writing


def test_a_bin_without_an_index_is_replaced_if_a_killed_writer_had_begun_to_publish_it(
    tmp_path,
):
    (tmp_path / "a.bin").touch()
    with pytest.raises(FileExistsError, match="a.bin exists and is left unchanged"):
        MMapIndexedDatasetBuilder(tmp_path / "a.bin")
    (tmp_path / ".a.idx.1-deadbeef.0.tmp").touch()
    with MMapIndexedDatasetBuilder(tmp_path / "a.bin") as builder:
        builder.add_document([7], [1])
    assert lists(MMapIndexedDataset(tmp_path / "a")) == [[7]], (
        "the end of the context is that of the pair"
    )


@pytest.mark.parametrize(
    ("dtype", "bad"),
    [(np.uint16, 65_536), (np.uint16, -1), (np.int32, 2**31), (np.uint8, 256)],
)
def test_ids_that_do_not_fit_raise(tmp_path, dtype, bad):
    with MMapIndexedDatasetBuilder(tmp_path / "a.bin", dtype) as builder:
        with pytest.raises(TokenFileError, match=f"id {bad} does not fit"):
            builder.add_document([1, bad], [2])
        builder.add_document([1], [1])  # what was refused left no trace
    assert lists(MMapIndexedDataset(tmp_path / "a")) == [[1]]


def test_writer_refuses_bad_input(tmp_path):
    with pytest.raises(TokenFileError, match="the format knows"):
        MMapIndexedDatasetBuilder(tmp_path / "a.bin", np.uint32)
    with (
        pytest.raises(TokenFileError, match="call end_document"),
        MMapIndexedDatasetBuilder(tmp_path / "a.bin") as builder,
    ):
        with pytest.raises(TokenFileError, match="id 0.5 does not fit"):
            builder.add_item([0.5])
        with pytest.raises(TokenFileError, match="add up to the 2 ids"):
            builder.add_document([1, 2], [3])
        builder.add_item([1])
    with (
        pytest.raises(TokenFileError, match="got 1 modes for 2 sequences"),
        MMapIndexedDatasetBuilder(tmp_path / "a.bin", multimodal=True) as builder,
    ):
        builder.add_document([1, 2], [1, 1], [0])
    assert list(tmp_path.iterdir()) == []


# ---- merging


def test_merge_refuses_bad_input(write_corpus, tmp_path):
    one, two = write_corpus([[2]], "one"), write_corpus([[2]], "two", np.int32)
    with pytest.raises(
        TokenFileError, match="cannot merge .*two of int32 ids into a corpus of uint16"
    ):
        merge_corpora([one, two], tmp_path / "m")
    with MMapIndexedDatasetBuilder(
        tmp_path / "modes.bin", np.uint16, multimodal=True
    ) as builder:
        builder.add_document(np.arange(3), [3], [1])
    with pytest.raises(
        TokenFileError, match="every sequence of a multimodal corpus has a mode"
    ):
        merge_corpora([one, tmp_path / "modes"], tmp_path / "m")
    with pytest.raises(TokenFileError, match="nothing to merge"):
        merge_corpora([], tmp_path / "m")
    with pytest.raises(ValueError, match="one.bin is read and cannot be written"):
        merge_corpora([two, one], one, overwrite=True)
    merge_corpora([one], tmp_path / "n")
    with pytest.raises(FileExistsError, match="--overwrite"):
        merge_corpora([one, one], tmp_path / "n")
    merge_corpora([one, one], tmp_path / "n", overwrite=True)
    assert lists(MMapIndexedDataset(tmp_path / "n")) == [[0, 1]] * 2
    Path(f"{two}.bin").write_bytes(b"1234567")
    with pytest.raises(
        TokenFileError, match=r"two.bin has 7 bytes, but its index two.idx requires 8"
    ):
        merge_corpora([two], tmp_path / "m")
    assert not list(tmp_path.glob("m.*"))


def test_pointers_are_exact_beyond_2_31_elements(tmp_path):
    """Ten sequences of 2^30 tokens, in files with holes."""
    ends, lengths = np.arange(11), np.full(10, 2**30, dtype=np.int32)
    head = HEADER.pack(MAGIC, 1, 4, 10, 11)
    (tmp_path / "a.idx").write_bytes(
        head + lengths.tobytes() + (ends[:10] * 2**32).tobytes() + ends.tobytes()
    )
    (tmp_path / "a.bin").touch()
    os.truncate(tmp_path / "a.bin", 10 * 2**32)
    corpus = MMapIndexedDataset(tmp_path / "a")
    assert corpus.num_tokens == 10 * 2**30
    assert corpus.document_offsets.tolist() == [i * 2**30 for i in range(11)]
    assert corpus.get(9, 2**30 - 3).tolist() == [0, 0, 0]
    # a sum of small integers of NumPy would wrap around
    assert corpus.get(9, np.int32(2**30 - 3), np.int8(2)).tolist() == [0, 0]


# ---- files that do not hold together


def spoil(prefix, suffix, start, content):
    data = bytearray(Path(f"{prefix}.{suffix}").read_bytes())
    data[start : start + len(content)] = content
    Path(f"{prefix}.{suffix}").write_bytes(data)


@pytest.mark.parametrize(
    ("start", "content", "message"),
    [
        (0, b"NOTIDX", "corpus.idx begins with b'NOTIDX.*"),
        (9, struct.pack("<Q", 2), "version 1 and .*"),
        (17, b"\x09", "a dtype code of 1 to 8"),
        (18, struct.pack("<Q", 5), "corpus.idx has 114 bytes, but 5 sequences and"),
        (
            34 + 12 * 4 + 8 * 3,
            struct.pack("<q", 3),
            "document entries must run from 0 to 4",
        ),
        (
            34 + 12 * 4 + 8,
            struct.pack("<q", 4),
            "document entries must run from 0 to 4",
        ),
        (34 + 4 * 4 + 8, struct.pack("<q", 4), "sequences must lie end to end"),
        (34, struct.pack("<i", 2), "sequences must lie end to end"),
        (34 + 4, struct.pack("<i", -2), "sequences must lie end to end"),
        (
            34 + 3 * 4,
            struct.pack("<i", 2),
            "corpus.bin has 20 bytes, but its index corpus.idx requires 22",
        ),
    ],
)
def test_a_damaged_index_is_named(write_corpus, start, content, message):
    prefix = write_corpus(DOCUMENTS)
    spoil(prefix, "idx", start, content)
    with pytest.raises(TokenFileError, match=message):
        MMapIndexedDataset(prefix)


def test_truncated_and_missing_files_are_named(write_corpus):
    prefix = write_corpus(DOCUMENTS)
    for size in (113, 50, 20, 5, 0):
        os.truncate(f"{prefix}.idx", size)
        with pytest.raises(
            TokenFileError, match=r"corpus.idx (begins with|has \d+ bytes)"
        ):
            MMapIndexedDataset(prefix)
    Path(f"{prefix}.bin").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"corpus.bin and corpus.idx must both exist"
    ):
        MMapIndexedDataset(prefix)


def test_an_empty_corpus_is_named_but_can_be_merged(write_corpus, tmp_path):
    empty, full = write_corpus([], "empty"), write_corpus([[2]], "full")
    assert (len(MMapIndexedDataset(empty)), MMapIndexedDataset(empty).num_tokens) == (
        0,
        0,
    )
    config = NanosetConfig(
        random_seed=1, sequence_length=4, data_path=empty, split="1,0,0"
    )
    with pytest.raises(TokenFileError, match="empty.bin holds no tokens"):
        NanosetBuilder(config).build()
    merge_corpora([empty, full, empty], tmp_path / "m")
    assert lists(MMapIndexedDataset(tmp_path / "m")) == [[0, 1]]


def test_a_pair_without_a_seal_is_named_once_and_verify_makes_one_that_finds_damage(
    write_corpus, monkeypatch, caplog, capsys
):
    monkeypatch.setattr(bin_idx, "_warned", [])
    prefix = write_corpus([[1, 2, 3], [4, 5]])
    path = Path(f"{prefix}.bin")
    MMapIndexedDataset(prefix)
    assert not caplog.text, "one that has a seal"
    path.with_suffix(".seal").unlink()
    for _ in range(2):
        MMapIndexedDataset(prefix)
    assert caplog.text.count("nanoset-ref verify --seal") == 1
    assert main(["verify", str(path)]) == 0 and "sealed" not in capsys.readouterr().out
    assert (
        main(["verify", "--seal", str(path)]) == 0
        and "sealed as it is now" in capsys.readouterr().out
    )
    assert (
        main(["verify", "--seal", str(path)]) == 0
        and "sealed" not in capsys.readouterr().out
    )
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert main(["verify", "--seal", str(path)]) == 1
    assert "has changed since it was sealed" in capsys.readouterr().out
