"""CONTRIBUTING's "How to add": an order, a format and options that are only defined here work wherever others do."""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref import Nanoset, audit, when, where
from nanoset_ref.io.checks import whole_number
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import Order
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.provenance import RunSegment, compare
from nanoset_ref.tokens import (
    TokenFileError,
    TokenFileWriter,
    Tokens,
    convert,
    open_tokens,
)

S = 4
LENGTHS = [5, 0, 3]
ROOT = Path(__file__).parent.parent


class ReversedOrder(Order):
    """Position k reads instance N - 1 - k of the N in an epoch, and every epoch is the same."""

    name = "reversed"
    keeps_shares = False
    same_epochs = True

    def lookup(self, positions):
        return self.pairs(
            self.samples_per_epoch - 1 - positions % self.samples_per_epoch
        )

    def reverse_lookup(self, dataset, sample, until):
        first = self.samples_per_epoch - 1 - (self.source_offsets[dataset] + sample)
        return np.arange(first, until, self.samples_per_epoch)


BACKWARDS = [(2, 2), (2, 1), (2, 0), (0, 4), (0, 3), (0, 2), (0, 1), (0, 0)]


@pytest.fixture
def paths(tmp_path):
    """Files of 5 and 3 samples of 4 tokens, one document each; every token is another."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, tokens in zip(
        paths, (range(5 * S + 1), range(100, 101 + 3 * S)), strict=True
    ):
        with TokenFileWriter(path, dtype="uint16") as writer:
            writer.write_document(tokens)
    return paths


def backwards(paths, num_samples=24):
    return Nanoset(
        paths, None, S, num_samples, order=ReversedOrder([5, 3], None, num_samples)
    )


def test_the_base_class_gives_it_all_that_an_order_has():
    order = ReversedOrder(LENGTHS, None, 20)
    expected = (BACKWARDS * 3)[:20]
    assert [order[k] for k in range(20)] == expected
    assert order[-1] == expected[-1]
    assert np.stack(order[3:12], axis=1).tolist() == [
        list(pair) for pair in expected[3:12]
    ]
    for dataset, sample in BACKWARDS:
        found = order.positions(dataset, sample).tolist()
        assert found == [k for k in range(20) if expected[k] == (dataset, sample)]
    assert order.counts(7).tolist() == [4, 0, 3]
    with pytest.raises(IndexError):
        order[20]
    with pytest.raises(ValueError, match="leave the weights out"):
        ReversedOrder(LENGTHS, [1, 1, 1], 20)


def test_where_and_when_find_its_samples(paths):
    rows = backwards(paths)
    schedule = Schedule(dp_size=2, micro_batch_size=2)
    samples = []
    for step in (1, 2):
        origins = sorted(
            where(rows, schedule, step), key=lambda origin: origin.slot.position
        )
        samples += [(origin.source, origin.sample) for origin in origins]
    assert samples == [(max(dataset - 1, 0), sample) for dataset, sample in BACKWARDS]
    places = when(rows, schedule, 0, source=1, tokens=(2 * S + 1, 2 * S + 2))
    assert [place.position for place in places] == [0, 8, 16]


def test_the_audit_finds_every_position_once(paths):
    schedule = Schedule(dp_size=2, micro_batch_size=3)
    report = audit([RunSegment("run", backwards(paths), schedule, 4)])
    assert report.ok, str(report)


def test_a_run_resumes_on_other_ranks_and_refuses_another_order(paths):
    def first_tokens(loader, batches):
        found = zip(range(batches), loader, strict=False)
        return [batch["input_ids"][:, 0].tolist() for _, batch in found]

    loader = build_nanoset_dataloader(backwards(paths), micro_batch_size=6)
    whole = sum(first_tokens(loader, 4), [])
    loader = build_nanoset_dataloader(backwards(paths), micro_batch_size=6)
    first_tokens(loader, 1)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["consumed_train_samples"] == 6
    parts = []
    for rank in range(2):
        options = {"micro_batch_size": 3, "dp_rank": rank, "dp_size": 2}
        resumed = build_nanoset_dataloader(backwards(paths, 24), **options)
        resumed.load_state_dict(state)
        parts.append(sum(first_tokens(resumed, 3), []))
    assert np.stack(parts, axis=1).ravel().tolist() == whole[6:]
    other = build_nanoset_dataloader(Nanoset(paths, None, S, 24), micro_batch_size=6)
    with pytest.raises(PlanMismatch, match="reversed"):
        other.load_state_dict(state)


def test_compare_says_that_its_plan_cannot_make_it_again(paths):
    state = {"consumed_train_samples": 6, "plan": backwards(paths).plan}
    with pytest.raises(ValueError, match="not a SkippingOrder.* or one of your own"):
        compare(state, backwards(paths))


# ---- a format


class CountedFile(Tokens):
    """A file that begins with the number of its ids, 8 bytes, and is one document."""

    dtype = np.dtype("<u2")
    first_byte = 8

    def __init__(self, path):
        super().__init__(path)
        self.num_tokens = int(np.fromfile(path, "<i8", 1)[0])
        if self.version[0] != 8 + 2 * self.num_tokens:
            raise TokenFileError(f"{path} is cut short: copy it again")

    @property
    def document_offsets(self):
        return np.array([0, self.num_tokens])


@pytest.fixture
def counted(paths):
    """The first of the `paths` in the other format."""
    ids = np.fromfile(paths[0], "<u2")
    path = paths[0].with_suffix(".counted")
    path.write_bytes(np.int64(len(ids)).tobytes() + ids.tobytes())
    return path


def test_a_nanoset_reads_another_format_beside_others(paths, counted):
    file = CountedFile(counted)
    assert file.tokens.tolist() == list(range(5 * S + 1))
    rows = Nanoset([file, paths[1]], None, S, 24)
    known = Nanoset(paths, None, S, 24)
    assert np.array_equal(rows.read(np.arange(24)), known.read(np.arange(24)))
    assert np.array_equal(rows.starts(np.arange(24)), known.starts(np.arange(24)))
    assert rows.positions_of(0, 0).tolist() == known.positions_of(0, 0).tolist()
    assert pickle.loads(pickle.dumps(rows)).plan == rows.plan
    schedule = Schedule(dp_size=2, micro_batch_size=3)
    assert audit([RunSegment("run", rows, schedule, 4)]).ok
    state = build_nanoset_dataloader(rows, micro_batch_size=6).state_dict()
    build_nanoset_dataloader(known, micro_batch_size=6).load_state_dict(state)


def test_another_format_is_converted_and_refuses_what_is_cut_short(counted, tmp_path):
    converted = tmp_path / "converted.npy"
    convert([CountedFile(counted)], converted)
    assert open_tokens(converted).tokens.tolist() == list(range(5 * S + 1))
    assert open_tokens(converted).document_offsets.tolist() == [0, 5 * S + 1]
    counted.write_bytes(counted.read_bytes()[:-1])
    with pytest.raises(TokenFileError, match="cut short"):
        CountedFile(counted)


# ---- an option


class RotatedOrder(ReversedOrder):
    """The reversed order, begun at another position."""

    name = "rotated"
    reverse_lookup = Order.reverse_lookup  # scans the order

    def __init__(self, *arguments, by=0, **named):
        self.by = whole_number(by, "by", 0)
        self.options = {"by": self.by}
        super().__init__(*arguments, **named)

    def lookup(self, positions):
        return super().lookup(positions + self.by)


class MirroredNanoset(Nanoset):
    """Rows that are read from back to front if `mirrored`."""

    def __init__(self, *arguments, mirrored=False, **options):
        super().__init__(*arguments, **options)
        self.mirrored = mirrored

    def fill(self, positions, out):
        super().fill(positions, out)
        if self.mirrored:
            out[:] = out[:, ::-1].copy()

    def _plan_without_probes(self):
        plan = super()._plan_without_probes()
        if self.mirrored:
            plan["rows"]["mirrored"] = True
        return plan


def rotated(paths, by):
    order = RotatedOrder([5, 3], None, 24, by=by)
    return Nanoset(paths, None, S, 24, order=order)


def mirrored(paths, mirrored):
    return MirroredNanoset(paths, None, S, 24, mirrored=mirrored)


@pytest.mark.parametrize(
    ("build", "default", "other", "field"),
    [(rotated, 0, 3, "order.by"), (mirrored, False, True, "rows.mirrored")],
)
def test_a_run_is_refused_under_another_value_of_an_option_of_its_plan(
    paths, build, default, other, field
):
    def loader(value):
        return build_nanoset_dataloader(build(paths, value), micro_batch_size=6)

    positions = np.arange(4)
    usual, changed = build(paths, default), build(paths, other)
    assert not np.array_equal(usual.read(positions), changed.read(positions))
    state = loader(other).state_dict()
    loader(other).load_state_dict(state)
    with pytest.raises(PlanMismatch, match=field):
        loader(default).load_state_dict(state)


def test_the_default_of_an_option_keeps_every_result(paths):
    assert mirrored(paths, False).plan == Nanoset(paths, None, S, 24).plan
    found = rotated(paths, 0).order[:]
    assert np.array_equal(found, backwards(paths).order[:])


def test_contributing_has_five_lines_for_each_and_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## How to add\n")[1].split("\n## ")[0]
    for title in ("An order", "A format", "An option"):
        guide = section.split(f"### {title}\n")[1].split("\n### ")[0]
        assert re.findall(r"^(\d)\. ", guide, re.MULTILINE) == list("12345"), title
    for name in re.findall(r"`([\w/.]+\.(?:py|md))`", section):
        assert (ROOT / name).exists() or (ROOT / "nanoset_ref" / name).exists(), name
    for name, kind in re.findall(r"`(\w+)` of the (rows|order)", section):
        assert hasattr({"rows": Rows, "order": Order}[kind], name), name
