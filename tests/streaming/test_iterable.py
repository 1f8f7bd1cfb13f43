"""IterableDataset: the striping of the golden tables, and resumes that are exactly the tail of the run before."""

import json
from types import SimpleNamespace
from unittest import mock

import datasets
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import Ranks
from stream_helpers import (
    ByEpoch,
    Indexed,
    Numbers,
    Twins,
    deal_and_resume,
    hparams,
    read_resumed,
    tag_worker,
    write_text,
)
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from nanoset_ref import plain
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.streaming import HuggingFaceAdapter, IterableDataset, JSONLinesAdapter

CASES = [f"t{number:02}" for number in range(16)]


def epochs_of(dataset, workers=0, epochs=1, batch_size=None):
    loader = DataLoader(
        dataset,
        batch_size or dataset.micro_batch_size,
        num_workers=workers,
        collate_fn=tag_worker,
    )
    return [list(loader) for _ in range(epochs)]


@pytest.fixture(scope="module")
def cases(golden):
    return {
        case["id"]: case
        for case in json.loads((golden / "iterable" / "iterable.json").read_text())[
            "cases"
        ]
    }


def whole_epoch(count, rank, size, workers, batch):
    """The batches of a rank in an epoch without a resume, as plain.py has them."""
    return plain.interleave(
        [
            plain.stripe(range(count), rank, size, worker, workers)
            for worker in range(workers)
        ],
        batch,
    )


@pytest.mark.parametrize("id_", CASES)
def test_golden(cases, id_):
    case = cases[id_]
    batch, workers, size = (
        case.get("batch_size", 1),
        case["num_workers"],
        case["world_size"],
    )
    settings_ = hparams(batch, case.get("accumulate_grad_batches", 1))
    step = case.get("start_from_step")
    make, count = Twins if case.get("generator") else Numbers, case["num_elements"]
    for rank, expected in enumerate(case["ranks"]):
        dataset = IterableDataset(
            settings_, make(count), start_from_step=step, dp_rank=rank, dp_size=size
        )
        epochs = epochs_of(dataset, workers, case.get("epochs", 1))
        assert dataset.dropped == count % size
        skipped = (expected["skipped_rows"] or 0) // (batch * size)
        for number, (epoch, golden) in enumerate(
            zip(epochs, expected["epochs"], strict=True)
        ):
            got = [elements for _, elements in epoch]
            if make is Numbers:  # the tail, and then everything
                assert (
                    got
                    == whole_epoch(count, rank, size, max(workers, 1), batch)[
                        0 if number else skipped :
                    ]
                )
            if id_ in ("t10", "t13", "t14") or (id_, number) == ("t08", 1):
                assert (
                    golden["batches"] != got
                )  # upstream repeats some rows and loses others, or skips in every epoch
                continue
            assert got == golden["batches"]
            assert (
                make is Twins
                or [worker for worker, _ in epoch] == golden["batch_worker"]
            )


# ---- resume

SHAPES = st.tuples(
    st.integers(0, 60),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 12),
)


def as_worker(worker, workers):
    """Here and now this process is one of these DataLoader workers."""
    info = SimpleNamespace(id=worker, num_workers=workers, dataset=None, seed=0)
    return mock.patch.object(torch.utils.data._utils.worker, "_worker_info", info)


def deliver(datasets, workers, batch):
    """What DataLoaders with these workers would deliver on each rank, without starting processes."""
    streams = []
    for dataset in datasets:
        parts = []
        for worker in range(workers):
            with as_worker(worker, workers):
                parts.append(list(dataset))
        streams.append(plain.interleave(parts, batch))
    return streams


@settings(deadline=None, max_examples=150)
@given(SHAPES, st.sampled_from([Numbers, Indexed]))
def test_a_resumed_stream_is_exactly_the_tail(shape, adapter):
    count, size, workers, batch, accumulated, step = shape

    def make(step):
        options = {"start_from_step": step, "dp_size": size}
        return [
            IterableDataset(
                hparams(batch, accumulated), adapter(count), dp_rank=r, **options
            )
            for r in range(size)
        ]

    whole = deliver(make(0), workers, batch)
    resumed = make(step)
    assert deliver(resumed, workers, batch) == [
        stream[step * accumulated :] for stream in whole
    ]
    assert (
        deliver(resumed, workers, batch) == whole
    )  # the skip is for the first epoch only
    assert whole == [
        whole_epoch(count, rank, size, workers, batch) for rank in range(size)
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 20), st.integers(1, 3), st.integers(1, 4), st.integers(0, 8))
def test_elements_made_of_one_line_are_counted_when_they_are_skipped(
    count, workers, batch, step
):
    whole, tail = (
        deliver(
            [IterableDataset(hparams(batch), Twins(count), start_from_step=s)],
            workers,
            batch,
        )[0]
        for s in (0, step)
    )
    last = count // workers * workers  # until here all workers have equally much
    if step <= last * 2 // batch // workers * workers:
        assert tail == whole[step:]


def test_skipped_samples_are_neither_read_nor_preprocessed():
    adapter = Indexed(10**12)
    dataset = IterableDataset(
        hparams(4, 2), adapter, start_from_step=10**10, dp_rank=1, dp_size=2
    )
    assert next(iter(dataset)) == 16 * 10**10 + 1
    assert adapter.read == adapter.preprocessed == [16 * 10**10 + 1]


class Uneven(Numbers):
    """Odd lines make three elements, even ones one: worker 0 of 2 comes to its end first."""

    def preprocess_line(self, line):
        yield from range(3 if line % 2 else 1)


@pytest.mark.parametrize(
    ("make", "count", "workers", "batch", "step", "warned"),
    [
        # ten elements, two workers, batches of up to four: four batches, of which worker 1 continues after the third
        *[
            (make, 10, 2, 4, step, step > 4)
            for make in (Numbers, Indexed)
            for step in (3, 4, 5)
        ],
        (Numbers, 10, 1, 4, 30, True),
        (Uneven, 6, 2, 1, 4, False),
        (Uneven, 6, 2, 1, 8, True),
    ],
)
def test_beyond_the_end_of_a_worker_a_warning_says_so(
    caplog, make, count, workers, batch, step, warned
):
    (whole,) = deliver([IterableDataset(hparams(batch), make(count))], workers, batch)
    dataset = IterableDataset(hparams(batch), make(count), start_from_step=step)
    (found,) = deliver([dataset], workers, batch)
    assert ("pass start_from_epoch" in caplog.text) is warned
    assert found == whole[step:] or (make is Uneven and warned)
    caplog.clear()
    assert deliver([dataset], workers, batch) == [whole]
    assert not caplog.text


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_are_counted_with_and_without_workers(workers, persistent):
    dataset = IterableDataset(
        hparams(2), ByEpoch(6), start_from_epoch=3, start_from_step=2
    )
    loader = DataLoader(
        dataset,
        2,
        num_workers=workers,
        persistent_workers=persistent and workers > 0,
        collate_fn=list,
    )
    epochs = [
        sorted(element for batch in loader for element in batch) for _ in range(3)
    ]
    assert [len(epoch) for epoch in epochs] == [2, 6, 6]
    assert epochs[1:] == [[100 * e + k for k in range(6)] for e in (4, 5)]


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_continues_exactly_also_in_the_second_epoch(workers):
    def loader():
        dataset = IterableDataset(hparams(2), Twins(23), dp_rank=1, dp_size=2)
        prefetch = 8 if workers else None  # batches made ahead are not counted
        return StatefulDataLoader(
            dataset, 2, num_workers=workers, prefetch_factor=prefetch, collate_fn=list
        )

    whole = list(loader())
    for epochs, stop in ((0, 0), (0, 3), (1, 1)):
        first = loader()
        assert [list(first) for _ in range(epochs)] == [whole] * epochs
        taken, resumed = read_resumed(loader, first, (stop, 1))
        assert taken == list(resumed) == whole


# ---- arguments, ranks


def test_every_source_is_dealt_alike(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {k}}}\n' for k in range(31)))
    rows = datasets.Dataset.from_dict({"n": list(range(31))})
    adapters = (
        JSONLinesAdapter(None, tmp_path / "a.jsonl"),
        HuggingFaceAdapter(None, rows),
    )
    for adapter in (
        *adapters,
        HuggingFaceAdapter(None, rows.to_iterable_dataset(num_shards=3)),
    ):
        dataset = IterableDataset(hparams(), adapter, dp_rank=1, dp_size=2)
        loader = DataLoader(dataset, 1, num_workers=2, collate_fn=list)
        assert [element["n"] for (element,) in loader] == list(range(1, 30, 2))


def test_the_batches_of_a_step_may_be_the_trainers():
    trainer = SimpleNamespace(accumulate_grad_batches=3, global_rank=0, world_size=1)
    numbers = Numbers(30)
    of_trainer = IterableDataset(SimpleNamespace(batch_size=2), numbers, trainer, 2)
    assert list(of_trainer) == list(range(12, 30))
    both = IterableDataset(hparams(2, 1), numbers, trainer, 2)
    assert list(both) == list(range(4, 30))


@pytest.mark.parametrize("adapter", [None, [1, 2], (line for line in "ab")])
def test_an_adapter_is_an_adapter(adapter):
    with pytest.raises(TypeError, match="adapter must be an Adapter, got"):
        IterableDataset(hparams(), adapter)


def test_wrong_arguments_say_what_is_right():
    for settings_, options, message in (
        (
            SimpleNamespace(),
            {},
            r"hparams\.batch_size must be an integer of at least 1, got None",
        ),
        (
            SimpleNamespace(batch_size=2),
            {"start_from_step": 1},
            r"hparams\.accumulate_grad_batches must be an",
        ),
        (hparams(0), {}, r"hparams\.batch_size must be at least 1, got 0"),
        (
            hparams("2"),
            {},
            r"hparams\.batch_size must be an integer of at least 1, got '2'",
        ),
        (
            hparams(),
            {"start_from_step": -1},
            "start_from_step must be at least 0, got -1",
        ),
        (hparams(), {"dp_rank": 2, "dp_size": 2}, "got 2 and 2"),
        (hparams(), {"dp_rank": 0}, "go together"),
    ):
        with pytest.raises(ValueError, match=message):
            IterableDataset(settings_, Numbers(1), **options)
    dataset = IterableDataset(hparams(), Numbers(1))
    state = dataset.state_dict()
    for wrong in (
        {},
        {"epoch": 1},
        None,
        [],
        1.5,
        {**state, "line": "1"},
        {**state, "plan": None},
    ):
        with pytest.raises(ValueError, match="not a state"):
            dataset.load_state_dict(wrong)
    with pytest.raises(PlanMismatch, match="dp_size: saved 1, now 2"):
        IterableDataset(hparams(), Numbers(1), dp_rank=0, dp_size=2).load_state_dict(
            state
        )


def test_the_trainer_tells_the_rank_unless_it_is_given():
    trainer = SimpleNamespace(global_rank=2, world_size=3)
    assert list(IterableDataset(hparams(), Numbers(7), trainer)) == [2, 5]
    assert list(
        IterableDataset(hparams(), Numbers(7), trainer, dp_rank=0, dp_size=1)
    ) == list(range(7))


def test_two_real_ranks_of_four_workers_deal_and_resume(tmp_path):
    write_text(tmp_path, [30])
    Ranks(2, deal_and_resume, (str(tmp_path),), tmp_path / "log").wait()
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for rank, (whole, resumed, rows) in enumerate(results):
        assert (
            whole
            == deliver(
                [IterableDataset(hparams(3), Numbers(97), dp_rank=rank, dp_size=2)],
                4,
                3,
            )[0]
        )
        assert resumed == whole[3:]
        assert [row[0] for row in rows] == list(range(1 + 3 * rank, 31, 6))
    assert sorted(e for whole, *_ in results for batch in whole for e in batch) == list(
        range(96)
    )


def test_a_state_that_counts_lines_of_a_rank_is_of_this_rank():
    """Where lines make different numbers of elements, the ranks are at different lines."""

    class Uneven(Numbers):
        def preprocess_line(self, line):
            for copy in range(1 + line % 3):
                yield (line, copy)

    def rank(number):
        return IterableDataset(hparams(1), Uneven(12), dp_rank=number, dp_size=2)

    read = iter(rank(1))
    before = [next(read) for _ in range(3)]
    states = []
    for number in (0, 1):
        dataset = rank(number)
        elements = iter(dataset)
        for _ in range(3):
            next(elements)
        states.append(dataset.state_dict())
    again = rank(1)
    again.load_state_dict(states[1])
    assert [*before, *again] == [*rank(1)]
    with pytest.raises(PlanMismatch, match="dp_rank: saved 0, now 1"):
        rank(1).load_state_dict(states[0])
