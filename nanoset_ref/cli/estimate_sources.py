"""How many samples of each source a stage reads, from the sizes of files.

No index is built. The reads of the orders "nanotron", "stateless", "identity" and "megatron" are
computed; those of other orders are counted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanoset_ref import megatron  # loads its modules when they are used
from nanoset_ref.megatron.nanoset_config import blend_sizes
from nanoset_ref.orders.base import normalize_weights
from nanoset_ref.orders.nanotron import instance_bytes
from nanoset_ref.tokens.interface import count_samples
from nanoset_ref.tokens.statistics import tail_tokens

if TYPE_CHECKING:
    from nanoset_ref.megatron import NanosetConfig
    from nanoset_ref.orders import Order

BLEND_BYTES = 10  # per position of a blend: its corpus and sample


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A file, a folder or a corpus that a blend reads.

    Attributes:
        path: as the user named it.
        disk_bytes: size of its ids in the files, in bytes.
        samples: samples in one epoch of it.
        tail_tokens: tokens in no sample.
    """

    path: str
    disk_bytes: int
    samples: int
    tail_tokens: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceBlend:
    """The sources of a stage and how its order reads them.

    Attributes:
        sources: the sources.
        weights: the weight of each source; None: its samples.
        order_name: as `build_order` takes it, or "megatron" or "text".
        index_bytes: size of the index that each process holds, or maps from a cache of indexes.
        padded: whether rows may end in padding; no file records how much.
        block_factor: see `Rows`.
        counted_order: the order itself, if its reads have to be counted.
    """

    sources: Sequence[Source]
    weights: Sequence[float | None]
    order_name: str
    index_bytes: int = 0
    padded: bool = False
    block_factor: int = 1
    counted_order: Order | None = None

    @property
    def samples_per_epoch(self) -> int:
        """Samples in one epoch of all sources."""
        return sum(source.samples for source in self.sources)

    @functools.cached_property
    def shares(self) -> list[float]:
        """The share of each source in the blend, summing to 1."""
        if self.counted_order:
            return self.counted_order.dataset_weights.tolist()
        amounts = [
            float(source.samples if weight is None else weight)
            for source, weight in zip(self.sources, self.weights, strict=True)
        ]
        return normalize_weights(amounts, len(amounts)).tolist()

    def expected_reads(self, number: int, stop: int) -> float:
        """The expected number of samples of source `number` in positions [0, stop)."""
        source = self.sources[number]
        if self.counted_order:
            return _reads_and_distinct(self.counted_order, stop)[number][0]
        if self.order_name != "identity":
            return self.shares[number] * stop
        first = sum(earlier.samples for earlier in self.sources[:number])
        epochs, rest = divmod(stop, max(self.samples_per_epoch, 1))
        return epochs * source.samples + min(max(rest - first, 0), source.samples)

    def distinct(self, number: int, read: float, stop: int) -> float:
        """Different samples among those read from a source.

        Args:
            number: the source.
            read: samples read from it, some of them repeatedly.
            stop: the position after the last read.
        """
        if self.counted_order:
            return _reads_and_distinct(self.counted_order, stop)[number][1]
        samples = self.sources[number].samples
        weighted = any(weight is not None for weight in self.weights)
        if self.order_name != "nanotron" or not weighted:
            return min(read, samples)
        # every epoch has the same samples: the first ones, and some twice if a source is too short
        in_epoch = self.shares[number] * self.samples_per_epoch
        done = min(1.0, stop / max(self.samples_per_epoch, 1))
        if in_epoch <= samples or done == 1:
            return min(in_epoch * done, samples)
        # an epoch has `copies` of each sample and one more of some, at random places
        copies, some = divmod(in_epoch / max(samples, 1), 1)
        unread = (1 - done) ** copies * (1 - some * done)
        return samples * (1 - unread)


@functools.cache
def _reads_and_distinct(order: Order, stop: int) -> list[tuple[int, int]]:
    """For each source, (reads, different samples) at positions [0, stop) of an order."""
    reads = order.reads_of_samples(0, stop)
    return [(int(each.sum()), int((each > 0).sum())) for each in reads]


def token_blend(
    named_files: Sequence[tuple[str, Any]],
    weights: Sequence[float | None],
    sequence_length: int,
    order: str,
    disjoint: bool = False,
) -> SourceBlend:
    """The blend of a Nanoset.

    Args:
        named_files: (name, its open files) for each source.
        weights: a weight, or None, for each source.
        sequence_length: S, labels per sample.
        order: the name of the order.
        disjoint: whether samples share no token.
    """
    # only token files need it
    from nanoset_ref.load.gather import choose_gatherer

    sources = []
    opened = []
    padded = False
    for path, files in named_files:
        opened += files
        samples = 0
        size = 0
        tail = 0
        for file in files:
            in_file = file.num_samples(sequence_length, disjoint)
            stride = file.stride(sequence_length, disjoint)
            samples += in_file
            size += file.num_tokens * file.dtype.itemsize
            tail += tail_tokens(file.num_tokens, in_file, sequence_length + 1, stride)
            padded |= file.windows == "padded"
        sources.append(
            Source(path=path, disk_bytes=size, samples=samples, tail_tokens=tail)
        )
    blend = SourceBlend(
        sources=sources,
        weights=weights,
        order_name=order,
        padded=padded,
        block_factor=choose_gatherer(opened).block_factor,
    )
    if order != "nanotron":
        return blend
    samples = blend.samples_per_epoch
    return dataclasses.replace(blend, index_bytes=samples * instance_bytes(samples))


def megatron_blend(config: NanosetConfig) -> SourceBlend:
    """The train split of Megatron-style data, with the sizes of its indexes."""
    train = config.splits[0]
    if train.blend is None or train.bounds is None:
        raise ValueError(
            "the run has no train split: give its first part a size above 0"
        )
    blend = train.blend
    size = train.num_samples
    weights: Sequence[float | None] = blend.weights or [None] * len(blend.prefixes)
    has_one_corpus = len(blend.prefixes) == 1
    sizes: Sequence[int | None] = [size if has_one_corpus else None] * len(weights)
    if blend.weights is not None and size is not None:
        _, sizes = blend_sizes(blend.weights, size, config)
    sources = []
    index_bytes = 0
    for prefix, num_samples in zip(blend.prefixes, sizes, strict=True):
        source, source_bytes = _megatron_source(
            config, prefix, train.bounds, num_samples
        )
        sources.append(source)
        index_bytes += source_bytes
    if not has_one_corpus:
        positions = sum(source.samples for source in sources) if size is None else size
        index_bytes += BLEND_BYTES * positions
    return SourceBlend(
        sources=sources,
        weights=weights,
        order_name="megatron",
        index_bytes=index_bytes,
    )


def _megatron_source(
    config: NanosetConfig,
    prefix: str,
    bounds: tuple[float, float],
    num_samples: int | None,
) -> tuple[Source, int]:
    """A corpus, and the size of its indexes in bytes.

    Args:
        config: the dataset.
        prefix: the .bin/.idx pair.
        bounds: where the split begins and ends in its sequences, fractions in [0, 1].
        num_samples: samples of the run; None: one epoch.
    """
    corpus = megatron.MMapIndexedDataset(prefix)
    start, stop = (round(bound * len(corpus)) for bound in bounds)
    tokens = int(corpus.sequence_lengths[start:stop].sum(dtype="int64"))
    sequence_length = config.sequence_length
    plan = megatron.plan_epochs(
        max(tokens, 1),
        num_samples,
        sequence_length,
        extra_token=config.add_extra_token_to_sequence,
    )
    documents = 4 * plan.num_epochs * (stop - start)
    samples_and_shuffle = 8 * (plan.num_samples + 1) + 4 * plan.num_samples
    samples = count_samples(tokens, config.row_length, sequence_length)
    source = Source(
        path=prefix,
        disk_bytes=tokens * corpus.dtype.itemsize,
        samples=samples,
        tail_tokens=tail_tokens(tokens, samples, config.row_length, sequence_length),
    )
    return source, documents + samples_and_shuffle
