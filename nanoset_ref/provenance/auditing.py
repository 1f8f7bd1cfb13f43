"""Prove, before a run, that it will read what it is meant to read.

`audit` plays all ranks of a run in one process, with the very sampler that the ranks will use, and checks
what they would deliver against the laws: every position once and in order, equal counts on all ranks, shares as the
weights say, and every token of the files accounted for. It costs a few microseconds per simulated rank and batch; of a
stretch longer than `MAX_STEPS` only the first and the last steps are simulated, and the report says so.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nanoset_ref import train  # loads nothing yet: only a YAML config needs pydantic
from nanoset_ref.load.rows import Rows, SourceUse
from nanoset_ref.load.samplers import ResumableBatchSampler
from nanoset_ref.load.schedule import Schedule

MAX_STEPS = 3000  # of a stretch, that are simulated
WIDEST = 40  # characters of a path in a table


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A part of a run with one dataset and one layout: a stage, or what follows a resume on other ranks.

    Args:
        name: what reports call it.
        dataset: the rows it reads.
        schedule: the layout; its consumed_train_samples is where in the dataset this stretch begins.
        num_steps: optimizer steps.
        num_workers: DataLoader workers per rank.
    """

    name: str
    dataset: Rows
    schedule: Schedule
    num_steps: int
    num_workers: int = 0

    @property
    def steps(self) -> range:
        """The numbers of its steps, which count from 1 in a run."""
        return range(self.schedule.first_step, self.schedule.first_step + self.num_steps)

    @property
    def stop(self) -> int:
        """The position after the last one."""
        return (
            self.schedule.consumed_train_samples + self.num_steps * self.schedule.global_batch_size
        )


def stretches_of_config(config: "train.Config") -> list[Stretch]:
    """The stages of a run that begins at step 1, each as a stretch."""
    return [
        Stretch(stage.name, rows, schedule, len(stage.steps), stage.data.num_loading_workers)
        for stage, schedule, rows in train.planned_stages(config)
    ]


@dataclasses.dataclass(frozen=True)
class Check:
    """One law, whether it holds, and the figures that show it."""

    law: str
    holds: bool
    detail: str


@dataclasses.dataclass(frozen=True)
class StretchReport:
    """The laws of one stretch, and how it uses each file."""

    name: str
    num_steps: int
    checks: Sequence[Check]
    sources: Sequence[SourceUse]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.num_steps:,} steps"]
        lines += [
            f"  {'holds ' if it.holds else 'BROKEN'}  {it.law}: {it.detail}" for it in self.checks
        ]
        paths = shortened([it.path for it in self.sources])
        width = max(map(len, ["file", *paths]))
        lines.append(
            f"  {'file':<{width}} {'samples':>13} {'read':>13} {'distinct':>13} {'epochs':>8} {'at most':>7}"
            f"  {'weight':>7} {'share':>7}"
        )
        total = max(sum(it.read for it in self.sources), 1)
        lines += [
            f"  {path:<{width}} {it.num_samples:>13,} {it.read:>13,} {it.distinct:>13,}"
            f" {it.epochs:>8.3f} {it.repetitions:>6}x  {it.weight:>7.4f} {it.read / total:>7.4f}"
            for path, it in zip(paths, self.sources, strict=True)
        ]
        return "\n".join(lines)


def shortened(paths: Sequence[str]) -> list[str]:
    """Paths for a table: those above WIDEST characters are cut from the left, never within the file's name."""
    cut = []
    for path in paths:
        name = path.rpartition("/")[2]
        kept = max(WIDEST - len("..."), len(name))
        cut.append(path if len(path) <= WIDEST else f"...{path[-kept:]}")
    return cut


@dataclasses.dataclass(frozen=True)
class Report:
    """What `audit` found. `ok`: every law holds."""

    stretches: Sequence[StretchReport]

    @property
    def ok(self) -> bool:
        return all(check.holds for stretch in self.stretches for check in stretch.checks)

    def __str__(self) -> str:
        return "\n".join(
            [*map(str, self.stretches), "every law holds" if self.ok else "NOT every law holds"]
        )


def audit(stretches: Sequence[Stretch]) -> Report:
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

    Raises:
        ValueError: a stretch without steps.
    """
    reports, last_of_plan = [], dict[str, Stretch]()
    for stretch in stretches:
        if stretch.num_steps < 1:
            raise ValueError(
                f"{stretch.name}: num_steps must be at least 1, got {stretch.num_steps}"
            )
        plan = stretch.dataset.fingerprint
        reports.append(_audit(stretch, last_of_plan.get(plan)))
        last_of_plan[plan] = stretch
    return Report(reports)


def _audit(stretch: Stretch, before: Stretch | None) -> StretchReport:
    start, available = stretch.schedule.consumed_train_samples, len(stretch.dataset)
    fits, detail = (
        stretch.stop <= available,
        f"positions {start:,} to {stretch.stop:,} of {available:,}",
    )
    checks = [Check("the dataset is long enough", fits, detail)]
    if before:
        detail = f"{before.name} stopped at {before.stop:,}, this one begins at {start:,}"
        checks.append(
            Check("no gap or overlap between stretches", start in (0, before.stop), detail)
        )
    if fits:
        checks += _simulate(stretch)
    sources = stretch.dataset.usage(start, min(stretch.stop, available))
    if stretch.dataset.shuffled_over is not None:
        checks.append(_weights(sources, stretch.dataset.shuffled_over))
    checks.append(_conservation(stretch, sources))
    return StretchReport(stretch.name, stretch.num_steps, checks, sources)


def _simulate(stretch: Stretch) -> list[Check]:
    """Laws 1 and 2 of the package, on the real sampler."""
    schedule, size, count = stretch.schedule, stretch.schedule.global_batch_size, stretch.num_steps
    runs, how = [range(count)], "all steps simulated"
    if count > MAX_STEPS:
        runs = [range(MAX_STEPS // 2), range(count - MAX_STEPS // 2, count)]
        how = f"{MAX_STEPS:,} of {count:,} steps simulated, the rest follows by the same arithmetic"
    missing = repeated = unequal = disordered = 0
    for steps in runs:
        first = schedule.consumed_train_samples + steps.start * size
        streams = [_delivered(stretch, rank, first, len(steps)) for rank in range(schedule.dp_size)]
        lengths = {len(stream) for stream in streams}
        together = np.concatenate([stream[: min(lengths)] for stream in streams], axis=1)
        due = first + size * np.arange(min(lengths))[:, None]
        right = np.unique(together[(due <= together) & (together < due + size)])
        missing += size * len(steps) - len(right)
        repeated += together.size - len(right)
        unequal += len(lengths) > 1
        disordered += sum(bool(np.any(np.diff(stream) <= 0)) for stream in streams)
    ranks = f"{schedule.dp_size} ranks x {max(stretch.num_workers, 1)} workers"
    found = f"{missing} missing, {repeated} twice or foreign; {ranks}, {how}"
    return [
        Check("every position once", not (missing or repeated), found),
        Check("equal counts on all ranks", not unequal, f"{unequal} unequal stretches"),
        Check("one global order", not disordered, f"{disordered} stretches out of order"),
    ]


def _delivered(stretch: Stretch, rank: int, first: int, num_steps: int) -> NDArray[np.int64]:
    """Positions that one rank's DataLoader delivers from a global count on: int64 [steps, samples of that rank per
    step].
    """
    schedule = stretch.schedule
    sampler = ResumableBatchSampler(
        len(stretch.dataset),
        schedule.micro_batch_size,
        rank,
        schedule.dp_size,
        first,
        layout=schedule.layout,
    )
    batches = itertools.islice(sampler, num_steps * schedule.batch_accumulation_per_replica)
    flat = np.fromiter(itertools.chain.from_iterable(batches), np.int64)
    per_step = schedule.rank_step_size
    return flat[: len(flat) // per_step * per_step].reshape(-1, per_step)


def _weights(sources: Sequence[SourceUse], over: int) -> Check:
    """Shares against weights: one sample per epoch of rounding, and what a shuffle does to an incomplete stretch."""
    total = sum(source.read for source in sources)
    cut = min(
        total, over
    )  # at most this many positions lie in epochs that the stretch begins or ends within
    # without a shuffle, each source is off by a sample where the stretch begins and where it ends
    rounding = total // over + 1 if over else 2 * len(sources)
    excess = max(
        abs(source.read - source.weight * total)
        - rounding
        - 5 * math.sqrt(cut * source.weight * (1 - source.weight))  # five standard deviations
        for source in sources
    )
    off = max(abs(source.read / max(total, 1) - source.weight) for source in sources)
    return Check("shares are the weights", excess <= 0, f"off by at most {off:.4%} of the samples")


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
    return Check("nothing is lost", holds, detail)
