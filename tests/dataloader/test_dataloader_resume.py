"""States of a loader: one number and a plan, from which any layout goes on, and which no other run takes."""

import copy
import json
import pickle

import pytest
from resume_contract import check_resume_contract
from token_files import write_range
from torch.utils.data import default_collate

from nanoset_ref import DataCollatorWithLabels, Ledger, StatelessOrder
from nanoset_ref.load import blocks
from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.tokens import TokenFileWriter

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
