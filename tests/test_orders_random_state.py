"""NumPy's legacy shuffle, number for number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.orders.random_state import draw_places, shuffle


@given(st.integers(0, 3000), st.integers(0, 2**32 - 1))
def test_a_shuffle_is_that_of_numpy(n, seed):
    ours, theirs = np.arange(n, dtype=np.uint32), np.arange(n, dtype=np.uint32)
    shuffle(ours, seed)
    np.random.RandomState(seed).shuffle(theirs)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("n", [2**16 - 1, 2**16, 2**16 + 1, 624 * 100, 300_007])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_long_shuffle_is_that_of_numpy(n, dtype):
    ours, theirs = np.arange(n, dtype=dtype), np.arange(n, dtype=dtype)
    shuffle(ours, 1234)
    np.random.RandomState(1234).shuffle(theirs)
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("i", [2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**32 + 17, 2**40 + 12_345])
def test_places_of_more_than_32_bits_are_drawn_from_two_words(i):
    """An array that long would need 32 GiB; RandomState.randint draws from the same stream by the same rule."""
    generator = np.random.RandomState(7)
    _, state, *_ = np.random.RandomState(7).get_state()
    state, words, used = np.asarray(state, dtype=np.uint32).copy(), np.empty(624, dtype=np.uint32), 624
    places, drawn = np.empty(624, dtype=np.int64), []
    at = i
    while len(drawn) < 400:
        following, used, count = draw_places(at, state, words, used, places)
        assert following == at - count
        drawn += places[:count].tolist()
        at = following
    assert drawn == [generator.randint(0, i - number + 1, dtype=np.int64) for number in range(len(drawn))]
