"""Who reads which position, and when: the schedule's arithmetic against plain.py, which deals positions out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.streaming.resumable import position_at, rank_item

schedules = st.builds(
    Schedule,
    dp_size=st.integers(1, 4),
    micro_batch_size=st.integers(1, 4),
    batch_accumulation_per_replica=st.integers(1, 3),
    layout=st.sampled_from(["strided", "contiguous"]),
    consumed_train_samples=st.integers(0, 30),
    first_step=st.integers(1, 5),
)


@given(schedules)
def test_every_rank_reads_what_plain_deals_out(schedule):
    dp_size, batch_size, accumulation, layout, consumed, first_step = vars(
        schedule
    ).values()
    positions = range(consumed, consumed + 3 * schedule.global_batch_size)
    for rank in range(dp_size):
        batches = plain.micro_batches_of_rank(
            positions, rank, dp_size, batch_size, layout
        )
        assert schedule.rank_batches(consumed, rank, len(batches)).tolist() == batches
        read = [position for batch in batches for position in batch]
        assert [
            position_at(schedule, consumed, rank, item) for item in range(len(read))
        ] == read
    for position in positions:
        slot = schedule.slot(position)
        found = 1 + slot.step - first_step, slot.micro_batch, slot.dp_rank, slot.row
        assert found == plain.slot(
            position - consumed, dp_size, batch_size, accumulation, layout
        )
        assert position in schedule.positions(slot.step)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 40))
def test_workers_make_the_batches_that_torch_takes_in_turn(
    num_workers, batch_size, num_batches
):
    batches = [
        list(range(k * batch_size, (k + 1) * batch_size)) for k in range(num_batches)
    ]
    made = [
        [sample for batch in batches[worker::num_workers] for sample in batch]
        for worker in range(num_workers)
    ]
    assert plain.interleave(made, batch_size) == batches
    for worker, samples in enumerate(made):
        assert [
            rank_item(item, worker, num_workers, batch_size)
            for item in range(len(samples))
        ] == samples


def test_steps_before_the_schedule_are_refused():
    schedule = Schedule(dp_size=2, consumed_train_samples=10, first_step=6)
    assert list(schedule.positions(6)) == [10, 11]
    with pytest.raises(IndexError, match="begins at step 6; step 5 came before it"):
        schedule.positions(5)
    with pytest.raises(IndexError, match="begins at position 10; 9 came before it"):
        schedule.slot(9)
    with pytest.raises(
        ValueError, match="consumed_train_samples must be at least 0, got -1"
    ):
        Schedule(consumed_train_samples=-1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64])
def test_integers_of_any_kind_are_positions(dtype):
    schedule = Schedule(dp_size=3, micro_batch_size=100, consumed_train_samples=5)
    position = dtype(9)
    assert schedule.slot(position) == schedule.slot(9)
    assert schedule.slot(position + np.zeros(1, dtype)) == schedule.slot(9)
    for before in (dtype(3), np.array([9, 3], dtype)):
        with pytest.raises(IndexError, match="begins at position 5; .*3"):
            schedule.slot(before)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64])
def test_steps_of_any_kind_name_the_same_positions(dtype):
    """NumPy's small integers wrap around: step 100 of int8 read other positions."""
    schedule = Schedule(dp_size=1024, micro_batch_size=3000, first_step=5)
    step = dtype(100)
    assert schedule.positions(step) == schedule.positions(100)
    first = 95 * 1024 * 3000
    assert schedule.first_position(step) == first == schedule.first_position(100)
    assert schedule.first_position(np.array([step, step])).tolist() == [first, first]


@pytest.mark.parametrize("position", [3.5, 3.0, True, "3", np.array([1.0, 2.0])])
def test_a_position_is_an_integer(position) -> None:
    with pytest.raises(TypeError, match="positions must be integers, got"):
        Schedule().slot(position)
