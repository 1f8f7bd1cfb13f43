"""The order of llm.c: what the ranks of the real program read, and its shards."""

import json
import pickle

import numpy as np
import pytest
from file_kinds import write_shard
from hypothesis import given
from hypothesis import strategies as st
from order_contract import check_contract

from nanoset_ref import Nanoset, TokenFileError, open_tokens
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.orders import build_order


@pytest.mark.parametrize("number", range(5))
def test_ranks_read_what_llm_c_reads(golden, tmp_path, number):
    case = json.loads((golden / "llm_c/batches.json").read_text())[number]
    paths = [
        write_shard(tmp_path / f"{file}.bin", 10000 * file + np.arange(size))
        for file, size in enumerate(case["tokens"])
    ]
    rows, ranks = case["micro_batch_size"], case["ranks"]
    order = f"llm_c:micro_batch_size={rows},dp_size={ranks},shuffle={case['shuffle']}"
    count = case["steps"] * rows * ranks
    dataset = Nanoset(paths, None, case["sequence_length"], count, order=order)
    theirs = np.array(case["first_tokens"]).reshape(ranks, case["steps"], rows)
    for rank in range(ranks):
        sampler = ResumableBatchSampler(count, rows, rank, ranks, layout="contiguous")
        read = [dataset.read(np.array(batch))[:, 0].tolist() for batch in sampler]
        assert read == theirs[rank].tolist()
    source, _ = dataset.order[0]
    span = dataset.spans(0)[0]
    ids = np.frombuffer(
        paths[source].read_bytes()[span.first_byte : span.end_byte], "<u2"
    )
    assert ids[0] == theirs[0, 0, 0]


def llm_c_by_hand(sizes, batch, ranks, epochs):
    """What the ranks of llm.c read: for every rank a list of (file, batch)."""
    read = []
    for rank in range(ranks):
        generator = np.random.MT19937()
        generator._legacy_seeding(42 + rank)

        def permute(values, generator=generator):
            for i in range(len(values) - 1, 0, -1):
                j = int(generator.random_raw()) % (i + 1)
                values[i], values[j] = values[j], values[i]
            return values

        files = list(range(len(sizes)))
        read.append([])
        for _ in range(epochs):
            for file in permute(files):
                order = permute(list(range(sizes[file] // (batch * ranks))))
                read[-1] += [(file, number) for number in order]
    return read


@given(
    st.lists(st.integers(8, 30), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_llm_c_by_hand(sizes, batch, ranks, epochs):
    read = llm_c_by_hand(sizes, batch, ranks, epochs)
    expected = [
        (file, (number * ranks + rank) * batch + row)
        for step in range(len(read[0]))
        for rank in range(ranks)
        for file, number in [read[rank][step]]
        for row in range(batch)
    ]
    options = {"micro_batch_size": batch, "dp_size": ranks}
    order = build_order("llm_c", sizes, None, len(expected), **options)
    assert [order[k] for k in range(len(order))] == expected
    check_contract(order)


def test_llm_c_refuses_a_file_without_a_batch():
    with pytest.raises(ValueError, match="file 1 has 7"):
        build_order("llm_c:micro_batch_size=8", [9, 7], None, 8)


@pytest.mark.parametrize(
    ("magic", "dtype", "begins"), [(20240520, "<u2", 50256), (20240801, "<u4", 128000)]
)
def test_shards_are_opened_with_their_documents(tmp_path, magic, dtype, begins):
    version = 1 if magic == 20240520 else 7
    tokens = [5, 6, begins, 1, 2, begins, 3]
    file = open_tokens(write_shard(tmp_path / "a.bin", tokens, magic, version, dtype))
    assert file.tokens.tolist() == tokens
    assert file.document_offsets.tolist() == [0, 2, 5, 7]
    assert pickle.loads(pickle.dumps(file)).tokens.tolist() == tokens
    other = open_tokens(tmp_path / "a.bin", eos_token_id=3)
    assert other.document_offsets.tolist() == [0, 6, 7]


def test_damaged_shards_are_refused(tmp_path):
    path = write_shard(tmp_path / "a.bin", np.arange(10))
    whole = path.read_bytes()
    for damaged in (
        whole[:-1],
        whole + b"  ",
        whole[:4] + b"\x02" + whole[5:],
        whole[:1024],
    ):
        path.write_bytes(damaged)
        with pytest.raises(TokenFileError, match="its header requires version 1"):
            open_tokens(path)
    path.write_bytes(whole[:1000])
    with pytest.raises(TokenFileError, match="does not begin with the header"):
        open_tokens(path)
