"""NumPy's legacy shuffle, number for number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.orders import mt19937


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    """Short arrays too are shuffled by the kernel."""
    monkeypatch.setattr(mt19937, "MIN_NUMBA_LENGTH", 0)


def check_shuffles(sizes, seed, dtype=np.uint32):
    """The shuffles of one stream, one after another."""
    generator = np.random.RandomState(seed)
    ours, theirs = ([np.arange(size, dtype=dtype) for size in sizes] for _ in range(2))
    mt19937.shuffle(seed, *ours)
    for values, expected in zip(ours, theirs, strict=True):
        generator.shuffle(expected)
        assert np.array_equal(values, expected)


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=3), st.integers(0, 2**32 - 1)
)
def test_shuffles_are_those_of_numpy(sizes, seed):
    check_shuffles(sizes, seed)


@pytest.mark.parametrize("size", [2**16 - 1, 2**16, 2**16 + 1, 624 * 100, 300_007])
def test_a_long_shuffle_is_that_of_numpy(size):
    check_shuffles([size], 1234, np.uint64)


def test_draws_of_two_words_are_left_to_numpy_within_the_same_stream(
    monkeypatch,
):
    monkeypatch.setattr(mt19937, "MAX_LENGTH", 100)
    check_shuffles([99, 1000, 100, 101, 50], 7)
