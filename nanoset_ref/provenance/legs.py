"""The parts of a run, and what each reads of its sources: samples, repetitions, shares, tokens that no sample holds."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset
from nanoset_ref.megatron.indexed_dataset import bin_path
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import NanotronOrder, Order, StatelessOrder
from nanoset_ref.provenance.report import Source
from nanoset_ref.schedule import Schedule
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

    @property
    def stop(self) -> int:
        """The position after the last one."""
        return self.schedule.consumed_train_samples + self.num_steps * self.schedule.global_batch_size


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
            consumed_train_samples=0 if before is None else legs[before].stop,
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


def sources_of(leg: Leg) -> list[Source]:
    if not isinstance(leg.dataset, Nanoset):
        return _megatron_sources(leg, leg.dataset)
    dataset, order = leg.dataset, leg.dataset.order
    start, stop = leg.schedule.consumed_train_samples, min(leg.stop, len(dataset))
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
                epochs=read / max(samples, 1),
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
    start, stop = leg.schedule.consumed_train_samples, min(leg.stop, len(dataset))
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

    Of a stateless order it is known that a source is read through before a sample of it repeats, what its ledger counts
    included; of Nanotron's, one epoch is counted, of others all.
    """
    length = int(order.dataset_lengths[dataset])
    if length == 0:
        return 0, 0
    if isinstance(order, StatelessOrder):
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
