"""Data stages: which samples each step reads, counted per stage and in total, resumed exactly."""

import itertools
import json
import os
import shutil
import sys

import numpy as np
import pytest
import torch
from resume_contract import check_resume_contract
from run_config import run_tree
from test_datatrove import write_ds

from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders.plans import PlanMismatch, differences
from nanoset_ref.train import (
    Config,
    ConfigError,
    ParallelLayout,
    StagedLoader,
    planned_stages,
    stages_of,
)

MODEL = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 9,
}
S = 4
ONE, TWO = ("one", 1, "a", {}), ("two", 11, "b", {})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """a: sample j begins with token 4j; b: with 10000 + 4j."""
    folder = tmp_path_factory.mktemp("tokens")
    paths = {}
    for name, first, size in (("a", 0, 30 * S + 1), ("b", 10_000, 50 * S + 1)):
        paths[name] = str(folder / f"{name}_input_ids.npy")
        np.arange(first, first + size, dtype="<u2").tofile(paths[name])
    return paths


@pytest.fixture
def make(files):
    """A Config: stages are (name, start, dataset_path as letters, further fields of dataset)."""

    def path_of(letters):
        if isinstance(letters, dict):
            return {files[name]: weight for name, weight in letters.items()}
        return [files[name] for name in letters]

    def make(stages, *, seed=1234, workers=0, **options):
        data = {"seed": seed, "num_loading_workers": workers}
        stages = [
            (name, start, {"dataset_path": path_of(it), **more}, data)
            for name, start, it, more in stages
        ]
        return Config.model_validate(
            run_tree("unused", stages, length=S, model=MODEL, **{"steps": 30} | options)
        )

    return make


def loaders_of(config, state=None):
    loaders = []
    for rank in range(config.parallelism.dp):
        loaders.append(
            StagedLoader(
                config, ParallelLayout(dp_rank=rank, dp_size=config.parallelism.dp)
            )
        )
        if state is not None:
            loaders[-1].load_state_dict(json.loads(json.dumps(state)))
    return loaders


def run(config, steps, state=None):
    """Steps on all ranks: ([(stage, samples of the global batch in order)], state). A sample is its first token."""
    loaders = loaders_of(config, state)
    taken = []
    for _ in range(steps):
        each = [loader.next_step() for loader in loaders]
        assert len({(step.number, step.stage) for step in each}) == 1
        tokens = np.array(
            [
                [batch["input_ids"][:, 0].tolist() for batch in step.batches]
                for step in each
            ]
        )
        positions = np.array([step.positions for step in each])
        # [rank, accumulation, row] -> the global batch in its order
        in_order = tokens.transpose(1, 2, 0).ravel()
        assert (np.diff(positions.transpose(1, 2, 0).ravel()) == 1).all()
        taken.append((each[0].stage, in_order.tolist()))
    states = [loader.state_dict() for loader in loaders]
    counts = [
        [record | {"cursors": {}} for record in state["stages"]] for state in states
    ]  # cursors are a rank's own
    assert all(of_rank == counts[0] for of_rank in counts)
    return taken, states[0]


def run_with_stops(config, steps, stops):
    """What a whole run takes, and its last state; stopped after any of `stops` and resumed, it takes the same."""
    whole, end = run(config, steps)
    for stop in stops:
        before, state = run(config, stop)
        after, state = run(config, steps - stop, state)
        assert before + after == whole and state == end, stop
    return whole, end


def oracle(config, firsts):
    """What a run must read: [(stage, samples)], from the Nanoset and the first position of each stage."""
    taken = []
    for stage, first in zip(stages_of(config), firsts, strict=True):
        paths, dataset = stage.data.dataset.dataset_path, stage.data.dataset
        weights = None if None in paths.values() else list(paths.values())
        nanoset = Nanoset(
            list(paths), weights, S, 10_000, stage.data.seed, order=dataset.order
        )
        for step in stage.steps:
            positions = config.batch_schedule(first, stage.steps.start).positions(step)
            taken.append((stage.name, nanoset.read(np.array(positions))[:, 0].tolist()))
    return taken


THREE = [ONE, ("two", 15, "ab", {}), ("three", 25, {"a": 0.8, "b": 0.2}, {})]


def test_consumption_is_counted_per_stage_and_in_total(make):
    config = make(
        THREE[::-1], dp=2, accumulation=3
    )  # the file may list them in any order
    taken, state = run(config, 30)
    assert [stage for stage, _ in taken] == ["one"] * 14 + ["two"] * 10 + ["three"] * 6
    assert [record["consumed_train_samples"] for record in state["stages"]] == [
        14 * 12,
        10 * 12,
        6 * 12,
    ]
    assert state["consumed_train_samples"] == 360 and state["step"] == 30
    assert taken == oracle(config, [0, 0, 0])


@pytest.mark.parametrize("order", ["nanotron", "stateless"])
def test_a_run_stopped_after_any_step_continues_exactly(make, order):
    config = make(
        [(*stage[:3], {"order": order, "reuse": "restart"}) for stage in THREE], dp=2
    )
    run_with_stops(config, 30, range(31))


@pytest.mark.parametrize("interrupted", ["a batch", "a stage"])
def test_a_step_that_was_interrupted_is_done_again_from_its_beginning(
    make, monkeypatch, interrupted
):
    """Ctrl-C in a notebook, between two micro-batches of step 15 or while its stage is opened."""
    config = make(THREE, accumulation=3)
    whole, _ = run(config, 16)
    (loader,) = loaders_of(config)
    steps = [loader.next_step() for _ in range(14)]
    if interrupted == "a stage":
        with monkeypatch.context() as patched:
            patched.setattr(StagedLoader, "_rows_loader", interrupt)
            with pytest.raises(KeyboardInterrupt):
                loader.next_step()
    else:
        steps.append(loader.next_step())
        taken = loader._batches
        loader._batches = itertools.chain([next(taken)], map(interrupt, taken))
        with pytest.raises(KeyboardInterrupt):
            loader.next_step()
    assert loader.state_dict()["step"] == len(steps)
    steps += [loader.next_step() for _ in range(16 - len(steps))]
    firsts = [
        torch.cat([batch["input_ids"][:, 0] for batch in step.batches]).tolist()
        for step in steps
    ]
    assert firsts == [samples for _, samples in whole]


def test_interrupted_at_any_of_its_calls_a_step_is_done_or_not_begun(make):
    """Where Python handles a signal: at the calls of `next_step`, and when they return."""
    config = make(THREE)
    whole, _ = run(config, 5)
    for call in itertools.count():
        (loader,) = loaders_of(config)
        steps = [loader.next_step() for _ in range(2)]
        places = itertools.count()

        def at_a_call(frame, event, _, places=places, call=call):
            step_frame = frame if event.startswith("c_") else frame.f_back
            if (
                step_frame is not None
                and step_frame.f_code is StagedLoader.next_step.__code__
                and next(places) == call
            ):
                raise KeyboardInterrupt

        sys.setprofile(at_a_call)
        try:
            steps.append(loader.next_step())
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        interrupted = len(steps) == 2
        assert loader.state_dict()["step"] == len(steps)
        steps += [loader.next_step() for _ in range(5 - len(steps))]
        firsts = [
            torch.cat([batch["input_ids"][:, 0] for batch in step.batches]).tolist()
            for step in steps
        ]
        assert firsts == [samples for _, samples in whole], call
        if not interrupted:
            break
    assert call > 20


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_stage_can_be_added_extended_and_moved_after_the_last_step_done(make):
    short = make([ONE], steps=10)
    longer = make([ONE, ("two", 21, "b", {})])
    whole, _ = run(longer, 30)
    for stop in (4, 10):
        before, state = run(short, stop)
        assert before + run(longer, 30 - stop, state)[0] == whole
    for stage in (
        ("two", 12, "b", {}),
        ("two", 8, "ab", {"order": "stateless", "reuse": "restart"}),
    ):
        before, state = run(make([ONE, stage]), 7)
        assert before + run(longer, 23, state)[0] == whole


def test_a_short_trial_of_a_run_is_its_beginning_and_can_be_continued(make):
    whole, _ = run(make(THREE), 30)
    trial = make(THREE, steps=10)
    assert [stage.name for stage in stages_of(trial)] == ["one"]
    before, state = run(trial, 10)
    assert before + run(make(THREE), 20, state)[0] == whole


def test_finished_stages_cannot_be_changed(make):
    _, state = run(make([ONE, TWO]), 18)
    for stages in (
        [ONE],
        [ONE, ("two", 12, "b", {})],
        [ONE, ("2", 11, "b", {})],
        [ONE, TWO, ("three", 18, "a", {})],
    ):
        with pytest.raises(
            ConfigError,
            match=r"did its 18 steps in the stages .*\('two', 11\)\], but now they would be",
        ):
            run(make(stages), 0, state)
    run(make([ONE, TWO, ("three", 19, "a", {})]), 1, state)
    with pytest.raises(
        ConfigError, match=r"has done 18 steps, but tokens.train_steps is 17"
    ):
        run(make([ONE, TWO], steps=17), 0, state)


@pytest.mark.parametrize(
    ("changed", "steps", "order", "before", "after"),
    [
        ("two", 6, "stateless", ["a", "ab"], ["a", "b"]),
        ("two", 6, "stateless", ["a", "ab"], ["a", "a"]),
        ("two", 6, "stateless", ["b", "b"], ["b", "ab"]),
        ("one", 3, "nanotron", ["ab", "ab"], ["ba", "ba"]),
        ("one", 3, "stateless", [{"a": 1, "b": 1}] * 2, [{"a": 9, "b": 1}] * 2),
    ],
)
def test_a_stage_that_has_begun_or_is_continued_keeps_its_files(
    make, changed, steps, order, before, after
):
    def stages(first, second):
        return [
            ("one", 1, first, {"order": order}),
            ("two", 4, second, {"order": order, "reuse": "continue"}),
        ]

    _, state = run(make(stages(*before)), steps)
    with pytest.raises(
        PlanMismatch,
        match=rf"stage '{changed}': this state was saved under another plan",
    ):
        run(make(stages(*after)), 1, state)


def test_a_stage_continues_or_restarts_the_order_of_an_earlier_one(make):
    def stages(reuse):
        return [ONE, ("two", 5, "b", {}), ("three", 9, "a", {"reuse": reuse})]

    for reuse, first in (("continue", 8), ("restart", 0), (None, 0)):
        config = make(stages(reuse), steps=12)
        whole, _ = run_with_stops(config, 12, (7, 8, 9, 10))
        assert whole == oracle(config, [0, 0, first])


def test_a_stage_does_not_continue_what_a_restart_in_between_has_forgotten(make):
    order = {"order": "stateless"}

    def stages(second, letters="b"):
        middle = ("two", 5, letters, order | {"reuse": second})
        return [("one", 1, "ab", order), middle, ("three", 9, "a", order)]

    with pytest.raises(
        ConfigError,
        match="'three' cannot continue .*a_input_ids.*, which stage 'one' read",
    ):
        stages_of(make(stages("restart"), steps=12))
    for kept in (stages("continue"), stages("restart", "ba")):
        config = make(kept, steps=12)
        whole, _ = run_with_stops(config, 12, (7, 8, 9, 10))
        assert len(whole) == 12


def test_a_loader_goes_back_to_a_state_of_any_step(make):
    config = make([ONE, ("two", 5, "b", {})], steps=8)
    loader = StagedLoader(config, ParallelLayout())
    states = [loader.state_dict()]
    steps = []
    for step in loader:
        steps.append(step)
        states.append(loader.state_dict())
    with pytest.raises(IndexError, match="the run has 8 steps, and all of them"):
        loader.next_step()
    for number in (0, 8, 4, 0):
        loader.load_state_dict(states[number])
        assert loader.state_dict() == states[number]
        for step, expected in zip(loader, steps[number:], strict=True):
            assert np.array_equal(step.positions, expected.positions)
            if step.number == 6:
                break
    assert loader.step == 6


def test_a_link_is_another_name_of_a_file(make, files, tmp_path):
    link = tmp_path / "other_name_input_ids.npy"
    link.symlink_to(files["a"])
    files_and_link = {**files, "c": str(link)}
    for order in ("nanotron", "stateless"):
        wanted = {"order": order, "reuse": "continue"}

        def stages(second, wanted=wanted):
            two = {"dataset_path": [files_and_link[second]], **wanted}
            return [("one", 1, "a", wanted), ("two", 5, "a", two)]

        taken = [run(make(stages(second), steps=8), 8)[0] for second in "ac"]
        assert taken[0] == taken[1]
    with pytest.raises(ValueError, match="a file may be named once"):
        make([("one", 1, "a", {"dataset_path": [files["a"], str(link)]})])


def test_a_file_of_a_folder_that_an_earlier_stage_read_is_not_begun_silently(
    make, files, tmp_path
):
    inside = write_ds(tmp_path / "folder/0.ds", range(30 * S + 1), [30 * S + 1])
    both = [str(tmp_path / "folder")], [str(inside)]
    for first, second in (both, both[::-1]):
        config = make(
            [
                ("one", 1, "a", {"dataset_path": first}),
                ("two", 5, "a", {"dataset_path": second, "reuse": "continue"}),
            ],
            steps=8,
        )
        with pytest.raises(ConfigError, match="'two' shares files with stage 'one'"):
            stages_of(config)


def samples_of(taken):
    """The files that samples came from, and which of each: [(letter, sample)], of all steps."""
    tokens = [token for _, samples in taken for token in samples]
    return [
        ("a", token // S) if token < 10_000 else ("b", (token - 10_000) // S)
        for token in tokens
    ]


def test_the_stateless_order_reads_every_file_on_where_it_was_left_in_any_blend(make):
    """30 samples in a, 50 in b: no sample comes again before its whole file has been read, whatever the stages are."""
    order = {"order": "stateless"}
    stages = [
        ("one", 1, "a", order),
        ("two", 5, "b", order),
        ("three", 9, {"b": 0.75, "a": 0.25}, order),
        ("four", 15, "ba", order),
    ]
    config = make(stages, steps=20, dp=2)
    whole, _ = run_with_stops(config, 20, (4, 6, 8, 11, 14, 18))
    assert len(samples_of(whole)) == 80
    for letter, length in (("a", 30), ("b", 50)):
        read = [sample for file, sample in samples_of(whole) if file == letter]
        for begin in range(0, len(read), length):
            part = read[begin : begin + length]
            assert len(set(part)) == len(part)
    share = sum(letter == "b" for letter, _ in samples_of(whole[8:14]))
    assert abs(share - 18) <= 6  # 48 of a window of 64, and these are 24 of them


def test_a_planned_stage_is_the_stage_that_a_run_opens(make):
    order = {"order": "stateless"}
    config = make(
        [("one", 1, "a", order), ("two", 5, "b", order), ("three", 9, "ba", order)],
        steps=12,
        dp=3,
    )
    taken, state = run(config, 12)
    *_, (_, schedule, planned) = planned_stages(config)
    assert not differences(planned.plan, state["stages"][2]["plan"])
    rows = planned.read(np.arange(schedule.consumed_train_samples, len(planned)))
    assert rows[:, 0].tolist() == [
        token for stage, samples in taken if stage == "three" for token in samples
    ]


def test_an_order_that_is_not_its_own_cannot_be_continued(make):
    message = r"'two' shares files with stage 'one', .* or set reuse: restart"
    for first, second in (
        ({}, {"reuse": "continue"}),
        ({}, {"order": "stateless"}),
        ({"order": "stateless"}, {"reuse": "continue"}),
    ):
        with pytest.raises(ConfigError, match=message):
            loaders_of(make([("one", 1, "a", first), ("two", 5, "ab", second)]))
    loaders_of(
        make([ONE, ("two", 5, "ab", {"order": "stateless", "reuse": "restart"})])
    )


@pytest.mark.parametrize("order", ["stateless", "nanotron"])
def test_a_stage_cannot_continue_the_files_of_another_in_another_dtype(
    make, files, monkeypatch, order
):
    path = files["a"].replace("a_input", "wide_input")
    np.arange(30 * S + 1, dtype="<i4").tofile(path)
    monkeypatch.setitem(files, "wide", path)
    first = {"order": order, "reuse": "continue", "token_dtype": "int32"}
    for second in (None, "uint16"):
        later = first | {"token_dtype": second}
        with pytest.raises(
            ConfigError, match=f"token_dtype={second} instead of int32: give both"
        ):
            stages_of(make([("one", 1, ["wide"], first), ("two", 5, ["wide"], later)]))
    stages_of(make([("one", 1, ["wide"], first), ("two", 5, ["wide"], first)]))


def test_the_loader_holds_the_resume_contract(make):
    def factory(rank, dp_size, micro_batch_size, workers):
        config = make(
            [("one", 1, "ab", {"order": "stateless"})],
            steps=80 // (dp_size * micro_batch_size),
            dp=dp_size,
            rows=micro_batch_size,
            workers=workers,
        )
        return StagedLoader(config, ParallelLayout(dp_rank=rank, dp_size=dp_size))

    taken, _ = run(
        make([("one", 1, "ab", {"order": "stateless"})], steps=80, rows=1), 80
    )
    where = {samples[0]: position for position, (_, samples) in enumerate(taken)}
    assert len(where) == 80

    def positions_of(step):
        return [
            where[token]
            for batch in step.batches
            for token in batch["input_ids"][:, 0].tolist()
        ]

    check_resume_contract(
        factory, positions_of, 80, epochs=False, workers=(0, 1), stops=(0, 3)
    )


@pytest.mark.parametrize(
    "state",
    [
        {},
        None,
        [],
        1.5,
        {"step": 1, "schedules": [{}], "stages": [{"name": "one"}]},
        {"step": "x", "schedules": [{}], "stages": []},
        {"step": 0, "schedules": [], "stages": []},
        {"step": 0, "schedules": [{"first_step": 2}], "stages": []},
        {"step": 0, "schedules": [{"other": 2}], "stages": []},
    ],
)
def test_invalid_states_are_named(make, state):
    with pytest.raises(ConfigError, match="this is not the state of a StagedLoader"):
        loaders_of(make([ONE]))[0].load_state_dict(state)


def test_a_stage_that_is_done_is_compared_and_keeps_its_files(
    make, files, tmp_path, monkeypatch
):
    """Nothing of it is read again, but questions about the run are answered by it."""
    monkeypatch.setitem(files, "c", str(tmp_path / "c.npy"))
    shutil.copy(files["a"], files["c"])
    config = make([("one", 1, "c", {}), TWO])
    _, state = run(config, 12)
    for stage, changed in (
        (("one", 1, "b", {}), "num_tokens"),
        (("one", 1, "c", {"order": "stateless"}), "order.kind"),
    ):
        with pytest.raises(PlanMismatch, match=f"(?s)stage 'one'.*{changed}"):
            run(make([stage, TWO]), 1, state)
    os.remove(files["c"])
    with pytest.raises(FileNotFoundError, match=r"no token file at .*c\.npy"):
        run(config, 1, state)
    with pytest.raises(ValueError, match=r"no token file at .*c\.npy"):
        make([("one", 1, "c", {}), TWO])
