"""Prove, before a run, that it will read what it is meant to read.

`audit` plays all ranks and workers of a run in one process, with the very sampler that the ranks will use, and holds
what they would deliver against the laws: every position once and in order, equal counts on all ranks, shares as the
weights say, and every token of the files accounted for. It costs the steps that are simulated (a few microseconds per
rank and batch); a run longer than `max_steps` is simulated at its beginning, its end and random places, and the report
says so. The alternative it rejects, to look at the logs of the run, finds the same after the money is spent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset
from nanoset_ref.megatron.indexed_dataset import bin_path
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import NanotronOrder, Order, StatelessOrder
from nanoset_ref.provenance.report import Check, LegReport, Report, Source
from nanoset_ref.provenance.schedule import Schedule
from nanoset_ref.samplers import ResumableBatchSampler
from nanoset_ref.training.config import Config
from nanoset_ref.training.stages import continued_stage, open_stage, stage_spans


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leg:
    """A part of a run with one dataset and one layout: a stage, or what follows a resume on other ranks.

    Args:
        name: what reports call it.
        dataset: the Nanoset, or the Megatron-style dataset.
        schedule: the layout; its consumed_train_samples is where in the dataset this leg begins.
        num_steps: optimizer steps.
        num_workers: DataLoader workers per rank.
    """

    name: str
    dataset: Nanoset | MegatronNanoset | BlendedNanoset
    schedule: Schedule
    num_steps: int
    num_workers: int = 0


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


def legs_of_config(config: Config) -> list[Leg]:
    """The stages of a run that begins at step 1, each as a leg."""
    spans = stage_spans(config.data_stages, config.tokens.train_steps)
    legs: list[Leg] = []
    for index, span in enumerate(spans):
        before = continued_stage(spans, index)
        schedule = Schedule(
            dp_size=config.parallelism.dp,
            micro_batch_size=config.tokens.micro_batch_size,
            batch_accumulation_per_replica=config.tokens.batch_accumulation_per_replica,
            consumed_train_samples=0 if before is None else _stop(legs[before]),
            first_step=span.first_step,
        )
        num_steps = span.last_step - span.first_step + 1
        stop = schedule.consumed_train_samples + num_steps * schedule.global_batch_size
        legs.append(
            Leg(
                name=span.stage.name,
                dataset=open_stage(config, span.stage, stop),
                schedule=schedule,
                num_steps=num_steps,
                num_workers=span.stage.data.num_loading_workers,
            )
        )
    return legs


def _audit_leg(leg: Leg, max_steps: int, random: np.random.Generator) -> LegReport:
    if leg.num_steps < 1:
        raise ValueError(f"{leg.name}: num_steps must be at least 1, got {leg.num_steps}")
    checks = [_fits(leg)]
    if checks[0].holds:
        checks += _simulate(leg, max_steps, random)
    sources = _sources(leg)
    checks += [_weights(leg, sources), _conservation(leg, sources)]
    return LegReport(name=leg.name, num_steps=leg.num_steps, checks=checks, sources=sources)


def _stop(leg: Leg) -> int:
    """The position behind the leg's last one."""
    return leg.schedule.consumed_train_samples + leg.num_steps * leg.schedule.global_batch_size


def _fits(leg: Leg) -> Check:
    available = len(leg.dataset)
    return Check(
        law="the dataset is long enough",
        holds=_stop(leg) <= available,
        detail=f"positions {leg.schedule.consumed_train_samples:,} to {_stop(leg):,} of {available:,}",
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


def _sources(leg: Leg) -> list[Source]:
    if not isinstance(leg.dataset, Nanoset):
        return _megatron_sources(leg, leg.dataset)
    dataset, order = leg.dataset, leg.dataset.order
    start, stop = leg.schedule.consumed_train_samples, min(_stop(leg), len(dataset))
    counts = order.counts(stop) - order.counts(start)
    length = dataset.sequence_length
    sources = []
    for index, (file, samples, read) in enumerate(
        zip(dataset.files, dataset.dataset_lengths, counts.tolist(), strict=True)
    ):
        distinct, most = _coverage(order, index, stop)
        sources.append(
            Source(
                path=str(file.path),
                num_samples=samples,
                read=read,
                epochs=read / samples,
                distinct=distinct,
                repetitions=most,
                weight=float(order.dataset_weights[index]),
                share=read / max(int(counts.sum()), 1),
                tokens=file.num_tokens,
                tail_tokens=file.num_tokens - (samples - 1) * file.stride(length) - length - 1,
            )
        )
    return sources


def _megatron_sources(leg: Leg, dataset: MegatronNanoset | BlendedNanoset) -> list[Source]:
    """Samples of Megatron-style data are cut from a stream of all epochs: none comes twice, its documents may."""
    start, stop = leg.schedule.consumed_train_samples, min(_stop(leg), len(dataset))
    if isinstance(dataset, BlendedNanoset):
        parts, weights = dataset.datasets, np.array(dataset.weights)
        datasets, places = dataset.dataset_index[:stop], dataset.dataset_sample_index[:stop]
    else:
        parts, weights = (dataset,), np.ones(1)
        datasets, places = np.zeros(stop, dtype=np.int16), np.arange(stop)
    sources = []
    for number, part in enumerate(parts):
        chosen = datasets == number
        read = int(np.count_nonzero(chosen[start:]))
        length, tokens = part.sequence_length, part.tokens_per_epoch
        samples = np.unique(part.shuffle_index[places[chosen]]).astype(np.int64)
        passes = np.union1d(samples * length // tokens, ((samples + 1) * length - 1) // tokens)
        stream = tokens * part.epochs.num_epochs
        extra = int(part.config.add_extra_token_to_sequence)
        sources.append(
            Source(
                path=str(bin_path(part.corpus.path_prefix)),
                num_samples=(tokens - extra) // length,
                read=read,
                epochs=read * length / tokens,
                distinct=len(samples),
                repetitions=len(passes),
                weight=float(weights[number] / weights.sum()),
                share=read / max(stop - start, 1),
                tokens=stream,
                tail_tokens=stream - extra - len(part) * length,
            )
        )
    return sources


def _coverage(order: Order, dataset: int, stop: int) -> tuple[int, int]:
    """(different samples of a dataset read before position `stop`, readings of the one that is read most).

    Runs of up to 2**24 positions, and Nanotron's order over one epoch, are counted. Of a longer stateless run it is
    known that a source is read through before a sample of it repeats, exact to the order's block (a few thousand
    positions).
    """
    length = int(order.dataset_lengths[dataset])
    if isinstance(order, StatelessOrder) and stop > 1 << 24:
        read = int(order.counts(stop)[dataset])
        return min(read, length), -(-read // length)
    epochs, rest = divmod(stop, order.samples_per_epoch) if isinstance(order, NanotronOrder) else (0, stop)
    readings = _count(order, dataset, rest, length)
    if epochs:
        readings += epochs * _count(order, dataset, order.samples_per_epoch, length)
    return int(np.count_nonzero(readings)), int(readings.max())


def _count(order: Order, dataset: int, stop: int, length: int) -> NDArray[np.int64]:
    """int64 [length]: how often each sample of a dataset is read in positions [0, stop)."""
    readings = np.zeros(length, dtype=np.int64)
    for first in range(0, stop, 1 << 20):
        datasets, samples = order[first : min(first + (1 << 20), stop)]
        readings += np.bincount(samples[datasets == dataset], minlength=length)
    return readings


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
    start, stop, end = leg.schedule.consumed_train_samples, min(_stop(leg), len(leg.dataset)), len(leg.dataset)
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
