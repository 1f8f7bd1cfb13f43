"""Chunks to token files and .bin/.idx pairs, read by a Nanoset and by Megatron's dataset."""

import json

import numpy as np
import pytest

from nanoset_ref.chunks import chunks_to_megatron, chunks_to_tokens
from nanoset_ref.chunks.chunk_manifest import ChunkManifest, FileEntry, ManifestError
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.megatron.nanoset_config import NanosetConfig
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.tokens import TokenFile, TokenFileError

SETTINGS = {"tokenizer": "t", "vocab_size": 300, "eos_token_id": 7, "concat_tokens": 5}


def write_chunks(root, sizes, row_length=5, settings=SETTINGS):
    """Chunk files of rows that count on from 0; returns the rows [all, row_length]."""
    rows = np.arange(sum(sizes) * row_length).reshape(-1, row_length)
    (root / "train").mkdir(parents=True)
    files, first = {}, 0
    for i, size in enumerate(sizes):
        path = root / f"train/train_{i}.jsonl"
        lines = [json.dumps({"token_ids": row, "source": "a"}) + "\n" for row in rows[first : first + size].tolist()]
        path.write_text("".join(lines))
        files[f"train/{path.name}"] = FileEntry.of(path, size)
        first += size
    if settings is not None:
        ChunkManifest(settings=settings, complete=True, files=files).write(root)
    return rows


def test_a_nanoset_reads_exactly_the_rows_each_once_none_cut(tmp_path):
    rows = write_chunks(tmp_path / "mixed", [3, 2, *[1] * 9])
    path = tmp_path / "mixed_input_ids.npy"
    assert chunks_to_tokens([tmp_path / "mixed/train"], path) == 14
    file = TokenFile(path)
    assert file.tokens.reshape(-1, 5).tolist() == rows.tolist()  # train_2 comes before train_10
    assert (file.dtype, file.manifest.tokenizer, file.manifest.eos_token_id) == (np.uint16, "t", 7)
    assert file.document_offsets.tolist() == list(range(0, 71, 5))
    dataset = Nanoset(path, None, 4, 14)
    assert sorted(dataset.read(np.arange(14)).tolist()) == rows.tolist()
    with pytest.raises(TokenFileError, match="read it with sequence_length=4"):
        Nanoset(path, None, 3, 14)


def test_some_chunks_or_one_can_be_converted(tmp_path):
    rows = write_chunks(tmp_path / "mixed", [3, 2, 1])
    chunks_to_tokens([tmp_path / f"mixed/train/train_{i}.jsonl" for i in (2, 0)], tmp_path / "x_input_ids.npy")
    assert TokenFile(tmp_path / "x_input_ids.npy").tokens.reshape(-1, 5).tolist() == rows[[5, 0, 1, 2]].tolist()


def test_every_row_is_a_document_of_the_megatron_pair(tmp_path):
    rows = write_chunks(tmp_path / "mixed", [3, 2])
    assert chunks_to_megatron([tmp_path / "mixed/train"], tmp_path / "pair") == 5
    pair = MMapIndexedDataset(tmp_path / "pair")
    assert [pair[i].tolist() for i in range(len(pair))] == rows.tolist()
    assert pair.document_indices.tolist() == [0, 1, 2, 3, 4, 5]
    assert pair[0].dtype == np.uint16
    config = NanosetConfig(
        random_seed=1,
        sequence_length=5,
        add_extra_token_to_sequence=False,
        data_path=str(tmp_path / "pair"),
        split="1,0,0",
    )
    train, _, _ = NanosetBuilder(config).build()
    assert sorted(train.read(np.arange(len(train))).tolist()) == rows.tolist()


def test_ids_that_need_four_bytes_get_them(tmp_path):
    rows = write_chunks(tmp_path / "mixed", [2], settings=SETTINGS | {"vocab_size": 70000})
    chunks_to_tokens([tmp_path / "mixed"], tmp_path / "x_input_ids.npy")
    assert TokenFile(tmp_path / "x_input_ids.npy").dtype == np.int32
    assert TokenFile(tmp_path / "x_input_ids.npy").tokens.tolist() == rows.ravel().tolist()


def test_without_a_manifest_the_vocabulary_must_be_given(tmp_path):
    write_chunks(tmp_path / "plain", [2], settings=None)
    with pytest.raises(ValueError, match="give vocab_size"):
        chunks_to_tokens([tmp_path / "plain"], tmp_path / "x_input_ids.npy")
    assert chunks_to_tokens([tmp_path / "plain"], tmp_path / "x_input_ids.npy", vocab_size=10) == 2
    with pytest.raises(FileExistsError):
        chunks_to_tokens([tmp_path / "plain"], tmp_path / "x_input_ids.npy", vocab_size=10)


@pytest.mark.parametrize("convert", [chunks_to_tokens, chunks_to_megatron])
def test_bad_lines_are_named_and_nothing_is_left(tmp_path, convert):
    write_chunks(tmp_path / "mixed", [2, 2], settings=None)
    path = tmp_path / "mixed/train/train_1.jsonl"
    for line, message in (
        ('{"token_ids": [1, 2]}', "2 token_ids, expected 5"),
        ('{"token_ids": [1, 2, 3, 4, 300]}', "token_ids Input should be less than 300"),
        ("{bad", "Invalid JSON: key must be a string"),
    ):
        path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
        with pytest.raises(ValueError, match=rf"train_1.jsonl:2: {message}"):
            convert([tmp_path / "mixed"], tmp_path / "x_input_ids.npy", vocab_size=300)
        assert [found.name for found in tmp_path.iterdir()] == ["mixed"]


def test_chunks_of_different_tokenizers_are_not_joined(tmp_path):
    write_chunks(tmp_path / "a", [2])
    write_chunks(tmp_path / "b", [2], settings=SETTINGS | {"tokenizer": "other"})
    with pytest.raises(ManifestError, match="do not go together"):
        chunks_to_tokens([tmp_path / "a", tmp_path / "b"], tmp_path / "x_input_ids.npy")


@pytest.mark.parametrize("convert", [chunks_to_tokens, chunks_to_megatron])
def test_chunks_of_an_unfinished_mix_are_not_converted(tmp_path, convert):
    write_chunks(tmp_path / "mixed", [2, 2])
    ChunkManifest(settings=SETTINGS).write(tmp_path / "mixed")
    with pytest.raises(ManifestError, match="not finished"):
        convert([tmp_path / "mixed/train"], tmp_path / "x_input_ids.npy", vocab_size=300)
    assert not list(tmp_path.glob("x*"))
