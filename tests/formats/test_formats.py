"""The same documents in every format, byte for byte those of the programs that they come from."""

import itertools

import numpy as np
import pytest
from file_kinds import write_shard
from format_helpers import DOCUMENTS, as_lists

from nanoset_ref.tokens import convert, open_tokens, verify
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder
from nanoset_ref.tokens.document_blocks import content_hash, document_blocks


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


@pytest.mark.parametrize("eos", [50256, 7, None])
@pytest.mark.parametrize("tokens", [[50256, 1, 2, 50256, 3], [1, 7, 50256, 1], [7] * 9])
def test_documents_of_a_shard_begin_with_their_id(tmp_path, tokens, eos):
    """They are found by it, so no boundary can contradict the ids, at either end."""
    path = write_shard(tmp_path / "a.bin", tokens)
    documents = len(open_tokens(path, eos_token_id=eos).document_offsets) - 1
    for file in (path, open_tokens(path, eos_token_id=eos)):
        said = verify(file, eos_token_id=eos)
        assert said.startswith(f"{len(tokens)} tokens in {documents} documents")


@pytest.mark.parametrize("closed", [True, False])
def test_raw_ids_are_cut_behind_the_end_of_document_id(tmp_path, closed):
    lists = [[5, 9], [9], [6, 7, 9]] + ([] if closed else [[8]])
    np.concatenate(lists).astype("<u2").tofile(tmp_path / "raw.npy")
    raw = open_tokens(tmp_path / "raw.npy", eos_token_id=9)
    assert as_lists(raw) == lists
    assert raw.facts == {"eos_token_id": 9, "appended_eod": closed}
    assert as_lists(convert([raw], tmp_path / "b.npy")) == lists


def test_small_blocks_give_the_same(source, tmp_path, monkeypatch):
    monkeypatch.setattr("nanoset_ref.tokens.document_blocks.BLOCK_IDS", 3)
    assert as_lists(convert([source], tmp_path / "b.bin")) == DOCUMENTS
    assert [
        ids.tolist() for ids, _ in document_blocks(source, np.array([0, 2, 4]))
    ] == [
        [5, 6, 7],
        [8, 9, 9],
    ]
