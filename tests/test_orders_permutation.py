"""The computed shuffle and the network of a hand: permutations, inverted, and as good as chance."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.orders import StatelessOrder
from nanoset_ref.orders.network import (
    SIZE,
    below,
    fetch,
    fetch_many,
    fill_switches,
    ones,
    select,
    send,
    send_many,
)
from nanoset_ref.orders.permutation import derive, permute, permute_many, sides, unpermute

keys = st.integers(0, 2**64 - 1)


def permutations(n, count):
    """The permutations of range(n) that keys derived from 11 name: int64 [count, n]."""
    named = np.repeat(np.array([derive(np.uint64(11), number) for number in range(count)], dtype=np.uint64), n)
    places = np.tile(np.arange(n, dtype=np.uint64), count)
    n_a_b = (np.full(len(places), value, dtype=np.uint64) for value in (n, *sides(n)))
    permute_many(places, *n_a_b, named)
    return places.astype(np.int64).reshape(count, n)


def deviates(tally):
    """By how many standard deviations the chi-square of a tally of equally likely things is above its mean."""
    expected = tally.sum() / tally.size
    chi_square = ((tally - expected) ** 2 / expected).sum()
    return (chi_square - tally.size + 1) / np.sqrt(2 * (tally.size - 1))


# ---- the permutation


def slow(x, n, key):
    """The documented steps, in Python's integers."""
    word, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
        return z ^ (z >> 31)

    a = 8
    while a * a < n:
        a += 2
    b = max(-(-n // a), 8)
    row, column = divmod(x, b)
    while True:
        for number in range(6):
            other = column if number % 2 == 0 else row
            hashed = mix((other + key + (number + 1) * golden) & word) >> 26
            if number % 2 == 0:
                row = (row + (hashed * a >> 38)) % a
            else:
                column = (column + (hashed * b >> 38)) % b
        if row * b + column < n:
            return row * b + column


@given(st.integers(1, 10**6), keys, st.data())
def test_a_permutation_is_what_its_steps_say(n, key, data):
    x = data.draw(st.integers(0, n - 1))
    assert permute(x, n, np.uint64(key)) == slow(x, n, key)


@given(st.integers(1, 2**48), keys, st.data())
def test_a_permutation_is_inverted_at_any_size(n, key, data):
    x = data.draw(st.integers(0, n - 1))
    place = permute(x, n, np.uint64(key))
    assert 0 <= place < n
    assert unpermute(place, n, np.uint64(key)) == x


@given(st.integers(1, 300), keys)
def test_a_permutation_hits_every_place_once_and_alike_in_bulk(n, key):
    places = [permute(x, n, np.uint64(key)) for x in range(n)]
    assert sorted(places) == list(range(n))
    bulk = np.arange(n, dtype=np.uint64)
    permute_many(bulk, *(np.full(n, value, dtype=np.uint64) for value in (n, *sides(n), key)))
    assert bulk.tolist() == places


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_permutations_of_a_small_range_are_equally_likely(n):
    drawn = permutations(n, 120_000) @ n ** np.arange(n)
    every = [int(np.dot(order, n ** np.arange(n))) for order in itertools.permutations(range(n))]
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


@pytest.mark.parametrize("n", [1000, 1023, 1024, 1025, 99_991, 10**6, 10**9, 10**12 + 39])
def test_a_permutation_is_a_good_shuffle(n):
    """Four standard deviations each, over several keys, for what a uniform shuffle would give."""
    size = min(n, 20_000)
    for key in range(5):
        places = StatelessOrder([n], None, n, key)[:size][1].astype(np.float64)
        x = np.arange(size)
        bound = 4 / np.sqrt(size)
        assert abs(np.corrcoef(x, places)[0, 1]) < bound, "position and sample"
        assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < bound + 1 / size, "neighbours"
        ups = np.count_nonzero(np.diff(places) > 0)
        assert abs(ups - (size - 1) / 2) < 4 * np.sqrt((size + 1) / 12), "runs up and down"
        first_half = np.bincount((places[: size // 2] * 20 / n).astype(int), minlength=20)
        assert deviates(first_half) < 6, "buckets"  # a chi-square of few buckets has a long tail


# ---- the network


def as_set(mask):
    return {place for place in range(SIZE) if int(mask) >> place & 1}


@given(keys, st.integers(1, SIZE), st.data())
def test_a_network_is_a_permutation_and_tells_who_comes_to_which_places(key, size, data):
    first = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(first, size))
    switches = np.empty(6, dtype=np.uint64)
    fill_switches(np.uint64(key), switches)
    places = [send(switches, item, size) for item in range(size)]
    assert sorted(places) == list(range(size))
    wanted = {item for item, place in enumerate(places) if first <= place < stop}
    assert as_set(fetch(switches, below(stop) ^ below(first), size)) == wanted


def test_many_networks_are_what_each_is():
    named = np.array([derive(np.uint64(5), number) for number in range(300)], dtype=np.uint64)
    sizes = np.where(np.arange(300) % 3 == 0, SIZE, 1 + np.arange(300) % SIZE)
    items = np.arange(300) % sizes
    places = items.astype(np.uint64)
    masks = np.array([below(size) ^ below(size // 3) for size in sizes], dtype=np.uint64)
    wanted, together, alone = masks.copy(), np.empty((6, 300), dtype=np.uint64), np.empty(6, dtype=np.uint64)
    send_many(named, together, places, sizes)
    fetch_many(together, masks, sizes)
    for number in range(300):
        fill_switches(named[number], alone)
        assert send(alone, items[number], sizes[number]) == places[number]
        assert fetch(alone, wanted[number], sizes[number]) == masks[number]


@pytest.mark.parametrize(("x", "y"), [(0, 1), (0, 32), (5, 16), (31, 32), (62, 63)])
def test_a_network_sends_two_items_to_all_pairs_of_places_alike(x, y):
    named = np.array([derive(np.uint64(9), number) for number in range(100_000)], dtype=np.uint64)
    switches, tally = np.empty((6, len(named)), dtype=np.uint64), np.zeros((SIZE, SIZE))
    found = []
    for item in (x, y):
        found.append(np.full(len(named), item, dtype=np.uint64))
        send_many(named, switches, found[-1], np.full(len(named), SIZE))
    np.add.at(tally, (found[0].astype(int), found[1].astype(int)), 1)
    assert deviates(tally[~np.eye(SIZE, dtype=bool)]) < 4


@given(keys)
def test_bits_are_counted_and_selected(mask):
    places = sorted(as_set(mask))
    assert ones(np.uint64(mask)) == len(places)
    for rank, place in enumerate(places):
        assert select(np.uint64(mask), rank) == place
        assert ones(np.uint64(mask) & below(place)) == rank
