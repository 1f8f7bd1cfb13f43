"""What a law says of loaders that are nearly right, nearly wrong, or say nothing."""

import functools
import gc
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from torchdata.stateful_dataloader import StatefulDataLoader

from nanoset_ref.laws import (
    Case,
    check,
    judge,
)
from nanoset_ref.laws.pytest_plugin import Laws

ALONE = {"max_workers": 0, "max_ranks": 1}


def in_order(data: int, *, batch_size: int, **_: Any) -> Any:
    return [[*range(k, min(k + batch_size, data))] for k in range(0, data, batch_size)]


def test_a_resume_at_the_end_of_an_epoch_names_the_epochs() -> None:
    class Again:
        def __init__(self, rows: range) -> None:
            self.rows = rows
            self.done = rows.start

        def __iter__(self) -> Any:
            for row in self.rows or [0]:  # after the last row, the first one again
                self.done = row + 1
                yield [row]

    def make(data: int, *, state: int | None = None, epoch: int, **_: Any) -> Any:
        return Again(range(state or 0, data))

    settings = {"claims": "resume", "state_of": lambda loader: loader.done}
    report = check(make, **settings, max_batch_size=1, **ALONE)
    message = str(report.outcomes["resume"].finding)
    assert "in epoch 1, after a resume at the end of the one before, row" in message


def test_weights_are_judged_by_whole_rows_of_at_least_one_batch() -> None:
    def crops(data: Any, **_: Any) -> Any:
        while True:
            yield np.arange(9, 17)[None]

    for make, form in ((lambda data, **_: [], "rows"), (crops, "npy")):
        report = check(make, claims="weights", format=form, **ALONE, budget=600)
        assert report.broken == [] and report.unjudged == ["weights"]


def test_an_error_after_wrong_batches_is_no_refusal() -> None:
    class Late:
        def __init__(self, data: int, state: Any) -> None:
            self.data, self.state = data, state

        def __iter__(self) -> Any:
            for row in range(self.data):
                yield [row]
            if self.state not in (None, self.data):
                raise RuntimeError("the checkpoint is of other data")

    def make(data: int, *, state: Any = None, **_: Any) -> Any:
        return Late(data, state)

    report = check(
        make, claims="refuses", state_of=lambda late: late.data, **ALONE, budget=600
    )
    assert "a state of 1 rows was accepted" in str(report.outcomes["refuses"].finding)


def test_torchs_usual_pair_pads_and_drops() -> None:
    def make(
        data: int,
        *,
        rank: int,
        world_size: int,
        seed: int,
        epoch: int,
        batch_size: int,
        **_: Any,
    ) -> Any:
        sampler = torch.utils.data.DistributedSampler(
            range(data), world_size, rank, seed=seed
        )
        sampler.set_epoch(epoch)
        return torch.utils.data.DataLoader(
            range(data), batch_size, sampler=sampler, drop_last=True
        )

    options = {"claims": "once ranks", "max_workers": 0, "budget": 600}
    report = check(make, tail="pad and drop", **options)
    assert report.broken == [], report
    assert check(make, tail="pad", **options).broken != []
    assert check(make, tail="drop", **options).broken != []


class Steps:
    """Rows in file order, a step after another; the state is the number of rows that are read."""

    def __init__(
        self,
        data: int,
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        state: int | None = None,
        **_: Any,
    ) -> None:
        self.rows = range(data)
        self.rank = rank
        self.world_size = world_size
        self.batch_size = batch_size
        self.done = state or 0

    def __iter__(self) -> Any:
        step = self.world_size * self.batch_size
        while self.done < len(self.rows):
            rows = self.rows[self.done : self.done + step]
            self.done = rows.stop
            yield [*rows[self.rank :: self.world_size]]


def test_an_elastic_resume_that_loses_the_shorter_last_batch_is_found() -> None:
    def make(data: int, **place: Any) -> Steps:
        loader = Steps(data, **place)
        if place["state"] is not None:
            rest = data % (loader.world_size * loader.batch_size)
            loader.rows = range(data - rest)
        return loader

    for claims in ("once elastic", "once order elastic"):
        report = check(
            make, claims=claims, state_of=lambda it: it.done, max_workers=0, budget=600
        )
        assert report.broken == ["elastic"], report


def test_other_numbers_of_ranks_are_those_that_the_adapter_allows() -> None:
    def make(data: int, **place: Any) -> Steps:
        assert place["world_size"] <= 2 and place["batch_size"] <= 3
        return Steps(data, **place)

    options = {"max_ranks": 2, "max_batch_size": 3, "max_workers": 0, "budget": 600}
    report = check(make, claims="order", **options)
    assert report.broken == report.unjudged == [], report


def test_a_partial_has_a_name_and_a_text_is_no_row_number() -> None:
    report = check(functools.partial(in_order), laws="once", **ALONE, budget=600)
    assert report.broken == [] and report.loader.endswith("test_verdicts:in_order")
    report = check(
        in_order, claims="once", rows_of=lambda batch: ["a.txt"], **ALONE, budget=600
    )
    assert "found no row numbers in the batch ['a.txt']" in report.line("once")


def test_a_collection_does_not_visit_the_objects_of_the_parent() -> None:
    """In a process of 2 GB it took longer than the limit of a loader, which so seemed to hang."""

    frozen = gc.get_freeze_count()
    held = [[] for _ in range(1000)]

    def make(data: int, **settings: Any) -> Any:
        assert gc.get_freeze_count() >= frozen + len(held)
        return in_order(data, **settings)

    assert judge(make, "once", Case(rows=3), claims="once") is None


@pytest.mark.parametrize(
    "draw",
    [lambda n: random.sample(range(n), n), np.random.permutation, torch.randperm],
    ids=["random", "numpy", "torch"],
)
def test_processes_do_not_share_the_state_of_global_generators(draw: Any) -> None:
    def make(data: int, **_: Any) -> Any:
        return [[int(row)] for row in draw(data)]

    options = ALONE | {"max_batch_size": 1, "budget": 600}
    for claims, broken in (("repeat", ["repeat"]), ("epochs", [])):
        assert check(make, claims=claims, **options).broken == broken


def test_weights_are_judged_by_every_prefix() -> None:
    def make(
        data: Any, *, seed: int, batch_size: int, fair: bool = True, **place: Any
    ) -> Any:
        ends = np.cumsum(data.rows)
        for step in range(sum(data.rows)):
            random = np.random.default_rng([seed, step])
            source = random.choice(3, p=data.weights if fair else [0.1, 0.1, 0.8])
            yield [int(ends[source] - 1 - random.integers(data.rows[source]))]

    def unfair(data: Any, **place: Any) -> Any:
        return make(data, fair=False, **place)

    assert check(make, claims="weights", examples=10, budget=600).broken == []
    assert check(unfair, claims="weights", budget=600).broken == ["weights"]


def test_an_error_after_the_first_batch_is_a_finding_and_no_refusal() -> None:
    def make(data: Any, **place: Any) -> Any:
        yield [0]
        raise ValueError("bad row")

    report = check(make, claims="once", max_ranks=1, examples=5, budget=600)
    assert "crash: ValueError: bad row" in report.line("once")


def test_nothing_judged_is_not_green(tmp_path: Path) -> None:
    def refuse(data: Any, **place: Any) -> Any:
        raise ValueError("never enough rows")

    report = check(refuse, claims="once repeat", examples=3, budget=600)
    assert (report.broken, report.unjudged) == ([], ["once", "repeat"])
    with pytest.raises(pytest.skip.Exception, match="once .*\nrepeat .*not judged"):
        Laws(600.0, 0).hold(refuse, claims="once repeat")
    assert "0%20of%202-lightgrey" in report.badge()
    with pytest.raises(
        ValueError, match="budget must be a positive number of seconds, got 0"
    ):
        check(refuse, budget=0)
    with pytest.raises(
        pytest.skip.Exception, match="once     not judged.*never enough rows"
    ):
        Laws(600.0, 0).hold(refuse, claims="once")


def test_crops_have_no_spread() -> None:
    def make(data: Any, *, seed: int, **place: Any) -> Any:
        starts = np.random.default_rng(seed).integers(8 * 200, size=300)
        return [np.arange(start, start + 8) for start in starts]

    report = check(
        make, claims="spread repeat", format="npy", max_ranks=1, examples=3, budget=600
    )
    assert report.unjudged == ["spread"] and report.status("repeat") == "holds"
    assert "have no place in the file" in report.line("spread")
    options = {"claims": "spread repeat", "format": "npy", "max_ranks": 1}
    with pytest.warns(UserWarning, match="^spread   not judged") as warned:
        Laws(600.0, 0).hold(make, **options)  # the other law was judged, and holds
    assert len(warned) == 1


def test_a_length_is_asked_for_only_by_its_law() -> None:
    def make(
        data: Any, *, rank: int, world_size: int, batch_size: int, **place: Any
    ) -> Any:
        return map(list, zip(range(data), strict=True))

    report = check(
        make,
        claims="once length",
        max_ranks=1,
        max_batch_size=1,
        examples=5,
        budget=600,
    )
    assert report.status("once") == "holds"
    assert "has no len()" in report.line("length")


class Sized(Steps):
    """Steps of one row with a len(), which `length` makes of the rows and those read before."""

    def __init__(self, data: int, *, length: Any, **place: Any) -> None:
        super().__init__(data, **place)
        self.begun = self.done
        self.length = length

    def __len__(self) -> int:
        return self.length(len(self.rows), self.begun)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (lambda whole, read: whole, "None"),  # as torchdata's StatefulDataLoader
        (lambda whole, read: whole - read, "None"),  # as accelerate.skip_first_batches
        (
            lambda whole, read: whole - min(read, 2),
            "lost: resumed after 2 and 1 steps, rank 0 declared 5 batches and yielded 4",
        ),
        (
            lambda whole, read: whole + 1,
            "lost: rank 0 declared 8 batches and yielded 7",
        ),
    ],
    ids=["of the epoch", "what is left", "forgets the second resume", "wrong"],
)
def test_a_length_after_a_resume_is_that_of_the_epoch_or_what_is_left(
    length: Any, message: str
) -> None:
    def make(data: int, **place: Any) -> Sized:
        return Sized(data, length=length, **place)

    options = {"claims": "length resume", "state_of": lambda loader: loader.done}
    case = Case(rows=7, stops=(2, 1))
    assert str(judge(make, "length", case, **options)) == message


def test_lengths_after_a_resume_of_other_libraries_are_as_the_page_says() -> None:
    whole = StatefulDataLoader(range(5))
    next(iter(whole))
    resumed = StatefulDataLoader(range(5))
    resumed.load_state_dict(whole.state_dict())
    assert (len(resumed), len(list(resumed))) == (5, 4)
    rest = skip_first_batches(torch.utils.data.DataLoader(range(5)), 1)
    assert (len(rest), len(list(rest))) == (4, 4)


def test_a_length_after_a_resume_is_not_judged_where_no_resume_is_claimed() -> None:
    def make(data: int, **place: Any) -> Sized:
        return Sized(data, length=lambda whole, read: whole - 2 * read, **place)

    options = {"claims": "length", "state_of": lambda loader: loader.done}
    assert judge(make, "length", Case(rows=7, stops=(2,)), **options) is None


def test_a_rank_that_reads_everything_is_heard_to_its_end() -> None:
    def make(data: Any, *, rank: int, **place: Any) -> Any:
        return [] if rank else [[row] for row in range(data)]

    assert (
        check(make, claims="once", max_batch_size=1, examples=20, budget=600).broken
        == []
    )


@pytest.mark.parametrize(
    ("seeds_of_ranks", "message"),
    [
        (lambda seed, rank: [seed, rank], "None"),
        (lambda seed, rank: [seed], "doubled: rank 1 read what rank 0 read"),
    ],
)
def test_ranks_that_draw_crops_do_not_read_the_same(
    seeds_of_ranks: Any, message: str
) -> None:
    def make(data: Any, *, rank: int, seed: int, batch_size: int, **place: Any) -> Any:
        random = np.random.default_rng(seeds_of_ranks(seed, rank))
        while True:
            starts = 8 + random.integers(8 * sum(data.rows) - 7, size=batch_size)
            yield np.stack([np.arange(start, start + 8) for start in starts])

    case = Case(rows=40, world_size=2)
    found = judge(make, "ranks", case, format="npy", claims="ranks repeat")
    assert str(found) == message


@pytest.mark.parametrize("law", ["epochs", "seed"])
@pytest.mark.parametrize("shuffled", [True, False])
def test_two_shuffled_files_may_have_the_same_order_by_chance(
    law: str, shuffled: bool
) -> None:
    def make(data: Any, *, seed: int, epoch: int, **place: Any) -> Any:
        order = (
            np.random.default_rng([seed, epoch]).permutation(2) if shuffled else [0, 1]
        )
        for number in order:
            yield from map(
                json.loads, Path(data.paths[number]).read_text().splitlines()
            )

    options = {"format": "jsonl", "files": 2, "claims": law}
    words = [
        str(judge(make, law, Case(rows=40, seed=seed), **options)) for seed in range(4)
    ]
    same = f"{law.removesuffix('s')}s 0 and 1 have the same order"
    assert words[0] == "None" if shuffled else words[0].endswith(same)
    assert ({*words} == {"None"}) is shuffled
