"""Where the tokens of a step come from, and when a document is read.

    where    step -> positions -> samples -> token spans -> documents
    when     document -> the samples that contain it -> their positions -> step, rank and row

Neither scans the run or needs a log of it. Both are arithmetic: order="stateless" computes a few
keyed permutations per answer, order="nanotron" searches one stored epoch.
"""

import dataclasses

from nanoset_ref.load.rows import Rows, Span
from nanoset_ref.load.schedule import Schedule, Slot


@dataclasses.dataclass(frozen=True)
class RowOrigin:
    """The origin of one row of a run.

    Attributes:
        slot: the step, rank and row that read it.
        source: number of the file in the dataset.
        path: path of the file.
        sample: number of the sample within the file (Megatron-style: within its stream of shuffled
            documents).
        epoch: the sample's epoch, from 0.
        parts: the spans of documents in the row, in order.
        labels: the sources of these documents, as named in the rows of their chunks; empty if
            unknown.
    """

    slot: Slot
    source: int
    path: str
    sample: int
    epoch: int
    parts: tuple[Span, ...]
    labels: tuple[str, ...]


def where(
    dataset: Rows,
    schedule: Schedule,
    step: int,
) -> list[RowOrigin]:
    """List the origin of every row that a step reads, ordered by micro-batch, rank and row.

    Args:
        dataset: a Nanoset, a Megatron-style dataset, or other Rows.
        schedule: which rank reads which position at that step.
        step: optimizer step, from schedule.first_step on.

    Raises:
        IndexError: the step is before the schedule or beyond the dataset.
    """
    positions = schedule.positions(step)
    if positions.stop > len(dataset):
        raise IndexError(
            f"step {step} reads positions {positions.start} to {positions.stop - 1}, but the "
            f"dataset has only {len(dataset)}"
        )
    slots = [schedule.slot(position) for position in positions]
    slots.sort(key=lambda slot: (slot.micro_batch, slot.dp_rank, slot.row))
    return [_origin(dataset, slot) for slot in slots]


def _origin(dataset: Rows, slot: Slot) -> RowOrigin:
    """The origin of the row that a slot reads."""
    source, sample, epoch = dataset.origin(slot.position)
    file = dataset.files[source]
    parts = tuple(dataset.spans(slot.position))
    labels = dict.fromkeys(file.label_of(part.document) for part in parts)
    known = tuple(filter(None, labels))
    return RowOrigin(slot, source, str(file.path), sample, epoch, parts, known)


def when(
    dataset: Rows,
    schedule: Schedule,
    document: int,
    *,
    source: int = 0,
    tokens: tuple[int, int] | None = None,
    until: int | None = None,
) -> list[Slot]:
    """List every slot that reads tokens of a document, in the order of the run.

    Args:
        dataset: a Nanoset, a Megatron-style dataset, or other Rows.
        schedule: which rank reads which position; those before its first are left out.
        document: number of the document within its file.
        source: number of the file within the dataset.
        tokens: (start, stop) within the document: list only slots that read one of these tokens.
        until: list only positions below this one; None: all positions of the steps that `dataset`
            fills, as in `where`.

    Raises:
        IndexError: no such file, document or tokens.
        ValueError: the file's document boundaries are not known.
    """
    start = schedule.consumed_train_samples
    if until is None:
        rest = (len(dataset) - start) % schedule.global_batch_size
        until = len(dataset) - rest
    positions = dataset.positions_of(source, document, tokens, until).tolist()
    return [schedule.slot(k) for k in positions if start <= k < until]
