"""The sources of a stage, their shares, and how many samples its order reads of each, from the sizes of files alone. No
order and no index is built.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanoset_ref import megatron  # loads its modules when they are used

if TYPE_CHECKING:
    from nanoset_ref.megatron import NanosetConfig
    from nanoset_ref.tokens import Tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A file, a folder or a corpus that a blend reads.

    Attributes:
        path: its name.
        disk_bytes: of its ids.
        samples: in one epoch of it.
        tail_tokens: in no sample.
        share: of the blend; the shares of all sources add up to 1.
    """

    path: str
    disk_bytes: int
    samples: int
    tail_tokens: int = 0
    share: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceBlend:
    """The sources of a stage and how its order goes through them.

    Attributes:
        order: "nanotron", "stateless", "identity", "megatron", "text", or the path of a published order.
        weighted: whether the shares are given, and not those of the samples.
        index_bytes: that each process holds, or maps where there is a cache of indexes.
        padded: whether rows may end in padding; how much of it stands in no header.
    """

    sources: Sequence[Source]
    order: str
    weighted: bool = False
    index_bytes: int = 0
    padded: bool = False

    @property
    def epoch(self) -> int:
        """Samples in one epoch of all sources."""
        return sum(source.samples for source in self.sources)

    def read(self, number: int, stop: int) -> float:
        """Samples of a source in positions [0, stop)."""
        source = self.sources[number]
        if self.order != "identity":
            return source.share * stop
        first = sum(earlier.samples for earlier in self.sources[:number])
        epochs, rest = divmod(stop, max(self.epoch, 1))
        return epochs * source.samples + min(max(rest - first, 0), source.samples)

    def distinct(self, number: int, read: float, stop: int) -> float:
        """Different samples among the `read` ones of a source, the last of them before position `stop`."""
        samples = self.sources[number].samples
        if self.order != "nanotron" or not self.weighted:
            return min(read, samples)
        # every epoch has the same samples: the first ones and, of a source that is too short, some twice
        in_epoch = self.sources[number].share * self.epoch
        done = min(1.0, stop / max(self.epoch, 1))
        if in_epoch <= samples or done == 1:
            return min(in_epoch * done, samples)
        return samples * (1 - (1 - done) ** (in_epoch / max(samples, 1)))


def token_blend(
    named: dict[str, Any],
    weights: Sequence[float | None],
    length: int,
    order: str,
    disjoint: bool = False,
) -> SourceBlend:
    """The blend of a Nanoset: {name: its files}, and a weight (or None) for each name."""
    sources = []
    padded = False
    for path, files in named.items():
        samples = sum(file.num_samples(length, disjoint) for file in files)
        size = sum(file.num_tokens * file.dtype.itemsize for file in files)
        tail = sum(_tail(file, length, disjoint) for file in files)
        sources.append(Source(path=path, disk_bytes=size, samples=samples, tail_tokens=tail))
        padded |= any(file.windows == "padded" for file in files)
    blend = SourceBlend(
        sources=_with_shares(sources, weights),
        order=order,
        weighted=any(weight is not None for weight in weights),
        padded=padded,
    )
    if order != "nanotron":
        return blend
    number_bytes = 4 if blend.epoch <= 2**32 else 8
    return dataclasses.replace(blend, index_bytes=blend.epoch * number_bytes)


def _with_shares(sources: list[Source], weights: Sequence[float | None]) -> list[Source]:
    """The sources with their shares: by weight, and without a weight by samples."""
    from nanoset_ref.megatron.nanoset_config import normalize  # loads numba

    given = [
        float(source.samples if weight is None else weight)
        for source, weight in zip(sources, weights, strict=True)
    ]
    return [
        dataclasses.replace(source, share=share)
        for source, share in zip(sources, normalize(given), strict=True)
    ]


def _tail(file: Tokens, length: int, disjoint: bool) -> int:
    """Tokens at the end of a file that fill no sample."""
    samples = file.num_samples(length, disjoint)
    if samples == 0:
        return file.num_tokens
    last_start = (samples - 1) * file.stride(length, disjoint)
    return file.num_tokens - last_start - length - 1


def megatron_blend(config: NanosetConfig) -> SourceBlend:
    """The train split of Megatron-style data, with the sizes of its indexes."""
    _, blend, bounds, size = config.splits[0]
    if blend is None or bounds is None:
        raise ValueError("the run has no train split: give its first part a size above 0")
    weights: Sequence[float | None] = blend.weights or [None] * len(blend.prefixes)
    total_weight = sum(blend.weights or [])
    extra = int(config.add_extra_token_to_sequence)
    length = config.sequence_length
    is_alone = len(blend.prefixes) == 1
    sources = []
    index = 0
    for prefix, weight in zip(blend.prefixes, weights, strict=True):
        corpus = megatron.MMapIndexedDataset(prefix)
        first, stop = (round(bound * len(corpus)) for bound in bounds)
        tokens = int(corpus.sequence_lengths[first:stop].sum(dtype="int64"))
        wanted = size if is_alone else None
        if weight is not None and size is not None:
            wanted = math.ceil(size * (weight / total_weight))
            wanted = math.ceil(wanted * (1 + config.mid_level_dataset_surplus))
        plan = megatron.plan_epochs(max(tokens, 1), wanted, length, extra_token=bool(extra))
        index += 4 * plan.num_epochs * (stop - first)  # of documents
        index += 8 * (plan.num_samples + 1) + 4 * plan.num_samples  # of samples, and their shuffle
        samples = max(tokens - extra, 0) // length
        source = Source(
            path=prefix,
            disk_bytes=tokens * corpus.dtype.itemsize,
            samples=samples,
            tail_tokens=tokens - extra - samples * length,
        )
        sources.append(source)
    if not is_alone:
        epoch = sum(source.samples for source in sources)
        index += 10 * (epoch if size is None else size)  # corpus and sample of each position
    return SourceBlend(
        sources=_with_shares(sources, weights),
        order="megatron",
        weighted=bool(blend.weights),
        index_bytes=index,
    )
