"""Commands on runs: show, where, when, audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from nanoset_ref.cli.run_options import RunOptions, stretch_at
from nanoset_ref.command import UsageError, at_least
from nanoset_ref.files import read_json
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.provenance import (
    Continuation,
    Stretch,
    audit,
    compare,
    find_text,
    loader_state,
    row_origin,
    when,
    where,
)
from nanoset_ref.rows import Rows, checked_number
from nanoset_ref.schedule import Schedule, Slot
from nanoset_ref.tokens import Tokens

Found = tuple[str, Tokens, Any]  # what it is, its file, its ids


def show_text(
    *,
    sample: int | None = None,
    document: int | None = None,
    position: int | None = None,
    step: int | None = None,
    source: int = 0,
    run: RunOptions,
    schedule: Schedule,
) -> None:
    """Decode a sample, a document, a position or a step to text.

    Args:
        sample: a sample of the file (see --source).
        document: a document of the file (see --source).
        position: a position in the global order.
        step: all rows of an optimizer step.
        source: number of the file, from 0.
    """
    exactly_one(sample=sample, document=document, position=position, step=step)
    stretches = run.stretches(schedule)
    if step is not None:
        stretch = stretch_at(stretches, step)
        slots = [it.slot for it in where(stretch.dataset, stretch.schedule, step)]
        found = [_row(stretch.dataset, slot.position, _place(slot)) for slot in slots]
    else:
        dataset = stretches[0].dataset
        file = dataset.files[checked_number(source, len(dataset.files), "file")]
        if position is not None:
            checked_number(position, len(dataset), "position")
            found = [_row(dataset, position, f"position {position}")]
        elif document is not None:
            found = [_document(file, document)]
        else:
            found = [_sample(dataset, source, sample or 0)]
    rows = [{"what": what, "file": str(file.path), "text": run.decode(file, ids)} for what, file, ids in found]
    run.show(rows, "\n".join(f"--- {row['what']}, {row['file']}\n{row['text']}" for row in rows))


def _row(dataset: Rows, position: int, what: str) -> Found:
    return what, dataset.files[dataset.origin(position).source], dataset[position]["input_ids"]


def _document(file: Tokens, document: int) -> Found:
    offsets = file.known_documents()
    checked_number(document, len(offsets) - 1, "document")
    return f"document {document}", file, file.tokens[offsets[document] : offsets[document + 1]]


def _sample(dataset: Rows, source: int, sample: int) -> Found:
    if not isinstance(dataset, Nanoset):
        raise ValueError("samples of Megatron-style data are no pieces of one file; show a --position or a --document")
    checked_number(sample, dataset.dataset_lengths[source], "sample")
    first, file = sample * int(dataset.strides[source]), dataset.files[source]
    return f"sample {sample}", file, file.tokens[first : first + dataset.row_length]


def where_from(*, step: int, text: bool = False, run: RunOptions, schedule: Schedule) -> None:
    """Where the tokens of a step come from: file, sample, documents, bytes.

    Args:
        step: optimizer step, from 1.
        text: decode the rows, too.
    """
    stretch = stretch_at(run.stretches(schedule), step)
    rows, lines = [], []
    for it in where(stretch.dataset, stretch.schedule, step):
        row = {**dataclasses.asdict(it), "parts": [part._asdict() for part in it.parts]}
        lines.append(f"{_place(it.slot)}: position {it.slot.position}, epoch {it.epoch}, {it.path} sample {it.sample}")
        lines += [f"    source {label}" for label in it.labels]
        for part in it.parts:
            name = "tokens" if part.document is None else f"document {part.document} tokens"
            lines.append(f"    {name} {part.start}:{part.stop}, bytes {part.first_byte}:{part.last_byte}")
        if text:
            _, file, ids = _row(stretch.dataset, it.slot.position, "")
            row["text"] = run.decode(file, ids)
            lines.append(f"    {row['text']!r}")
        rows.append(row)
    run.show(rows, "\n".join(lines))


def when_read(
    *, document: int | None = None, text: str | None = None, source: int = 0, run: RunOptions, schedule: Schedule
) -> None:
    """Every epoch, step, rank and row at which a document or a piece of text is read.

    Args:
        document: a document of the file (see --source).
        text: a piece of text: every place where it stands is looked up, in all files.
        source: number of the file, from 0.
    """
    exactly_one(document=document, text=text)
    rows, lines = [], []
    for stretch in run.stretches(schedule):
        dataset = stretch.dataset
        wanted: list[Any] = [(source, document, None)] if text is None else _places_of_text(run, dataset, text)
        for number, found, tokens in wanted:
            for slot in when(dataset, stretch.schedule, found, source=number, tokens=tokens, until=stretch.stop):
                epoch = row_origin(dataset, slot).epoch
                what = {"stretch": stretch.name, "source": number, "document": found, "tokens": tokens, "epoch": epoch}
                rows.append(what | dataclasses.asdict(slot))
                span = "" if tokens is None else f" tokens {tokens[0]}:{tokens[1]}"
                lines.append(
                    f"{stretch.name}: file {number} document {found}{span}: "
                    f"epoch {epoch}, step {slot.step}, {_place(slot)}"
                )
    run.show(rows, "\n".join(lines) or "it is not read in this run")


def _places_of_text(run: RunOptions, dataset: Rows, text: str) -> list[tuple[int, int, tuple[int, int]]]:
    """(file, document, tokens) of every place where a text stands."""
    found = [
        (number, document, (start, stop))
        for number, file in enumerate(dataset.files)
        for document, start, stop in find_text(file, run.tokenizer_of(file), text)
    ]
    if not found:
        raise ValueError(f"no document holds {text!r}; give whole words of it, and the --tokenizer of the files")
    return found


def audit_run(*, num_loading_workers: int = 0, state: Path | None = None, run: RunOptions, schedule: Schedule) -> bool:
    """Simulate all ranks of a run and prove that every position is read once.

    Args:
        num_loading_workers: DataLoader workers per rank.
        state: a saved data state (JSON): say also what would repeat or be lost with this plan.
    """
    stretches = run.stretches(schedule, num_loading_workers)
    report = audit(stretches)
    result, text = {"ok": report.ok, **dataclasses.asdict(report)}, str(report)
    if state is not None:
        difference = _continued(state, stretches)
        result["continuation"], text = dataclasses.asdict(difference), f"{text}\n{difference}"
    run.show(result, text)
    return not report.ok


def _continued(path: Path, stretches: Sequence[Stretch]) -> Continuation:
    """What a run that goes on from a saved data state would repeat or lose, in the stretch of the same stage."""
    saved = read_json(path)
    try:
        state, stage = loader_state(saved)
        names = [stretch.name for stretch in stretches]
        name = names[0] if stage is None or names == ["run"] else stage
        if name not in names:
            raise ValueError(f"it was saved in the stage {stage!r}, this run has {names}")
        rows = stretches[names.index(name)].dataset
        if not isinstance(rows, Nanoset):
            raise ValueError("plans of token files are compared, and this run reads .bin/.idx pairs")
        return compare(state, rows)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except (LookupError, TypeError, AttributeError, ArithmeticError, MemoryError) as error:
        problem = f"not a data state ({type(error).__name__}: {error})"
        need = "a checkpoint's state.json, or a NanosetDataLoader's state_dict as JSON"
        raise ValueError(f"{path}: {problem}; give {need}") from error


def plot_loss(metrics: str, /, *, lines: Annotated[int, at_least(1)] = 20) -> None:
    """The loss of a run as a plot of text: a bar for each stretch of steps, of their mean loss.

    Args:
        metrics: the metrics.jsonl in the folder of the run's checkpoints.
        lines: of the plot, at most.
    """
    from nanoset_ref.training.metrics import read_metrics

    rows = read_metrics(metrics)
    parts = [part for part in np.array_split([(row["step"], row["loss"]) for row in rows], lines) if len(part)]
    highest = max((part[:, 1].mean() for part in parts), default=1.0)
    for part in parts:
        loss = part[:, 1].mean()
        print(f"steps {part[0, 0]:6.0f} to {part[-1, 0]:6.0f}   {loss:8.4f}  {'#' * round(60 * loss / highest)}")


def exactly_one(**options: Any) -> None:
    """Refuse a command line that does not give exactly one of these options."""
    if sum(value is not None for value in options.values()) != 1:
        raise UsageError(f"give exactly one of {', '.join(f'--{name}' for name in options)}")


def _place(slot: Slot) -> str:
    return f"rank {slot.dp_rank} micro-batch {slot.micro_step} row {slot.row}"
