"""What a stage of a run reads, from the sizes of its files alone: its sources, their shares, and how its order reads
them. No order and no index is built.
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
        path: its name. disk_bytes: of its ids.
        samples: in one epoch of it. share: of the blend, of a sum of 1. tail_tokens: in no sample.
    """

    path: str
    disk_bytes: int
    samples: int
    share: float
    tail_tokens: int


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
        """Different samples of a source, after `read` readings of it, the last one before position `stop`."""
        samples = self.sources[number].samples
        if self.order == "nanotron" and self.weighted:
            # every epoch gives the same samples: the first ones, and, of a source that is too short, some twice
            given = self.sources[number].share * self.epoch
            done = min(1.0, stop / max(self.epoch, 1))
            if given <= samples or done == 1:
                return min(given * done, samples)
            return samples * (1 - (1 - done) ** (given / max(samples, 1)))
        return min(read, samples)


def token_blend(
    named: dict[str, Any],
    weights: Sequence[float | None],
    length: int,
    order: str,
    disjoint: bool = False,
) -> SourceBlend:
    """The blend of a Nanoset: {name: its files}, and a weight (or None) for each name."""
    from nanoset_ref.megatron.nanoset_config import normalise  # loads numba

    lengths = [
        sum(file.num_samples(length, disjoint) for file in files) for files in named.values()
    ]
    weighted = any(weight is not None for weight in weights)
    given = [
        float(size if weight is None else weight)
        for size, weight in zip(lengths, weights, strict=True)
    ]
    sources = [
        Source(
            path=str(path),
            disk_bytes=sum(file.num_tokens * file.dtype.itemsize for file in files),
            samples=samples,
            share=share,
            tail_tokens=sum(_tail(file, length, disjoint) for file in files),
        )
        for (path, files), samples, share in zip(
            named.items(), lengths, normalise(given), strict=True
        )
    ]
    epoch = sum(lengths)
    index = epoch * (4 if epoch <= 2**32 else 8) if order == "nanotron" else 0
    padded = any(file.windows == "padded" for files in named.values() for file in files)
    return SourceBlend(
        sources=sources, order=order, weighted=weighted, index_bytes=index, padded=padded
    )


def _tail(file: Tokens, length: int, disjoint: bool) -> int:
    """Tokens at the end of a file that fill no sample."""
    samples = file.num_samples(length, disjoint)
    if samples == 0:
        return file.num_tokens
    return file.num_tokens - (samples - 1) * file.stride(length, disjoint) - length - 1


def megatron_blend(config: NanosetConfig) -> SourceBlend:
    """The train split of Megatron-style data, with the sizes of its indexes."""
    from nanoset_ref.megatron.nanoset_config import normalise  # loads numba

    _, blend, bounds, size = config.splits[0]
    if blend is None or bounds is None:
        raise ValueError("the run has no train split: give its first part a size above 0")
    surplus = 1 + config.mid_level_dataset_surplus
    shares = normalise(blend.weights) if blend.weights else None
    sources, index = [], 0
    alone = len(blend.prefixes) == 1
    for number, prefix in enumerate(blend.prefixes):
        corpus = megatron.MMapIndexedDataset(prefix)
        first, stop = (round(bound * len(corpus)) for bound in bounds)
        tokens = int(corpus.sequence_lengths[first:stop].sum(dtype="int64"))
        wanted = size if alone else None
        if shares and size is not None:
            wanted = math.ceil(math.ceil(size * shares[number]) * surplus)
        extra = int(config.add_extra_token_to_sequence)
        plan = megatron.plan_epochs(
            max(tokens, 1), wanted, config.sequence_length, extra_token=bool(extra)
        )
        index += (
            plan.num_epochs * (stop - first) * 4 + (plan.num_samples + 1) * 8 + plan.num_samples * 4
        )
        per_epoch = max(tokens - extra, 0) // config.sequence_length
        tail = tokens - extra - per_epoch * config.sequence_length
        disk = tokens * corpus.dtype.itemsize
        sources.append(
            Source(path=prefix, disk_bytes=disk, samples=per_epoch, share=0.0, tail_tokens=tail)
        )
    if shares is None:
        shares = normalise([max(source.samples, 0) for source in sources])
    if not alone:
        blended = size if size is not None else sum(source.samples for source in sources)
        index += 10 * blended
    given = [
        dataclasses.replace(it, share=share) for it, share in zip(sources, shares, strict=True)
    ]
    return SourceBlend(
        sources=given, order="megatron", weighted=bool(blend.weights), index_bytes=index
    )
