"""The computed shuffle and the coin flips of a window: permutations, inverted, and as good as chance."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.permutation import battery, numpys, ours
from nanoset_ref import plain
from nanoset_ref.orders import StatelessOrder
from nanoset_ref.orders.interleaving import STAGES
from nanoset_ref.orders.permutation import permute, permute_each, sides, unpermute

keys = st.integers(0, 2**64 - 1)


def permutations(n, count):
    """The permutations of range(n) of `count` passes over a source: int64 [count, n]."""
    return StatelessOrder([n], None, n * count, 11)[:][1].reshape(count, n)


def deviates(tally):
    """By how many standard deviations the chi-square of a tally of equally likely things is above its mean."""
    expected = tally.sum() / tally.size
    chi_square = ((tally - expected) ** 2 / expected).sum()
    return (chi_square - tally.size + 1) / np.sqrt(2 * (tally.size - 1))


# ---- the permutation


@given(st.integers(1, 2**48), keys, st.data())
def test_a_permutation_equals_plain_and_is_inverted_at_any_size(n, key, data):
    x = data.draw(st.integers(0, n - 1))
    place = permute(x, n, np.uint64(key))
    assert place == plain.permute(x, n, key)
    assert (
        unpermute(place, n, np.uint64(key))
        == x
        == plain.permute(place, n, key, back=True)
    )
    assert permute_each(
        np.array([x]), np.array([n]), np.array([key], dtype=np.uint64)
    ) == [place]


@given(st.integers(1, 48), st.sampled_from([-1, 0, 1]), keys)
def test_a_board_beside_a_power_of_two_has_room_for_all_numbers(bits, more, key):
    n = min(max(2**bits + more, 1), 2**48)
    rows, column_bits = map(int, sides(n))
    columns = 2**column_bits
    assert n <= rows * columns < n + columns or (rows, columns) == (7, 8)
    assert columns / 2 <= rows <= 2 * columns
    assert permute(n - 1, n, np.uint64(key)) == plain.permute(n - 1, n, key)


@given(st.integers(1, 300), keys)
def test_a_permutation_hits_every_place_once(n, key):
    assert sorted(permute(x, n, np.uint64(key)) for x in range(n)) == list(range(n))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_permutations_of_a_small_range_are_equally_likely(n):
    drawn = permutations(n, 120_000) @ n ** np.arange(n)
    every = [
        int(np.dot(order, n ** np.arange(n)))
        for order in itertools.permutations(range(n))
    ]
    tally = np.array([np.count_nonzero(drawn == number) for number in every])
    assert tally.sum() == 120_000
    assert deviates(tally) < 4


@pytest.mark.parametrize("n", [9, 16, 25, 49, 63, 64, 65, 100])
def test_two_neighbours_are_sent_to_all_pairs_of_places_alike(n):
    drawn = permutations(n, 60_000)
    for x, y in ((0, 1), (0, n // 2), (n - 2, n - 1)):
        tally = np.zeros((n, n))
        np.add.at(tally, (drawn[:, x], drawn[:, y]), 1)
        assert deviates(tally[~np.eye(n, dtype=bool)]) < 4


@pytest.mark.parametrize(
    "n", [1000, 1023, 1024, 1025, 99_991, 10**6, 10**9, 10**12 + 39]
)
def test_a_permutation_is_a_good_shuffle(n):
    """Four standard deviations each, over several keys, for what a uniform shuffle would give."""
    size = min(n, 20_000)
    for key in range(5):
        places = StatelessOrder([n], None, n, key)[:size][1].astype(np.float64)
        x = np.arange(size)
        bound = 4 / np.sqrt(size)
        assert abs(np.corrcoef(x, places)[0, 1]) < bound, "position and sample"
        assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < bound + 1 / size, (
            "neighbours"
        )
        ups = np.count_nonzero(np.diff(places) > 0)
        assert abs(ups - (size - 1) / 2) < 4 * np.sqrt((size + 1) / 12), (
            "runs up and down"
        )
        first_half = np.bincount(
            (places[: size // 2] * 20 / n).astype(int), minlength=20
        )
        assert deviates(first_half) < 6, (
            "buckets"
        )  # a chi-square of few buckets has a long tail


def multiples(n, keys, seed):
    """x -> a x + b mod n, n a prime: any two numbers go to all pairs of places alike."""
    random = np.random.default_rng(seed)
    factors = random.integers(1, n, (keys, 1))
    steps = random.integers(0, n, (keys, 1))
    yield (factors * np.arange(n) + steps) % n


def almost(n, keys, seed):
    """NumPy's permutations, but one in a hundred only moves all numbers on, round a ring."""
    for block in numpys(n, keys, seed):
        turns = np.arange(len(block) // 100)[:, None]
        block[: len(turns)] = (np.arange(n) + turns) % n
        yield block


@pytest.mark.parametrize("draw", [ours, numpys])
def test_the_battery_tells_no_permutation_from_a_uniform_one(draw):
    """Distances, steps, ascents, turns, fixed points, cycles, parity and pairs of places: see there."""
    found = battery(draw, [2, 3, 5, 8, 31, 64], keys=20_000, seed=1)
    assert {test for test, p in found.items() if p < 0.01} == set()
    assert len(found) > 120


@pytest.mark.parametrize("poor", [multiples, almost])
def test_the_battery_refuses_poor_shuffles(poor):
    refused = {
        test
        for (_, test), p in battery(poor, [31], keys=20_000, seed=1).items()
        if p < 0.01
    }
    assert len(refused) > 3


# ---- the coin flips


@pytest.mark.parametrize(("x", "y"), [(0, 1), (0, 32), (5, 16), (31, 32), (62, 63)])
def test_two_positions_come_to_every_pair_of_places_alike(x, y):
    """Worked out, not sampled: in a stage of fair coins, a pair that flips one coin moves together, others apart."""
    likely, place = np.zeros((64, 64)), np.arange(64)
    likely[x, y] = 1
    for stage in range(STAGES):
        other = place ^ (1 << stage % 6)
        partners = other[:, None] == place
        together = np.where(partners, likely, 0)
        apart = likely - together
        apart = (
            apart + apart[other] + apart[:, other] + apart[np.ix_(other, other)]
        ) / 4
        likely = (together + together[np.ix_(other, other)]) / 2 + apart
    pairs = likely[~np.eye(64, dtype=bool)]
    assert np.abs(pairs * 64 * 63 - 1).max() < 0.016
    assert likely.sum(axis=1) == pytest.approx(1 / 64)
