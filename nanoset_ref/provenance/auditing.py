"""Check, before a run begins, that it will read the right samples.

`audit` simulates all ranks of a run in one process, with the same sampler that the ranks will use,
and checks the batches: every position once and in order, equal counts on all ranks, shares equal to
the weights, and every token of the files accounted for (laws 1 and 2 of docs/laws.md). It costs a
few microseconds per simulated rank and batch. If a segment is longer than `MAX_STEPS`, only its
first and last steps are simulated, and the report mentions it.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from nanoset_ref.io.error_text import shorten_paths
from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.load.rows import SourceUse
from nanoset_ref.orders.plans import Plan, differences
from nanoset_ref.provenance.run_segments import RunSegment
from nanoset_ref.provenance.spread import (
    Spread,
    UnevenSamples,
    spread_lines,
    spread_over_steps,
    uneven_samples,
)

MAX_STEPS = 3000  # simulated in a segment


@dataclasses.dataclass(frozen=True)
class Check:
    """One property of a segment, whether it holds, and the figures that show it."""

    rule: str
    holds: bool
    detail: str


@dataclasses.dataclass(frozen=True)
class SegmentReport:
    """The checks of one segment, how much of each file it uses and, for a Nanoset, how evenly.

    `uneven` counts from the beginning of the order, as `SourceUse.distinct` does.
    """

    name: str
    num_steps: int
    checks: Sequence[Check]
    sources: Sequence[SourceUse]
    uneven: Sequence[UnevenSamples] = ()
    spread: Sequence[Spread] = ()

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.num_steps:,} steps"]
        for check in self.checks:
            verdict = "holds " if check.holds else "BROKEN"
            lines.append(f"  {verdict}  {check.rule}: {check.detail}")
        paths = shorten_paths([source.path for source in self.sources])
        width = max(map(len, ["file", *paths]))
        lines.append(
            f"  {'file':<{width}} {'samples':>13} {'read':>13} {'distinct':>13} {'epochs':>8}"
            f" {'at most':>7}  {'weight':>7} {'share':>7}"
        )
        total = max(sum(source.read for source in self.sources), 1)
        for path, source in zip(paths, self.sources, strict=True):
            lines.append(
                f"  {path:<{width}} {source.num_samples:>13,} {source.read:>13,}"
                f" {source.distinct:>13,} {source.epochs:>8.3f} {source.most_reads:>6}x "
                f" {source.weight:>7.4f} {source.read / total:>7.4f}"
            )
        lines += [uneven.line(paths) for uneven in self.uneven]
        if self.spread:
            lines += spread_lines(self.spread, paths)
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of `audit`. `ok`: every check holds."""

    segments: Sequence[SegmentReport]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.holds for segment in self.segments for check in segment.checks)

    def __str__(self) -> str:
        verdict = "every law holds" if self.ok else "NOT every law holds"
        if any(segment.uneven for segment in self.segments):
            verdict += ", but some samples are read more often than others, see above"
        return "\n".join([*map(str, self.segments), verdict])


def audit(segments: Sequence[RunSegment]) -> Report:
    """Simulate a run.

    1. Iterate every rank's sampler, as its DataLoader would. (Workers change nothing: the
       DataLoader collects their batches in order.)
    2. In each step, the positions of all ranks together must be the next global batch: each
       position once, none missing, and equally many on all ranks.
    3. Count how often the order reads each source up to the segment's end. Shares must
       equal the weights to within one sample per source and epoch, if the order promises shares.
       (For Megatron-style data the cached indexes are counted; their blend is exact to one sample
       per source.)
    4. Samples delivered + dropped at the end = positions; tokens in samples + tails = tokens in the
       files.
    5. If a file's samples are not read equally often, give or take one read, list the exceptions.
       Measure how evenly files are spread over the steps (see `spread`).
    6. A segment with the plan of an earlier one must continue at its stop, or begin again at 0.

    Args:
        segments: the parts of the run, in order.

    Raises:
        ValueError: a segment has no steps.
    """
    reports = []
    earlier: list[tuple[Plan, RunSegment]] = []
    for segment in segments:
        steps = segment.num_steps
        if steps < 1:
            consumed = segment.schedule.consumed_train_samples
            left = max(0, len(segment.dataset) - consumed)
            raise ValueError(
                f"{segment.name} has {steps} steps: the {left:,} samples left are fewer than "
                f"a step reads, {segment.schedule.global_batch_size:,}; use fewer ranks, a "
                "smaller batch or more samples"
            )
        plan = segment.dataset.plan
        same_run = [other for known, other in earlier if not differences(known, plan)]
        reports.append(_audit(segment, same_run[-1] if same_run else None))
        earlier.append((plan, segment))
    return Report(reports)


def _audit(segment: RunSegment, earlier: RunSegment | None) -> SegmentReport:
    """Audit a segment; `earlier` is the segment before it that has the same plan."""
    start = segment.schedule.consumed_train_samples
    available = len(segment.dataset)
    fits = segment.stop <= available
    detail = f"positions {start:,} to {segment.stop:,} of {available:,}"
    checks = [Check("the dataset is long enough", fits, detail)]
    if earlier:
        adjoins = start in (0, earlier.stop)
        stopped = f"{earlier.name} stopped at {earlier.stop:,}"
        detail = f"{stopped}, this one begins at {start:,}"
        checks.append(Check("no gap or overlap between segments", adjoins, detail))
    if fits:
        checks += _check_batches(segment)
    sources = segment.dataset.usage(start, min(segment.stop, available))
    if segment.dataset.share_period is not None:
        checks.append(_check_shares(sources, segment.dataset.share_period))
    checks.append(_check_conservation(segment, sources))
    evenness = _measure_evenness(segment, sources) if fits else ()
    return SegmentReport(segment.name, segment.num_steps, checks, sources, *evenness)


def _measure_evenness(
    segment: RunSegment, sources: Sequence[SourceUse]
) -> tuple[Sequence[UnevenSamples], Sequence[Spread]]:
    """The samples that are read too often or too seldom, and the spread of the files."""
    dataset = segment.dataset
    if not isinstance(dataset, Nanoset):
        return (), ()
    order = dataset.order
    passes = order.epoch_of(segment.stop)
    if order.weighted or order.first_position:
        passes = 0
    is_uneven = False
    for source, read in zip(sources, order.counts(segment.stop).tolist(), strict=True):
        most_reads = max(passes, -(-read // max(source.num_samples, 1)))
        is_uneven |= source.most_reads > most_reads
        if passes:
            is_uneven |= source.distinct < source.num_samples
    uneven = []
    if is_uneven:  # only then is every sample counted: that takes memory
        reads = order.reads_of_samples(order.first_position, segment.stop)
        uneven = uneven_samples(reads, passes)
    spread = spread_over_steps(order, segment.schedule, segment.steps)
    return uneven, spread


def _check_batches(segment: RunSegment) -> list[Check]:
    """Check laws 1 and 2 of docs/laws.md on the real sampler."""
    schedule = segment.schedule
    count = segment.num_steps
    simulated = [range(count)]
    extent = "all steps simulated"
    if count > MAX_STEPS:
        simulated = [range(MAX_STEPS // 2), range(count - MAX_STEPS // 2, count)]
        rest = "the rest follows by the same arithmetic"
        extent = f"{MAX_STEPS:,} of {count:,} steps simulated, {rest}"
    faults = [_faults_of(segment, steps) for steps in simulated]
    missing, repeated, unequal, disordered = np.sum(faults, axis=0).tolist()
    read_once = (
        f"{missing} missing, {repeated} read twice or in another step; {schedule.dp_size} ranks x "
        f"{segment.num_workers} workers, {extent}"
    )
    equal = f"{unequal} unequal step ranges"
    ordered = f"{disordered} step ranges out of order"
    return [
        Check("every position once", missing == repeated == 0, read_once),
        Check("equal counts on all ranks", unequal == 0, equal),
        Check("one global order", disordered == 0, ordered),
    ]


def _faults_of(segment: RunSegment, steps: range) -> tuple[int, int, int, int]:
    """The faults of the batches in some steps, which count from 0 in the segment.

    Returns:
        (positions missing, positions read twice or by the wrong step, 1 if the ranks read unequally
        many, ranks that read out of order).
    """
    schedule = segment.schedule
    size = schedule.global_batch_size
    first = schedule.consumed_train_samples + steps.start * size
    ranks = [
        _positions_of_rank(segment, rank, first, len(steps))
        for rank in range(schedule.dp_size)
    ]
    lengths = {len(rank) for rank in ranks}
    together = np.concatenate([rank[: min(lengths)] for rank in ranks], axis=1)
    step_starts = first + size * np.arange(min(lengths))[:, None]
    is_right = (step_starts <= together) & (together < step_starts + size)
    right = len(np.unique(together[is_right]))
    missing = size * len(steps) - right
    repeated = together.size - right
    disordered = sum(bool(np.any(np.diff(rank) <= 0)) for rank in ranks)
    return missing, repeated, len(lengths) > 1, disordered


def _positions_of_rank(
    segment: RunSegment,
    rank: int,
    first: int,
    num_steps: int,
) -> Int64Array:
    """The positions that one rank delivers from `first` on: int64 [steps, samples per step]."""
    schedule = segment.schedule
    sampler = ResumableBatchSampler(
        len(segment.dataset),
        schedule.micro_batch_size,
        rank,
        schedule.dp_size,
        first,
        layout=schedule.layout,
    )
    num_batches = num_steps * schedule.batch_accumulation_per_replica
    batches = itertools.islice(sampler, num_batches)
    flat = np.fromiter(itertools.chain.from_iterable(batches), np.int64)
    per_step = schedule.samples_per_rank_and_step
    whole_steps = len(flat) // per_step
    return flat[: whole_steps * per_step].reshape(-1, per_step)


def _check_shares(sources: Sequence[SourceUse], period: int) -> Check:
    """Compare shares with weights.

    They may differ by one sample per epoch, and by the chance of a shuffle in incomplete epochs.

    Args:
        sources: the sources of a segment.
        period: positions of an epoch (see `Rows.share_period`).
    """
    total = sum(source.read for source in sources)
    # no more positions lie in the incomplete first and last epoch
    cut = min(total, period)
    # without a shuffle, each source is off by at most a sample at either end of the segment
    rounding = total // period + 1 if period else 2 * len(sources)
    holds = True
    largest = 0.0
    for source in sources:
        weight = source.weight
        five_deviations = 5 * math.sqrt(cut * weight * (1 - weight))
        if abs(source.read - weight * total) > rounding + five_deviations:
            holds = False
        largest = max(largest, abs(source.read / max(total, 1) - weight))
    detail = f"off by at most {largest:.4%} of the samples"
    return Check("shares are the weights", holds, detail)


def _check_conservation(segment: RunSegment, sources: Sequence[SourceUse]) -> Check:
    """Compare samples read with positions; a file may lose less than a sample at its end.

    Padding fills less than a sample of a file, unless each row may end in padding.
    """
    start = segment.schedule.consumed_train_samples
    available = len(segment.dataset)
    stop = min(segment.stop, available)
    length = segment.dataset.sequence_length
    delivered = sum(source.read for source in sources)
    tails = [source.tail_tokens for source in sources]
    left_over = sum(tail for tail in tails if tail > 0)
    padded = left_over - sum(tails)
    detail = (
        f"{delivered:,} samples of {stop - start:,} positions, "
        f"{delivered * length:,} tokens to predict; "
        f"{start:,} positions before and {available - stop:,} after; "
        f"of {sum(source.tokens for source in sources):,} tokens in the files "
        f"{left_over:,} lie in tails that fill no sample"
    )
    if padded:
        detail += f", {padded:,} are padding"
    lowest = -math.inf if segment.dataset.padded else -length
    fills_no_sample = [lowest < tail <= length for tail in tails]
    holds = delivered == stop - start and all(fills_no_sample)
    return Check("nothing is lost", holds, detail)
