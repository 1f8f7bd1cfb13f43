"""The audit finds nothing where the laws hold, and finds every way in which they can be broken."""

import numpy as np
import pytest
from token_files import write_range

from nanoset_ref.io.error_text import shorten_paths
from nanoset_ref.load import DatatroveNanoset
from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import (
    IdentityOrder,
    NanotronOrder,
    SkippingOrder,
    StatelessOrder,
)
from nanoset_ref.provenance import RunSegment, audit
from nanoset_ref.provenance import auditing as module
from nanoset_ref.tokens import TokenFileWriter


@pytest.fixture
def paths(tmp_path):
    return [
        write_range(tmp_path / "a.npy", 403),
        write_range(tmp_path / "b.npy", 163),
    ]  # 100 and 40 samples of 4


def segment(
    paths,
    num_steps=20,
    num_samples=600,
    weights=None,
    order="nanotron",
    workers=0,
    **schedule,
):
    schedule = {
        "dp_size": 3,
        "micro_batch_size": 2,
        "batch_accumulation_per_replica": 2,
        **schedule,
    }
    dataset = Nanoset(paths, weights, 4, num_samples, order=order)
    return RunSegment(
        name="run",
        dataset=dataset,
        schedule=Schedule(**schedule),
        num_steps=num_steps,
        num_workers=workers,
    )


def check(report, rule):
    (found,) = [check for check in report.segments[0].checks if check.rule == rule]
    return found


@pytest.mark.parametrize("layout", ["strided", "contiguous"])
@pytest.mark.parametrize("order", ["nanotron", "stateless"])
def test_a_sound_run_passes(paths, layout, order):
    report = audit(
        [
            segment(
                paths,
                layout=layout,
                order=order,
                workers=4,
                consumed_train_samples=31,
                weights=[1, 1],
            )
        ]
    )
    assert report.ok, str(report)
    assert (
        "0 missing, 0 read twice or in another step; 3 ranks x 4 workers, all steps simulated"
        in str(report)
    )
    assert str(report).endswith("every law holds")


@pytest.mark.parametrize("order", [IdentityOrder, NanotronOrder])
def test_a_run_that_skips_keeps_the_laws_of_the_order_that_it_skips_in(paths, order):
    """An identity order promises no shares, and neither do its rests."""
    whole = order([100, 40], None, 280, 3)
    skipping = SkippingOrder(whole, [(0, 8), (130, 150)])
    assert skipping.keeps_shares == whole.keeps_shares
    dataset = Nanoset(paths, None, 4, len(skipping), order=skipping)
    report = audit(
        [RunSegment("run", dataset, Schedule(dp_size=2, micro_batch_size=2), 40)]
    )
    assert report.ok, str(report)
    assert [dataset.origin(k).epoch for k in (0, 121, 122, 251)] == [0, 0, 1, 1]


def test_rows_that_all_end_in_padding_are_sound(tmp_path):
    path = tmp_path / "a.npy"
    with TokenFileWriter(path, dtype="uint16") as writer:
        for document in range(50):
            writer.write_document(range(6 * document, 6 * document + 6))
    dataset = PackedNanoset([path], None, 9, pad_id=999)
    report = audit(
        [RunSegment("run", dataset, Schedule(micro_batch_size=2), len(dataset) // 2)]
    )
    assert report.ok, str(report)
    assert f"{4 * 50} are padding" in check(report, "nothing is lost").detail


def test_a_dataset_that_is_too_short_is_found(paths):
    report = audit([segment(paths, num_steps=51)])
    assert not report.ok
    assert (
        check(report, "the dataset is long enough").detail
        == "positions 0 to 612 of 600"
    )
    assert str(report).endswith("NOT every law holds")


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("repeat", "every position once"),
        ("skip", "every position once"),
        ("unequal", "equal counts on all ranks"),
        ("backwards", "one global order"),
    ],
)
def test_a_faulty_sampler_is_found(paths, monkeypatch, fault, law):
    class Faulty(ResumableBatchSampler):
        def __iter__(self):
            for number, batch in enumerate(super().__iter__()):
                hit = number == 3 and self.dp_rank == 1
                if hit and fault == "unequal":
                    return
                faulty = {
                    "repeat": [batch[0]] * len(batch),
                    "skip": [k + 1 for k in batch],
                    "backwards": batch[::-1],
                }
                yield list(faulty[fault]) if hit else batch

    monkeypatch.setattr(module, "ResumableBatchSampler", Faulty)
    assert not check(audit([segment(paths)]), law).holds


@pytest.mark.parametrize(
    ("begins", "holds"), [(120, True), (0, True), (119, False), (121, False)]
)
def test_a_gap_or_an_overlap_between_two_segments_is_found(paths, begins, holds):
    after = segment(paths, num_steps=15, dp_size=2, consumed_train_samples=begins)
    report = audit(
        [segment(paths, num_steps=10), segment(paths, weights=[1, 1]), after]
    )
    assert report.ok == holds
    found = report.segments[2].checks[1]
    assert (found.holds, found.detail) == (
        holds,
        f"run stopped at 120, this one begins at {begins}",
    )


def test_weights_that_are_not_reached_are_found(paths):
    sound = segment(paths, num_steps=50, weights=[1, 3])
    assert check(audit([sound]), "shares are the weights").holds
    sound.dataset.order.dataset_weights = np.array([0.75, 0.25])
    assert not check(audit([sound]), "shares are the weights").holds


def test_an_order_that_loses_positions_is_found(paths, monkeypatch):
    broken = segment(paths)
    monkeypatch.setattr(
        broken.dataset.order, "counts", lambda until=None: np.array([until // 2, 0])
    )
    assert not check(audit([broken]), "nothing is lost").holds


@pytest.mark.parametrize("order", ["nanotron", "stateless"])
@pytest.mark.parametrize("weights", [None, [1, 9], [9, 1]])
@pytest.mark.parametrize("start", [0, 17, 150])
def test_forecasts_are_what_the_order_does(paths, order, weights, start):
    """The oracle: look every position up and count."""
    run = segment(
        paths, order=order, weights=weights, consumed_train_samples=start, num_steps=30
    )
    stop = start + 30 * 12
    report = audit([run])
    pairs = [run.dataset.order[k] for k in range(stop)]
    for index, source in enumerate(report.segments[0].sources):
        samples = [sample for dataset, sample in pairs if dataset == index]
        assert source.read == sum(dataset == index for dataset, _ in pairs[start:])
        assert source.distinct == len(set(samples))
        assert source.most_reads == max(np.bincount(samples))
        assert source.epochs == source.read / source.num_samples
        assert (source.tokens, source.tail_tokens) == ((403, 2), (163, 2))[index]


@pytest.mark.parametrize("lost", [0, 12])
def test_a_long_run_is_simulated_at_both_ends_and_says_so(paths, monkeypatch, lost):
    class Ends(ResumableBatchSampler):
        def __iter__(self):
            return (
                batch for batch in super().__iter__() if batch[0] < 12 * 10**6 - lost
            )

    monkeypatch.setattr(module, "MAX_STEPS", 30)
    monkeypatch.setattr(module, "ResumableBatchSampler", Ends)
    report = audit(
        [segment(paths, num_steps=10**6, num_samples=12 * 10**6, order="stateless")]
    )
    detail = check(report, "every position once").detail
    assert (
        detail.startswith(f"{lost} missing")
        and "30 of 1,000,000 steps simulated" in detail
    )
    assert report.ok == (lost == 0)


def test_a_run_that_goes_on_from_a_ledger_passes(paths):
    before = Nanoset(paths, [1, 1], 4, 60, order="stateless")
    order = StatelessOrder(
        before.dataset_lengths, [3, 1], 300, start=before.order.ledger(60)
    )
    dataset = Nanoset(paths, [3, 1], 4, 300, order=order)
    schedule = Schedule(dp_size=3, micro_batch_size=2, consumed_train_samples=60)
    report = audit(
        [RunSegment(name="run", dataset=dataset, schedule=schedule, num_steps=40)]
    )
    assert report.ok, str(report)
    reads = np.array([[30, 30], [30 + 180, 30 + 60]])
    found = report.segments[0].sources
    assert [source.read for source in found] == (reads[1] - reads[0]).tolist()
    assert [source.most_reads for source in found] == [3, 3], (
        "210 readings of 100 samples, 90 of 40"
    )


def test_a_file_without_a_sample_is_no_error(tmp_path):
    for name, tokens in (("a", 40), ("b", 3)):
        np.arange(tokens, dtype=np.uint16).tofile(tmp_path / f"{name}.ds")
    dataset = DatatroveNanoset([tmp_path], None, 4, 8)
    report = audit(
        [RunSegment(name="run", dataset=dataset, schedule=Schedule(), num_steps=8)]
    )
    assert sorted(
        (source.num_samples, source.read) for source in report.segments[0].sources
    ) == [
        (0, 0),
        (8, 8),
    ]


def test_a_long_path_keeps_the_name_of_its_file_in_a_table():
    assert shorten_paths(["a/b.npy"]) == ["a/b.npy"]
    (cut,) = shorten_paths(
        ["/very/long/folders/that/nobody/reads/to/their/end/stories_input_ids.npy"]
    )
    assert (
        len(cut) == 40
        and cut.startswith("...")
        and cut.endswith("/stories_input_ids.npy")
    )
    assert shorten_paths([f"folder/{'n' * 60}.npy"]) == [f"...{'n' * 60}.npy"]


def spread_of(paths, order, num_samples, seed=5):
    rows = Nanoset(paths, None, 4, num_samples, seed, order=order)
    (segment,) = audit(
        [RunSegment("run", rows, Schedule(micro_batch_size=4), num_samples // 4)]
    ).segments
    return segment


@pytest.fixture
def long_paths(tmp_path):
    return [
        write_range(tmp_path / "a.npy", 4 * 9000 + 1),
        write_range(tmp_path / "b.npy", 4 * 3000 + 1),
    ]


@pytest.mark.parametrize(
    ("order", "low", "high"),
    [
        ("olmo_core", 0.5, 1.6),  # a fair shuffle
        ("stateless", 0, 0.2),  # files in turn
        ("olmo_core:chunk_size=7", 4, 10),  # pieces of 7 neighbors
        ("identity", 90, 1e9),
    ],
)
def test_the_spread_of_files_says_what_kind_of_shuffle_it_is(
    long_paths, order, low, high
):
    found = spread_of(long_paths, order, 11_900)
    assert [it.file for it in found.spread] == [0, 1]
    assert all(low <= it.among_files <= high for it in found.spread)


@pytest.mark.parametrize(
    ("order", "low", "high"),
    [("olmo_core", 0.8, 1.2), ("olmo_core:chunk_size=7", 5, 9), ("identity", 90, 1e9)],
)
def test_the_spread_within_a_file_says_it_too(long_paths, order, low, high):
    (found,) = spread_of(long_paths[:1], order, 9000).spread
    assert found.among_files is None and low <= found.within <= high


def test_the_spread_is_drawn(long_paths):
    text = str(spread_of(long_paths, "identity", 11_900))
    assert text.endswith("m: as after a shuffle of pieces of m rows")
    drawn = [line[line.index("|") :] for line in text.splitlines()[-3:-1]]
    assert len(drawn[0]) == 66 and {*drawn[0][:49], *drawn[1][50:]} <= {"|", "▅", " "}
    assert {*drawn[0]} != {*drawn[1]}


def test_samples_that_are_read_twice_or_never_are_named(tmp_path):
    path = write_range(tmp_path / "g.npy", 65537 + 1)
    rows = Nanoset(path, None, 1, 65537, 7, order="grain:accept_repeat=1")
    report = audit([RunSegment("run", rows, Schedule(), 65537)])
    end = "every law holds, but some samples are read more often than others, see above"
    assert str(report).endswith(end)
    (found,) = report.segments
    less, more = found.uneven
    assert (less.how, less.count, less.first) == ("less often", 1, [(0, 65536, 0)])
    assert (more.how, more.count) == ("more often", 1)
    (_, sample, reads) = more.first[0]
    assert reads == 2 and rows.order.positions(0, sample).tolist() == [0, 65536]
    assert f"g.npy sample {sample} (2x)" in str(found)


def test_rows_left_over_in_every_epoch_are_named_and_an_even_order_names_none(paths):
    two_epochs = 2 * 136  # of 100 and 40 rows; chunks of 7 leave 2 and 5 out
    rows = Nanoset(paths, None, 4, two_epochs - 6, order="olmo_core:chunk_size=7")
    (found,) = audit([RunSegment("run", rows, Schedule(), 266)]).segments
    assert [it.how for it in found.uneven] == ["less often"]
    assert found.uneven[0].first == [
        (0, 98, 0),
        (0, 99, 0),
        *((1, k, 0) for k in range(35, 40)),
    ]
    assert found.uneven[0].count == 7
    for order in ("nanotron", "stateless", "identity"):
        rows = Nanoset(paths, None, 4, 300, order=order)
        (found,) = audit([RunSegment("run", rows, Schedule(), 300)]).segments
        assert found.uneven == []
    skipping = SkippingOrder(NanotronOrder([100, 40], None, 140), [(5, 7)])
    rows = Nanoset(paths, None, 4, 138, order=skipping)
    (found,) = audit([RunSegment("run", rows, Schedule(), 138)]).segments
    left_out = sorted(skipping.order[k] for k in (5, 6))
    assert [pair[:2] for pair in found.uneven[0].first] == left_out


@pytest.mark.parametrize("order", ["olmo_core", "grain", "nanotron_main", "nanotron"])
def test_only_a_segment_over_the_same_files_must_begin_where_one_stopped(
    tmp_path, order
):
    """Files of one size without checksums: their tokens differ, and orders are read to any length."""
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "a.npy")
    np.arange(1000, 2000, dtype=np.uint16).tofile(tmp_path / "b.npy")

    def segments(second):
        for path, length, start in (("a", 40, 0), (second, 80, 20)):
            rows = Nanoset(tmp_path / f"{path}.npy", None, 9, length, order=order)
            schedule = Schedule(micro_batch_size=4, consumed_train_samples=start)
            yield RunSegment(path, rows, schedule, 10)

    law = "no gap or overlap between segments"
    report = audit([*segments("b")])
    assert report.ok, str(report)
    assert law not in str(report)
    assert f"BROKEN  {law}: a stopped at 40" in str(audit([*segments("a")]))


def test_the_weights_of_nanotron_main_are_those_that_were_given(paths):
    one = segment(paths, order="nanotron_main", weights=[0.9, 0.1], num_samples=100)
    assert [use.weight for use in one.dataset.usage(0, 100)] == [0.9, 0.1]
    Nanoset(paths, [9, 1], 4, order=one.dataset.order)
