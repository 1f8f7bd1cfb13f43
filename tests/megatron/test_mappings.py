"""The three mappings and the blends against the plain way to make them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.megatron import blend_by_weight, blend_everything, build_mappings, plan_epochs

EXAMPLES = settings(max_examples=100, deadline=None)


@EXAMPLES
@given(
    lengths=st.lists(st.integers(0, 30), min_size=2, max_size=12).filter(lambda lengths: any(lengths[1:])),
    samples=st.none() | st.integers(0, 60),
    sequence_length=st.integers(1, 20),
    extra=st.booleans(),
    partial=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_mappings_are_those_of_the_plain_way(
    lengths: list[int], samples: int | None, sequence_length: int, extra: bool, partial: bool, seed: int
) -> None:
    if partial:  # a partial sample at the end of an empty sequence is what upstream refuses
        lengths = [max(1, length) for length in lengths]
    first, stop, tokens = 1, len(lengths), sum(lengths[1:])
    plan = plan_epochs(tokens, samples, sequence_length, extra_token=extra, drop_last_partial=not partial)
    expected = plain.megatron_epochs(tokens, samples, sequence_length, extra, partial)
    assert (plan.num_epochs, plan.num_samples, plan.num_samples_before_final_epoch) == expected
    assert plan.num_samples >= (samples or 0)
    sizes = np.array(lengths, dtype=np.int32)
    found = build_mappings(sizes, first, stop, plan, sequence_length, seed, extra_token=extra)
    documents, cuts, order = found.values()
    if plan.separate_final_epoch:
        assert sorted(documents[first - stop :].tolist()) == list(range(first, stop))
    indexes = plain.megatron_indexes(lengths, (first, stop), expected, sequence_length, seed, extra)
    for one, other in zip((documents, cuts, order), indexes, strict=True):
        assert one.tolist() == np.array(other).tolist()


def test_the_last_epoch_is_apart_below_80_per_cent() -> None:
    """1,001 tokens, samples of 10: an epoch has 100 samples, two have 200."""
    for wanted, apart in ((101, True), (179, True), (180, False), (200, False), (201, True)):
        plan = plan_epochs(1001, wanted, 10)
        assert (plan.num_epochs, plan.separate_final_epoch) == (2 if wanted <= 200 else 3, apart)
        assert plan.num_samples_before_final_epoch == ((plan.num_epochs - 1) * 100 if apart else plan.num_samples)


def test_the_last_partial_sample_is_counted_in_float32() -> None:
    """2**24 + 2 tokens, so 2**24 + 1 inputs in samples of 2: 8,388,608.5 of them, but float32 sees 2**24 inputs."""
    assert plan_epochs(2**24 + 2, None, 2, drop_last_partial=False).num_samples == 2**23


def test_no_tokens_are_an_error_where_samples_are_wanted() -> None:
    assert plan_epochs(0, None, 8).num_samples == 0
    with pytest.raises(ZeroDivisionError):
        plan_epochs(0, 5, 8)


@EXAMPLES
@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=6), size=st.integers(0, 200))
def test_a_blend_by_weight_is_the_greedy_one(weights: list[int], size: int) -> None:
    shares = plain.normalise(weights)
    index, samples, counts = blend_by_weight(shares, size)
    assert np.stack([index, samples], axis=1).tolist() == plain.greedy_blend(shares, size).tolist()
    assert counts.tolist() == np.bincount(index, minlength=len(shares)).tolist()
    for count, weight in zip(counts.tolist(), weights, strict=True):
        assert abs(count - Fraction(size * weight, sum(weights))) < len(weights) + 1


@EXAMPLES
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_blend_of_everything_reads_every_sample_once(sizes: list[int]) -> None:
    index, samples, counts = blend_everything(sizes)
    blend = np.stack([index, samples], axis=1).tolist()
    assert blend == plain.blend_everything(sizes).tolist()
    assert sorted(blend) == [[d, i] for d, size in enumerate(sizes) for i in range(size)]
    assert counts.tolist() == sizes
