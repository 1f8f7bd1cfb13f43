"""Which positions a rank reads: torch's numbers, the field's layouts, and one global order under all of them."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    SequentialSampler,
)

from nanoset_ref import plain
from nanoset_ref.load.dataloader import NanosetDataLoader
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.load.skip_sampler import SkipBatchSampler
from nanoset_ref.load.worker_init import worker_seed


def lists(sampler):
    return [list(batch) for batch in sampler]


# ---- torch's DistributedSampler, as the field knows it


@given(st.integers(1, 60), st.integers(1, 8))
def test_strided_with_pad_is_torch_distributed_sampler(num_samples, dp_size):
    for rank in range(dp_size):
        ours = [
            k
            for batch in ResumableBatchSampler(
                num_samples, 1, rank, dp_size, tail="pad"
            )
            for k in batch
        ]
        assert ours == list(
            DistributedSampler(
                range(num_samples), num_replicas=dp_size, rank=rank, shuffle=False
            )
        )


# ---- our own


@given(
    st.integers(1, 80),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 200),
    st.sampled_from(["strided", "contiguous"]),
    st.sampled_from(["drop", "pad", "loop"]),
)
def test_ranks_share_the_rest_of_the_epoch_in_order(
    num_samples, micro_batch_size, dp_size, consumed, layout, tail
):
    assume(tail != "drop" or num_samples >= dp_size * micro_batch_size)
    samplers = [
        ResumableBatchSampler(
            num_samples,
            micro_batch_size,
            r,
            dp_size,
            consumed,
            layout=layout,
            tail=tail,
        )
        for r in range(dp_size)
    ]
    left = plain.positions_left(num_samples, consumed, dp_size, micro_batch_size, tail)
    expected = [
        plain.micro_batches_of_rank(left, rank, dp_size, micro_batch_size, layout)
        for rank in range(dp_size)
    ]
    added = len(left) - (num_samples - consumed % num_samples)
    rests = [s.remaining(consumed) for s in samplers]
    assert {(rest.dropped, rest.repeated) for rest in rests} == {
        (max(-added, 0), max(added, 0))
    }
    assert [len(s) for s in samplers] == [len(e) for e in expected]
    assert [lists(s) for s in samplers] == expected
    assert all(
        s.consumed_train_samples == (consumed // num_samples + 1) * num_samples
        for s in samplers
    )


def test_ten_to_the_twelve_consumed_samples_cost_nothing():
    tracemalloc.start()
    sampler = ResumableBatchSampler(4 * 10**12, 8, 3, 1024, 10**12)
    first = next(iter(sampler))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert list(first) == [10**12 + 3 + 1024 * i for i in range(8)]
    assert peak < 100_000


def test_an_iterator_that_is_never_advanced_consumes_nothing():
    sampler = ResumableBatchSampler(12, 2, consumed_train_samples=4)
    iter(sampler)
    iter(sampler)
    assert lists(sampler) == [[4, 5], [6, 7], [8, 9], [10, 11]]
    assert lists(sampler)[0] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
        ({"micro_batch_size": 0}, "micro_batch_size must be at least 1"),
        ({"dp_rank": 2}, "dp_rank must be at least 0 and below dp_size=2, got 2"),
        ({"dp_rank": -1}, "dp_rank must be at least 0"),
        ({"dp_size": 0}, "dp_size must be at least 1"),
        (
            {"consumed_train_samples": -1},
            "consumed_train_samples must be at least 0, got -1",
        ),
        (
            {"micro_batch_size": 2.0},
            "micro_batch_size must be an integer of at least 1, got 2.0",
        ),
        ({"dp_size": True}, "dp_size must be an integer of at least 1, got True"),
        (
            {"dp_rank": np.False_},
            "dp_rank must be an integer of at least 0, got np.False_",
        ),
        (
            {"num_samples": "10"},
            "num_samples must be an integer of at least 1, got '10'",
        ),
        (
            {"consumed_train_samples": True},
            "consumed_train_samples must be an integer of at least 0, got True",
        ),
        (
            {"num_samples": 3},
            r"3 samples do not fill one batch of 4 .dp_size=2 x micro_batch_size=2",
        ),
        ({"layout": "diagonal"}, "layout must be one of .* got 'diagonal'"),
        ({"tail": "wag"}, "tail must be one of .* got 'wag'"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResumableBatchSampler(
            **{
                "num_samples": 10,
                "micro_batch_size": 2,
                "dp_rank": 0,
                "dp_size": 2,
                **arguments,
            }
        )


def test_integers_of_numpy_are_integers():
    ten, two = np.int64(10), np.uint8(2)
    sampler = ResumableBatchSampler(ten, two, np.int32(1), two, ten)
    sampler.load_state_dict({"consumed_train_samples": np.int64(8)})
    numbers = [
        sampler.consumed_train_samples,
        sampler.micro_batch_size,
        sampler.dp_rank,
        sampler.num_samples,
    ]
    assert [(type(number), number) for number in numbers] == [
        (int, 8),
        (int, 2),
        (int, 1),
        (int, 10),
    ]
    assert json.dumps(sampler.state_dict()) == '{"consumed_train_samples": 8}'


def test_the_rest_of_an_epoch_may_be_shorter_than_a_batch():
    sampler = ResumableBatchSampler(10, 4, consumed_train_samples=7)
    assert [lists(sampler), lists(sampler)] == [[], [[0, 1, 2, 3], [4, 5, 6, 7]]]


@pytest.mark.parametrize(
    "state",
    [
        {},
        None,
        [1],
        1.5,
        *({"consumed_train_samples": it} for it in (-3, 1.5, "3", 2**63)),
    ],
)
def test_invalid_states_are_refused(state):
    for loader in (
        sampler := ResumableBatchSampler(10, 1),
        NanosetDataLoader(range(10), sampler),
    ):
        with pytest.raises(
            ValueError,
            match=r"a state holds consumed_train_samples, an integer of 0 .. 2\*\*63 - 1; got",
        ):
            loader.load_state_dict(state)


# ---- SkipBatchSampler


def test_resuming_after_a_crash_at_iteration_17_reads_sample_70_first():
    sampler = DistributedSampler(range(1000), num_replicas=4, rank=2, shuffle=False)
    assert list(sampler)[17] == 70
    assert next(iter(SkipBatchSampler(sampler, 17 * 4, 4))) == 70


def test_only_the_first_iteration_that_is_used_skips():
    """A DataLoader with workers calls iter() twice."""
    sampler = SkipBatchSampler(
        BatchSampler(SequentialSampler(range(8)), 2, drop_last=True), 4, dp_size=2
    )
    loader = DataLoader(range(8), batch_sampler=sampler, num_workers=1)
    for expected in ([[4, 5], [6, 7]], [[0, 1], [2, 3], [4, 5], [6, 7]]):
        assert len(loader) == len(expected)
        assert [batch.tolist() for batch in loader] == expected


def test_the_length_of_a_skipping_sampler_is_that_of_the_iteration_under_way():
    sampler = SkipBatchSampler(range(10), 4, dp_size=1)
    lengths = [len(sampler)] + [len(sampler) for _ in sampler]
    assert lengths == 7 * [6]
    assert len(sampler) == len(list(sampler)) == 10
    left = SkipBatchSampler(range(10), 4, dp_size=1)
    assert next(iter(left)) == 4, "an iteration that is given up is over"
    assert len(left) == len(list(left)) == 10


def test_a_skip_that_cannot_be_exact_is_refused():
    for skip_samples, dp_size, message in (
        (17, 3, "skip_samples=17 over dp_size=3 ranks is not .*ResumableBatchSampler"),
        (3, 1, "exceeds the sampler's 2 items"),
        (-1, 1, "at least"),
    ):
        with pytest.raises(ValueError, match=message):
            SkipBatchSampler([[0], [1]], skip_samples, dp_size)


def test_a_sampler_that_can_be_sliced_is_not_walked_through():
    assert (
        next(iter(SkipBatchSampler(range(10**12), 10**12 - 4, 4))) == (10**12 - 4) // 4
    )


# ---- worker seeds


def test_worker_seeds_are_distinct_for_64_by_64_and_depend_on_the_run():
    seeds = {
        worker_seed(1234, rank, worker) for rank in range(64) for worker in range(64)
    }
    assert len(seeds) == 64 * 64
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert seeds.isdisjoint(
        worker_seed(1235, rank, worker) for rank in range(64) for worker in range(64)
    )


def test_worker_seed_ranges_are_checked():
    with pytest.raises(ValueError, match="65536"):
        worker_seed(0, 65536, 0)


@pytest.mark.parametrize("tail", ["drop", "pad", "loop"])
@pytest.mark.parametrize("num_samples", [16, 18])
def test_after_the_last_batch_of_an_epoch_the_next_epoch_begins(num_samples, tail):
    """A dropped tail is counted with it: a run that stops there, or later, resumes alike in any layout."""
    sampler = ResumableBatchSampler(num_samples, 2, 1, 4, tail=tail)
    counts = [sampler.consumed_train_samples for _ in sampler]
    assert counts == [*range(8, 8 * len(counts), 8), num_samples]
    for dp_size, micro_batch_size in ((4, 2), (1, 2), (1, 1)):
        resumed = ResumableBatchSampler(
            num_samples, micro_batch_size, 0, dp_size, counts[-1], tail=tail
        )
        assert next(iter(resumed))[0] == 0
