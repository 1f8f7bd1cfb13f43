"""The stateless order: its properties, each as a test, against plain.py and slow counts."""

import json
import re
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.orders import Ledger, SkippingOrder, StatelessOrder, build_order

lengths_and_weights = st.lists(
    st.tuples(st.integers(1, 40), st.floats(0.001, 1)), min_size=1, max_size=9
)
seeds = st.integers(0, 2**32 - 1)


def pairs(order, first=0, stop=None):
    datasets, samples = order[first : len(order) if stop is None else stop]
    return list(zip(datasets.tolist(), samples.tolist(), strict=True))


@given(
    st.lists(
        st.tuples(st.integers(1, 10**12), st.sampled_from([0, 1, 1, 2, 0.3, 1e-11])),
        min_size=1,
        max_size=40,
    ),
    st.booleans(),
    st.integers(0, 2**47),
    seeds,
)
def test_equals_plain(sources, weighted, position, seed):
    lengths, weights = ([*column] for column in zip(*sources, strict=True))
    weights[0], num_samples = 1, 2**47 + 1
    weights = weights if weighted else None
    order = StatelessOrder(lengths, weights, num_samples, seed)
    epoch = sum(lengths)
    for k in {0, position, epoch - 1, epoch - epoch % 64 - 1}:
        if 0 <= k < num_samples:
            source, sample = order[k]
            assert (source, sample) == plain.stateless_at(k, lengths, weights, seed)
            passes = (
                order.counts(k)[source] // lengths[source]
            )  # each of which costs a search
            if passes < 100:
                assert order.positions(source, sample, until=k + 1)[-1] == k
            if passes < 5 and k == position:
                assert (
                    plain.stateless_positions(
                        source, sample, lengths, weights, seed, k + 1
                    )[-1]
                    == k
                )


# ---- epochs and passes


def check_passes(read, lengths):
    """Each source is read through before any of its samples repeats."""
    for source, length in enumerate(lengths):
        samples = [sample for found, sample in read if found == source]
        for first in range(0, len(samples), length):
            part = samples[first : first + length]
            assert len(set(part)) == len(part), "a pass that repeats a sample"
            assert set(part) <= set(range(length)), "a sample that does not exist"


@given(st.lists(st.integers(0, 90), min_size=1, max_size=9).filter(any), seeds)
def test_without_weights_each_epoch_reads_every_sample_of_every_source_once(
    lengths, seed
):
    order = StatelessOrder(lengths, None, 4 * sum(lengths), seed)
    everything = [
        (source, sample)
        for source, length in enumerate(lengths)
        for sample in range(length)
    ]
    for epoch in range(4):
        assert (
            sorted(pairs(order, epoch * sum(lengths), (epoch + 1) * sum(lengths)))
            == everything
        )


@given(lengths_and_weights, seeds)
def test_with_weights_no_sample_repeats_before_its_source_has_been_read_through(
    sources, seed
):
    lengths, weights = zip(*sources, strict=True)
    order = StatelessOrder(lengths, weights, 600, seed)
    check_passes(pairs(order), lengths)


@given(
    st.lists(st.sampled_from([1e-9, 0.01, 1, 2, 3, 5, 8, 13]), min_size=1, max_size=80),
    seeds,
)
def test_with_weights_every_source_has_its_share_to_a_sample_or_two_after_every_window(
    weights, seed
):
    """1.68 is what rounding can add up to in a Huffman tree, see `shares`."""
    order = StatelessOrder([1000] * len(weights), weights, 2**47, seed)
    for windows in (1, 2, 3, 1000, 10**6, 10**9):
        off = order.counts(64 * windows) - order.dataset_weights * 64 * windows
        assert np.abs(off).max() < 1.68 + 1e-3


def largest_error(weights, windows):
    """How far the source furthest off its share is, in samples, and how far it may be."""
    order = StatelessOrder([1000] * len(weights), weights, 2**48, 3)
    position = 64 * windows
    shares = order.dataset_weights
    exact = np.array([float(Fraction(share) * position) for share in shares.tolist()])
    off = np.abs(order.counts(position) - exact)
    allowed = 1.68 + position * (1 + len(weights) * shares) / 2**46
    return off.max(), (off - allowed).max()


@given(st.lists(st.floats(0, 250), min_size=1, max_size=80), st.integers(0, 2**42))
def test_far_out_a_share_is_off_by_no_more_than_the_rounding_of_its_weight(
    exponents, windows
):
    weights = [1, *(10**-exponent for exponent in exponents)]
    assert largest_error(weights, windows)[1] < 1e-2


def test_thousands_of_rare_sources_end_the_bound_of_1_7_where_the_docstring_says():
    weights = [10.0 ** -(i % 250) for i in range(2000)]
    near = 10**9 * 6 // 64  # 1.4e12 / (1 + 2,000 * 0.1125) positions
    assert largest_error(weights, near)[0] < 1.7
    assert largest_error(weights, 2**42)[0] > 100
    assert largest_error(weights, 2**42)[1] < 0


@pytest.mark.parametrize("weights", [[1, 1], [1, 1, 2], [50, 30, 15, 5], [1] * 100])
def test_ranks_and_neighbours_see_every_source_as_often_as_chance_would_have_it(
    weights,
):
    """Four standard errors, for all strides of ranks together; coins are fair to 1.6 %, see `interleaving`."""
    windows = 20_000
    datasets, _ = StatelessOrder([10**9] * len(weights), weights, 64 * windows, 8)[:]
    for source in {0, len(weights) - 1}:
        mine, share = datasets == source, weights[source] / sum(weights)
        for ranks in range(2, 65):
            seen = np.array([mine[rank::ranks].mean() for rank in range(ranks)])
            error = np.sqrt(share * (1 - share) / (64 * windows / ranks))
            assert np.abs(seen - share).max() < 4.5 * error, f"{ranks} ranks"
        together = mine.reshape(-1, 64)
        quota = together.sum(axis=1)
        expected = (quota * (quota - 1) / (64 * 63)).mean()
        both = (together[:, :-1] & together[:, 1:]).mean()
        assert abs(both - expected) <= 0.016 * expected + 4 * np.sqrt(
            expected / (63 * windows)
        )


def test_5000_sources_need_no_index():
    order = StatelessOrder(range(1, 5001), range(5000, 0, -1), 2**47)
    assert order.counts(10**9).sum() == 10**9


def test_every_pass_and_every_epoch_is_shuffled_anew():
    order = StatelessOrder([50, 50], None, 1000, 3)
    epochs = [tuple(pairs(order, first, first + 100)) for first in range(0, 1000, 100)]
    assert len(set(epochs)) == 10
    passes = [
        tuple(sample for source, sample in epoch if source == 0) for epoch in epochs
    ]
    assert len(set(passes)) == 10
    assert len({tuple(source for source, _ in epoch) for epoch in epochs}) == 10
    assert pairs(order) != pairs(StatelessOrder([50, 50], None, 1000, 4))


@given(lengths_and_weights, seeds, st.integers(0, 300), st.integers(0, 300))
def test_a_longer_run_begins_as_a_shorter_one(sources, seed, short, more):
    lengths, weights = zip(*sources, strict=True)
    long = StatelessOrder(lengths, weights, short + more, seed)
    assert pairs(StatelessOrder(lengths, weights, short, seed)) == pairs(long, 0, short)


def test_it_is_the_same_on_every_platform():
    """Recorded once; integers only, so nothing in it may depend on a processor."""
    order = StatelessOrder([7, 1000, 30], [1, 5, 2], 10**12, 1234)
    positions = np.array([0, 1, 2, 3, 63, 64, 10**6, 10**12 - 1])
    datasets, samples = order[positions]
    assert datasets.tolist() == [0, 2, 1, 0, 0, 0, 1, 0]
    assert samples.tolist() == [6, 7, 760, 2, 6, 2, 587, 1]


# ---- the way back


@given(
    st.sampled_from(["nanotron", "stateless"]),
    lengths_and_weights,
    seeds,
    st.booleans(),
    st.integers(0, 700),
)
def test_counts_and_positions_are_what_a_search_finds(
    name, sources, seed, weighted, until
):
    lengths, weights = zip(*sources, strict=True)
    order = build_order(name, lengths, weights if weighted else None, 600, seed)
    found = pairs(order)[:until]
    for source, length in enumerate(lengths):
        assert order.counts(until)[source] == sum(pair[0] == source for pair in found)
        for sample in {0, length // 2, length - 1}:
            expected = [k for k, pair in enumerate(found) if pair == (source, sample)]
            assert order.positions(source, sample, until=until).tolist() == expected


RARE = [
    ([50] * len(weights), weights)
    for weights in ([1] * 300, [2**k for k in range(40)], [10**9, 1, 0, 10**9])
]


@pytest.mark.parametrize(
    ("lengths", "weights"), [*RARE, ([10**6] * 2, [1e-11, 1]), ([10**9, 10], [1e-9, 1])]
)
def test_many_and_rare_sources_are_counted_and_found(lengths, weights):
    """The next reading of a rare one may lie beyond 2**48, where positions are not worked out."""
    order = StatelessOrder(lengths, weights, 2**47, 3)
    datasets, samples = order[:20_000]
    assert (
        order.counts(20_000).tolist()
        == np.bincount(datasets, minlength=len(weights)).tolist()
    )
    for pair in {
        (0, 0),
        (0, lengths[0] - 1),
        (2 % len(lengths), 1),
        *(order[k] for k in (0, 63, 64, 19_999)),
    }:
        expected = np.flatnonzero((datasets == pair[0]) & (samples == pair[1])).tolist()
        assert order.positions(*pair, until=20_000).tolist() == expected


# ---- size


def test_10_to_the_12_samples_cost_neither_time_nor_memory():
    StatelessOrder([3, 4], None, 10)[5]  # compiles
    tracemalloc.start()
    order = StatelessOrder([10**12, 3 * 10**11], [1, 2], 2 * 10**12, 1234)
    pair = order[2 * 10**12 - 1]
    positions = order.positions(*pair)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 2 * 10**12 - 1 in positions
    assert peak < 1_000_000


# ---- going on with another plan


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.integers(0, 150),
    st.integers(0, 60),
    seeds,
)
def test_a_ledger_keeps_every_pass_whole_when_weights_change_and_sources_are_added(
    lengths, first, more, seed
):
    before = StatelessOrder(lengths, None, 1000, seed)
    read = pairs(before, 0, first)
    ledger = before.ledger(first)
    counts = before.counts(first).tolist()
    assert json.loads(json.dumps(ledger)) == [first, counts, lengths]
    lengths2 = [*lengths, 17]
    after = StatelessOrder(
        lengths2,
        range(1, len(lengths2) + 1),
        1000,
        seed,
        start=Ledger(first, (*ledger.reads, 0)),
    )
    read += pairs(after, first, first + more)
    third = after.ledger(first + more)
    last = StatelessOrder(lengths2, None, 1000, seed, start=third)
    read += pairs(last, first + more, first + more + 200)
    check_passes(read, lengths2)
    for source, sample in set(read[first + more :]):
        expected = [
            k
            for k, pair in enumerate(read)
            if k >= first + more and pair == (source, sample)
        ]
        assert last.positions(source, sample, until=len(read)).tolist() == expected


def test_the_same_weights_go_on_with_the_same_passes():
    """With a ledger the passes go on, whose turn it is begins anew, and what was read is not asked of the new plan."""
    before = StatelessOrder([40], None, 400, 5)
    after = StatelessOrder([40], None, 400, 5, start=before.ledger(130))
    assert pairs(after, 130) == pairs(before, 130)
    assert (
        before.fingerprint
        == StatelessOrder([40], None, 999, 5).fingerprint
        != after.fingerprint
    )
    with pytest.raises(
        IndexError,
        match="position 129 belongs to the previous plan; this one starts at 130",
    ):
        after[129]
    with pytest.raises(IndexError, match="starts at 130"):
        after.counts(5)
    without = SkippingOrder(after, [(90, 100)])
    for ask in (without.counts, without.__getitem__):
        with pytest.raises(IndexError, match="starts at 120: .*_samples=120 or more"):
            ask(5)
    assert without[120] == after[130]


def test_a_ledger_of_other_sources_is_refused():
    before = StatelessOrder([40, 4], [1, 1], 130, 5).ledger(130)
    for lengths, ledger, message in (
        ([40, 4], Ledger(130, (130,)), "2 sources.*keep dropped sources with weight 0"),
        (
            [5, 7],
            Ledger(3, (1, 2), (5, 7, 9)),
            r"of the order's 2 sources.*lengths=\(5, 7, 9\)",
        ),
        ([40], Ledger(-1, (3,)), "a count of a ledger must be at least 0, got -1"),
        ([40], Ledger(3, (-1,)), "a count of a ledger must be at least 0, got -1"),
        (
            [40],
            Ledger(2**63, (3,)),
            "a count of a ledger must be below .*got 9223372036",
        ),
        (
            [40],
            Ledger(3, (2**64,)),
            "a count of a ledger must be below .*got 1844674407",
        ),
        ([40], Ledger(401, (401,)), "at position 401, but the run has 400 samples"),
        ([40], Ledger(3.5, (3,)), "a count of a ledger must be .*got 3.5"),
        ([40], Ledger(0, (0,), 5), "the order's 1 sources.*lengths=5"),
        ([40], Ledger(0, 3), "the order's 1 sources.*reads=3"),
        ([40], Ledger(0, (0,), "a"), "the order's 1 sources.*lengths='a'"),
        ([40], Ledger(0, (0,), ["4"]), "a count of a ledger must be .*got '4'"),
        (
            [40, 5],
            before,
            "source 1 had 4 samples when the ledger was made, and has 5 now",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            StatelessOrder(lengths, None, 400, 5, start=ledger)
    dropped = StatelessOrder([40, 5], [1, 0], 400, 5, start=before._asdict())
    assert dropped.counts(400).tolist() == [before.reads[0] + 270, before.reads[1]]


@pytest.mark.parametrize("position", [-1, 9, 101])
def test_a_ledger_is_of_a_position_that_the_run_has(position):
    order = StatelessOrder([40], None, 100, 5, start=Ledger(10, (10,)))
    with pytest.raises(
        IndexError, match=f"position {position} is not one of 10 .. 100"
    ):
        order.ledger(position)


@pytest.mark.parametrize("allowed", [[1, 2, 3], "2", ["2", 1], {0: 2}, True])
def test_max_repetitions_are_one_number_or_one_for_each_source(allowed):
    message = re.escape(f"one for each of 2 sources, got {allowed!r}")
    with pytest.raises(ValueError, match=message):
        StatelessOrder([40, 4], None, 40, max_repetitions=allowed)


def test_a_run_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match=r"at most 2\*\*48"):
        StatelessOrder([4], None, 2**48 + 1)
