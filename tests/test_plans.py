"""Plans: two runs that read the same agree, two that do not are told apart, and the error says in which part."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from nanoset_ref import Nanoset, TokenFileWriter, build_nanoset_dataloader
from nanoset_ref.load import DataCollatorForCLMWithPositionIds
from nanoset_ref.load.collator import DataCollatorForCLM
from nanoset_ref.load.dataloader import NanosetDataLoader
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.megatron import MegatronCollator, NanosetConfig
from nanoset_ref.orders import (
    IdentityOrder,
    Ledger,
    NanotronOrder,
    PublishedOrder,
    SkippingOrder,
    StatelessOrder,
    build_order,
    plans,
)
from nanoset_ref.orders.plans import (
    PlanMismatch,
    check_plan,
    differences,
    probe_positions,
)

LENGTHS = [13, 6]  # samples of 4 tokens in the files below


@pytest.fixture
def raw(tmp_path):
    """Two token files with nothing beside them."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, tokens in zip(paths, (range(53), range(1000, 1025)), strict=True):
        np.array(tokens, dtype=np.uint16).tofile(path)
    return paths


def sealed(path, lengths=(20, 33), first=0):
    with TokenFileWriter(path, dtype="uint16", overwrite=True) as writer:
        writer.write(np.arange(first, first + sum(lengths)), lengths)
    return path


def rows_of(paths, order="stateless", length=40, weights=None, seed=7):
    return Nanoset(paths, weights, 4, length, seed, order=order)


def saved(rows):
    return json.loads(
        json.dumps(build_nanoset_dataloader(rows, micro_batch_size=2).state_dict())
    )


def accepts(state, rows):
    """Whether a loader of these rows goes on from the state."""
    try:
        build_nanoset_dataloader(rows, micro_batch_size=2).load_state_dict(state)
    except PlanMismatch:
        return False
    return True


# ---- orders

numbers = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@st.composite
def orders(draw):
    """Orders that are often equal, whatever their arguments say."""
    lengths = draw(st.sampled_from([[4], [3, 4], [4, 3]]))
    weights = draw(
        st.sampled_from(
            [
                None,
                [float(length) for length in lengths],
                [1.0] * len(lengths),
                [3.0, 9.0, 1.0],
            ]
        )
    )
    weights = None if weights is None else weights[: len(lengths)]
    seed, count = draw(st.integers(0, 1)), draw(st.integers(30, 34))
    if draw(st.booleans()):
        order = IdentityOrder(lengths, None, count, seed)
    elif draw(st.booleans()):
        order = NanotronOrder(lengths, weights, count, seed)
    else:
        reads = draw(st.sampled_from([None, [0] * len(lengths), [1] * len(lengths)]))
        order = StatelessOrder(
            lengths, weights, count, seed, start=reads and Ledger(0, reads)
        )
    ranges = draw(st.sampled_from([[], [(3, 5)], [(3, 4), (4, 5)]]))
    return SkippingOrder(order, ranges) if draw(st.booleans()) else order


@given(orders(), orders())
def test_orders_of_one_identity_give_the_same_pairs(one, other):
    together = min(len(one), len(other))
    same = all(
        np.array_equal(a[:together], b[:together])
        for a, b in zip(one[:], other[:], strict=True)
    )
    assert same or one.identity != other.identity
    assert (one.identity == other.identity) == (one.fingerprint == other.fingerprint)


def test_an_id_that_is_masked_as_padding_is_part_of_the_plan(tmp_path):
    np.arange(101, dtype=np.uint16).tofile(tmp_path / "a.npy")
    nanoset = Nanoset(tmp_path / "a.npy", None, 4, 20)

    def loader(pad_id):
        config = NanosetConfig(
            random_seed=1,
            sequence_length=4,
            data_path="a",
            split="1,0,0",
            pad_id=pad_id,
        )
        return build_nanoset_dataloader(
            nanoset, micro_batch_size=2, collate_fn=MegatronCollator(config)
        )

    state = loader(17).state_dict()
    loader(17).load_state_dict(state)
    with pytest.raises(PlanMismatch, match="masked_as_padding: saved 17, now 21"):
        loader(21).load_state_dict(state)
    unmasked = [
        build_nanoset_dataloader(
            nanoset,
            micro_batch_size=2,
            collate_fn=DataCollatorForCLMWithPositionIds(
                4, 0, 0, 0, DocumentOptions(eos_token_id=eos, eod_mask_loss=True), False
            ),
        )
        for eos in (3, 4)
    ]
    unmasked[0].load_state_dict(unmasked[1].state_dict())


def test_a_state_is_json_whatever_a_collator_has_and_numbers_come_from(tmp_path):
    np.arange(101, dtype=np.uint16).tofile(tmp_path / "a.npy")
    nanoset = Nanoset(tmp_path / "a.npy", None, 4, 20)

    class Own(DataCollatorForCLM):
        pad_id = np.int64(3)

        def split(self, block):
            self.documents = None
            yield from super().split(block)

    states = []
    for documents in (None, ["a"], {"b": 1}, 5):
        own = Own(4, 0, 0, 0)
        own.documents = documents
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, collate_fn=own)
        next(iter(loader))
        own.pad_id = "not an id" if documents == 5 else np.int64(3)
        states.append(json.dumps(loader.state_dict()))
    assert len(set(states[:3])) == 1
    options = DocumentOptions(eos_token_id=np.int64(3), eod_mask_loss=True)
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, documents=options)
    assert json.loads(json.dumps(loader.state_dict()))["plan"] == loader.plan
    config = NanosetConfig(
        random_seed=1,
        sequence_length=4,
        data_path="a",
        split="1,0,0",
        eos_token_id=np.uint16(3),
        eod_mask_loss=True,
    )
    loader = build_nanoset_dataloader(
        nanoset, micro_batch_size=2, collate_fn=MegatronCollator(config)
    )
    json.dumps(loader.state_dict())


def test_options_that_change_no_pair_leave_the_identity_alone(tmp_path):
    line = tmp_path / "line.npy"
    np.save(line, np.arange(19, dtype=">i2"))
    same = [
        [
            NanotronOrder(LENGTHS, weights, 19, 3)
            for weights in (None, LENGTHS, [26, 12])
        ],
        [
            StatelessOrder(LENGTHS, weights, 19, 3)
            for weights in ([1, 3], [2, 6], [0.25, 0.75])
        ],
        [
            StatelessOrder([13], weights, count, 3)
            for weights, count in ((None, 19), ([5], 13))
        ],
        [IdentityOrder(LENGTHS, None, 19, seed) for seed in (0, 1)]
        + [PublishedOrder(LENGTHS, None, 9, 2, path=line)],
        [
            SkippingOrder(IdentityOrder(LENGTHS, None, 19), ranges)
            for ranges in ([(2, 9)], [(2, 4), (4, 9)])
        ],
        [
            SkippingOrder(NanotronOrder(LENGTHS, None, 19), []),
            NanotronOrder(LENGTHS, None, 4),
        ],
    ]
    for group in same:
        assert len({order.fingerprint for order in group}) == 1
        assert all(order.identity == group[0].identity for order in group)
    assert len({group[0].fingerprint for group in same}) == len(same)


def test_a_ledger_that_begins_at_position_0_is_part_of_the_plan(raw):
    """Runs that go on in their sources from a new position 0 read other samples, or the same ones later."""
    ledgers = [
        rows_of(raw, StatelessOrder(LENGTHS, [1, 1], 40, 7, start=Ledger(0, reads)))
        for reads in ([0, 0], [5, 2])
    ]
    assert not np.array_equal(*(rows.read(np.arange(9)) for rows in ledgers))
    assert (
        ledgers[0].fingerprint
        == rows_of(raw, weights=[1, 1]).fingerprint
        != ledgers[1].fingerprint
    )
    assert accepts(saved(ledgers[0]), rows_of(raw, weights=[3, 3]))
    assert not accepts(saved(ledgers[0]), ledgers[1])


def test_another_algorithm_under_the_same_arguments_is_another_plan(raw, monkeypatch):
    """As a stale compiled kernel, or a changed one whose version nobody raised, is."""
    rows = rows_of(raw)
    state, fingerprint = saved(rows), rows.fingerprint
    lookup = StatelessOrder.lookup
    monkeypatch.setattr(
        StatelessOrder, "lookup", lambda self, positions: lookup(self, positions ^ 1)
    )
    assert rows_of(raw).fingerprint != fingerprint
    with pytest.raises(
        PlanMismatch,
        match=r"probes \(\d+ of \d+ differ\), file and sample at position \d+: saved \[",
    ):
        build_nanoset_dataloader(rows_of(raw), micro_batch_size=2).load_state_dict(
            state
        )


def test_a_raised_version_of_an_algorithm_is_another_plan(raw, monkeypatch):
    state = saved(rows_of(raw))
    monkeypatch.setattr(StatelessOrder, "algorithm", StatelessOrder.algorithm + 1)
    with pytest.raises(PlanMismatch, match="order.algorithm: saved"):
        check_plan(state["plan"], rows_of(raw).plan)


def test_an_order_file_is_known_by_its_numbers_and_not_by_its_path(raw, tmp_path):
    for name, order in (
        ("order.npy", np.roll(np.arange(19), 5)),
        ("other.npy", np.roll(np.arange(19), 6)),
    ):
        np.save(tmp_path / name, order)
    state = saved(rows_of(raw, str(tmp_path / "order.npy"), 19))
    (tmp_path / "order.npy").rename(tmp_path / "moved.npy")
    assert accepts(state, rows_of(raw, str(tmp_path / "moved.npy"), 12, seed=8))
    assert not accepts(state, rows_of(raw, str(tmp_path / "other.npy"), 19))
    assert not accepts(state, rows_of(raw, "identity", 19))


# ---- files


def test_a_file_without_a_checksum_is_known_by_its_size_and_its_probes(raw, tmp_path):
    rows = rows_of(raw)
    state, fingerprint = saved(rows), rows.fingerprint
    assert [file["known_by"] for file in state["plan"]["files"]] == ["probes"] * 2
    moved = [shutil.move(path, tmp_path / f"moved_{path.name}") for path in raw]
    assert accepts(state, rows_of(moved)) and rows_of(moved).fingerprint == fingerprint
    np.arange(1, 54, dtype=np.uint16).tofile(moved[0])
    assert rows_of(moved).fingerprint != fingerprint
    with pytest.raises(
        PlanMismatch, match=r"probes .* a hash of the tokens at position \d+"
    ):
        check_plan(state["plan"], rows_of(moved).plan)


def test_the_same_ids_in_another_dtype_are_another_file(raw, tmp_path):
    """As law 4 of docs/laws.md says; a checksum would differ, too."""
    state = saved(rows_of(raw))
    converted = [tmp_path / f"{number}.npy" for number in range(len(raw))]
    for old, new in zip(raw, converted, strict=True):
        np.fromfile(old, np.uint16).astype(np.int32).tofile(new)
    rows = Nanoset(converted, None, 4, 40, 7, token_dtype=np.int32, order="stateless")
    assert np.array_equal(rows[7]["input_ids"], rows_of(raw)[7]["input_ids"])
    with pytest.raises(PlanMismatch, match="dtype: saved 'uint16', now 'int32'"):
        check_plan(state["plan"], rows.plan)


def test_checksums_are_compared_where_both_plans_have_one(tmp_path):
    path = sealed(tmp_path / "a.npy")
    state = saved(rows_of(path))
    assert state["plan"]["files"][0]["known_by"] == "content"
    for suffix in (".json", ".documents.npy"):
        path.with_suffix(suffix).unlink()
    assert accepts(state, rows_of(path))
    sealed(path, first=1)
    with pytest.raises(
        PlanMismatch,
        match=r"files\[0\] \(a.npy\).checksum: saved 'xxh3_128:\w+', now 'xxh3_128:\w+'",
    ):
        check_plan(state["plan"], rows_of(path).plan)


def test_document_boundaries_are_part_of_the_plan_where_masks_read_them(tmp_path):
    path = sealed(tmp_path / "a.npy")
    options = {"documents": DocumentOptions(reset_position_ids=True)}

    def loader(options):
        return build_nanoset_dataloader(rows_of(path), micro_batch_size=2, **options)

    without, masked = loader({}).state_dict(), loader(options).state_dict()
    sealed(path, lengths=(33, 20))
    loader({}).load_state_dict(without)
    for state, kind in ((without, options), (masked, {})):
        with pytest.raises(PlanMismatch, match="rows.within_documents: saved"):
            loader(kind).load_state_dict(state)
    with pytest.raises(PlanMismatch, match=r"files\[0\] \(a.npy\).documents: saved"):
        loader(options).load_state_dict(masked)


# ---- probes


@given(st.integers(0, 2**40), st.integers(0, 2**47), st.integers(0, 2**47))
def test_a_longer_plan_has_the_probes_of_a_shorter_one(first, length, more):
    short, long = (
        probe_positions(first, first + size) for size in (length, length + more)
    )
    assert set(short[:-1]) <= set(long)
    assert short == sorted(set(short)) and all(
        first <= position < first + length for position in short
    )
    assert len(short) <= 2 + 2 * length.bit_length()
    assert not length or (short[0], short[-1]) == (first, first + length - 1)


def test_a_run_of_another_length_is_the_same_plan(raw):
    short, long = rows_of(raw, length=30), rows_of(raw, length=3000)
    assert accepts(saved(short), long) and accepts(saved(long), short)
    assert short.fingerprint == long.fingerprint
    assert len(long.plan["probes"]) > len(short.plan["probes"])


def test_an_order_that_goes_on_from_a_ledger_is_probed_from_there_on(raw):
    late = rows_of(raw, StatelessOrder(LENGTHS, None, 40, 7, start=Ledger(19, LENGTHS)))
    assert min(map(int, late.plan["probes"])) == 19
    assert not differences(late.plan, late.plan)
    skipping = SkippingOrder(late.order, [(5, 9), (18, 21)])
    assert (
        min(
            map(
                int, Nanoset(raw, None, 4, len(skipping), order=skipping).plan["probes"]
            )
        )
        == 21 - 4 - 3
    )


def test_positions_still_to_come_are_left_out_with_the_count_of_a_state(raw):
    def loader_of(order, consumed=0):
        dataset = Nanoset(raw, None, 4, len(order), order=order)
        return build_nanoset_dataloader(
            dataset, micro_batch_size=2, consumed_train_samples=consumed
        )

    whole = StatelessOrder(LENGTHS, None, 19, 7)
    first = loader_of(whole)
    batches = iter(first)
    read = [next(batches) for _ in range(3)]
    state = first.state_dict()
    skipping = SkippingOrder(whole, [(8, 10)])
    with pytest.raises(
        PlanMismatch, match=r"order.skipped.*\n.*still to come"
    ) as error:
        loader_of(skipping).load_state_dict(state)
    assert 'with the state\'s "consumed_train_samples"' in str(error.value)
    rest = list(loader_of(skipping, state["consumed_train_samples"]))
    expected = list(loader_of(whole))
    got = [batch["input_ids"].tolist() for batch in read + rest]
    del expected[4]
    assert got == [batch["input_ids"].tolist() for batch in expected][: len(got)]
    assert len(got) == 8


def test_tokens_are_read_when_a_plan_is_asked_for_and_once(raw, monkeypatch):
    calls, read = [], Nanoset.read
    monkeypatch.setattr(
        Nanoset,
        "read",
        lambda self, positions: calls.append(len(positions)) or read(self, positions),
    )
    rows = rows_of(raw)
    loader = build_nanoset_dataloader(rows, micro_batch_size=2)
    loader.load_state_dict({"consumed_train_samples": 2, "plan": None})
    assert calls == []
    assert not differences(loader.state_dict()["plan"], rows.plan)
    assert calls == [len(rows.plan["probes"])]


# ---- states


def test_each_caller_gets_a_plan_of_its_own(raw):
    rows = rows_of(raw)
    loader = build_nanoset_dataloader(rows, micro_batch_size=2)
    given = NanosetDataLoader(rows, ResumableBatchSampler(40, 2), rows.plan)
    for ask in (
        lambda: rows.plan,
        lambda: loader.plan,
        lambda: given.state_dict()["plan"],
    ):
        ask()["files"][0]["dtype"] = "float8"
        assert ask()["files"][0]["dtype"] == "uint16"


def test_a_mismatch_names_what_differs_and_not_what_follows_from_it(raw):
    with pytest.raises(PlanMismatch) as error:
        check_plan(
            rows_of(raw).plan, Nanoset(raw[:1], None, 5, 9, 8, order="stateless").plan
        )
    lines = str(error.value).splitlines()
    assert "  order.random_seed: saved 7, now 8" in lines
    assert "  rows.sequence_length: saved 4, now 5" in lines
    assert "  number of files: saved 2, now 1" in lines
    assert not [line for line in lines if "probes" in line or "dataset_lengths" in line]
    assert lines[-1] == "Continue with the saved plan, or begin a new run."


def test_of_many_differences_the_first_ones_are_told_in_short_lines(raw):
    plan = rows_of(raw).plan
    many = plan | {
        "files": [plan["files"][0] | {"num_tokens": 10**99} for _ in range(2000)]
    }
    other = plan | {"files": [plan["files"][0] for _ in range(2000)]}
    *lines, last = plans.describe_differences(many, other)
    assert (len(lines), last) == (8, "and 1,992 more")
    assert all(len(line) < 250 for line in lines)


@pytest.mark.parametrize(
    "plan", [{}, {"files": [{"name": "a.npy"}], "order": "stateless"}]
)
def test_a_state_of_a_version_without_such_plans_is_refused_with_the_way_out(raw, plan):
    with pytest.raises(
        PlanMismatch, match="a plan of version None, but .* to null .*; or begin"
    ):
        check_plan(plan, rows_of(raw).plan)
    loader = build_nanoset_dataloader(rows_of(raw), micro_batch_size=2)
    loader.load_state_dict({"consumed_train_samples": 6, "plan": None})
    assert loader.consumed_train_samples == 6


@pytest.mark.parametrize("plan", [1, [], "plan", [{}]])
def test_invalid_plans_are_named(raw, plan):
    with pytest.raises(
        ValueError, match="a state holds the plan of a dataset or null; got"
    ):
        check_plan(plan, rows_of(raw).plan)


NAMES = st.sampled_from(["files", "order", "probes", "0", "name", "kind", "checksum"])
DAMAGE = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda it: st.lists(it) | st.dictionaries(NAMES, it),
    max_leaves=9,
)


@given(DAMAGE, st.sampled_from(["order", "files", "probes"]))
def test_a_damaged_plan_agrees_with_none_and_raises_nothing_else(damage, name):
    plan = {
        "version": 1,
        "order": {"kind": "x"},
        "files": [{"num_tokens": 1}],
        "probes": {"0": [0, 0, "f"]},
    }
    damaged = plan | {name: damage}
    for pair in ((damaged, plan), (plan, damaged)):
        assert differences(*pair) or name == "probes" or damage == plan[name]
        assert len(plans.describe_differences(*pair)) <= 9


def test_an_order_file_of_several_plain_epochs_is_the_identity_order(tmp_path):
    (np.arange(25) % 10).astype(np.uint32).tofile(tmp_path / "plain.npy")
    published = build_order(str(tmp_path / "plain.npy"), [6, 4], None, 25)
    assert published.identity == build_order("identity", [6, 4], None, 25).identity
    ((np.arange(25) % 10)[::-1]).astype(np.uint32).tofile(tmp_path / "other.npy")
    other = build_order(str(tmp_path / "other.npy"), [6, 4], None, 25)
    assert other.identity != published.identity


def test_masks_by_boundaries_and_masks_by_an_id_are_two_runs(tmp_path):
    """Of an older state that names no id, nobody knows: it is accepted."""
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        for _ in range(20):
            writer.write_document([1, 2, 9, 3, 4, 5])  # an id 9 within each document
    nanoset = Nanoset(tmp_path / "a.npy", None, 8, 12)

    def loader(eos_token_id):
        documents = DocumentOptions(eos_token_id=eos_token_id, eod_mask_loss=True)
        return build_nanoset_dataloader(
            nanoset, micro_batch_size=2, documents=documents
        )

    by_boundaries = json.loads(json.dumps(loader(None).state_dict()))
    loader(None).load_state_dict(by_boundaries)
    with pytest.raises(PlanMismatch, match=r"saved 'boundaries of the files', now 9"):
        loader(9).load_state_dict(by_boundaries)
    by_id = json.loads(json.dumps(loader(9).state_dict()))
    with pytest.raises(PlanMismatch, match=r"saved 9, now 'boundaries[\s\S]*to come"):
        loader(None).load_state_dict(by_id)
    del by_boundaries["plan"]["rows"]["documents_end_with"]  # as older plans
    loader(None).load_state_dict(by_boundaries)
    loader(9).load_state_dict(by_boundaries)


def test_masks_that_find_documents_by_another_id_are_another_run(tmp_path):
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write_document(np.arange(101) % 9)
    nanoset = Nanoset(tmp_path / "a.npy", None, 4, 20)

    def loader(eos_token_id, **options):
        masks = {"reset_position_ids": True, "create_cu_seqlens": False} | options
        documents = DocumentOptions(eos_token_id=eos_token_id, **masks)
        return build_nanoset_dataloader(
            nanoset, micro_batch_size=2, documents=documents
        )

    state = json.loads(json.dumps(loader(2).state_dict()))
    with pytest.raises(PlanMismatch, match="rows.documents_end_with: saved 2, now 7"):
        loader(7).load_state_dict(state)
    for changed in (
        loader(2, eod_mask_loss=True),
        loader(7, reset_position_ids=False),
        build_nanoset_dataloader(nanoset, micro_batch_size=2),
    ):
        with pytest.raises(
            PlanMismatch,
            match=r"rows.within_documents: saved \['positions'\], now [\s\S]*still to come",
        ):
            changed.load_state_dict(state)
    functions = build_nanoset_dataloader(
        nanoset, micro_batch_size=2, collate_fn=default_collate
    )
    functions.load_state_dict(state)
    check_plan(state["plan"], nanoset.plan)
    attention = loader(2, reset_position_ids=False, create_cu_seqlens=True).state_dict()
    loader(2, reset_position_ids=False, reset_attention_mask=True).load_state_dict(
        attention
    )
    config = NanosetConfig(
        random_seed=1,
        sequence_length=4,
        data_path=[str(tmp_path / "a")],
        split="1,0,0",
        eos_token_id=7,
        reset_position_ids=True,
    )
    with pytest.raises(PlanMismatch, match="documents_end_with: saved 2, now 7"):
        build_nanoset_dataloader(
            nanoset, micro_batch_size=2, collate_fn=MegatronCollator(config)
        ).load_state_dict(state)
