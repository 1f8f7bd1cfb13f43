"""Rows, documents, plans and resumes from a bucket are those of the local files, in few requests."""

import json
import os
import pickle
import threading

import numpy as np
import pytest
import torch
from bucket_helpers import N, S, batches_of, dataset, loader_of
from hypothesis import given
from hypothesis import strategies as st
from run_config import run_tree

from nanoset_ref.io import bucket_ranges, threads
from nanoset_ref.io.object_versions import ObjectVersion
from nanoset_ref.io.urls import BucketPath
from nanoset_ref.load import collator
from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.tokens import (
    TokenFileError,
    describe,
    merge_corpora,
    open_tokens,
    verify,
)
from nanoset_ref.tokens.document_blocks import (
    content_hash,
    document_blocks,
    hash_blocks,
)
from nanoset_ref.train import main as train


def test_whole_objects_are_read_in_few_requests(bucket, folder, server, tmp_path):
    """NumPy asked for each id of a bucket alone; so did a copy from a pair to a pair."""
    ids = open_tokens(f"{bucket}/a.bin").tokens
    local = open_tokens(folder / "a.bin").tokens
    server.log.clear()
    assert np.array_equal(np.asarray(ids), local)
    assert np.array(ids, dtype=np.int64).tolist() == local.tolist()
    merge_corpora([f"{bucket}/a"], tmp_path / "copy")
    assert len(server.log) < 40 < len(local)
    assert (tmp_path / "copy.bin").read_bytes() == (folder / "a.bin").read_bytes()


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_rows_documents_and_plan_are_those_of_the_local_files(
    bucket, folder, server, scheme
):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    ours, local = dataset(place), dataset(folder)
    mixed = Nanoset([f"{place}/a.npy", folder / "b.npy"], None, S, N)
    positions = np.arange(N)
    for rows in (ours, mixed):
        assert np.array_equal(rows.read(positions), local.read(positions))
        assert np.array_equal(rows.starts(positions), local.starts(positions))
        assert (rows.plan, rows.fingerprint) == (local.plan, local.fingerprint)
    ids, same = ours.files[1].tokens, local.files[1].tokens
    for index in (
        slice(3, 900),
        slice(-5, None),
        slice(0, 0),
        0,
        -1,
        np.array([5, 900, 2]),
    ):
        assert np.array_equal(ids[index], same[index]) and np.shape(
            ids[index]
        ) == np.shape(same[index])
    assert len(ids) == len(same) and str(ours.files[0].path) == f"{place}/a.npy"
    raw = [open_tokens(f"{where}/raw.npy", eos_token_id=7) for where in (place, folder)]
    assert raw[0].manifest is None and np.array_equal(
        raw[0].document_offsets, raw[1].document_offsets
    )
    assert verify(f"{place}/a.npy") == verify(folder / "a.npy")
    assert describe(raw[0]) == describe(raw[1]) | {"path": f"{place}/raw.npy"}


def test_megatrons_samples_from_a_bucket_take_one_round_of_requests(
    bucket, folder, server
):
    options = {"split": "1,0,0", "split_num_samples": (40, None, None)}
    ours, local = (
        NanosetBuilder(
            NanosetConfig(
                random_seed=5, sequence_length=S, data_path=[f"{place}/a"], **options
            )
        ).build()[0]
        for place in (bucket, folder)
    )
    positions = np.arange(len(local))
    server.log.clear()
    assert np.array_equal(ours.read(positions), local.read(positions))
    assert len(server.log) < len(local)


def test_chosen_documents_take_one_round_of_requests(bucket, folder, server):
    ours, local = (open_tokens(f"{place}/b.npy") for place in (bucket, folder))
    chosen = np.arange(1, ours.require_document_offsets().size - 1, 2)
    server.most, server.together = 0, 11
    hashes = [hash_blocks(document_blocks(file, chosen)) for file in (ours, local)]
    assert hashes[0] == hashes[1]
    assert server.most > 10  # else it would still wait for an answer


def test_rows_of_a_bucket_are_those_of_the_local_files(bucket, folder):
    local, remote = (
        PackedNanoset(
            [f"{place}/{name}.npy" for name in "ab"], [1, 2], 50, 300, pad_id=1
        )
        for place in (folder, bucket)
    )
    assert local.plan == remote.plan
    assert np.array_equal(local.read(np.arange(300)), remote.read(np.arange(300)))


@pytest.mark.parametrize("name", ["a.bin", "a.idx", "a.ds"])
@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_pairs_and_ds_files_are_read_by_ranges(bucket, folder, server, scheme, name):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    there, here = open_tokens(f"{place}/{name}"), open_tokens(folder / name)
    assert np.array_equal(there.document_offsets, here.document_offsets)
    assert (there.dtype, there.num_tokens) == (here.dtype, here.num_tokens)
    assert there.checksum == here.checksum is not None
    assert there.check_content() and content_hash(there) == content_hash(here)
    server.log.clear()
    server.sent = 0
    rows, same = (
        Nanoset([file], None, S, 40, order="stateless") for file in (there, here)
    )
    assert np.array_equal(rows.read(np.arange(40)), same.read(np.arange(40)))
    assert np.array_equal(rows.starts(np.arange(40)), same.starts(np.arange(40)))
    assert server.sent < 40 * (S + 1) * 2 + 40 * bucket_ranges.MAX_GAP
    again = pickle.loads(pickle.dumps(there))
    assert np.array_equal(again.tokens[5:9], here.tokens[5:9])
    if name != "a.ds":
        assert np.array_equal(there[3], here[3])
        assert f"'{place}/a'" in repr(there)
        server.keep("/tokens/a.bin", (folder / "a.bin").read_bytes()[:-2])
        with pytest.raises(
            TokenFileError, match=f"{place}/a.bin has .* bytes, but its index a.idx"
        ):
            open_tokens(f"{place}/{name}")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_ahead": 2},
        {"num_loading_workers": 1, "multiprocessing_context": "spawn"},
    ],
)
def test_a_resume_goes_on_where_a_local_one_would(bucket, folder, options):
    whole = batches_of(loader_of(dataset(folder)))
    loader = loader_of(dataset(bucket), **options)
    begun = batches_of(loader, 3)
    resumed = loader_of(dataset(bucket), read_ahead=1)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert len(whole) == N // 16 and resumed.consumed_train_samples == 48
    assert torch.equal(torch.stack(whole), torch.stack(begun + batches_of(resumed)))


def test_many_ranges_are_under_way_at_once_and_no_more_bytes_than_rows_have(
    bucket, folder, server
):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", order="stateless")
    server.sent, server.most, server.together = 0, 0, 31
    rows.read(np.arange(0, N, 3))
    assert server.most > 30
    assert server.sent < 200 * (S + 1) * 4 + 60 * bucket_ranges.MAX_GAP


def test_batches_stay_lazy_copies_beside_the_threads_that_read_a_bucket(
    bucket, folder, monkeypatch
):
    next(iter(loader_of(dataset(bucket))))
    readers = threads._pool(bucket_ranges.THREADS, os.getpid())._threads
    assert readers
    running = [threading.main_thread(), *readers]
    monkeypatch.setattr(collator.threading, "enumerate", lambda: running)
    assert torch._C._is_cow_tensor(collator.writable_copy(torch.zeros(3)))
    running.append(threading.Thread(name="of the caller"))
    assert not torch._C._is_cow_tensor(collator.writable_copy(torch.zeros(3)))


INDEXES = st.one_of(
    st.integers(-12, 12),
    st.slices(10),
    st.builds(
        slice,
        *[st.none() | st.integers(-13, 13)] * 2,
        st.none() | st.integers(1, 4) | st.integers(-4, -1),
    ),
    st.lists(st.integers(-11, 11), max_size=5),
    st.lists(st.integers(-10, 9), min_size=4, max_size=4).map(
        lambda it: np.array(it, np.int16).reshape(2, 2)
    ),
    st.lists(st.booleans(), min_size=10, max_size=10).map(np.array),
    st.sampled_from([np.uint64(3), np.int8(-1), 1.0, "1", [0.5]]),
)


@given(INDEXES)
def test_ids_in_a_bucket_are_indexed_as_in_numpy(index):
    ids = np.arange(100, 110, dtype="<u2")
    far = bucket_ranges.BucketIds(
        BucketPath("s3://b/k"), ObjectVersion(ids.nbytes, '"e"'), ids.dtype
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            bucket_ranges,
            "fetch",
            lambda extents: [ids.tobytes()[begin:end] for _, begin, end in extents],
        )
        try:
            expected = ids[index]
        except IndexError:
            with pytest.raises(IndexError):
                far[index]
            return
        found = far[index]
        assert np.array_equal(found, expected) and np.shape(found) == np.shape(expected)


def test_training_from_a_bucket_has_the_losses_of_training_from_the_disk(
    bucket, folder, tmp_path, capsys
):
    losses, path = [], tmp_path / "run.yaml"
    for name, place, options in (
        ("local", folder, {}),
        ("bucket", bucket, {"read_ahead": 2}),
    ):
        stages = [("one", 1, {"dataset_path": f"{place}/a.npy"}, options)]
        path.write_text(
            json.dumps(run_tree(tmp_path / name, stages, steps=3, length=S))
        )
        assert train(["--config", str(path)]) == 0, capsys.readouterr().err
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert losses[0] == losses[1] and len(losses[0]) == 3
