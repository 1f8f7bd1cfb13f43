"""The order of OLMo-core: the arrays of the real package, and the way back from a sample through NumPy's shuffle."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from order_contract import SIZES, check_contract

from nanoset_ref import Nanoset, TokenFile
from nanoset_ref.cli import main
from nanoset_ref.orders import build_order, traced_shuffle
from nanoset_ref.orders.others import OLMoCoreOrder, olmo_core


def olmo_core_cases(golden):
    return json.loads((golden / "olmo_core_chunks/chunks.json").read_text())


def by_hand(sizes, chunk, seed, batch, epochs):
    """OLMo-core's order in plain Python: the (file, row) of every position of some epochs."""
    kept = [
        (file, row)
        for file, rows in enumerate(sizes)
        for row in range(rows // chunk * chunk)
    ]
    read = []
    for epoch in range(1, epochs + 1):
        chunks = np.arange(len(kept) // chunk, dtype=np.uint32)
        np.random.Generator(np.random.PCG64(seed + epoch)).shuffle(chunks)
        rows = [
            kept[number * chunk + i] for number in chunks.tolist() for i in range(chunk)
        ]
        read += rows[: len(rows) // batch * batch]
    return read


@pytest.mark.parametrize("number", range(6))
def test_rows_and_order_are_those_of_olmo_core(golden, tmp_path, number):
    case = olmo_core_cases(golden)[number]
    length = case["sequence_length"]
    files = []
    for file, tokens in enumerate(case["tokens"]):
        path = tmp_path / f"{file}.npy"
        (np.arange(tokens) % 60000).astype(np.uint16).tofile(path)
        files.append(TokenFile(path))
    chunk = (case["max_target_sequence_length"] or length) // length
    order = f"olmo_core:chunk_size={chunk},batch_size={case['batch']}"
    count = sum(map(len, case["read"]))
    rows = Nanoset(
        files, None, length - 1, count, case["seed"], order=order, disjoint=True
    )
    position = 0
    for epoch, read in enumerate(case["read"]):
        assert rows.order.epoch_of(position) == epoch
        for instance in read:
            file, first, _ = next(
                f for f in case["first_instance_of_files"] if instance < f[2]
            )
            assert rows.order[position] == (file, instance - first)
            found = int(rows.read(np.array([position]))[0, 0])
            assert found == case["first_token_of_instances"][instance]
            position += 1


@given(
    SIZES,
    st.integers(1, 5),
    st.integers(0, 2**31),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_olmo_core_by_hand(sizes, chunk, seed, batch, epochs):
    expected = by_hand(sizes, chunk, seed, batch, epochs)
    options = {"chunk_size": chunk, "batch_size": batch}
    if not expected:
        with pytest.raises(ValueError, match=f"hold a batch of {batch} rows"):
            build_order("olmo_core", sizes, None, 1, seed, **options)
        return
    order = build_order("olmo_core", sizes, None, len(expected), seed, **options)
    assert [order[k] for k in range(len(order))] == expected
    check_contract(order)


@given(
    st.integers(1, 5000),
    st.integers(0, 2**40),
    st.integers(1, 200),
    st.sampled_from([128, 1024]),
)
def test_places_and_values_are_traced_through_numpys_shuffle(n, seed, count, block):
    values = np.arange(n, dtype=np.uint32)
    np.random.Generator(np.random.PCG64(seed)).shuffle(values)
    places = np.random.default_rng(n).permutation(n)[:count]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced_shuffle, "DRAWS_PER_BLOCK", block)
        assert np.array_equal(
            traced_shuffle.traced_values(seed, n, places), values[places]
        )
        found = traced_shuffle.traced_places(seed, n, values[places].astype(np.int64))
    assert np.array_equal(found, places)


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_shuffle_of_millions_is_traced(count):
    n = 3_000_000
    values = np.arange(n, dtype=np.uint32)
    np.random.Generator(np.random.PCG64(7)).shuffle(values)
    places = np.random.default_rng(count).permutation(n)[:count]
    assert np.array_equal(traced_shuffle.traced_values(7, n, places), values[places])
    traced = traced_shuffle.traced_places(7, n, values[places].astype(np.int64))
    assert np.array_equal(traced, places)


@settings(max_examples=25)  # every lookup starts threads
@given(
    SIZES,
    st.integers(1, 5),
    st.integers(0, 2**31),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_olmo_core_traces_the_rows_that_it_looks_up(sizes, chunk, seed, batch, epochs):
    expected = by_hand(sizes, chunk, seed, batch, epochs)
    assume(expected)
    options = {"chunk_size": chunk, "batch_size": batch}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(olmo_core, "MIN_NUMBA_CHUNKS", 0)
        order = build_order("olmo_core", sizes, None, len(expected), seed, **options)
        assert [order[k] for k in range(min(len(order), 4))] == expected[:4]
        check_contract(order)
        patch.setattr(OLMoCoreOrder, "_shuffle", None)  # a step is found without it
        order = build_order("olmo_core", sizes, None, len(expected), seed, **options)
        assert [*zip(*(part.tolist() for part in order[-3:]), strict=True)] == expected[
            -3:
        ]


def test_olmo_core_refuses_what_it_cannot_read():
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        build_order("olmo_core:chunk_size=0", [4], None, 4)
    with pytest.raises(ValueError, match="uint32"):
        build_order("olmo_core", [2**32], None, 4)
    with pytest.raises(ValueError, match="name=number, each once, got 'chunk_size'"):
        build_order("olmo_core:chunk_size", [4], None, 4)
    with pytest.raises(ValueError, match="leave the weights out"):
        build_order("olmo_core", [4], [1.0], 4)


def test_commands_take_the_order_of_a_published_run(golden, tmp_path, capsys):
    case = olmo_core_cases(golden)[0]
    paths = []
    for file, tokens in enumerate(case["tokens"]):
        paths.append(str(tmp_path / f"{file}.npy"))
        (np.arange(tokens) % 60000).astype(np.uint16).tofile(paths[-1])
    order = f"olmo_core:chunk_size=2,batch_size={case['batch']}"
    run = ["--data", *paths, "--row-length", "8", "--order", order, "--seed", "34521"]
    run += ["--num-samples", str(len(case["read"][0])), "--micro-batch-size", "4"]
    main(["where", *run, "--step", "3"])
    printed = capsys.readouterr().out
    file, first, _ = next(
        f for f in case["first_instance_of_files"] if case["read"][0][8] < f[2]
    )
    sample = case["read"][0][8] - first
    assert f"{file}.npy" in printed
    assert f"{sample * 8 * 2:,}" in printed or str(sample * 8 * 2) in printed
