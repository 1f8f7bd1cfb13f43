"""CONTRIBUTING's "How to add": an order that is only defined here works wherever an order does."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref import Nanoset, audit, when, where
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import Order
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.provenance import RunSegment, compare
from nanoset_ref.tokens import TokenFileWriter

S = 4
LENGTHS = [5, 0, 3]
ROOT = Path(__file__).parent.parent


class ReversedOrder(Order):
    """Position k reads instance N - 1 - k of the N in an epoch, and every epoch is the same."""

    name = "reversed"
    keeps_shares = False
    repeats = True

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


def test_contributing_has_five_lines_for_each_and_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## How to add\n")[1].split("\n## ")[0]
    for title in ("An order", "A format", "An option"):
        guide = section.split(f"### {title}\n")[1].split("\n### ")[0]
        assert re.findall(r"^(\d)\. ", guide, re.MULTILINE) == list("12345"), title
    for name in re.findall(r"`([\w/.]+\.(?:py|md))`", section):
        assert (ROOT / name).exists() or (ROOT / "nanoset_ref" / name).exists(), name
