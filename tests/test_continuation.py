"""What another plan would repeat and lose, against a count by hand of every token."""

import contextlib
import dataclasses
import functools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_files import write_range

from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders import SkippingOrder, StatelessOrder
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.provenance.continuation import compare, ledger_of
from nanoset_ref.provenance.olmo_core_rows import OLMoCorePackedRows
from nanoset_ref.tokens import TokenFileWriter, open_tokens

TOKENS = {"a": range(61), "b": range(100, 149)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """By its letter, a file; every id is unique over both. `moved` has the content of a."""
    folder, files = tmp_path_factory.mktemp("t"), {}
    for name, tokens in [*TOKENS.items(), ("moved", TOKENS["a"])]:
        files[name] = folder / f"{name}_input_ids.npy"
        with TokenFileWriter(files[name], dtype="uint16") as writer:
            writer.write_document(tokens)
    return files


def state_of(nanoset, consumed):
    return json.loads(
        json.dumps({"consumed_train_samples": consumed, "plan": nanoset.plan})
    )


def labels(nanoset, start, stop):
    """How often each token is an input: every token is one in exactly one sample."""
    return Counter(
        t for k in range(start, stop) for t in nanoset[k]["input_ids"][:-1].tolist()
    )


@given(
    st.sampled_from(["a", "ab", "aa"]),
    st.sampled_from(["b", "ab", "aa"]),
    st.sampled_from(["nanotron", "stateless"]),
    st.sampled_from(["nanotron", "stateless"]),
    st.sampled_from([(4, 4), (4, 6), (6, 3)]),
    st.integers(0, 1),
    st.integers(0, 30),
    st.sampled_from([None, [3, 1], [1, 1]]),
)
def test_every_figure_equals_a_count_of_tokens(
    files, old_names, new_names, old_order, new_order, lengths, seed, consumed, weights
):
    """Also of files that come or go, and of one that a plan names twice."""
    old = Nanoset(
        [files[name] for name in old_names], None, lengths[0], 60, order=old_order
    )
    weights = weights and weights[: len(new_names)]
    new = Nanoset(
        [files[name] for name in new_names],
        weights,
        lengths[1],
        60,
        1234 + seed,
        order=new_order,
    )
    found = compare(state_of(old, consumed), new)
    epoch = old.order.samples_per_epoch
    until = (consumed // epoch + 1) * epoch
    assert found.until == until
    before, saved, ours = (
        labels(old, 0, consumed),
        labels(old, consumed, until),
        labels(new, consumed, until),
    )
    assert sorted(file.file[0] for file in found.files) == sorted(
        {*old_names, *new_names}
    )
    for file in found.files:
        name, tokens = file.file[0], TOKENS[file.file[0]]
        assert file.status == (
            "added"
            if name not in old_names
            else "kept"
            if name in new_names
            else "dropped"
        )
        assert file.read_before == sum(before[t] for t in tokens)
        assert (file.saved, file.new) == (
            sum(saved[t] for t in tokens),
            sum(ours[t] for t in tokens),
        )
        assert file.additional == sum(max(0, ours[t] - saved[t]) for t in tokens)
        assert file.again == sum(
            max(0, ours[t] - saved[t]) for t in tokens if before[t]
        )
        assert file.lost == sum(max(0, saved[t] - ours[t]) for t in tokens)
        assert found.exact or file.file in str(found)
    assert found.exact == (ours == saved)


def test_the_same_plan_is_exact_also_for_a_file_of_another_name(files):
    nanoset = Nanoset(files["a"], None, 4, 40)
    for plan in (nanoset, Nanoset(files["moved"], None, 4, 40)):
        found = compare(state_of(nanoset, 7), plan)
        assert found.exact
        assert (
            str(found)
            == "continuing at 7 reads the same tokens, the same number of times, as the saved plan would"
        )


def test_files_of_one_name_and_size_without_checksums_are_told_apart_by_their_order(
    tmp_path,
):
    paths = []
    for number, path in enumerate(["x/ids.npy", "y/ids.npy", "y/other.npy"]):
        paths.append(tmp_path / path)
        paths[-1].parent.mkdir(exist_ok=True)
        write_range(paths[-1], 1001, first=1000 * min(number, 1))

    def rows(weights, paths):
        return Nanoset(paths, weights, 10, 200, order="stateless")

    def figures(old, new):
        files = compare(state_of(old, 20), new).files
        return [dataclasses.replace(file, file="") for file in files]

    before, after = [0.9, 0.1], [0.1, 0.9]
    expected = figures(rows(before, paths[::2]), rows(after, paths[::2]))
    assert [file.lost for file in expected] == [1450, 70]
    same_name = rows(before, paths[:2]), rows(after, paths[:2])
    assert figures(*same_name) == expected
    sealed = state_of(same_name[0], 20)  # only this plan has checksums
    for number, file in enumerate(sealed["plan"]["files"]):
        file["checksum"] = f"xxh3_128:{number:032}"
    files = compare(sealed, same_name[1]).files
    assert [dataclasses.replace(file, file="") for file in files] == expected


@pytest.mark.parametrize("order", ["half.npy", "nanotron_main"])
def test_an_order_that_ends_before_its_epoch_is_compared_up_to_the_end_of_the_run(
    tmp_path, files, order, monkeypatch
):
    """A file of half an epoch; and folders of which the shorter one runs out in an epoch."""
    monkeypatch.chdir(tmp_path)
    np.save("half.npy", np.arange(13))
    paths = [files["a"], files["b"]]  # 15 and 12 samples
    saved = Nanoset(paths, None, 4, 13, order=order)
    same = compare(state_of(saved, 5), saved)
    assert same.exact
    assert same.until == 13
    other = compare(state_of(saved, 5), Nanoset(paths, None, 4, 12, 7))
    assert not other.exact
    assert other.until == 12


def test_a_state_tells_how_far_each_file_was_read(files):
    """Twice: the second plan begins with a ledger, and its own state leads on."""
    paths = [files["a"], files["b"]]
    first = Nanoset(paths, [2, 1], 4, 100, order="stateless")
    ledger = ledger_of(state_of(first, 20))
    assert ledger.position == 20
    assert list(ledger.reads) == [
        (first.dataset_index[:20] == i).sum() for i in range(2)
    ]
    order = StatelessOrder(first.dataset_lengths, [1, 1], 100, 1234, start=ledger)
    second = Nanoset(paths, [1, 1], 4, 100, order=order)
    again = ledger_of(state_of(second, 50))
    read = Counter(order[k][0] for k in range(20, 50))
    assert again.reads == tuple(ledger.reads[i] + read[i] for i in range(2))
    assert compare(state_of(second, 50), second).exact


def test_epochs_and_dropped_samples_are_counted_or_refused(files):
    """The count of a state goes on in a second epoch, and includes what filled no batch."""

    nanoset = Nanoset([*files.values()], None, 4, 13, 7, order="stateless")
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=5)
    assert len([*loader]) == 2
    state = loader.state_dict()
    assert (state["consumed_train_samples"], state["dropped"]) == (13, 3)
    assert ledger_of(state) == nanoset.order.ledger(10)
    longer = Nanoset([*files.values()], None, 4, 20, 7, order="stateless")
    with pytest.raises(PlanMismatch, match="last 3 filled no batch"):
        compare(state, longer)
    next(iter(loader))  # of the second epoch
    state = loader.state_dict()
    assert compare(state, nanoset).exact
    with pytest.raises(PlanMismatch, match="18 samples, in epochs of 13"):
        compare(state, longer)
    with pytest.raises(
        ValueError, match="the 13 samples of its dataset more than once"
    ):
        ledger_of(state)
    with pytest.raises(ValueError, match="num_samples"):
        ledger_of(state | {"num_samples": "x"})


def test_runs_without_a_ledger_or_not_comparable_are_refused(files):
    a = files["a"]
    nanoset = Nanoset(a, None, 4, 40)
    with pytest.raises(ValueError, match="holds no plan"):
        compare({"consumed_train_samples": 3}, nanoset)
    with pytest.raises(
        ValueError, match="only order='stateless' .* this is 'nanotron'"
    ):
        ledger_of(state_of(nanoset, 5))
    megatron = {"version": nanoset.plan["version"], "order": {"kind": "megatron"}}
    with pytest.raises(ValueError, match="only plans of token files can be compared"):
        compare({"consumed_train_samples": 3, "plan": megatron}, nanoset)
    order = SkippingOrder(StatelessOrder([15], None, 40), [(3, 5)])
    with pytest.raises(ValueError, match="cannot be built again from its plan"):
        ledger_of(state_of(Nanoset(a, None, 4, 38, order=order), 5))
    state = state_of(nanoset, 5)
    with pytest.raises(
        ValueError,
        match="counts 1152921504606846976 samples, but its plan has 15 in an epoch",
    ):
        compare(state | {"consumed_train_samples": 2**60}, nanoset)
    state["plan"]["files"][0]["num_tokens"] = 2**31
    with pytest.raises(
        ValueError, match="damaged state: 2147483648 tokens in a file of 61"
    ):
        compare(state, nanoset)
    late = StatelessOrder([15], None, 20, start={"position": 8, "reads": [8]})
    with pytest.raises(
        ValueError, match="begins at position 8, but the saved run read up to 4"
    ):
        compare(
            state_of(Nanoset(a, None, 4, 20, order="stateless"), 4),
            Nanoset(a, None, 4, 20, order=late),
        )


@pytest.mark.parametrize("count", [-3, 1.5, "3", None, 2**63])
def test_a_count_that_no_run_has_is_refused(files, count):
    rows = Nanoset(files["a"], None, 4, 50, order="stateless")
    state = state_of(rows, 5) | {"consumed_train_samples": count}
    for ask in (ledger_of, functools.partial(compare, dataset=rows)):
        with pytest.raises(ValueError, match="a state holds consumed_train_samples"):
            ask(state)


def places(value, path=()):
    """The path of each part of a JSON value."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from places(part, (*path, key))


ODD_VALUES = [None, 0, -1, 1.5, "x", [], {}, [1], {"a": 1}, [None], 2**70]


@given(st.randoms(use_true_random=False), st.sampled_from(["missing", *ODD_VALUES]))
def test_an_edited_plan_is_compared_or_refused_and_raises_nothing_else(
    files, random, odd
):
    nanoset = Nanoset([files["a"], files["b"]], [1, 2], 4, 60, order="stateless")
    state = state_of(nanoset, 9)
    *path, field = random.choice([*places(state["plan"])])
    edited = functools.reduce(lambda part, key: part[key], path, state["plan"])
    if odd == "missing":
        del edited[field]
    else:
        edited[field] = odd
    for question in (lambda: str(compare(state, nanoset)), lambda: ledger_of(state)):
        with contextlib.suppress(ValueError):
            question()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("files", None),
        ("rows", {}),
        ("rows", {"sequence_length": 0}),
        ("files", [{"name": "a", "num_tokens": "12", "windows": "disjoint"}]),
        ("recipe", {"name": "stateless"}),
        ("probes", {"0": 3}),
    ],
)
def test_a_damaged_plan_is_named_with_the_way_out(files, field, value):
    nanoset = Nanoset([files["a"]], None, 4, 60, order="stateless")
    state = state_of(nanoset, 9)
    state["plan"][field] = value
    with pytest.raises(
        ValueError,
        match="plan is damaged, or was edited: .*use the state of an earlier",
    ):
        ledger_of(state)


def test_plans_of_packed_rows_are_not_compared_and_not_called_damaged(tmp_path):
    (np.arange(1, 401) % 13).astype(np.uint16).tofile(tmp_path / "a.npy")
    files = [open_tokens(tmp_path / "a.npy", "uint16", 0)]
    options = {
        "batch_size": 2,
        "group_size": 1,
        "permutation_seed": None,
        "fragment": False,
        "pad_token_id": 0,
    }
    for rows in (
        OLMoCorePackedRows(files, 16, 8, 1, options),
        PackedNanoset(files, None, 15, pad_id=0),
    ):
        state = build_nanoset_dataloader(rows, micro_batch_size=2).state_dict()
        for ask in (ledger_of, functools.partial(compare, dataset=rows)):
            with pytest.raises(ValueError, match="these rows are packed: continue"):
                ask(state)
