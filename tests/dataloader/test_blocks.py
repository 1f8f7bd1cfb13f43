"""Blocks of batches: the same batches, in memory that is used again only when nobody has it any more."""

import functools
import gc
import os
import pkgutil
import threading

import numpy as np
import pytest
import torch
from dataloader_helpers import expected_rows
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from token_files import write_range

from nanoset_ref.load import blocks, collator, prefetch
from nanoset_ref.load.blocks import (
    BlockSizes,
    allocate_buffers,
    batches_per_block,
    count_buffers,
)
from nanoset_ref.load.collator import DataCollatorForCLM, RowBlock, writable_copy
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.prefetch import WorkerBlocks
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.load.shared_buffers import allocate_shared_buffers

INT32 = np.dtype(np.int32)


@settings(max_examples=150)
@given(
    num_samples=st.integers(1, 60),
    micro_batch_size=st.integers(1, 5),
    dp=st.tuples(st.integers(1, 4), st.integers(0, 3)),
    consumed=st.integers(0, 150),
    layout=st.sampled_from(["strided", "contiguous"]),
    tail=st.sampled_from(["drop", "pad", "loop"]),
    batches=st.integers(1, 7),
)
def test_blocks_hold_the_batches_of_the_sampler(
    num_samples, micro_batch_size, dp, consumed, layout, tail, batches
):
    """The oracle: the batches one by one. Positions, order, sizes, and the sampler's own count."""
    dp_size, dp_rank = dp[0], dp[1] % dp[0]
    assume(tail != "drop" or num_samples >= dp_size * micro_batch_size)

    def sampler():
        return ResumableBatchSampler(
            num_samples,
            micro_batch_size,
            dp_rank,
            dp_size,
            consumed,
            layout=layout,
            tail=tail,
        )

    one_by_one, in_blocks = sampler(), sampler()
    expected = [list(batch) for batch in one_by_one]
    got = []
    for positions in in_blocks.blocks(batches):
        assert positions.dtype == np.int64
        assert len(positions) <= batches * micro_batch_size
        got += [
            batch.tolist()
            for batch in torch.from_numpy(positions).split(micro_batch_size)
        ]
    assert got == expected
    assert in_blocks.consumed_train_samples == one_by_one.consumed_train_samples


def test_the_batches_of_a_block_do_not_start_the_garbage_collector():
    """A full collection goes over all objects of the process, and takes a tenth of a second."""
    rows = torch.zeros((batches_per_block(9 * 4), 9), dtype=torch.int32)
    collate = DataCollatorForCLM(8, 0, 0, 0)
    runs = []
    rare = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(lambda *run: runs.append(run))
    gc.set_threshold(700, 10, 10)  # Python's own up to 3.13, not those of the tests
    try:
        count = sum(1 for _ in range(20) for _ in collate.split(RowBlock(rows, 1)))
    finally:
        gc.set_threshold(*rare)
        gc.callbacks.pop()
    assert count == 20 * len(rows)
    assert not runs


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_loader_allocates_as_many_buffers_as_count_buffers_says(
    tmp_path, monkeypatch, workers, ahead
):
    counts = []

    def counted(allocate, count, *arguments):
        counts.append(count)
        return allocate(count, *arguments)

    for name in ("dataloader.allocate_buffers", "prefetch.allocate_shared_buffers"):
        name = f"nanoset_ref.load.{name}"
        monkeypatch.setattr(
            name, functools.partial(counted, pkgutil.resolve_name(name))
        )
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 401), None, 4, 100)
    options = {"num_loading_workers": workers, "read_ahead": ahead}
    for _ in build_nanoset_dataloader(nanoset, micro_batch_size=4, **options):
        pass
    assert sum(counts) == count_buffers(workers, 2, ahead)
    assert (
        sum(counts)
        == {(0, 0): 2, (0, 2): 5, (1, 0): 5, (1, 2): 8, (2, 0): 7, (2, 2): 10}[
            workers, ahead
        ]
    )


def test_a_block_has_many_batches_but_not_too_many_bytes(monkeypatch):
    blocks_of = [
        batches_per_block(size, 3) for size in (16_000, 32_000, 262_000, 5_000_000)
    ]
    assert blocks_of == [150, 131, 16, 1], "4 MiB, or 150 batches"
    of_many = [batches_per_block(32_000, buffers) for buffers in (19, 200, 10**6)]
    assert of_many == [82, 7, 1], "48 MiB in all"
    for free, found in ((1 << 40, [131, 131]), (64 << 20, [131, 4])):
        monkeypatch.setattr(blocks, "_free_shared_memory", lambda free=free: free)
        shares = [
            batches_per_block(128_000, 7, 4, shared=shared) for shared in (False, True)
        ]
        assert shares == found, "16 MiB, or a sixteenth of what is free for all 7"


def test_a_slot_stays_where_it_is_unless_somebody_has_a_lazy_copy_of_it(monkeypatch):
    # as in a program of one thread; the runner of the tests may have others
    monkeypatch.setattr(
        collator.threading, "enumerate", lambda: [threading.main_thread()]
    )
    [buffer] = allocate_buffers(1, (4, 3), INT32)
    buffer.zero_()
    place = buffer.numpy().ctypes.data
    part = writable_copy(buffer)[1:, :2].split(2)[0]
    buffer.numpy()[:] = 1
    assert buffer.numpy().ctypes.data != place
    assert not part.any()
    place = buffer.numpy().ctypes.data
    del part
    writable_copy(buffer)
    buffer.numpy()[:] = 2
    assert buffer.numpy().ctypes.data == place, "nobody has the copy any more"


def test_memory_of_which_torch_makes_no_lazy_copies_is_really_copied():
    for original in (torch.zeros(3).share_memory_(), torch.from_numpy(np.zeros(3))):
        writable_copy(original).fill_(1)
        assert not original.any()


@pytest.mark.usefixtures("two_batches_per_block")
@pytest.mark.parametrize(
    "options", [{}, {"num_loading_workers": 2}, {"read_ahead": 3}], ids=str
)
def test_batches_that_are_kept_never_change(nanoset, options):
    kept = list(build_nanoset_dataloader(nanoset, micro_batch_size=8, **options))
    assert len(kept) == 300
    assert len({batch["input_ids"].data_ptr() for batch in kept}) == 300
    for number, batch in enumerate(kept):
        assert np.array_equal(
            batch["input_ids"], expected_rows(nanoset, number)[:, :-1]
        )
        assert np.array_equal(batch["label_ids"], expected_rows(nanoset, number)[:, 1:])


@pytest.mark.usefixtures("two_batches_per_block")
@pytest.mark.parametrize(
    ("options", "buffers"),
    [({}, 3), ({"num_loading_workers": 2}, 3), ({"read_ahead": 3}, 6)],
)
def test_batches_that_are_not_kept_share_a_few_slots(
    nanoset, options, buffers, monkeypatch
):
    # as in a program of one thread; the runner of the tests may have others
    monkeypatch.setattr(
        collator.threading, "enumerate", lambda: [threading.main_thread()]
    )
    places, kept = set(), []
    for number, batch in enumerate(
        build_nanoset_dataloader(nanoset, micro_batch_size=8, **options)
    ):
        if number % 100 == 7:
            kept.append((number, batch))
        places.add(
            torch._C._data_address(batch["input_ids"])
        )  # data_ptr and NumPy would make a real copy
        assert batch["input_ids"].equal(
            torch.from_numpy(expected_rows(nanoset, number)[:, :-1].copy())
        )
    assert len(places) <= 2 * buffers + 2 * len(kept)
    for number, batch in kept:
        assert np.array_equal(batch["label_ids"], expected_rows(nanoset, number)[:, 1:])


@pytest.mark.usefixtures("two_batches_per_block")
@pytest.mark.parametrize(
    "options", [{}, {"num_loading_workers": 1}, {"read_ahead": 5}], ids=str
)
def test_a_new_iteration_ends_the_one_before_and_goes_on_where_it_was(nanoset, options):
    """Though it is still held, with blocks under way."""
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, **options)
    first = iter(loader)
    batches = [next(first) for _ in range(3)]
    second = iter(loader)
    assert list(first) == []
    batches += second
    assert len(batches) == 300
    for number, batch in enumerate(batches):
        assert np.array_equal(
            batch["input_ids"], expected_rows(nanoset, number)[:, :-1]
        )


def test_workers_that_are_not_forked_fill_the_same_buffers(nanoset):
    sampler = ResumableBatchSampler(160, 8)
    two_batches = BlockSizes(2, 3, (16, 5))
    options = {
        "num_workers": 1,
        "multiprocessing_context": "spawn",
        "prefetch_factor": 1,
    }
    sizes = []
    for block in WorkerBlocks(
        nanoset, sampler, two_batches, False, writable_copy, options
    ):
        assert np.array_equal(block.rows[:8], expected_rows(nanoset, sum(sizes)))
        assert block.copy_tensor(block.rows).equal(block.rows)
        sizes.append(len(block.rows) // 8)
    assert sizes == [1, *9 * [2], 1]


def test_copies_of_a_shared_buffer_are_separate_from_it_before_it_is_filled_again():
    [buffer] = allocate_shared_buffers(1, (2, 3), INT32)
    buffer.rows[:] = 1
    inputs, labels = buffer.copy(2), buffer.copy(1)
    inputs[0] = 5
    assert buffer.rows.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert labels.tolist() == [[1, 1, 1]]
    buffer.separate_copies()
    buffer.rows[:] = 2
    assert inputs.tolist() == [[5, 5, 5], [1, 1, 1]]
    assert labels.tolist() == [[1, 1, 1]]
    del inputs, labels
    assert buffer.copy(1).tolist() == [[2, 2, 2]]


def test_a_shared_buffer_gives_lazy_copies_no_memory_of_their_own(monkeypatch):
    # other tests may have left threads, beside which every copy is a real one
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    [buffer] = allocate_shared_buffers(1, (2, 3), INT32)
    mask = torch.ones((2, 3), dtype=torch.bool)
    address = torch._C._data_address(mask)
    copies = [buffer.copy_tensor(mask) for _ in range(3)]
    assert [torch._C._data_address(copy) for copy in copies] == [address] * 3


@pytest.mark.only_on("linux")
def test_kept_batches_keep_few_files_open():
    [buffer] = allocate_shared_buffers(1, (2, 3), INT32)
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for number in range(50):
        buffer.separate_copies()
        buffer.rows[:] = number
        kept += [buffer.copy(2), buffer.copy(2)]
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    for number, copy in enumerate(kept):
        assert copy.eq(number // 2).all()


@pytest.mark.usefixtures("two_batches_per_block")
def test_blocks_of_workers_are_copied_where_mappings_cannot_get_their_own_pages(
    nanoset, monkeypatch
):
    monkeypatch.setattr(prefetch, "HAS_PRIVATE_MAPPINGS", False)
    kept = list(
        build_nanoset_dataloader(nanoset, micro_batch_size=8, num_loading_workers=1)
    )
    for batch in kept:
        batch["input_ids"].zero_()
    for number, batch in enumerate(kept):
        assert np.array_equal(batch["label_ids"], expected_rows(nanoset, number)[:, 1:])


@pytest.mark.usefixtures("two_batches_per_block")
def test_a_read_error_reaches_the_training_loop(nanoset):
    class Broken(Nanoset):
        def fill(self, positions, out):
            if positions[0] >= 168:
                raise OSError("the disk has gone")
            super().fill(positions, out)

    nanoset.__class__ = Broken
    for options in ({}, {"read_ahead": 2}, {"num_loading_workers": 1}):
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, **options)
        with pytest.raises(OSError, match="the disk has gone"):
            for _ in loader:
                pass
        assert loader.state_dict()["consumed_train_samples"] == 168, (
            "all that came before it was delivered"
        )
