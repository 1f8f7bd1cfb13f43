"""Limits on repetitions, ranges that are left out, and what all orders have in common."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.orders import (
    Ledger,
    NanotronOrder,
    SkippingOrder,
    StatelessOrder,
    build_order,
)

# ---- limits


def test_a_source_above_its_limit_is_an_error_before_the_run():
    message = r"source 1 would be read 4\.70 times, max_repetitions allows 4: lower its weight or shorten"
    for start in (None, Ledger(50, (32, 18))):  # what was read before counts
        with pytest.raises(ValueError, match=message):
            StatelessOrder([1000, 10], [1, 1], 100, start=start, max_repetitions=4)
    free = StatelessOrder([1000, 10], [1, 1], 100)
    for limit in (4.7, [1, 5], np.inf):
        assert (
            StatelessOrder([1000, 10], [1, 1], 100, max_repetitions=limit).fingerprint
            == free.fingerprint
        )
    assert StatelessOrder(
        [0, 10], [0, 1], 10, max_repetitions=[np.inf, 1]
    ).counts().tolist() == [
        0,
        10,
    ]


def test_a_source_that_was_read_out_can_be_dropped():
    start = StatelessOrder([10, 1000], [1, 1], 40).ledger(40)
    assert start.reads[0] > 10
    order = StatelessOrder([10, 1000], [0, 1], 100, start=start, max_repetitions=1)
    assert order.counts().tolist() == [start.reads[0], start.reads[1] + 60]
    assert (
        len(StatelessOrder([10, 1000], [1, 1], 40, start=start, max_repetitions=1))
        == 40
    ), "nothing is left to read"


# ---- ranges left out

ranges = st.lists(st.tuples(st.integers(0, 90), st.integers(1, 9)), max_size=4)


@given(st.sampled_from(["nanotron", "stateless"]), ranges, st.integers(0, 100))
def test_skipping_leaves_every_other_position_in_its_place(name, spans, until):
    taken, chosen = set(), []
    for first, size in spans:
        if not taken & set(range(first, first + size)):
            taken |= set(range(first, first + size))
            chosen.append((first, first + size))
    whole = build_order(name, [7, 30], [1, 2], 100, 3)
    order = SkippingOrder(whole, chosen)
    kept = [whole[k] for k in range(100) if k not in taken]
    assert len(order) == len(kept)
    assert (order.fingerprint == whole.fingerprint) == (not taken)
    assert [order[k] for k in range(len(order))] == kept
    upto = kept[:until]
    assert order.counts(until).tolist() == [
        sum(source == i for source, _ in upto) for i in range(2)
    ]
    for pair in {(0, 0), (1, 29), (1, 7)}:
        assert order.positions(*pair, until=until).tolist() == [
            k for k, found in enumerate(upto) if found == pair
        ]


@pytest.mark.parametrize("spans", [[(5, 5)], [(5, 8), (7, 9)], [(90, 101)], [(-1, 3)]])
def test_ranges_that_make_no_sense_are_refused(spans):
    with pytest.raises(
        ValueError, match="must not be empty, overlap or leave the 100 positions"
    ):
        SkippingOrder(StatelessOrder([50], None, 100, 3), spans)


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([(1.9, 3.9)], "a bound must be an integer, got 1.9"),
        ([(True, 3)], "a bound must be an integer, got True"),
        ([(1, 2**70)], "a bound must be below 2"),
        (["13"], r"a pair \(start, stop\), got '13'"),
        ([(1, 2, 3)], r"a pair \(start, stop\), got \(1, 2, 3\)"),
    ],
)
def test_ranges_that_are_no_ranges_are_refused(spans, said):
    with pytest.raises(ValueError, match=said):
        SkippingOrder(StatelessOrder([50], None, 100, 3), spans)


# ---- all orders


@pytest.fixture(params=["nanotron", "stateless", "identity", "skipping"])
def order(request):
    if request.param == "skipping":
        return SkippingOrder(StatelessOrder([5, 9], None, 35, 3), [(3, 8)])
    return build_order(request.param, [5, 9], None, 30, 3)


def test_an_order_is_indexed_as_a_sequence(order):
    everything = [order[k] for k in range(30)]
    assert order[-1] == everything[-1] and order[np.int64(4)] == everything[4]
    datasets, samples = order[np.array([[3, -1], [0, 7]])]
    assert datasets.shape == samples.shape == (2, 2)
    assert (datasets[0, 1], samples[0, 1]) == everything[-1]
    assert [s.tolist() for s in order[2:9:3]] == [
        list(column) for column in zip(*everything[2:9:3], strict=True)
    ]
    for outside in (30, -31, np.array([0, 30])):
        with pytest.raises(IndexError, match="outside a sequence of 30 samples"):
            order[outside]
    for no_position in (1.5, "1", np.array([0.5])):
        with pytest.raises(TypeError):
            order[no_position]


def test_a_sample_that_does_not_exist_has_no_positions(order):
    for dataset, sample in ((2, 0), (-1, 0), (0, 5), (1, -1)):
        with pytest.raises(IndexError):
            order.positions(dataset, sample)


@pytest.mark.parametrize("name", ["nanotron", "stateless"])
@pytest.mark.parametrize(
    ("lengths", "weights", "num_samples", "seed", "message"),
    [
        ([], None, 5, 1, "samples in at least one source"),
        ([3, -1], None, 5, 1, "no negative length"),
        ([0, 0], None, 5, 1, "samples in at least one source"),
        ([3, 4], [1], 5, 1, "one weight per source"),
        ([3, 4], [1, float("nan")], 5, 1, "source 1 has nan"),
        ([3, 4], [1, float("inf")], 5, 1, "source 1 has inf"),
        ([3, 4], [1, -2], 5, 1, "source 1 has -2"),
        ([3, 4], [0, 0], 5, 1, "positive, finite sum"),
        (
            [3, 4],
            {"a": 1, "b": 2},
            5,
            1,
            "weights must be numbers; got {'a': 1, 'b': 2}",
        ),
        ([3, 4], ["1", "half"], 5, 1, r"weights must be numbers; got \['1', 'half'\]"),
        ([3, 4], [10**400, 1], 5, 1, r"weights must be numbers; got \[1000"),
        ([3, 4], None, -5, 1, "^num_samples must be at least 0, got -5$"),
        ([3, 4], None, 2**63, 1, rf"^num_samples must be below 2\*\*63, got {2**63}$"),
        ([3, 4], None, 5, -1, "^random_seed must be at least 0, got -1$"),
        (
            [3, 4],
            None,
            5,
            "x",
            "^random_seed must be an integer of at least 0, got 'x'$",
        ),
        (
            [3, 4],
            None,
            5.5,
            1,
            "^num_samples must be an integer of at least 0, got 5.5$",
        ),
        ([3, 4], None, 5, 2**32, rf"^random_seed must be below 2\*\*32, got {2**32}$"),
        ([3, 0], [1, 1], 5, 1, "no samples"),
    ],
)
def test_options_that_give_no_order_are_refused(
    name, lengths, weights, num_samples, seed, message
):
    with pytest.raises(ValueError, match=message):
        build_order(name, lengths, weights, num_samples, seed)


@pytest.mark.parametrize(
    ("name", "what_is_said"),
    [
        ("alphabetical", "unknown order"),
        ("statles", r"unknown order, did you mean 'stateless'\?"),
        ("levanter2:a=1", r"unknown order, did you mean 'levanter'\?"),
    ],
)
def test_an_unknown_order_is_refused_with_those_that_exist(name, what_is_said):
    listed = r"\(choose one of 'nanotron', 'stateless', .*, or a .npy file\)"
    kind = name.partition(":")[0]
    with pytest.raises(
        ValueError, match=f"the order '{kind}': {what_is_said} {listed}"
    ):
        build_order(name, [1], None, 1)


def test_an_epoch_that_does_not_fit_into_memory_names_the_way_out():
    with pytest.raises(
        MemoryError, match=r"1,000,000,000,000 samples need .* order=.stateless. stores"
    ):
        NanotronOrder([10**12], None, 10)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nanotron:foo=1", {}, "the order 'nanotron': foo: unknown key$"),
        (
            "olmo_core:chunk_sice=2",
            {},
            "the order 'olmo_core': chunk_sice: unknown key, did you mean 'chunk_size'",
        ),
        ("grain:named=1", {}, "the order 'grain': named: unknown key"),
        ("nanotron:num_samples=1", {}, "the order 'nanotron': num_samples: unknown"),
        ("stateless:start=3", {}, "start must be a Ledger or its JSON.*, got 3$"),
        ("stateless", {"start": {"place": 3}}, "start must be a Ledger or its JSON"),
        ("olmo_core:chunk_size=2", {"chunk_size": 4}, "chunk_size is given twice"),
        ("olmo_core:chunk_size=2,chunk_size=3", {}, "each once, got 'chunk_size=3'"),
    ],
)
def test_an_option_that_an_order_does_not_have_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        build_order(name, [10], None, 5, **options)


@given(
    st.lists(st.integers(0, 59), max_size=3), st.lists(st.integers(0, 39), max_size=3)
)
def test_orders_that_skip_the_same_positions_are_equal_however_they_are_nested(
    outer, inner
):
    order = NanotronOrder([60], None, 60)

    def ranges_of(starts, stop):
        free = sorted({*starts})
        ends = [*free, stop][1:] if free else []
        return [(a, min(a + 2, b)) for a, b in zip(free, ends, strict=True)]

    once = SkippingOrder(order, ranges_of(outer, 60))
    nested = SkippingOrder(
        once, ranges_of([it for it in inner if it < len(once)], len(once))
    )
    read = {nested[k][1] for k in range(len(nested))}
    kept = [k for k in range(60) if order[k][1] in read]
    gaps = [(k, k + 1) for k in range(60) if k not in kept]
    assert nested.identity == SkippingOrder(order, gaps).identity
    assert [nested[k] for k in range(len(nested))] == [order[k] for k in kept]
