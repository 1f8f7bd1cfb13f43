"""Nanoset against Nanotron's own samples and batches, and against plain.py."""

import hashlib
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_files import GOLDEN, golden_nanoset, write_range

from nanoset_ref import plain
from nanoset_ref.io.paths import as_list
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders import StatelessOrder
from nanoset_ref.tokens import TokenFile, TokenFileWriter


@pytest.mark.parametrize("name", GOLDEN)
def test_the_index_and_all_samples_equal_nanotrons(golden, tmp_path, name):
    config, nanoset = golden_nanoset(golden, tmp_path, name)
    arrays = np.load(golden / "nanoset_batches.npz")
    assert np.array_equal(nanoset.dataset_index, arrays[f"{name}/dataset_index"])
    assert np.array_equal(
        nanoset.dataset_sample_index, arrays[f"{name}/dataset_sample_index"]
    )
    rows = nanoset.read(np.arange(config["len"]))
    assert hashlib.sha256(rows.tobytes()).hexdigest() == config["all_samples_sha256"]


def test_the_documented_example(tmp_path):
    """Lengths 8, 2, 5, 5, weights 0.1, 0.5, 0.3, 0.1: given as integers, the class makes the documentation's index."""
    paths = [
        write_range(tmp_path / f"d{i}.npy", length * 4 + 1)
        for i, length in enumerate([8, 2, 5, 5])
    ]
    nanoset = Nanoset(paths, [10, 50, 30, 10], 4, 70, 1234)
    assert nanoset.dataset_lengths == [8, 2, 5, 5]
    epoch = [1, 1, 0, 2, 3, 1, 3, 1, 2, 2, 1, 1, 0, 1, 1, 2, 1, 2, 2, 1]
    samples = [1, 0, 0, 4, 1, 0, 0, 0, 2, 0, 0, 1, 1, 0, 1, 0, 1, 3, 1, 1]
    assert nanoset.dataset_index.tolist() == (epoch * 4)[:70]
    assert nanoset.dataset_sample_index.tolist() == (samples * 4)[:70]
    assert (
        Nanoset(paths, [0.1, 0.5, 0.3, 0.1], 4, 70, 1234).dataset_index.tolist()
        != nanoset.dataset_index.tolist()
    )


@pytest.mark.parametrize("order", ["nanotron", "stateless"])
def test_the_summary_is_the_documented_one_and_counts_what_the_index_holds(
    tmp_path, order
):
    paths = [
        write_range(tmp_path / "a.npy", 1001),
        write_range(tmp_path / "b.npy", 500),
    ]
    for num_samples in (1, 100, 187, 400, 1000):
        nanoset = Nanoset(paths, [0.75, 0.25], 8, num_samples, order=order)
        lines = ["> Total number of samples: {}", "> Total number of tokens: {}"]
        expected = [lines[0].format(num_samples), lines[1].format(8 * num_samples)]
        for name, count in zip(
            "ab", np.bincount(nanoset.dataset_index, minlength=2), strict=True
        ):
            share = round(count / num_samples, 2)
            expected.append(
                f"> Total number of samples from the {name}.npy dataset: {count} ({share})"
            )
        assert nanoset.summary().splitlines() == expected
    (tmp_path / "c").mkdir()
    one, other = paths[0], write_range(tmp_path / "c/a.npy", 500)
    assert [
        line.split()[7]
        for line in Nanoset([one, other], None, 8, 9).summary().splitlines()[2:]
    ] == [
        str(one),
        str(other),
    ]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(9, 60), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(1, 100),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["nanotron", "stateless"]),
    st.booleans(),
)
def test_samples_are_those_that_plain_reads(
    tmp_path_factory, files, sequence_length, num_samples, seed, order, disjoint
):
    folder = tmp_path_factory.mktemp("t")
    paths = []
    for number, (num_tokens, wide) in enumerate(files):
        paths.append(folder / f"{number}_input_ids.npy")
        windows = (
            {"windows": "disjoint", "row_length": sequence_length + 1}
            if disjoint
            else {}
        )
        with TokenFileWriter(
            paths[-1], dtype="int32" if wide else "uint16", **windows
        ) as writer:
            writer.write_document(range(1000 * number, 1000 * number + num_tokens))
    nanoset = Nanoset(paths, None, sequence_length, num_samples, seed, order=order)
    tokens = [
        plain.read_tokens(path, "<i4" if wide else "<u2")
        for path, (_, wide) in zip(paths, files, strict=True)
    ]
    lengths = [
        plain.count_samples(len(ids), sequence_length, disjoint) for ids in tokens
    ]
    epoch = plain.nanotron_order(lengths, None, seed)
    rows = nanoset.__getitems__(range(num_samples)).rows
    for k in range(num_samples):
        dataset, sample = (
            nanoset.order[k] if order == "stateless" else plain.nanotron_at(k, epoch)
        )
        expected = plain.read_sample(tokens[dataset], sample, sequence_length, disjoint)
        assert rows[k].tolist() == nanoset[k]["input_ids"].tolist() == expected.tolist()


def test_it_is_indexed_as_a_sequence(tmp_path):
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 41), None, 4, 25)
    rows = [
        sample["input_ids"].tolist() for sample in itertools.islice(iter(nanoset), 30)
    ]
    assert rows == nanoset.read(np.arange(25)).tolist(), "a plain for loop ends"
    assert [nanoset[k]["input_ids"].tolist() for k in (-1, np.int64(3))] == [
        rows[24],
        rows[3],
    ]
    assert [
        sample["input_ids"].tolist() for sample in nanoset.__getitems__([3, -1])
    ] == [
        rows[3],
        rows[24],
    ]
    for outside in (25, -26):
        with pytest.raises(IndexError):
            nanoset[outside]
    with pytest.raises(TypeError):
        nanoset["3"]


def test_no_number_of_samples_is_one_epoch(tmp_path):
    paths = [
        write_range(tmp_path / f"{name}.npy", length)
        for name, length in (("a", 41), ("b", 17))
    ]
    assert len(Nanoset(paths, [1, 5], 4, None)) == 10 + 4
    assert len(Nanoset(paths, None, 4, None, disjoint=True)) == 8 + 3


@pytest.mark.parametrize("disjoint", ["no", None, 2])
def test_disjoint_is_yes_or_no_and_no_text(tmp_path, disjoint):
    path = write_range(tmp_path / "a.npy", 41)
    with pytest.raises(ValueError, match="disjoint must be True or False, got"):
        Nanoset(path, None, 4, disjoint=disjoint)
    assert len(Nanoset(path, None, 4, disjoint=np.bool_(True))) == 8


def test_the_three_forms_of_dataset_path(tmp_path):
    """And an open token file, which may stand for its path. A sample is writable without touching it."""
    a, b = write_range(tmp_path / "a.npy", 41), write_range(tmp_path / "b.npy", 81)
    for form, direct in (
        (str(a), Nanoset([a], None, 4, 30)),
        ([str(a), str(b)], Nanoset([a, b], None, 4, 30)),
        ({str(a): 0.8, str(b): 0.2}, Nanoset([a, b], [0.8, 0.2], 4, 30)),
    ):
        assert Nanoset.from_config(form, 4, 30).plan == direct.plan
        assert Nanoset(form, None, 4, 30).plan == direct.plan
    nanoset = Nanoset([file := TokenFile(a)], None, 4, 10)
    assert nanoset.plan == Nanoset(a, None, 4, 10).plan
    nanoset[0]["input_ids"][:] = -1
    assert file.tokens.tolist() == list(range(41))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset_paths": []}, "at least one token file"),
        ({"sequence_length": 0}, "sequence_length must be at least 1"),
        (
            {"sequence_length": 10**19, "disjoint": True},
            r"sequence_length must be below 2\*\*31",
        ),
        (
            {"order": StatelessOrder([9], None, 7), "train_split_num_samples": None},
            r"7 positions over sources of \[9\] samples, but these files have \[10\]",
        ),
        (
            {"sequence_length": 41},
            r"a\.npy holds 41 tokens; one sample of sequence_length=41 needs 42",
        ),
        (
            {"order": StatelessOrder([10], None, 9)},
            "the order has 9 positions, but train_split_num_samples is 10",
        ),
        (
            {"order": StatelessOrder([10], None, 11)},
            "the order has 11 positions, but train_split_num_samples is 10",
        ),
        (
            {"order": StatelessOrder([9], None, 10)},
            r"over sources of \[9\] samples, but these files have \[10\]",
        ),
        (
            {"dataset_paths": {"a.npy": 1}, "dataset_weights": [1]},
            "the mapping has weights: leave dataset_weights out",
        ),
        (
            {
                "dataset_paths": ["a.npy", "a.npy"],
                "dataset_weights": [1, 3],
                "train_split_num_samples": 20,
                "order": StatelessOrder([10, 10], [1, 1], 20),
            },
            r"the order's own weights are \[0.5, 0.5\], dataset_weights are \[1, 3\]",
        ),
    ],
)
def test_bad_arguments_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    good = {
        "dataset_weights": None,
        "sequence_length": 4,
        "train_split_num_samples": 10,
    }
    good["dataset_paths"] = [write_range(tmp_path / "a.npy", 41)]
    with pytest.raises(ValueError, match=message):
        Nanoset(**good | arguments)


@pytest.mark.parametrize("length", [7, 10, 25])
def test_without_a_number_an_order_says_how_many_samples_are_read(tmp_path, length):
    path = write_range(tmp_path / "a.npy", 41)
    order = StatelessOrder([10], None, length)
    assert len(Nanoset(path, None, 4, order=order)) == length


@pytest.mark.parametrize("order", [StatelessOrder, None, ["stateless"]])
def test_invalid_orders_are_refused(tmp_path, order):
    path = write_range(tmp_path / "a.npy", 41)
    with pytest.raises(
        TypeError, match="order must be a name, such as 'stateless', or"
    ):
        Nanoset(path, None, 4, 10, order=order)


def test_a_worker_gets_the_same_nanoset_without_its_tokens(tmp_path):
    nanoset = Nanoset(
        write_range(tmp_path / "a.npy", 60001), None, 4, 10, order="stateless"
    )
    assert nanoset.files[0].tokens[-1] == 60_000
    travelled = pickle.dumps(nanoset)
    assert len(travelled) < 10_000
    assert np.array_equal(
        pickle.loads(travelled).__getitems__(range(10)).rows,
        nanoset.__getitems__(range(10)).rows,
    )


def test_the_fingerprint_follows_what_decides_the_tokens_and_nothing_else(tmp_path):
    path = tmp_path / "a_input_ids.npy"
    with TokenFileWriter(path, dtype="uint16") as writer:
        writer.write_document(range(1, 42))
    base = Nanoset([path], None, 4, 10)
    assert Nanoset([path], None, 4, 999).fingerprint == base.fingerprint, (
        "the length of the run changes no position"
    )
    others = [
        Nanoset([path], None, 4, 10, 1),
        Nanoset([path], None, 5, 10),
        Nanoset([path, path], [1, 3], 4, 10),
        Nanoset([path], None, 4, 10, order="stateless"),
    ]
    found = {nanoset.fingerprint for nanoset in [base, *others]}
    with TokenFileWriter(path, dtype="uint16", overwrite=True) as writer:
        writer.write_document(range(41))
    assert len(found | {Nanoset([path], None, 4, 10).fingerprint}) == 6
    assert json.loads(json.dumps(base.plan)) == base.plan
    plain = []
    for name, first in (("a", 0), ("b", 500)):
        plain.append(write_range(tmp_path / f"{name}.npy", 400, first=first))
    for order in ("stateless", "olmo_core"):  # the second is not endless
        one, other = (Nanoset(raw, None, 4, 10, order=order) for raw in plain)
        assert one.fingerprint != other.fingerprint, "no checksum, but other tokens"


def test_repr_says_what_one_wants_to_know(tmp_path):
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 41), None, 4, 25)
    assert (
        repr(nanoset)
        == "Nanoset(1 files: a.npy; sequence_length=4, 25 samples, 2.50 epochs, order='nanotron', seed=1234)"
    )


def test_an_order_brings_its_own_seed_and_weights(tmp_path):
    paths = [write_range(tmp_path / f"{name}.npy", 41) for name in "ab"]
    order = StatelessOrder([10, 10], [3, 1], 20, 7)
    for weights in (None, [3, 1], [0.75, 0.25]):
        nanoset = Nanoset(paths, weights, 4, 20, order=order)
        assert repr(nanoset).endswith("order='stateless', seed=7)")
        assert nanoset.dataset_weights.tolist() == [0.75, 0.25]


def test_the_other_attributes_of_nanotrons_class_exist(tmp_path, capsys):
    paths = [str(write_range(tmp_path / f"{name}.npy", 41)) for name in "ab"]
    nanoset = Nanoset(paths, None, 4, 20)
    assert nanoset.dataset_paths == paths
    nanoset.print_nanoset_info()
    said = capsys.readouterr().out.splitlines()
    assert said == nanoset.summary().splitlines()
    assert said[:2] == ["> Total number of samples: 20", "> Total number of tokens: 80"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sequence_length": "x"},
            "^sequence_length must be an integer of at least 1, got 'x'$",
        ),
        (
            {"train_split_num_samples": 1.5},
            "^train_split_num_samples must be an integer of at least 0, got 1.5$",
        ),
        (
            {"random_seed": "x"},
            "^random_seed must be an integer of at least 0, got 'x'$",
        ),
        ({"random_seed": -1}, "^random_seed must be at least 0, got -1$"),
        (
            {"train_split_num_samples": -3},
            "^train_split_num_samples must be at least 0, got -3$",
        ),
    ],
)
def test_a_number_that_is_none_is_named(tmp_path, options, message):
    given = {"sequence_length": 4, "train_split_num_samples": 5} | options
    with pytest.raises(ValueError, match=message):
        Nanoset(write_range(tmp_path / "a.npy", 41), None, **given)


@pytest.mark.parametrize(
    "positions",
    [[1.7], ["3"], [True, False], [2**70 + 0.5], np.array([1, 1.5], dtype=object)],
)
def test_positions_that_are_no_integers_are_refused(tmp_path, positions):
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 100), None, 4, 9)
    for read in (nanoset.read, nanoset.starts, nanoset.__getitems__):
        with pytest.raises(TypeError, match="positions must be integers, got"):
            read(positions)
    with pytest.raises(TypeError, match="positions must be integers, got"):
        nanoset.order[np.array(positions)]


def test_positions_and_counts_beyond_64_bits_are_refused_as_others_are(tmp_path):
    path = write_range(tmp_path / "a.npy", 100)
    for k in (2**70, -(2**70)):
        with pytest.raises(IndexError, match="outside a sequence of 9 samples"):
            Nanoset(path, None, 4, 9)[k]
    with pytest.raises(IndexError, match="position 18446744073709551615 is outside"):
        Nanoset(path, None, 4, 9).order[np.array([2**64 - 1], dtype=np.uint64)]
    for order in ("nanotron", "stateless", "identity"):
        with pytest.raises(
            ValueError, match=r"train_split_num_samples must be below 2\*\*63"
        ):
            Nanoset(path, None, 4, 2**100, order=order)


def test_positions_are_a_row_of_integers_of_any_kind(tmp_path):
    nanoset = Nanoset(write_range(tmp_path / "a.npy", 100), None, 4, 9)
    expected = nanoset.read([3, -1])
    for dtype in (object, np.int8):
        assert np.array_equal(nanoset.read(np.array([3, -1], dtype=dtype)), expected)
    assert nanoset.read([]).shape == (0, 5)
    for positions, shape in ((np.int64(3), r"\(\)"), ([[1, 2]], r"\(1, 2\)")):
        for read in (nanoset.read, nanoset.starts):
            with pytest.raises(
                ValueError,
                match=f"one-dimensional array of positions, got shape {shape}",
            ):
                read(positions)


@pytest.mark.parametrize("kind", [set, frozenset, lambda paths: str(paths[0]).encode()])
def test_paths_without_an_order_are_refused(tmp_path, kind):
    paths = [write_range(tmp_path / f"{name}.npy", 64) for name in "ab"]
    with pytest.raises(
        TypeError, match="a list of paths in the same order in every process"
    ):
        Nanoset(kind(paths), None, 4)


@pytest.mark.parametrize("value", [3, None, 2.5])
def test_a_value_that_names_no_path_is_refused(value):
    with pytest.raises(
        TypeError, match=rf"give a path, or a list of paths .*; got {value}$"
    ):
        Nanoset(value, None, 4)


def test_a_mapping_is_no_list_of_its_keys():
    with pytest.raises(TypeError, match=r"give a path, .*; got {'a': 0.9}$"):
        as_list({"a": 0.9})
