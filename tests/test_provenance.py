"""Down from a step to its documents and up again, held against what the loaders really deliver."""

import json
from pathlib import Path

import numpy as np
import pytest
from token_files import write_range

from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.nanoset_config import NanosetConfig
from nanoset_ref.provenance import when, where
from nanoset_ref.provenance.passage_search import find, find_text
from nanoset_ref.tokens import DatatroveFile, TokenFile, TokenFileWriter
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder

DOCUMENTS = [
    [7, 0, 1, 13, 2, 40, 5],
    [3, 30, 1, 1, 9],
]  # tokens per document, of two files


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Two token files of documents; every id is unique over both."""
    folder, first, paths = tmp_path_factory.mktemp("t"), 0, []
    for number, lengths in enumerate(DOCUMENTS):
        paths.append(folder / f"{number}_input_ids.npy")
        with TokenFileWriter(paths[-1], dtype="uint16") as writer:
            for length in lengths:
                writer.write_document(range(first, first + length))
                first += length
    return paths


@pytest.fixture(scope="module")
def blend(tmp_path_factory):
    """The same documents as a Megatron-style blend over two epochs."""
    folder, first, prefixes = tmp_path_factory.mktemp("m"), 0, {}
    for number, lengths in enumerate(DOCUMENTS):
        prefix = str(folder / f"corpus{number}")
        with MMapIndexedDatasetBuilder(prefix + ".bin", dtype=np.uint16) as builder:
            for length in lengths:
                builder.add_document(np.arange(first, first + length), [length])
                first += length
        prefixes[prefix] = 0.75 - 0.5 * number
    config = NanosetConfig(
        random_seed=3,
        sequence_length=6,
        data_path=prefixes,
        split="1,0,0",
        split_num_samples=(24, 0, 0),
    )
    return NanosetBuilder(config).build()[0]


@pytest.fixture
def dataset(request, paths, blend, tmp_path):
    """By its order, a Nanoset; or one of rows that share no token, or the blend."""
    if request.param == "megatron":
        return blend
    if request.param != "disjoint":
        return Nanoset(paths, [2, 1], 4, 60, order=request.param)
    with TokenFileWriter(
        tmp_path / "d.npy", dtype="uint16", windows="disjoint", row_length=5
    ) as writer:
        for document, length in enumerate(DOCUMENTS[0]):
            writer.write_document(sum(DOCUMENTS[0][:document]) + np.arange(length))
    return Nanoset([tmp_path / "d.npy"], None, 4, 60)


# ---- down


@pytest.mark.parametrize(
    "dataset", ["nanotron", "stateless", "megatron"], indirect=True
)
@pytest.mark.parametrize("layout", ["strided", "contiguous"])
def test_where_names_the_tokens_that_every_rank_gets(dataset, layout):
    schedule = Schedule(
        dp_size=2, micro_batch_size=3, batch_accumulation_per_replica=2, layout=layout
    )
    loaders = [
        list(
            build_nanoset_dataloader(
                dataset, micro_batch_size=3, dp_rank=rank, dp_size=2, layout=layout
            )
        )
        for rank in range(2)
    ]
    for step in range(1, len(dataset) // 12 + 1):
        origins = where(dataset, schedule, step)
        assert len(origins) == 12
        for origin in origins:
            slot, file = origin.slot, dataset.files[origin.source]
            batch = loaders[slot.dp_rank][(step - 1) * 2 + slot.micro_batch]
            row = [
                *batch["input_ids"][slot.row].tolist(),
                int(batch["label_ids"][slot.row, -1]),
            ]
            begins = file.document_offsets
            by_document = [
                t
                for p in origin.parts
                for t in file.tokens[begins[p.document] :][p.start : p.stop]
            ]
            raw = Path(origin.path).read_bytes()
            by_byte = [
                t
                for p in origin.parts
                for t in np.frombuffer(raw[p.first_byte : p.end_byte], "<u2")
            ]
            assert by_document == by_byte == row
            assert origin.path == str(file.path)
            if isinstance(dataset, Nanoset):
                assert origin.epoch == slot.position // dataset.order.samples_per_epoch


@pytest.mark.parametrize("name", ["a.npy", "a.ds"])
def test_without_a_manifest_or_index_the_tokens_are_named_but_no_document(
    tmp_path, name
):
    path = write_range(tmp_path / name, 41)
    nanoset = Nanoset(DatatroveFile(path) if name == "a.ds" else path, None, 4, 10)
    (origin,) = where(nanoset, Schedule(), 1)
    (part,) = origin.parts
    assert part.document is None
    assert list(range(part.start, part.stop)) == nanoset[0]["input_ids"].tolist()
    assert (part.first_byte, part.end_byte) == (part.start * 2, part.stop * 2)
    with pytest.raises(ValueError, match="records no document boundaries"):
        when(nanoset, Schedule(), 0)


# ---- up


@pytest.mark.parametrize(
    "dataset", ["nanotron", "stateless", "disjoint", "megatron"], indirect=True
)
def test_when_names_every_row_that_holds_one_of_the_tokens(dataset):
    """The oracle: every id is unique, so look for it in every row."""
    rows = [set(dataset[k]["input_ids"].tolist()) for k in range(len(dataset))]
    schedule, begin = Schedule(dp_size=2, micro_batch_size=3), 0
    documents = [
        (s, d, length)
        for s in range(len(dataset.files))
        for d, length in enumerate(DOCUMENTS[s])
    ]
    for source, document, length in documents:
        for tokens in [
            None,
            (0, length),
            (0, min(length, 1)),
            (length // 2, length // 2),
            (length // 2, length),
        ]:
            start, stop = tokens or (0, length)
            wanted = set(range(begin + start, begin + stop))
            found = when(dataset, schedule, document, source=source, tokens=tokens)
            whole_steps = rows[: len(rows) - len(rows) % 6]
            assert found == [
                schedule.slot(k) for k, row in enumerate(whole_steps) if wanted & row
            ]
        begin += length


def test_when_names_no_step_that_the_dataset_does_not_fill_unless_it_is_asked_to(paths):
    nanoset, schedule = Nanoset(paths[0], None, 4, 200), Schedule(micro_batch_size=16)
    with pytest.raises(IndexError, match="step 13 reads positions 192 to 207"):
        where(nanoset, schedule, 13)
    found = when(nanoset, schedule, 5)
    assert max(slot.step for slot in found) <= 12
    more = when(nanoset, schedule, 5, until=len(nanoset))
    assert more[: len(found)] == found and {
        slot.step for slot in more[len(found) :]
    } == {13}


def test_when_begins_where_the_schedule_begins(paths):
    nanoset = Nanoset(paths[0], None, 4, 200)
    all_of_them = when(nanoset, Schedule(), 5)
    late = when(nanoset, Schedule(consumed_train_samples=20, first_step=21), 5)
    assert late == [slot for slot in all_of_them if slot.position >= 20] != all_of_them


def test_unknown_steps_files_documents_and_tokens_are_refused(paths, blend):
    with pytest.raises(
        IndexError,
        match="step 11 reads positions 60 to 65, but the dataset has only 60",
    ):
        where(Nanoset(paths, None, 4, 60), Schedule(micro_batch_size=6), 11)
    for dataset in (Nanoset(paths, None, 4, 60), blend):
        with pytest.raises(IndexError, match="there is no file 2: there are 2"):
            when(dataset, Schedule(), 0, source=2)
        with pytest.raises(IndexError, match="there is no document 7: there are 7"):
            when(dataset, Schedule(), 7)
        with pytest.raises(
            IndexError, match="no tokens 3:41 in document 5, which has 40"
        ):
            when(dataset, Schedule(), 5, tokens=(3, 41))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.uint64])
def test_positions_and_tokens_of_any_kind_of_integer_are_the_same(paths, blend, dtype):
    for dataset in (Nanoset(paths, None, 4, 60), blend):
        tokens = dtype(3), dtype(40)
        slots = when(dataset, Schedule(), 5, tokens=tokens)
        assert slots == when(dataset, Schedule(), 5, tokens=(3, 40)) != []
        json.dumps(dataset.origin(dtype(9)))


# ---- search


@pytest.mark.parametrize("block", [4, 1 << 22])
def test_find_gives_every_place_within_one_document(
    tmp_path, blend, monkeypatch, block
):
    monkeypatch.setattr("nanoset_ref.tokens.document_blocks.BLOCK_IDS", block)
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        for document in ([1, 2, 3, 1, 2], [2, 3], [3, 1], [2, 9]):
            writer.write_document(document)
    file = TokenFile(tmp_path / "a.npy")
    assert find(file, [1, 2]) == [(0, 0), (0, 3)], (
        "not across the boundary between the last two"
    )
    assert find(file, [2, 3]) == [(0, 1), (1, 0)]
    assert find(file, [77]) == []
    assert find(file, [256]) == [], "bytes that match between two ids are no match"
    assert find(file, [70000]) == find(file, [1] * 99) == []
    with pytest.raises(ValueError, match="at least one id"):
        find(file, [])
    corpus = blend.datasets[1].corpus
    assert find(corpus, corpus[1][5:8].tolist()) == [(1, 5)]
    assert find(corpus, corpus[1][5:8].astype("uint16")) == [(1, 5)]


def test_a_text_that_ends_within_several_tokens_is_found_to_its_end(tmp_path):
    class Bytes:
        """A token per byte of UTF-8."""

        def encode(self, text, **options):
            return list(text.encode())

        def decode(self, ids, **options):
            return bytes(ids).decode(errors="replace")

    text = "one two three 😀"
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write_document(list(f"zero {text} four".encode()))
    assert find_text(TokenFile(tmp_path / "a.npy"), Bytes(), text) == [
        (0, 5, 5 + len(text.encode()))
    ]
