"""Where the tokens of a step come from, and when a document is read.

`where` goes down: step -> positions -> samples -> token spans -> documents. `when` goes up: document -> the samples
that touch it -> the positions at which an order reads them -> step, rank and row. Neither scans the run: both
directions are arithmetic and, for order="stateless", a few keyed permutations per answer; order="nanotron" looks
through one stored epoch. The alternative it rejects is a log of what was read, which is there only for runs that wrote
one, and only up to now.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.provenance.sources import Source, Traceable, document_starts, raw_path
from nanoset_ref.schedule import Schedule, Slot


class Part(NamedTuple):
    """Tokens [start, stop) of a document, which lie at bytes [first_byte, last_byte) of the source's file. Without
    known document boundaries `document` is None and the tokens are counted from the beginning of the file.
    """

    document: int | None
    start: int
    stop: int
    first_byte: int
    last_byte: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """What stands at one place of the run.

    Attributes:
        slot: the place. source: number of the file in the dataset. path: that file. sample: number of the sample within
            the file (for a Megatron-style dataset, within its stream of shuffled documents). epoch: which pass over the
            dataset (Nanoset) or over that file's documents (Megatron-style) the sample belongs to, from 0. parts: the
            tokens, in order.
    """

    slot: Slot
    source: int
    path: str
    sample: int
    epoch: int
    parts: tuple[Part, ...]


def where(dataset: Traceable, schedule: Schedule, step: int) -> list[Origin]:
    """Everything that a step reads, ordered by micro-step, rank and row.

    Args:
        dataset: a Nanoset, or a Megatron-style dataset.
        schedule: the layout of the run at that step.
        step: optimizer step, from schedule.first_step on.

    Raises:
        IndexError: the step lies before the schedule or beyond the dataset.
    """
    positions = schedule.positions(step)
    if positions.stop > len(dataset):
        raise IndexError(
            f"step {step} reads positions {positions.start} to {positions.stop - 1}, the dataset has {len(dataset)}"
        )
    origins = [origin(dataset, schedule.slot(position)) for position in positions]
    return sorted(origins, key=lambda it: (it.slot.micro_step, it.slot.dp_rank, it.slot.row))


def when(
    dataset: Traceable,
    schedule: Schedule,
    document: int,
    *,
    source: int = 0,
    tokens: tuple[int, int] | None = None,
    until: int | None = None,
) -> list[Slot]:
    """Every place at which tokens of a document are read, in the order of the run.

    Args:
        document: number of the document within its file.
        source: number of the file within the dataset.
        tokens: (start, stop) within the document: only places at which one of these is read; default: all of them.
        until: only positions below this one (default: the whole dataset); and only those from the beginning of the
            schedule on.

    Raises:
        IndexError: no such file, document or tokens.
        ValueError: the file's document boundaries are not known.
    """
    end = len(dataset) if until is None else until
    positions = positions_of(dataset, source, document, tokens, end)
    return [schedule.slot(k) for k in positions.tolist() if schedule.consumed_train_samples <= k < end]


# ---- what each kind of dataset knows of itself


@functools.singledispatch
def origin(dataset: Any, slot: Slot) -> Origin:
    """What stands at the position of `slot`."""
    raise TypeError(f"provenance knows Nanoset, MegatronNanoset and BlendedNanoset, got {type(dataset).__name__}")


@functools.singledispatch
def positions_of(
    dataset: Any, source: int, document: int, tokens: tuple[int, int] | None, until: int
) -> NDArray[np.int64]:
    """The positions, ascending, whose sample holds tokens of a document: all below `until`, and perhaps some more."""
    raise TypeError(f"provenance knows Nanoset, MegatronNanoset and BlendedNanoset, got {type(dataset).__name__}")


@origin.register
def _(dataset: Nanoset, slot: Slot) -> Origin:
    source, sample = dataset.order[slot.position]
    file = dataset.files[source]
    first = sample * file.stride(dataset.sequence_length)
    last = first + dataset.sequence_length + 1
    offsets = file.document_offsets
    parts = []
    if offsets is None:
        parts.append(Part(None, first, last, first * file.dtype.itemsize, last * file.dtype.itemsize))
    else:
        for document in range(
            int(np.searchsorted(offsets, first, side="right")) - 1, int(np.searchsorted(offsets, last))
        ):
            begin, end = int(offsets[document]), int(offsets[document + 1])
            low, high = max(begin, first), min(end, last)
            if low < high:
                parts.append(
                    Part(document, low - begin, high - begin, low * file.dtype.itemsize, high * file.dtype.itemsize)
                )
    epoch = slot.position // dataset.order.samples_per_epoch
    return Origin(slot=slot, source=source, path=str(raw_path(file)), sample=sample, epoch=epoch, parts=tuple(parts))


@positions_of.register
def _(dataset: Nanoset, source: int, document: int, tokens: tuple[int, int] | None, until: int) -> NDArray[np.int64]:
    file = dataset.files[_checked(source, len(dataset.files), "file")]
    offsets = document_starts(file)
    _checked(document, len(offsets) - 1, "document", file)
    first_token, behind = int(offsets[document]), int(offsets[document + 1])
    start, stop = _span(tokens, document, behind - first_token)
    begin, end = first_token + start, first_token + stop
    if begin == end:
        return np.empty(0, dtype=np.int64)
    # Sample j holds tokens j*stride .. j*stride + S.
    stride = file.stride(dataset.sequence_length)
    first = max(0, -(-(begin - dataset.sequence_length) // stride))
    last = min((end - 1) // stride, dataset.dataset_lengths[source] - 1)
    positions = [dataset.order.positions(source, sample, until) for sample in range(first, last + 1)]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *positions]))


@origin.register
def _(dataset: MegatronNanoset, slot: Slot) -> Origin:
    return _megatron_origin(dataset, slot, 0, slot.position)


@origin.register
def _(dataset: BlendedNanoset, slot: Slot) -> Origin:
    source = int(dataset.dataset_index[slot.position])
    return _megatron_origin(dataset.datasets[source], slot, source, int(dataset.dataset_sample_index[slot.position]))


def _megatron_origin(dataset: MegatronNanoset, slot: Slot, source: int, k: int) -> Origin:
    corpus, sample = dataset.corpus, int(dataset.shuffle_index[k])
    parts = []
    for document, start, stop in dataset.spans(k):
        begin, itemsize = int(corpus.sequence_pointers[corpus.document_indices[document]]), corpus.dtype.itemsize
        parts.append(Part(document, start, stop, begin + start * itemsize, begin + stop * itemsize))
    epoch = sample * dataset.sequence_length // dataset.tokens_per_epoch
    path = str(raw_path(corpus))
    return Origin(slot=slot, source=source, path=path, sample=sample, epoch=epoch, parts=tuple(parts))


@positions_of.register
def _(
    dataset: MegatronNanoset, source: int, document: int, tokens: tuple[int, int] | None, until: int
) -> NDArray[np.int64]:
    _checked(source, 1, "file")
    return _megatron_positions(dataset, dataset.corpus, source, document, tokens)


@positions_of.register
def _(
    dataset: BlendedNanoset, source: int, document: int, tokens: tuple[int, int] | None, until: int
) -> NDArray[np.int64]:
    corpus = dataset.datasets[_checked(source, len(dataset.datasets), "file")].corpus
    return _megatron_positions(dataset, corpus, source, document, tokens)


def _megatron_positions(
    dataset: MegatronNanoset | BlendedNanoset,
    corpus: MMapIndexedDataset,
    source: int,
    document: int,
    tokens: tuple[int, int] | None,
) -> NDArray[np.int64]:
    _checked(document, corpus.num_documents, "document", corpus)
    if isinstance(dataset, BlendedNanoset):
        positions = dataset.positions(source, document)
    else:
        positions = dataset.positions(document)
    if tokens is None:
        return positions
    first, behind = corpus.document_indices[document : document + 2]
    start, stop = _span(tokens, document, int(corpus.sequence_lengths[first:behind].sum(dtype=np.int64)))
    read = [
        any(
            it.document == document and max(it.start, start) < min(it.stop, stop)
            for it in (dataset.spans(k)[1] if isinstance(dataset, BlendedNanoset) else dataset.spans(k))
        )
        for k in positions.tolist()
    ]
    return positions[np.array(read, dtype=np.bool_)]


def _checked(index: int, size: int, what: str, source: Source | None = None) -> int:
    if not 0 <= index < size:
        where = "there are" if source is None else f"{raw_path(source)} has"
        raise IndexError(f"there is no {what} {index}: {where} {size}, counted from 0")
    return index


def _span(tokens: tuple[int, int] | None, document: int, length: int) -> tuple[int, int]:
    start, stop = (0, length) if tokens is None else tokens
    if not 0 <= start <= stop <= length:
        raise IndexError(f"there are no tokens {start}:{stop} in document {document}, which has {length}")
    return start, stop
