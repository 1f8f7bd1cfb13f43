"""The three mappings and the blends against slow, obvious ways to make them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.megatron.blending import blend_by_weight, blend_everything
from nanoset_ref.megatron.mappings import build_mappings, build_sample_index, plan_epochs
from nanoset_ref.orders.random_state import ShuffleStream

EXAMPLES = settings(max_examples=60, deadline=None)


def test_the_small_example_of_the_documentation() -> None:
    """Lengths [5, 2, 4] read in the order 2, 0, 1 and cut every 3 tokens."""
    lengths, order = np.array([5, 2, 4], dtype=np.int32), np.array([2, 0, 1], dtype=np.int32)
    assert build_sample_index(lengths, order, 3, 3).tolist() == [[0, 0], [0, 3], [1, 2], [2, 0]]


@EXAMPLES
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any),
    sequence_length=st.integers(1, 12),
    extra=st.booleans(),
    epochs=st.integers(1, 3),
)
def test_a_sample_begins_where_its_neighbour_ends(
    lengths: list[int], sequence_length: int, extra: bool, epochs: int
) -> None:
    order = list(range(len(lengths))) * epochs
    owners = [(i, offset) for i, sequence in enumerate(order) for offset in range(lengths[sequence])]
    samples = max(0, len(owners) - extra) // sequence_length
    found = build_sample_index(
        np.array(lengths, dtype=np.int32), np.array(order, dtype=np.int32), samples, sequence_length, extra_token=extra
    )
    expected = [[0, 0]]
    for j in range(1, samples + 1):
        i, offset = owners[j * sequence_length + extra - 1]  # the last token of sample j - 1
        expected.append([i, offset + 1 - extra])
    assert found.tolist() == expected


@EXAMPLES
@given(
    tokens=st.integers(1, 300),
    samples=st.none() | st.integers(0, 200),
    sequence_length=st.integers(1, 50),
    extra=st.booleans(),
)
def test_epochs_are_as_few_as_suffice(tokens: int, samples: int | None, sequence_length: int, extra: bool) -> None:
    plan = plan_epochs(tokens, samples, sequence_length, extra_token=extra)

    def available(epochs: int) -> int:
        return max(0, epochs * tokens - extra) // sequence_length

    assert plan.num_samples == available(plan.num_epochs)
    if samples is None:
        assert plan.num_epochs == 1
    else:
        assert plan.num_samples >= samples
        assert plan.num_epochs == 1 or (plan.num_epochs - 1) * tokens < samples * sequence_length + extra
        needed = samples - available(plan.num_epochs - 1)
        assert plan.separate_final_epoch == (plan.num_epochs > 1 and needed < int(0.8 * available(1)))
    if plan.separate_final_epoch:
        assert plan.num_samples_before_final_epoch == available(plan.num_epochs - 1)
    else:
        assert plan.num_samples_before_final_epoch == plan.num_samples


def test_the_last_epoch_is_apart_below_80_per_cent() -> None:
    """1,001 tokens, samples of 10: an epoch has 100 samples, two have 200."""
    for wanted, apart in ((101, True), (179, True), (180, False), (200, False), (201, True)):
        plan = plan_epochs(1001, wanted, 10)
        assert (plan.num_epochs, plan.separate_final_epoch) == (2 if wanted <= 200 else 3, apart)
        assert plan.num_samples_before_final_epoch == ((plan.num_epochs - 1) * 100 if apart else plan.num_samples)


def test_the_last_partial_sample_is_counted_in_float32() -> None:
    """2**24 + 2 tokens, so 2**24 + 1 inputs in samples of 2: 8,388,608.5 of them, but float32 sees 2**24 inputs."""
    assert plan_epochs(2**24 + 2, None, 2, drop_last_partial=False).num_samples == 2**23
    assert plan_epochs(2**24, None, 2, drop_last_partial=False).num_samples == 2**23
    assert plan_epochs(10, None, 4, drop_last_partial=False).num_samples == math.ceil(9 / 4)


def test_no_tokens_are_an_error_where_samples_are_wanted() -> None:
    assert plan_epochs(0, None, 8).num_samples == 0
    with pytest.raises(ValueError, match="5 samples cannot be drawn from no tokens"):
        plan_epochs(0, 5, 8)


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(0, 700), max_size=4))
def test_shuffles_follow_one_random_state(seed: int, sizes: list[int]) -> None:
    ours, numpy = ShuffleStream(seed), np.random.RandomState(seed)
    for size in sizes:
        a, b = np.arange(size, dtype=np.int32), np.arange(size, dtype=np.int32)
        ours.shuffle(a)
        numpy.shuffle(b)
        assert a.tolist() == b.tolist()


@EXAMPLES
@given(
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=12), samples=st.integers(1, 60), seed=st.integers(0, 999)
)
def test_mappings_are_permutations_and_a_separate_epoch_comes_last(lengths: list[int], samples: int, seed: int) -> None:
    first, stop = 1, len(lengths)
    plan = plan_epochs(sum(lengths[1:]), samples, 7)
    found = build_mappings(np.array(lengths, dtype=np.int32), first, stop, plan, 7, seed)
    assert sorted(found["document_index"].tolist()) == sorted(list(range(first, stop)) * plan.num_epochs)
    assert sorted(found["shuffle_index"].tolist()) == list(range(plan.num_samples))
    if plan.separate_final_epoch:
        before = plan.num_samples_before_final_epoch
        assert sorted(found["document_index"][-(stop - first) :].tolist()) == list(range(first, stop))
        assert sorted(found["shuffle_index"][:before].tolist()) == list(range(before))


# ---- blends


def greedy(weights: list[float], size: int, limits: list[float]) -> tuple[list[int], list[int]]:
    """The dataset that lags most behind, in exact arithmetic on the rounded products, one position after another."""
    taken, index, samples = [0] * len(weights), [], []
    for t in range(size):
        errors = [
            w * max(float(t), 1.0) - n if n < limit else -math.inf
            for w, n, limit in zip(weights, taken, limits, strict=True)
        ]
        winner = errors.index(max(errors))
        index.append(winner)
        samples.append(taken[winner])
        taken[winner] += 1
    return index, samples


@EXAMPLES
@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=6), size=st.integers(0, 200))
def test_a_blend_by_weight_is_the_greedy_one(weights: list[int], size: int) -> None:
    shares = (np.array(weights, dtype=np.float64) / sum(weights)).tolist()
    index, samples, counts = blend_by_weight(shares, size)
    assert (index.tolist(), samples.tolist()) == greedy(shares, size, [math.inf] * len(shares))
    assert counts.tolist() == np.bincount(index, minlength=len(shares)).tolist()
    for count, weight in zip(counts.tolist(), weights, strict=True):
        assert abs(count - Fraction(size * weight, sum(weights))) < len(weights) + 1


@EXAMPLES
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_blend_of_everything_reads_every_sample_once(sizes: list[int]) -> None:
    index, samples, counts = blend_everything(sizes)
    shares = [size / sum(sizes) for size in sizes]
    assert (index.tolist(), samples.tolist()) == greedy(shares, sum(sizes), [float(size) for size in sizes])
    assert sorted(zip(index.tolist(), samples.tolist(), strict=True)) == [
        (d, i) for d, size in enumerate(sizes) for i in range(size)
    ]
    assert counts.tolist() == sizes
