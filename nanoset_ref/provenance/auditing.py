"""Prove, before a run, that it will read what it is meant to read.

`audit` plays all ranks of a run in one process, with the very sampler that the ranks will use, and checks
what they would deliver against the laws: every position once and in order, equal counts on all ranks, shares as the
weights say, and every token of the files accounted for. It costs a few microseconds per simulated rank and batch; a run
longer than `max_steps` is simulated at its beginning, its end and random places, and the report says so.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.provenance.stretches import Stretch
from nanoset_ref.rows import SourceUse
from nanoset_ref.samplers import ResumableBatchSampler


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One law, whether it holds, and the figures that show it."""

    law: str
    holds: bool
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StretchReport:
    """The laws of one stretch, and how it uses each file."""

    name: str
    num_steps: int
    checks: Sequence[Check]
    sources: Sequence[SourceUse]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.num_steps:,} steps"]
        lines += [f"  {'holds ' if it.holds else 'BROKEN'}  {it.law}: {it.detail}" for it in self.checks]
        lines.append(
            f"  {'file':<32} {'samples':>13} {'read':>13} {'distinct':>13} {'epochs':>8} {'at most':>7}"
            f"  {'weight':>7} {'share':>7}"
        )
        total = max(sum(it.read for it in self.sources), 1)
        lines += [
            f"  {it.path[-32:]:<32} {it.num_samples:>13,} {it.read:>13,} {it.distinct:>13,}"
            f" {it.epochs:>8.3f} {it.repetitions:>6}x  {it.weight:>7.4f} {it.read / total:>7.4f}"
            for it in self.sources
        ]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What `audit` found. `ok`: every law holds."""

    stretches: Sequence[StretchReport]

    @property
    def ok(self) -> bool:
        return all(check.holds for stretch in self.stretches for check in stretch.checks)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.stretches), "every law holds" if self.ok else "NOT every law holds"])


def audit(stretches: Sequence[Stretch], *, max_steps: int = 3000) -> Report:
    """Simulate a run.

    1. Every rank's sampler is iterated, as its DataLoader would. (Workers change nothing: batches are dealt out to them
        and taken back in turn.)
    2. Per step, the positions of all ranks together must be the next global batch: each once, none missing; all ranks
        equally many.
    3. The order is asked how often each source is read up to the stretch's end; the shares must be the weights, to one
        sample per block of the order, unless the order promises none. (Of Megatron-style data the cached indexes are
        counted; their blend keeps to one sample per source.)
    4. Samples delivered + dropped at the end = positions; tokens in samples + tails = tokens in the files.
    5. A stretch whose plan an earlier one had goes on where that one stopped, or begins again at 0.

    Args:
        stretches: the parts of the run, in order.
        max_steps: steps of a stretch that are simulated; a longer one is simulated at its first and last steps and at
            random ones in between.

    Raises:
        ValueError: no stretches, or one without steps.
    """
    if not stretches:
        raise ValueError("a run has at least one stretch, got none")
    ends: list[tuple[Any, Stretch]] = []
    reports = []
    for stretch in stretches:
        plan = stretch.dataset.plan
        before = [it for known, it in ends if known == plan][-1:]
        reports.append(_audit(stretch, before, max_steps))
        ends.append((plan, stretch))
    return Report(stretches=reports)


def _audit(stretch: Stretch, before: Sequence[Stretch], max_steps: int) -> StretchReport:
    if stretch.num_steps < 1:
        raise ValueError(f"{stretch.name}: num_steps must be at least 1, got {stretch.num_steps}")
    start, available = stretch.schedule.consumed_train_samples, len(stretch.dataset)
    fits, detail = stretch.stop <= available, f"positions {start:,} to {stretch.stop:,} of {available:,}"
    checks = [Check(law="the dataset is long enough", holds=fits, detail=detail)]
    for it in before:
        joins, found = start in (0, it.stop), f"{it.name} stopped at {it.stop:,}, this one begins at {start:,}"
        checks.append(Check(law="no gap or overlap between stretches", holds=joins, detail=found))
    if fits:
        checks += _simulate(stretch, max_steps)
    sources = stretch.dataset.usage(start, min(stretch.stop, available))
    if stretch.dataset.shuffled_over is not None:
        checks.append(_weights(sources, stretch.dataset.shuffled_over))
    checks.append(_conservation(stretch, sources))
    return StretchReport(name=stretch.name, num_steps=stretch.num_steps, checks=checks, sources=sources)


def _simulate(stretch: Stretch, max_steps: int) -> list[Check]:
    """Laws 1 and 2 of the package, on the real sampler."""
    schedule, size = stretch.schedule, stretch.schedule.global_batch_size
    steps = np.arange(stretch.num_steps)
    how = "all steps simulated"
    if stretch.num_steps > max_steps:
        third = max_steps // 3
        between = np.random.default_rng(0).integers(third, stretch.num_steps - third, max_steps - 2 * third)
        steps = np.unique(np.concatenate([steps[:third], between, steps[-third:]]))
        how = f"{len(steps):,} of {stretch.num_steps:,} steps simulated, the rest follows by the same arithmetic"
    missing = repeated = unequal = disordered = 0
    for run in np.split(steps, np.flatnonzero(np.diff(steps) != 1) + 1):
        first = schedule.consumed_train_samples + int(run[0]) * size
        streams = [_delivered(stretch, rank, first, len(run)) for rank in range(schedule.dp_size)]
        whole = min(map(len, streams))
        together = np.concatenate([stream[:whole] for stream in streams], axis=1)
        due = first + size * np.arange(whole)[:, None]
        right = np.unique(together[(due <= together) & (together < due + size)])
        missing += size * len(run) - len(right)
        repeated += together.size - len(right)
        unequal += whole != max(map(len, streams))
        disordered += sum(bool(np.any(np.diff(stream) <= 0)) for stream in streams)
    found = f"{missing} missing, {repeated} twice or foreign"
    workers = f"{schedule.dp_size} ranks x {max(stretch.num_workers, 1)} workers"
    every, order = not (missing or repeated), f"{disordered} stretches out of order"
    return [
        Check(law="every position once", holds=every, detail=f"{found}; {workers}, {how}"),
        Check(law="equal counts on all ranks", holds=not unequal, detail=f"{unequal} unequal stretches"),
        Check(law="one global order", holds=not disordered, detail=order),
    ]


def _delivered(stretch: Stretch, rank: int, first: int, num_steps: int) -> np.ndarray:
    """Positions that one rank's DataLoader delivers from a global count on: int64 [steps, samples of that rank per
    step].
    """
    schedule = stretch.schedule
    sampler = ResumableBatchSampler(
        len(stretch.dataset), schedule.micro_batch_size, rank, schedule.dp_size, first, layout=schedule.layout
    )
    batches = itertools.islice(sampler, num_steps * schedule.batch_accumulation_per_replica)
    flat = np.concatenate([np.empty(0, dtype=np.int64), *map(np.asarray, batches)])
    per_step = schedule.rank_step_size
    return flat[: len(flat) // per_step * per_step].reshape(-1, per_step)


def _weights(sources: Sequence[SourceUse], over: int) -> Check:
    """Shares against weights: one sample per epoch of rounding, and what a shuffle does to an incomplete stretch."""
    total = sum(source.read for source in sources)
    cut = min(total, over)  # at most this many positions lie in epochs that the stretch begins or ends within
    # without a shuffle, each source is off by a sample where the stretch begins and where it ends
    rounding = total // over + 1 if over else 2 * len(sources)
    excess = max(
        abs(source.read - source.weight * total)
        - rounding
        - 5 * math.sqrt(cut * source.weight * (1 - source.weight))  # five standard deviations
        for source in sources
    )
    off = max(abs(source.read / max(total, 1) - source.weight) for source in sources)
    return Check(law="shares are the weights", holds=excess <= 0, detail=f"off by at most {off:.4%} of the samples")


def _conservation(stretch: Stretch, sources: Sequence[SourceUse]) -> Check:
    """The order gives as many samples as there are positions, and a file loses less than a sample at its end."""
    start, end = stretch.schedule.consumed_train_samples, len(stretch.dataset)
    stop, length = min(stretch.stop, end), stretch.dataset.sequence_length
    delivered = sum(source.read for source in sources)
    tails = [source.tail_tokens for source in sources]
    padded = -sum(tail for tail in tails if tail < 0)
    detail = (
        f"{delivered:,} samples of {stop - start:,} positions, {delivered * length:,} tokens to predict; "
        f"{start:,} positions before and {end - stop:,} after; "
        f"of {sum(it.tokens for it in sources):,} tokens in the files {sum(tails) + padded:,} lie in tails that fill "
        f"no sample{f', {padded:,} are padding' if padded else ''}"
    )
    holds = delivered == stop - start and all(-length < tail <= length for tail in tails)
    return Check(law="nothing is lost", holds=holds, detail=detail)
