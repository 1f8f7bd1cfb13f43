"""Prove, before a run, that it will read what it is meant to read.

`audit` plays all ranks and workers of a run in one process, with the very sampler that the ranks will use, and holds
what they would deliver against the laws: every position once and in order, equal counts on all ranks, shares as the
weights say, and every token of the files accounted for. It costs the steps that are simulated (a few microseconds per
rank and batch); a run longer than `max_steps` is simulated at its beginning, its end and random places, and the report
says so. The alternative it rejects, to look at the logs of the run, finds the same after the money is spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nanoset_ref.nanoset import Nanoset
from nanoset_ref.provenance.legs import Leg, sources_of
from nanoset_ref.provenance.report import Check, LegReport, Report, Source
from nanoset_ref.samplers import ResumableBatchSampler


def audit(legs: Sequence[Leg], *, max_steps: int = 3000, seed: int = 0) -> Report:
    """Simulate a run.

    1. Every rank's sampler is iterated, as its DataLoader would (worker w gets every num_workers-th batch, and they
        come back in turn).
    2. Per step, the positions of all ranks together must be the next global batch: each once, none missing; all ranks
        equally many.
    3. The order is asked how often each source is read up to the leg's end; the shares must be the weights, to one
        sample per block of the order. (Of Megatron-style data the cached indexes are counted; their blend keeps to one
        sample per source.)
    4. Samples delivered + dropped at the end = positions; tokens in samples + tails = tokens in the files.

    Args:
        legs: the parts of the run, in order.
        max_steps: steps of a leg that are simulated; a longer leg is simulated at its first and last steps and at
            random ones in between.
        seed: of that choice.

    Raises:
        ValueError: no legs, or a leg without steps.
    """
    if not legs:
        raise ValueError("a run has at least one leg, got none")
    return Report(legs=[_audit_leg(leg, max_steps, np.random.default_rng(seed)) for leg in legs])


def _audit_leg(leg: Leg, max_steps: int, random: np.random.Generator) -> LegReport:
    if leg.num_steps < 1:
        raise ValueError(f"{leg.name}: num_steps must be at least 1, got {leg.num_steps}")
    checks = [_fits(leg)]
    if checks[0].holds:
        checks += _simulate(leg, max_steps, random)
    sources = sources_of(leg)
    checks += [_weights(leg, sources), _conservation(leg, sources)]
    return LegReport(name=leg.name, num_steps=leg.num_steps, checks=checks, sources=sources)


def _fits(leg: Leg) -> Check:
    available = len(leg.dataset)
    return Check(
        law="the dataset is long enough",
        holds=leg.stop <= available,
        detail=f"positions {leg.schedule.consumed_train_samples:,} to {leg.stop:,} of {available:,}",
    )


def _simulate(leg: Leg, max_steps: int, random: np.random.Generator) -> list[Check]:
    """Laws 1 and 2 of the package, on the real sampler."""
    schedule = leg.schedule
    steps = np.arange(leg.num_steps)
    if leg.num_steps > max_steps:
        third = max_steps // 3
        between = random.integers(third, leg.num_steps - third, max_steps - 2 * third)
        steps = np.unique(np.concatenate([steps[:third], between, steps[-third:]]))
    missing = repeated = unequal = disordered = 0
    for run in np.split(steps, np.flatnonzero(np.diff(steps) != 1) + 1):
        first = schedule.consumed_train_samples + int(run[0]) * schedule.global_batch_size
        streams = [_delivered(leg, rank, first, len(run)) for rank in range(schedule.dp_size)]
        unequal += len({stream.shape for stream in streams}) != 1
        for number in range(len(run)):
            expected = np.arange(schedule.global_batch_size) + first + number * schedule.global_batch_size
            step = np.concatenate(
                [stream[number] if number < len(stream) else np.empty(0, np.int64) for stream in streams]
            )
            found, counts = np.unique(step, return_counts=True)
            missing += len(np.setdiff1d(expected, found))
            repeated += int((counts - 1).sum()) + len(np.setdiff1d(found, expected))
            disordered += any(np.any(np.diff(stream[number]) <= 0) for stream in streams if number < len(stream))
    how = (
        "all steps simulated"
        if len(steps) == leg.num_steps
        else f"{len(steps):,} of {leg.num_steps:,} steps simulated, the rest follows by the same arithmetic"
    )
    workers = f"{schedule.dp_size} ranks x {max(leg.num_workers, 1)} workers"
    return [
        Check(
            law="every position once",
            holds=missing == repeated == 0,
            detail=f"{missing} missing, {repeated} twice or foreign; {workers}, {how}",
        ),
        Check(law="equal counts on all ranks", holds=unequal == 0, detail=f"{unequal} unequal stretches"),
        Check(law="one global order", holds=disordered == 0, detail=f"{disordered} steps out of order"),
    ]


def _delivered(leg: Leg, rank: int, first: int, num_steps: int) -> np.ndarray:
    """Positions that one rank's DataLoader delivers from a global count on: int64 [steps, samples of that rank per
    step].
    """
    schedule = leg.schedule
    sampler = ResumableBatchSampler(
        len(leg.dataset), schedule.micro_batch_size, rank, schedule.dp_size, first, layout=schedule.layout
    )
    batches = iter(sampler)
    wanted = num_steps * schedule.batch_accumulation_per_replica
    taken = [np.asarray(batch) for _, batch in zip(range(wanted), batches, strict=False)]
    num_workers = max(leg.num_workers, 1)
    queues = [taken[worker::num_workers] for worker in range(num_workers)]
    delivered = [queues[number % num_workers][number // num_workers] for number in range(len(taken))]
    per_step = schedule.global_batch_size // schedule.dp_size
    flat = np.concatenate([np.empty(0, dtype=np.int64), *delivered])
    return flat[: len(flat) // per_step * per_step].reshape(-1, per_step)


def _weights(leg: Leg, sources: Sequence[Source]) -> Check:
    """Shares against weights: one sample per epoch of rounding, and what a shuffle does to an incomplete stretch."""
    total = sum(source.read for source in sources)
    if isinstance(leg.dataset, Nanoset):
        unit = leg.dataset.order.samples_per_epoch
        cut = min(total, unit)  # at most this many positions lie in epochs that the leg begins or ends within
        epochs = total // unit + 1
    else:  # a blend is not shuffled; where the leg begins and where it ends, each source is off by a sample
        cut, epochs = 0, 2 * len(sources)
    excess = max(
        abs(source.read - source.weight * total)
        - epochs
        - 5 * math.sqrt(cut * source.weight * (1 - source.weight))  # five standard deviations
        for source in sources
    )
    off = max(abs(source.share - source.weight) for source in sources)
    return Check(law="shares are the weights", holds=excess <= 0, detail=f"off by at most {off:.4%} of the samples")


def _conservation(leg: Leg, sources: Sequence[Source]) -> Check:
    """The order gives as many samples as there are positions, and a file loses less than a sample at its end."""
    start, stop, end = leg.schedule.consumed_train_samples, min(leg.stop, len(leg.dataset)), len(leg.dataset)
    length = leg.dataset.sequence_length
    delivered = sum(source.read for source in sources)
    tails = [source.tail_tokens for source in sources]
    if isinstance(leg.dataset, Nanoset):
        whole = all(0 <= tail < file.stride(length) for tail, file in zip(tails, leg.dataset.files, strict=True))
    else:
        once = sum(source.distinct for source in sources) == stop
        whole = once and all(-length < tail < length for tail in tails)
    total = sum(source.tokens for source in sources)
    padded = -sum(tail for tail in tails if tail < 0)
    return Check(
        law="nothing is lost",
        holds=delivered == stop - start and whole,
        detail=(
            f"{delivered:,} samples of {stop - start:,} positions, {delivered * length:,} tokens to predict; "
            f"{start:,} positions before and {end - stop:,} after; "
            f"of {total:,} tokens in the files {sum(tails) + padded:,} lie in tails that fill no sample"
            + (f", {padded:,} are padding" if padded else "")
        ),
    )
