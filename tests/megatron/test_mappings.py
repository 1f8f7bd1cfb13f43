"""The three mappings and the blends against the plain way to make them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.megatron import blend_samples, build_mappings, plan_epochs

EXAMPLES = settings(max_examples=100, deadline=None)


@EXAMPLES
@given(
    lengths=st.lists(st.integers(0, 30), min_size=2, max_size=12).filter(
        lambda lengths: any(lengths[1:])
    ),
    samples=st.none() | st.integers(0, 60),
    sequence_length=st.integers(1, 20),
    extra=st.booleans(),
    partial=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_mappings_are_those_of_the_plain_way(
    lengths, samples, sequence_length, extra, partial, seed
):
    if (
        partial
    ):  # a partial sample at the end of an empty sequence is what upstream refuses
        lengths = [max(1, length) for length in lengths]
    first, stop, tokens = 1, len(lengths), sum(lengths[1:])
    plan = plan_epochs(
        tokens,
        samples,
        sequence_length,
        extra_token=extra,
        drop_last_partial=not partial,
    )
    expected = plain.megatron_epochs(tokens, samples, sequence_length, extra, partial)
    assert (
        plan.num_epochs,
        plan.num_samples,
        plan.num_samples_before_final_epoch,
    ) == expected
    assert plan.num_samples >= (samples or 0)
    sizes = np.array(lengths, dtype=np.int32)
    found = build_mappings(
        sizes, first, stop, plan, sequence_length, seed, extra_token=extra
    )
    documents, cuts, order = found.values()
    if plan.separate_final_epoch:
        assert sorted(documents[first - stop :].tolist()) == list(range(first, stop))
    indexes = plain.megatron_indexes(
        lengths, (first, stop), expected, sequence_length, seed, extra
    )
    for one, other in zip((documents, cuts, order), indexes, strict=True):
        assert one.tolist() == np.array(other).tolist()


def test_the_last_partial_sample_is_counted_in_float32():
    """2**24 + 2 tokens, so 2**24 + 1 inputs in samples of 2: 8,388,608.5 of them, but float32 sees 2**24 inputs."""
    assert plan_epochs(2**24 + 2, None, 2, drop_last_partial=False).num_samples == 2**23


def test_no_tokens_are_an_error_where_samples_are_wanted():
    assert plan_epochs(0, None, 8).num_samples == 0
    with pytest.raises(ZeroDivisionError):
        plan_epochs(0, 5, 8)


@EXAMPLES
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6), size=st.integers(0, 200)
)
def test_blends_are_the_plain_ones_and_have_their_shares(sizes, size):
    shares = plain.normalize(sizes)
    limits = np.full(len(sizes), size), np.array(sizes)
    blends = [
        blend_samples(np.array(shares), limit, n)
        for limit, n in zip(limits, (size, sum(sizes)), strict=True)
    ]
    for (index, samples), expected in zip(
        blends,
        [plain.greedy_blend(shares, size), plain.blend_everything(sizes)],
        strict=True,
    ):
        assert np.stack([index, samples], axis=1).tolist() == expected.tolist()
        for count, weight in zip(
            np.bincount(index, minlength=len(sizes)).tolist(), sizes, strict=True
        ):
            assert (
                abs(count - Fraction(len(index) * weight, sum(sizes))) < len(sizes) + 1
            )
    assert np.bincount(blends[1][0]).tolist() == sizes
