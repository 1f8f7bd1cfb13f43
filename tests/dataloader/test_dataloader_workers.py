"""Worker processes of a loader: their seeds, a rank that needs none, and Ctrl-C while they are forked."""

import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest
import torch

from nanoset_ref import DataCollatorWithLabels, TensorPointer
from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler


def test_workers_that_are_started_draw_nothing_from_the_global_generator(numbered):
    """A model that draws from it would continue with other numbers after a resume."""
    nanoset, _ = numbered
    before = torch.get_rng_state()
    for _ in build_nanoset_dataloader(
        nanoset, micro_batch_size=8, num_loading_workers=1
    ):
        pass
    for _ in NanosetDataLoader(
        nanoset, ResumableBatchSampler(121, 8), collate_fn=DataCollatorWithLabels(2)
    ):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def _initial_seed(examples):
    return torch.initial_seed()


def test_workers_are_seeded_by_run_rank_and_worker(numbered):
    nanoset, _ = numbered

    def seeds(seed, rank):
        loader = build_nanoset_dataloader(
            nanoset,
            micro_batch_size=8,
            dp_rank=rank,
            dp_size=2,
            num_loading_workers=2,
            seed=seed,
        )
        loader.collate_fn = _initial_seed  # runs in the worker
        return set(loader)

    first, second, other = seeds(1, 0), seeds(1, 1), seeds(2, 0)
    assert len(first) == len(second) == 2
    assert first.isdisjoint(second) and first.isdisjoint(other)


WORKER_OPTIONS = {
    "prefetch_factor": 3,
    "persistent_workers": True,
    "multiprocessing_context": "spawn",
    "timeout": 9,
}


def test_a_rank_without_data_takes_the_options_of_the_others_and_starts_nothing(
    numbered,
):
    options = {
        "micro_batch_size": 8,
        "output_pp_rank": 2,
        "num_loading_workers": 2,
        "read_ahead": 1,
    }
    middle = build_nanoset_dataloader(
        numbered[0], current_pp_rank=1, **options, **WORKER_OPTIONS
    )
    assert middle.num_workers == 0
    before = {*threading.enumerate(), *multiprocessing.active_children()}
    batches = iter(middle)
    pointers = {"input_ids": 0, "input_mask": 0, "label_ids": 2, "label_mask": 2}
    assert next(batches) == {
        name: TensorPointer(rank) for name, rank in pointers.items()
    }
    # those of earlier tests may still be ending
    assert before.issuperset(threading.enumerate())
    assert before.issuperset(multiprocessing.active_children())
    assert middle.state_dict()["consumed_train_samples"] == 8
    assert len(list(batches)) == 14
    for pp_rank in (0, 1):
        with pytest.raises(ValueError, match="prefetch_factor"):
            build_nanoset_dataloader(
                numbered[0],
                micro_batch_size=8,
                output_pp_rank=2,
                current_pp_rank=pp_rank,
                prefetch_factor=3,
            )


PRESSED: list[int] = []  # a signal that arrives during the next fork

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: signal.raise_signal(PRESSED.pop()) if PRESSED else None
    )


def laws(folder):
    from nanoset_ref.laws import check

    def make(data, *, rank, world_size, batch_size, **place):
        rows = range(rank, data, world_size)
        return [rows[k : k + batch_size] for k in range(0, len(rows), batch_size)]

    check(make, laws=["length"], budget=60)


def workers(folder):
    np.arange(1000, dtype=np.uint16).tofile(folder / "a_input_ids.npy")
    numbers = Nanoset([folder / "a_input_ids.npy"], None, 4, 100)
    options = {"num_loading_workers": 2, "multiprocessing_context": "fork"}
    list(build_nanoset_dataloader(numbers, micro_batch_size=2, **options))


@pytest.mark.only_on("linux")
@pytest.mark.parametrize("fork", [laws, workers])
def test_ctrl_c_during_a_fork_is_not_lost(tmp_path, fork):
    """Python discards what a handler raises in the hooks of a fork."""
    PRESSED.append(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            fork(tmp_path)
        assert not PRESSED
    finally:
        PRESSED.clear()
