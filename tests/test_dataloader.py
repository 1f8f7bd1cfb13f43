"""The DataLoader of a rank: Nanotron's batches, and the resume contract."""

import hashlib
import json

import numpy as np
import pytest
import torch
from resume_contract import check_resume_contract
from test_nanoset import GOLDEN, golden_nanoset, write_range

from nanoset_ref.collator import TensorPointer
from nanoset_ref.dataloader import EmptyInfiniteDataset, PlanMismatch, build_nanoset_dataloader
from nanoset_ref.nanoset import Nanoset


def digest(batches):
    sha = hashlib.sha256()
    for batch in batches:
        sha.update(batch["input_ids"].contiguous().numpy().tobytes())
        sha.update(batch["label_ids"].contiguous().numpy().tobytes())
    return sha.hexdigest()


@pytest.mark.parametrize("name", GOLDEN)
def test_every_batch_equals_nanotrons(golden, tmp_path, name):
    config, nanoset = golden_nanoset(golden, tmp_path, name)
    arrays = np.load(golden / "nanoset_batches.npz")
    for case in config["loaders"]:
        consumed = case["consumed_train_samples"]
        loader = build_nanoset_dataloader(
            nanoset,
            micro_batch_size=case["micro_batch_size"],
            dp_rank=case["dp_rank"],
            dp_size=case["dp_size"],
            consumed_train_samples=consumed
            - consumed % case["dp_size"],  # upstream rounds down; here the count is exact
        )
        positions = [k for batch in loader.batch_sampler for k in batch]
        assert positions == case["sample_indices"][: case["num_batches"] * case["micro_batch_size"]]
        assert len(loader) == case["num_batches"]
        batches = list(loader)
        assert digest(batches) == case["all_batches_sha256"]
        assert [digest([batch]) for batch in batches[:4]] == case["first_batches_sha256"]
        assert digest(batches[-1:]) == case["last_batch_sha256"]
        assert np.array_equal(batches[0]["input_ids"], arrays[f"{case['id']}/batch0/input_ids"])
        assert np.array_equal(batches[0]["label_ids"], arrays[f"{case['id']}/batch0/label_ids"])


@pytest.fixture
def numbered(tmp_path):
    """A Nanoset whose sample at position k can be recognised by its first token."""
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 121 * 2 + 1), None, 2, 121, order="nanotron")
    position_of = {int(row[0]): k for k, row in enumerate(nanoset.__getitems__(range(121)).rows)}
    return nanoset, lambda batch: [position_of[first] for first in batch["input_ids"][:, 0].tolist()]


@pytest.mark.parametrize("layout", ["strided", "contiguous"])
def test_it_keeps_the_resume_contract(numbered, layout):
    nanoset, positions_of = numbered

    def factory(rank, size, batch, workers):
        return build_nanoset_dataloader(
            nanoset, micro_batch_size=batch, dp_rank=rank, dp_size=size, num_loading_workers=workers, layout=layout
        )

    check_resume_contract(factory, positions_of, 121, layout=layout, workers=[0, 1, 4] if layout == "strided" else [0])


def test_deep_prefetch_and_persistent_workers_lose_nothing(numbered):
    nanoset, positions_of = numbered

    def factory(rank, size, batch, workers):
        return build_nanoset_dataloader(
            nanoset,
            micro_batch_size=batch,
            dp_rank=rank,
            dp_size=size,
            num_loading_workers=2,
            prefetch_factor=7,
            persistent_workers=True,
        )

    check_resume_contract(factory, positions_of, 121, layouts=[(2, 3), (1, 2)], workers=[2], stops=[1, 5])


def test_asking_for_the_length_in_the_middle_disturbs_nothing(numbered):
    nanoset, positions_of = numbered
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=10, num_loading_workers=1)
    seen, lengths = [], []
    for batch in loader:
        lengths.append(len(loader))
        seen += positions_of(batch)
    assert seen == list(range(120))
    assert lengths == list(range(11, -1, -1))


def test_the_state_is_one_number_and_a_plan(numbered):
    nanoset, _ = numbered
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=3, dp_rank=1, dp_size=4)
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    assert state == {"consumed_train_samples": 12, "plan": nanoset.plan}


def test_another_plan_is_refused_with_what_differs(numbered, tmp_path):
    nanoset, _ = numbered
    state = build_nanoset_dataloader(nanoset, micro_batch_size=3).state_dict()
    other = Nanoset(write_range(tmp_path / "b.npy", 400), None, 3, 121, random_seed=7)
    with pytest.raises(PlanMismatch) as error:
        build_nanoset_dataloader(other, micro_batch_size=3).load_state_dict(state)
    message = str(error.value)
    assert "random_seed: saved 1234, now 7" in message
    assert "sequence_length: saved 2, now 3" in message
    assert "a.npy" in message and "b.npy" in message
    longer = Nanoset(nanoset.files, None, 2, 500)
    loader = build_nanoset_dataloader(longer, micro_batch_size=3)
    loader.load_state_dict({**state, "consumed_train_samples": 9})
    assert len(loader) == (500 - 9) // 3


def test_ranks_without_data_get_placeholders_and_no_workers(numbered):
    nanoset, _ = numbered
    loader = build_nanoset_dataloader(
        nanoset,
        micro_batch_size=4,
        dp_size=2,
        input_pp_rank=0,
        output_pp_rank=2,
        current_pp_rank=1,
        num_loading_workers=4,
    )
    assert loader.num_workers == 0
    batches = list(loader)
    assert len(batches) == 121 // 8
    assert batches[0] == {
        "input_ids": TensorPointer(0),
        "input_mask": TensorPointer(0),
        "label_ids": TensorPointer(2),
        "label_mask": TensorPointer(2),
    }
    assert loader.state_dict()["consumed_train_samples"] == 121


def test_the_placeholder_dataset_is_endless():
    dataset = EmptyInfiniteDataset(3)
    assert (len(dataset), dataset[0], dataset[10**12]) == (3, {}, {})


def _initial_seed(examples):
    return torch.initial_seed()


def test_workers_are_seeded_by_run_rank_and_worker(numbered):
    nanoset, _ = numbered

    def seeds(seed, rank):
        loader = build_nanoset_dataloader(
            nanoset, micro_batch_size=8, dp_rank=rank, dp_size=2, num_loading_workers=2, seed=seed
        )
        loader.collate_fn = _initial_seed  # runs in the worker
        return set(loader)

    first, second, other = seeds(1, 0), seeds(1, 1), seeds(2, 0)
    assert len(first) == len(second) == 2
    assert first.isdisjoint(second) and first.isdisjoint(other)
