"""Commands on runs: show, where, when, audit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import NDArray

from nanoset_ref.cli.run_options import RunOptions, stretch_at
from nanoset_ref.command import UsageError, at_least, show
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


def show_text(
    *,
    sample: int | None = None,
    document: int | None = None,
    position: Annotated[int, at_least(0)] | None = None,
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
    stretch = stretches[0] if step is None else stretch_at(stretches, step)
    dataset = stretch.dataset
    file = dataset.files[checked_number(source, len(dataset.files), "file")]
    if step is not None:
        origins = where(dataset, stretch.schedule, step)
        found = [(_place(it.slot), dataset.files[it.source], dataset[it.slot.position]["input_ids"]) for it in origins]
    elif position is not None:
        ids = dataset[position]["input_ids"]  # refuses a position outside before it is looked up
        found = [(f"position {position}", dataset.files[dataset.origin(position).source], ids)]
    elif sample is not None:
        found = [(f"sample {sample}", file, _sample_of_file(dataset, file, sample))]
    else:
        found = [(f"document {document}", file, _document_of_file(file, document or 0))]
    rows = [{"what": what, "file": str(file.path), "text": run.decode(file, ids)} for what, file, ids in found]
    show(rows, "\n".join(f"--- {row['what']}, {row['file']}\n{row['text']}" for row in rows), as_json=run.json)


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
        for part in it.parts:
            name = "tokens" if part.document is None else f"document {part.document} tokens"
            lines.append(f"    {name} {part.start}:{part.stop}, bytes {part.first_byte}:{part.last_byte}")
        if text:
            ids = stretch.dataset[it.slot.position]["input_ids"]
            row["text"] = run.decode(stretch.dataset.files[it.source], ids)
            lines.append(f"    {row['text']!r}")
        rows.append(row)
    show(rows, "\n".join(lines), as_json=run.json)


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
    show(rows, "\n".join(lines) or "it is not read in this run", as_json=run.json)


def audit_run(
    *, workers: Annotated[int, at_least(0)] = 0, state: Path | None = None, run: RunOptions, schedule: Schedule
) -> int:
    """Simulate all ranks of a run and prove that every position is read once.

    Args:
        workers: DataLoader workers per rank.
        state: a saved data state (JSON): say also what would repeat or be lost with this plan.
    """
    stretches = run.stretches(schedule, workers)
    report = audit(stretches)
    result, text = {"ok": report.ok, **dataclasses.asdict(report)}, str(report)
    if state is not None:
        difference = _continued(state, stretches, by_hand=bool(run.data))
        result["continuation"], text = dataclasses.asdict(difference), f"{text}\n{difference}"
    show(result, text, as_json=run.json)
    return 0 if report.ok else 1


def exactly_one(**options: Any) -> None:
    """Refuse a command line that does not give exactly one of these options."""
    if sum(value is not None for value in options.values()) != 1:
        raise UsageError(f"give exactly one of {', '.join(f'--{name}' for name in options)}")


def _document_of_file(file: Tokens, document: int) -> NDArray[Any]:
    offsets = file.known_documents()
    checked_number(document, len(offsets) - 1, "document")
    return file.tokens[offsets[document] : offsets[document + 1]]


def _sample_of_file(dataset: Rows, file: Tokens, sample: int) -> NDArray[Any]:
    if not isinstance(dataset, Nanoset):
        raise ValueError("samples of Megatron-style data are no pieces of one file; show a --position or a --document")
    checked_number(sample, file.num_samples(dataset.sequence_length), "sample")
    first = sample * file.stride(dataset.sequence_length)
    return file.tokens[first : first + dataset.row_length]


def _places_of_text(run: RunOptions, dataset: Rows, text: str) -> list[tuple[int, int, tuple[int, int]]]:
    """(file, document, tokens) of every place where a text stands."""
    from nanoset_ref.tokenise.encode import load_tokenizer

    found = [
        (number, document, (start, stop))
        for number, file in enumerate(dataset.files)
        for document, start, stop in find_text(file, load_tokenizer(run.tokenizer_name(file)), text)
    ]
    if not found:
        raise ValueError(f"no document holds {text!r}; give whole words of it, and the --tokenizer of the files")
    return found


def _continued(path: Path, stretches: list[Stretch], by_hand: bool) -> Continuation:
    """What a run that goes on from a saved data state would repeat or lose, in the stretch of the same stage."""
    try:
        state, stage = loader_state(read_json(path))
        same = stretches if by_hand or stage is None else [one for one in stretches if one.name == stage]
        if not same:
            raise ValueError(f"it was saved in the stage {stage!r}, this run has {[one.name for one in stretches]}")
        if not isinstance(same[0].dataset, Nanoset):
            raise ValueError("plans of token files are compared, and this run reads .bin/.idx pairs")
        return compare(state, same[0].dataset)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = str(error) if type(error) is ValueError else f"not a data state ({type(error).__name__}: {error})"
        need = "a checkpoint's state.json, or a NanosetDataLoader's state_dict as JSON"
        raise ValueError(f"{path}: {reason}; give {need}") from error


def _place(slot: Slot) -> str:
    return f"rank {slot.dp_rank} micro-batch {slot.micro_step} row {slot.row}"
