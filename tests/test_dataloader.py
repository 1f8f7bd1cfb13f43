"""The DataLoader of a rank: Nanotron's batches, and the resume contract."""

import copy
import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import threading

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from resume_contract import check_resume_contract
from test_nanoset import GOLDEN, golden_nanoset, write_range
from torch.utils.data import BatchSampler, Subset, default_collate

from nanoset_ref import DataCollatorWithLabels, Ledger, StatelessOrder, TensorPointer
from nanoset_ref.load import blocks
from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.tokens import TokenFileWriter


def default_collate_of_ids(samples):
    return {"ids": torch.from_numpy(np.stack([row["input_ids"] for row in samples]))}


def digest(batches):
    tensors = [batch[key] for batch in batches for key in ("input_ids", "label_ids")]
    return hashlib.sha256(
        b"".join(tensor.numpy().tobytes() for tensor in tensors)
    ).hexdigest()


@pytest.mark.parametrize("name", GOLDEN)
def test_every_batch_equals_nanotrons(golden, tmp_path, name):
    config, nanoset = golden_nanoset(golden, tmp_path, name)
    for case in config["loaders"]:
        place = {key: case[key] for key in ("micro_batch_size", "dp_rank", "dp_size")}
        consumed = case["consumed_train_samples"]
        consumed -= (
            consumed % case["dp_size"]
        )  # upstream rounds down; here the count is exact
        loader = build_nanoset_dataloader(
            nanoset, **place, consumed_train_samples=consumed
        )
        positions = [k for batch in loader.batch_sampler for k in batch]
        assert (
            positions
            == case["sample_indices"][: case["num_batches"] * case["micro_batch_size"]]
        )
        assert len(loader) == case["num_batches"]
        batches = list(loader)
        assert digest(batches) == case["all_batches_sha256"]
        assert [digest([batch]) for batch in batches[:4]] == case[
            "first_batches_sha256"
        ]


@pytest.fixture
def numbered(tmp_path):
    """A Nanoset whose sample at position k can be recognised by its first token."""
    nanoset = Nanoset(
        write_range(tmp_path / "a.npy", 121 * 2 + 1), None, 2, 121, order="nanotron"
    )
    position_of = {
        int(row[0]): k for k, row in enumerate(nanoset.__getitems__(range(121)).rows)
    }
    return nanoset, lambda batch: [
        position_of[first] for first in batch["input_ids"][:, 0].tolist()
    ]


FEW = {"layouts": [(2, 3), (1, 2)], "stops": [1, 5]}


@pytest.mark.parametrize(
    ("name", "batches_per_block", "layout", "options", "contract"),
    [
        ("num_loading_workers", 2, "strided", {"read_ahead": 2}, {"workers": [0, 2]}),
        ("read_ahead", 1, "strided", {}, {"workers": [0, 1, 3]}),
        ("read_ahead", 2, "contiguous", {}, {"workers": [0, 1, 3]}),
    ],
)
def test_it_keeps_the_resume_contract(
    numbered, monkeypatch, name, batches_per_block, layout, options, contract
):
    """`name` is what the contract's number of workers stands for. Blocks are small: resumes lie inside and between
    them. The laws hold loaders whose epoch is one block.
    """
    nanoset, positions_of = numbered

    def factory(rank, size, batch, workers):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", batches_per_block * batch * 3 * 4)
        place = {
            "micro_batch_size": batch,
            "dp_rank": rank,
            "dp_size": size,
            "layout": layout,
        }
        return build_nanoset_dataloader(nanoset, **place, **options, **{name: workers})

    check_resume_contract(
        factory,
        positions_of,
        121,
        layout=layout,
        **contract,
        **(FEW if options else {}),
    )


def test_another_collator_gets_its_batches_one_by_one(numbered):
    """One that cannot cut blocks: it is called where torch calls it, in the worker if there is one."""
    nanoset, positions_of = numbered
    for options in (
        {},
        {"num_workers": 1},
        {"read_ahead": 2},
        {"num_workers": 1, "read_ahead": 1},
    ):
        loader = NanosetDataLoader(
            nanoset,
            ResumableBatchSampler(121, 8),
            collate_fn=default_collate,
            **options,
        )
        for number, batch in enumerate(loader):
            assert positions_of(batch) == list(range(8 * number, 8 * number + 8))
            assert loader.consumed_train_samples == (
                8 * number + 8 if number < 14 else 121
            )
        assert number == 14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"read_ahead": -1}, "read_ahead must be at least 0, got -1"),
        ({"in_order": False}, "in_order must be True"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(numbered, options, message):
    with pytest.raises(ValueError, match=message):
        build_nanoset_dataloader(
            numbered[0], micro_batch_size=8, num_loading_workers=2, **options
        )


def test_a_block_is_pinned_before_it_is_cut_and_the_first_batch_waits_for_no_other(
    numbered, monkeypatch
):
    """Stand-ins for an accelerator. Blocks grow in each epoch."""
    nanoset, positions_of = numbered
    pinned = []

    def pin_memory(tensor):
        pinned.append(tensor.shape)
        return tensor.clone()

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, pin_memory=True)
    for _ in range(2):
        assert [k for batch in loader for k in positions_of(batch)] == list(range(120))
    ids_and_mask = [[(size, 3), (size, 2)] for size in (8, 16, 32, 64)]
    assert pinned == 2 * [shape for shapes in ids_and_mask for shape in 2 * shapes], (
        "inputs and labels of each block"
    )


def test_the_state_is_one_number_and_a_plan(numbered):
    """And asking for it or the length in the middle disturbs nothing."""
    nanoset, positions_of = numbered
    plan = nanoset.plan
    plan["rows"]["within_documents"] = []
    loader = build_nanoset_dataloader(
        nanoset, micro_batch_size=5, dp_rank=1, dp_size=2, num_loading_workers=1
    )
    for number, batch in enumerate(loader):
        is_last = number == 11
        assert len(loader) == (12 if is_last else 11 - number)
        state = json.loads(json.dumps(loader.state_dict()))
        assert state == {
            "consumed_train_samples": 121 if is_last else 10 * (number + 1),
            "num_samples": 121,
            "dropped": int(is_last),
            "plan": plan,
        }
        assert positions_of(batch) == list(range(10 * number + 1, 10 * number + 10, 2))
    assert number == 11


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


def test_a_file_with_a_checksum_may_be_renamed(tmp_path):
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write_document(range(100))
    before = Nanoset(tmp_path / "a.npy", None, 3, 30)
    saved = before.plan
    for suffix in (".npy", ".json", ".documents.npy"):
        (tmp_path / "a").with_suffix(suffix).rename(
            (tmp_path / "b").with_suffix(suffix)
        )
    after = Nanoset(tmp_path / "b.npy", None, 3, 30)
    build_nanoset_dataloader(after, micro_batch_size=3).load_state_dict(
        {"consumed_train_samples": 6, "plan": saved}
    )
    assert before.fingerprint == after.fingerprint


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


def test_accelerate_does_not_share_out_again_what_a_rank_has(tmp_path, monkeypatch):
    """As rank 0 of 2: a loader without ranks is cut in half, ours keeps its batches."""
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 161), None, 4, 32)
    accelerator = Accelerator(cpu=True)
    for name, value in {"num_processes": 2, "process_index": 0}.items():
        monkeypatch.setattr(
            Accelerator, name, property(lambda self, value=value: value)
        )
    ours = build_nanoset_dataloader(nanoset, micro_batch_size=4, dp_rank=0, dp_size=2)
    expected = [batch["input_ids"].tolist() for batch in ours]
    again = accelerator.prepare(
        build_nanoset_dataloader(nanoset, micro_batch_size=4, dp_rank=0, dp_size=2)
    )
    assert [batch["input_ids"].tolist() for batch in again] == expected
    assert len(list(accelerator.prepare(torch.utils.data.DataLoader(range(8))))) == 4


def test_a_collator_of_the_package_or_any_function_makes_the_batches(numbered):
    nanoset, _ = numbered
    options = {"micro_batch_size": 4}
    rows = [nanoset.read(np.arange(k, k + 4)).tolist() for k in range(0, 120, 4)]
    labelled = list(
        build_nanoset_dataloader(
            nanoset, collate_fn=DataCollatorWithLabels(2), **options
        )
    )
    assert [batch["input_ids"].tolist() for batch in labelled] == rows
    assert all(torch.equal(batch["labels"], batch["input_ids"]) for batch in labelled)
    assert labelled[0]["labels"].dtype == torch.int64
    middle = build_nanoset_dataloader(
        nanoset, collate_fn=len, output_pp_rank=2, current_pp_rank=1, **options
    )
    assert next(iter(middle))["input_ids"] == TensorPointer(0)
    with pytest.raises(
        ValueError,
        match=r"samples must have 6 tokens, got \[3\]; dataset and collator need the same",
    ):
        next(
            iter(
                build_nanoset_dataloader(
                    nanoset, collate_fn=DataCollatorWithLabels(5), **options
                )
            )
        )
    with pytest.raises(
        ValueError, match="documents is an option of DataCollatorForCLM"
    ):
        build_nanoset_dataloader(
            nanoset, collate_fn=len, documents=DocumentOptions(), **options
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": "x"}, "^seed must be an integer, got 'x'$"),
        ({"seed": 2**64}, "^seed must lie in "),
        (
            {"shuffle": True},
            "^shuffle cannot be set: .*; use order, micro_batch_",
        ),
        (
            {"batch_size": 4},
            "^build_nanoset_dataloader: batch_size: use micro_batch_size$",
        ),
        ({"num_workers": 4}, "num_workers: use num_loading_workers$"),
        ({"read_ahead": "2"}, "read_ahead must be an integer of at least 0, got '2'"),
        ({"drop_last": True}, "drop_last cannot be set: .*; use"),
        (
            {"prefetch_facto": 2},
            "^build_nanoset_dataloader: prefetch_facto: unknown key, did you mean 'prefetch_factor'.$",
        ),
        (
            {"tial": "pad"},
            "^build_nanoset_dataloader: tial: unknown key, did you mean 'tail'.$",
        ),
        *(
            ({typo: 2}, f"^build_nanoset_dataloader: {typo}: unknown key")
            for typo in ("shuffel", "smpler", "batch_sampel", "drop_lst", "num_worker")
        ),
    ],
)
def test_an_option_that_a_loader_cannot_have_is_refused_in_its_own_words(
    tmp_path, options, message
):
    dataset = Nanoset(write_range(tmp_path / "a.npy", 41), None, 4, 10)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        build_nanoset_dataloader(dataset, micro_batch_size=2, **options)
    for refused in ("shuffle", "sampler", "drop_last", "num_workers", "batch_sampler"):
        assert f"did you mean {refused!r}" not in str(caught.value)


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
    threads = threading.active_count()
    batches = iter(middle)
    pointers = {"input_ids": 0, "input_mask": 0, "label_ids": 2, "label_mask": 2}
    assert next(batches) == {
        name: TensorPointer(rank) for name, rank in pointers.items()
    }
    assert threading.active_count() == threads
    assert multiprocessing.active_children() == []
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


@pytest.mark.parametrize(
    "options", [{}, {"read_ahead": 2}, {"num_loading_workers": 1}], ids=str
)
def test_a_loaded_state_ends_the_iteration_under_way(numbered, options):
    nanoset, positions_of = numbered
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, **options)
    batches = iter(loader)
    next(batches)
    with pytest.raises(ValueError, match="a state holds"):
        loader.load_state_dict({})
    assert positions_of(next(batches)) == [2, 3], "what is no state changes nothing"
    loader.load_state_dict({"consumed_train_samples": 40})
    assert list(batches) == []
    assert loader.state_dict()["consumed_train_samples"] == 40
    assert positions_of(next(iter(loader))) == [40, 41]
    assert loader.state_dict()["consumed_train_samples"] == 42


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_ahead": 2},
        {"num_loading_workers": 1},
        {"num_loading_workers": 1, "persistent_workers": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_made_in_an_iteration_goes_on_by_itself(numbered, options, copied):
    nanoset, positions_of = numbered
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, **options)
    batches = iter(loader)
    next(batches)
    of_copy = iter(copied(loader))
    assert positions_of(next(of_copy)) == [2, 3]
    assert positions_of(next(of_copy)) == [4, 5]
    assert positions_of(next(batches)) == [2, 3], "the copy ended what it was made of"
    assert loader.state_dict()["consumed_train_samples"] == 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_ahead": 2},
        {"num_loading_workers": 1},
        {"num_loading_workers": 1, "collate_fn": default_collate_of_ids},
        {"documents": DocumentOptions(eos_token_id=3, reset_position_ids=True)},
    ],
    ids=[
        "in this process",
        "by a thread",
        "by a worker",
        "by torch's loader",
        "documents",
    ],
)
def test_batches_are_on_the_cpu_whatever_the_default_device(numbered, options):
    nanoset, _ = numbered
    expected = next(
        iter(build_nanoset_dataloader(nanoset, micro_batch_size=2, **options))
    )
    torch.set_default_device("meta")  # stands for cuda
    try:
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, **options)
        batch = next(iter(loader))
    finally:
        torch.set_default_device(None)
    for name, tensor in batch.items():
        assert tensor.device.type == "cpu"
        assert tensor.equal(expected[name]), name


def test_an_order_that_goes_on_from_a_ledger_names_the_count_to_begin_at(numbered):
    nanoset, _ = numbered
    order = StatelessOrder(nanoset.dataset_lengths, None, 121, start=Ledger(10, [10]))
    continued = Nanoset(nanoset.files, None, 2, order=order)
    too_early = pytest.raises(
        IndexError, match="at 10: its loader needs consumed_train_samples=10"
    )
    with too_early:
        build_nanoset_dataloader(continued, micro_batch_size=1, tail="pad")
    loader = build_nanoset_dataloader(continued, micro_batch_size=1)
    with too_early:
        next(iter(loader))
    later = build_nanoset_dataloader(
        continued, micro_batch_size=1, consumed_train_samples=10
    )
    loader.load_state_dict(later.state_dict())
    assert len(list(loader)) == len(list(later)) == 111


@pytest.mark.parametrize("value", ["x", None, 0, 2.5])
def test_a_state_whose_length_is_no_number_is_no_state(numbered, value):
    loader = build_nanoset_dataloader(numbered[0], micro_batch_size=1)
    state = loader.state_dict() | {"num_samples": value}
    with pytest.raises(ValueError, match='"num_samples" must be '):
        loader.load_state_dict(state)


def test_fewer_samples_than_a_global_batch_are_refused(numbered):
    with pytest.raises(
        ValueError,
        match="121 samples do not fill one batch of 128 .dp_size=16 x micro_batch_size=8",
    ):
        build_nanoset_dataloader(numbered[0], micro_batch_size=8, dp_size=16)


def test_a_collate_function_is_given_a_list_of_samples(numbered):
    nanoset, _ = numbered

    def collate(samples):
        assert isinstance(samples, list)
        assert all(isinstance(sample, dict) for sample in samples[1:] + samples[:1])
        return [int(sample["input_ids"][0]) for sample in samples[:2] + samples[2:]]

    loader = build_nanoset_dataloader(nanoset, micro_batch_size=3, collate_fn=collate)
    assert next(iter(loader)) == [int(row[0]) for row in nanoset.read(np.arange(3))]
    assert (
        pickle.loads(pickle.dumps(nanoset.__getitems__([1, 2])))[1][
            "input_ids"
        ].tolist()
        == nanoset.read([2])[0].tolist()
    )


def test_a_list_of_samples_that_was_changed_is_collated_as_it_is_now(numbered):
    nanoset, _ = numbered
    collator = DataCollatorWithLabels(2)
    samples = nanoset.__getitems__(range(4))
    samples.reverse()
    samples[0] = nanoset[9]
    samples[1]["input_ids"] = nanoset[8]["input_ids"]
    assert collator(samples)["labels"].tolist() == nanoset.read([9, 8, 1, 0]).tolist()


def test_what_is_no_dataset_and_what_is_no_sampler_is_refused(numbered):
    rows, _ = numbered
    some = Subset(rows, range(4))
    with pytest.raises(TypeError, match="dataset must be Rows .*, got <torch.*Subset"):
        build_nanoset_dataloader(some, micro_batch_size=2)
    with pytest.raises(TypeError, match="must be a ResumableBatchSampler, got <torch"):
        NanosetDataLoader(rows, BatchSampler(range(4), 2, drop_last=True))


LOADED = [{}, {"read_ahead": 2}, {"num_workers": 1}]


@pytest.mark.parametrize("options", LOADED)
def test_two_loaders_with_one_sampler_read_every_row_each(numbered, options):
    rows, _ = numbered
    sampler = ResumableBatchSampler(len(rows), 2)
    loaders = [
        NanosetDataLoader(
            rows, sampler, collate_fn=DataCollatorWithLabels(2), **options
        )
        for _ in range(2)
    ]
    alone = build_nanoset_dataloader(
        rows, micro_batch_size=2, collate_fn=DataCollatorWithLabels(2)
    )
    expected = [batch["labels"].tolist() for batch in alone]
    pairs = list(zip(*loaders, strict=True))
    for side in (0, 1):
        assert [pair[side]["labels"].tolist() for pair in pairs] == expected
    assert sampler.consumed_train_samples == 0


@pytest.mark.parametrize("begun_at", [0, 5])
@pytest.mark.parametrize("batch_size", [1, 10, 11])
@pytest.mark.parametrize("tail", ["drop", "pad", "loop"])
@pytest.mark.parametrize(("next_tail", "next_size"), [("drop", 10), ("pad", 7)])
def test_a_longer_run_is_told_what_the_end_of_a_shorter_one_dropped(
    numbered, begun_at, batch_size, tail, next_tail, next_size
):
    """Whatever the batches of the longer one are."""
    nanoset, _ = numbered
    loader = build_nanoset_dataloader(
        nanoset,
        micro_batch_size=batch_size,
        tail=tail,
        consumed_train_samples=begun_at,
    )
    read = len([*loader])
    dropped = (121 - begun_at) % batch_size if tail == "drop" else 0
    assert read == (121 - begun_at - dropped + batch_size - 1) // batch_size
    longer = Nanoset(nanoset.files, None, 2, 130, order="identity")
    state = json.loads(json.dumps(loader.state_dict() | {"plan": longer.plan}))
    assert state["dropped"] == dropped
    resumed = build_nanoset_dataloader(
        longer, micro_batch_size=next_size, tail=next_tail
    )
    if dropped:
        with pytest.raises(PlanMismatch, match=f"last {dropped} filled no batch and"):
            resumed.load_state_dict(state)
        # the two ways out that it names
        resumed.load_state_dict(state | {"consumed_train_samples": 121 - dropped})
        assert resumed.consumed_train_samples == 121 - dropped
        state["num_samples"] = 130
    resumed.load_state_dict(state)
    assert resumed.consumed_train_samples == 121
    again = build_nanoset_dataloader(nanoset, micro_batch_size=batch_size, tail=tail)
    again.load_state_dict(loader.state_dict())
    assert again.state_dict() == loader.state_dict()


@pytest.mark.parametrize("options", LOADED)
@pytest.mark.parametrize("tail", ["drop", "pad", "loop"])
def test_a_sampler_that_is_looked_at_in_the_loop_moves_no_row(numbered, options, tail):
    rows, _ = numbered

    def make(**more):
        sampler = ResumableBatchSampler(len(rows), 3, tail=tail)
        return NanosetDataLoader(
            rows, sampler, collate_fn=DataCollatorWithLabels(2), **more
        )

    expected = [batch["labels"].tolist() for batch in make()]
    loader = make(**options)
    taken = []
    for batch in loader:
        taken.append(batch["labels"].tolist())
        list(loader.batch_sampler)
        loader.batch_sampler.load_state_dict({"consumed_train_samples": 1})
    assert taken == expected


def test_a_sampler_of_another_length_is_refused(numbered):
    """It would ask for rows that are not there, or leave rows out."""
    for wrong in (120, 122):
        with pytest.raises(
            ValueError, match=f"has 121 samples, but its batch_sampler counts {wrong}"
        ):
            NanosetDataLoader(numbered[0], ResumableBatchSampler(wrong, 2))


def test_a_loader_says_where_it_stands(numbered):
    loader = build_nanoset_dataloader(
        numbered[0], micro_batch_size=4, dp_rank=1, dp_size=2
    )
    next(iter(loader))
    where = "rank 1 of 2, micro-batches of 4, 14 batches left, at sample 8, 0 workers"
    assert repr(loader) == f"NanosetDataLoader({numbered[0]!r}, {where})"


def replace_ids(samples):
    """Each array is freed before the new one is made, which may get its address."""
    for sample in samples:
        ids = sample.pop("input_ids").tolist()
        ids[0] = 499
        sample["input_ids"] = np.array(ids, dtype=np.int32)


def reverse_samples(samples):
    samples[:] = samples[::-1]


def drop_sample(samples):
    del samples[1]


@pytest.mark.parametrize("edit", [replace_ids, reverse_samples, drop_sample])
@pytest.mark.parametrize("num_loading_workers", [0, 1])
def test_a_collate_fn_may_edit_its_samples(numbered, edit, num_loading_workers):
    nanoset, _ = numbered
    collator = DataCollatorWithLabels(2)

    def collate(samples):
        edit(samples)
        return collator(samples)

    loader = build_nanoset_dataloader(
        nanoset,
        micro_batch_size=8,
        collate_fn=collate,
        num_loading_workers=num_loading_workers,
    )
    batch = next(iter(loader))
    samples = [{"input_ids": nanoset[k]["input_ids"].copy()} for k in range(8)]
    edit(samples)
    expected = np.stack([sample["input_ids"] for sample in samples])
    assert batch["labels"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("num_samples", "consumed", "continues"),
    [
        (121, 200, True),
        (100, 99, True),
        (100, 100, True),
        (100, 101, False),
        (130, 121, True),
        (130, 122, False),
    ],
)
def test_a_state_of_a_later_epoch_needs_epochs_of_the_same_length(
    numbered, num_samples, consumed, continues
):
    nanoset, _ = numbered
    state = build_nanoset_dataloader(nanoset, micro_batch_size=1).state_dict()
    state["consumed_train_samples"] = consumed
    other = Nanoset(nanoset.files, None, 2, num_samples, order="identity")
    state["plan"] = other.plan  # which has the probes of other positions
    loader = build_nanoset_dataloader(other, micro_batch_size=1)
    if continues:
        loader.load_state_dict(state)
        assert loader.consumed_train_samples == consumed
        return
    message = f"{consumed} samples, in epochs of 121; here an epoch has {num_samples},"
    with pytest.raises(PlanMismatch, match=message):
        loader.load_state_dict(state)
    assert loader.consumed_train_samples == 0


@pytest.mark.parametrize("tail", ["drop", "pad", "loop"])
@pytest.mark.parametrize("collate_fn", [None, default_collate])
@pytest.mark.parametrize("num_samples", [117, 120])
def test_a_state_after_the_last_batch_begins_the_next_epoch(
    numbered, num_samples, collate_fn, tail
):
    """It counts the dropped tail, as the state after the iteration does."""
    nanoset = Nanoset(numbered[0].files, None, 2, num_samples, order="identity")
    options = {"micro_batch_size": 4, "dp_size": 2, "tail": tail}
    loader = build_nanoset_dataloader(nanoset, collate_fn=collate_fn, **options)
    states = [loader.state_dict() for _ in loader]
    counts = [state["consumed_train_samples"] for state in states]
    assert counts == [*range(8, 8 * len(counts), 8), num_samples]
    assert states[-1] == loader.state_dict()
    resumed = build_nanoset_dataloader(nanoset, **options)
    resumed.load_state_dict(states[-1])
    assert len(list(resumed)) == len(states)


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
