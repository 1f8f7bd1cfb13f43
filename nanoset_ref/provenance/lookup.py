"""Where the tokens of a step come from, and when a document is read.

`where` goes down: step -> positions -> samples -> token spans -> documents. `when` goes up: document -> the samples
that touch it -> the positions at which they are read -> step, rank and row. Neither scans the run or needs a log of it:
both directions are arithmetic and, for order="stateless", a few keyed permutations per answer; order="nanotron" looks
through one stored epoch.
"""

import dataclasses

from nanoset_ref.load.rows import Rows, Span
from nanoset_ref.load.schedule import Schedule, Slot


@dataclasses.dataclass(frozen=True)
class RowOrigin:
    """Where one row of a run comes from.

    Attributes:
        slot: its place in the run.
        source: number of the file in the dataset. path: that file.
        sample: number of the sample within the file (Megatron-style: within its stream of shuffled documents).
        epoch: the pass over the dataset that the sample belongs to, from 0.
        parts: the spans of documents in the row, in order.
        labels: the sources of these documents, as the rows of their chunks named them; none where that is not known.
    """

    slot: Slot
    source: int
    path: str
    sample: int
    epoch: int
    parts: tuple[Span, ...]
    labels: tuple[str, ...]


def where(dataset: Rows, schedule: Schedule, step: int) -> list[RowOrigin]:
    """Everything that a step reads, ordered by micro-step, rank and row.

    Args:
        dataset: a Nanoset, a Megatron-style dataset, or other Rows.
        schedule: the layout of the run at that step.
        step: optimizer step, from schedule.first_step on.

    Raises:
        IndexError: the step lies before the schedule or beyond the dataset.
    """
    positions = schedule.positions(step)
    if positions.stop > len(dataset):
        reads = f"{positions.start} to {positions.stop - 1}"
        raise IndexError(f"step {step} reads positions {reads}, the dataset has {len(dataset)}")
    slots = sorted(
        map(schedule.slot, positions), key=lambda it: (it.micro_step, it.dp_rank, it.row)
    )
    origins = []
    for slot in slots:
        source, sample, epoch = dataset.origin(slot.position)
        file, parts = dataset.files[source], tuple(dataset.spans(slot.position))
        labels = filter(None, dict.fromkeys(file.source_of(part.document) for part in parts))
        origins.append(RowOrigin(slot, source, str(file.path), sample, epoch, parts, tuple(labels)))
    return origins


def when(
    dataset: Rows,
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
        until: only positions below this one (default: the whole dataset), and only those from the start of the
            schedule on.

    Raises:
        IndexError: no such file, document or tokens.
        ValueError: the file's document boundaries are not known.
    """
    end = len(dataset) if until is None else until
    positions = dataset.positions_of(source, document, tokens, end).tolist()
    return [schedule.slot(k) for k in positions if schedule.consumed_train_samples <= k < end]
