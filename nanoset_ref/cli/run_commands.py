"""Commands on runs: show, where, when, replay, loss, audit."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref import provenance  # loads its modules when they are used
from nanoset_ref.cli.card_commands import (
    show_answers,
    show_card_audit,
    show_card_places,
    show_card_step,
    show_public_rows,
    show_skipped_rows,
)
from nanoset_ref.cli.command import UsageError, at_least
from nanoset_ref.cli.run_options import RunOptions, stretch_at
from nanoset_ref.io.files import atomic_write, refuse_existing
from nanoset_ref.io.paths import read_json
from nanoset_ref.load.schedule import Schedule, Slot

if TYPE_CHECKING:
    from nanoset_ref.load.rows import Rows
    from nanoset_ref.provenance import Card, Continuation, QueryParser, StageReader, Stretch
    from nanoset_ref.tokens import Tokens


def show_text(
    *,
    sample: int | None = None,
    document: int | None = None,
    position: int | None = None,
    step: int | None = None,
    source: int = 0,
    mirror: str | None = None,
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
        mirror: of a run card without --data, whose step or sample is read where its data are public: ask this server,
            such as http://localhost:8000, instead.
    """
    from nanoset_ref.load.rows import checked_number

    exactly_one(sample=sample, document=document, position=position, step=step)
    run.check_named_once()
    if run.run and not run.data and document is None and position is None:
        show_public_rows(run, run.card(schedule), step, sample, source, mirror)
        return
    stretches = run.stretches(schedule)
    dataset = stretches[0].dataset
    found = []
    if step is not None:
        stretch = stretch_at(stretches, step)
        for origin in provenance.where(stretch.dataset, stretch.schedule, step):
            row = _row(stretch.dataset, origin.slot.position)
            found.append((_place(origin.slot), *row))
    elif position is not None:
        number = checked_number(position, len(dataset), "position")
        found.append((f"position {number}", *_row(dataset, number)))
    else:
        file = dataset.files[checked_number(source, len(dataset.files), "file")]
        if document is not None:
            what = f"document {document}"
            first, end = dataset.token_range(source, document, None)
        else:
            what = f"sample {sample}"
            first, end = _sample(dataset, source, sample or 0)
        found.append((what, file, file.tokens[first:end]))
    rows = []
    lines = []
    for what, file, ids in found:
        text = run.decode(file, ids)
        rows.append({"what": what, "file": str(file.path), "text": text})
        lines.append(f"--- {what}, {file.path}\n{text}")
    run.show(rows, "\n".join(lines))


def _row(dataset: Rows, position: int) -> tuple[Tokens, NDArray[Any]]:
    """The file of a row, and its ids."""
    return dataset.files[dataset.origin(position).source], dataset[position]["input_ids"]


def _sample(dataset: Rows, source: int, sample: int) -> tuple[int, int]:
    """Begin and end of a sample in the tokens of its file."""
    from nanoset_ref import Nanoset
    from nanoset_ref.load.rows import checked_number

    if not isinstance(dataset, Nanoset):
        raise ValueError(
            "samples of Megatron-style data are no pieces of one file; show a --position or a --document"
        )
    number = checked_number(sample, dataset.dataset_lengths[source], "sample")
    first = number * int(dataset.strides[source])
    return first, first + dataset.row_length


def where_from(
    step_number: int | None = None,
    /,
    *,
    step: int | None = None,
    text: bool = False,
    run: RunOptions,
    schedule: Schedule,
) -> None:
    """Where the tokens of a step come from: file, sample, documents, bytes.

    Args:
        step_number: optimizer step, from 1; here or as --step.
        step: optimizer step, from 1.
        text: decode the rows, too.
    """
    exactly_one(step_number=step_number, step=step)
    step = step or step_number or 0
    run.check_named_once()
    if run.run and not run.data and not text:
        show_card_step(run, run.card(schedule), step)
        return
    stretch = stretch_at(run.stretches(schedule), step)
    rows = []
    lines = []
    for it in provenance.where(stretch.dataset, stretch.schedule, step):
        row = {**dataclasses.asdict(it), "parts": [part._asdict() for part in it.parts]}
        lines.append(
            f"{_place(it.slot)}: position {it.slot.position}, epoch {it.epoch}, {it.path} sample {it.sample}"
        )
        lines += [f"    source {label}" for label in it.labels]
        for part in it.parts:
            name = "tokens" if part.document is None else f"document {part.document} tokens"
            lines.append(
                f"    {name} {part.start}:{part.stop}, bytes {part.first_byte}:{part.end_byte}"
            )
        if text:
            row["text"] = run.decode(*_row(stretch.dataset, it.slot.position))
            lines.append(f"    {row['text']!r}")
        rows.append(row)
    run.show(rows, "\n".join(lines))


def when_read(
    *,
    document: int | None = None,
    text: str | None = None,
    sample: int | None = None,
    byte_range: tuple[int, int] | None = None,
    bulk: Path | None = None,
    source: Annotated[int, at_least(0)] = 0,
    run: RunOptions,
    schedule: Schedule,
) -> None:
    """Every epoch, step, rank and row at which a document or a piece of text is read.

    Args:
        document: a document of the file (see --source).
        text: a piece of text: every place where it stands is looked up, in all files.
        sample: a row of the file, from 0, of a run with a card (--run).
        byte_range: the first byte in the file and the one after the last, of a run with a card.
        bulk: a file of many questions, one a line: [SOURCE:]DOCUMENT or [SOURCE:]FIRST_BYTE-STOP_BYTE. The answers are
            a table with tabs between its columns.
        source: number of the file, from 0.
    """
    exactly_one(document=document, text=text, sample=sample, byte_range=byte_range, bulk=bulk)
    run.check_named_once()
    if bulk is not None:
        show_answers(bulk, *_readers(run, schedule, source))
        return
    if document is None and text is None:
        if not run.run:
            raise UsageError("--sample and --byte-range are asked of a card; name it with --run")
        show_card_places(run, run.card(schedule), source, sample, byte_range)
        return
    rows = []
    lines = []
    for stretch in run.stretches(schedule):
        dataset = stretch.dataset
        wanted: list[Any] = (
            [(source, document, None)] if text is None else _places_of_text(run, dataset, text)
        )
        for number, found, tokens in wanted:
            for slot in provenance.when(
                dataset, stretch.schedule, found, source=number, tokens=tokens, until=stretch.stop
            ):
                epoch = dataset.origin(slot.position).epoch
                what = {
                    "stretch": stretch.name,
                    "source": number,
                    "document": found,
                    "tokens": tokens,
                    "epoch": epoch,
                }
                rows.append(what | dataclasses.asdict(slot))
                span = "" if tokens is None else f" tokens {tokens[0]}:{tokens[1]}"
                lines.append(
                    f"{stretch.name}: file {number} document {found}{span}: "
                    f"epoch {epoch}, step {slot.step}, {_place(slot)}"
                )
    run.show(rows, "\n".join(lines) or "it is not read in this run")


def _readers(
    run: RunOptions, schedule: Schedule, source: int
) -> tuple[list[StageReader], QueryParser]:
    if run.run and not run.data:
        return provenance.readers_of_card(run.card(schedule), source)
    return provenance.readers_of_stretches(run.stretches(schedule), source)


def skip_rows(
    bulk: Path,
    /,
    *,
    source: Annotated[int, at_least(0)] = 0,
    run: RunOptions,
    schedule: Schedule,
) -> None:
    """What a run reads without some documents or bytes, and from which step on it differs.

    Args:
        bulk: a file that names them, one a line: [SOURCE:]DOCUMENT or [SOURCE:]FIRST_BYTE-STOP_BYTE.
        source: number of the file where a line says none, from 0.
    """
    run.check_named_once()
    readers, parser = _readers(run, schedule, source)
    with open(bulk, encoding="utf-8") as lines:
        stages = provenance.rows_to_skip(readers, parser, lines)
    show_skipped_rows(run, stages)


def _places_of_text(
    run: RunOptions, dataset: Rows, text: str
) -> list[tuple[int, int, tuple[int, int]]]:
    """(file, document, tokens) of every place where a text stands."""
    found = [
        (number, document, (start, stop))
        for number, file in enumerate(dataset.files)
        for document, start, stop in provenance.find_text(file, run.tokenizer_of(file), text)
    ]
    if not found:
        raise ValueError(
            f"no document holds {text!r}; give whole words of it, and the --tokenizer of the files"
        )
    return found


def replay_steps(
    step_number: int | None = None,
    /,
    *,
    step: int | None = None,
    steps: Annotated[int, at_least(1)] = 1,
    output: Path | None = None,
    overwrite: bool = False,
    mirror: str | None = None,
    run: RunOptions,
    schedule: Schedule,
) -> None:
    """The ids of the rows that steps read, for training on them again.

    Args:
        step_number: the first optimizer step, from 1; here or as --step.
        step: the first optimizer step, from 1.
        steps: how many of them.
        output: write an .npy file [rows of all these steps, tokens of a row] instead of printing a row a line.
        overwrite: replace an existing file.
        mirror: see `show`.
    """
    exactly_one(step_number=step_number, step=step)
    first = step or step_number or 0
    numbers = range(first, first + steps)
    if run.run and not run.data:
        rows, length, dtype, found_rows = _public_rows(run.card(schedule), numbers, mirror)
    else:
        rows, length, dtype, found_rows = _rows_of_files(run.stretches(schedule), numbers)
    batches = itertools.islice(found_rows, steps)
    if output is None:
        found = [*zip(numbers, (batch.tolist() for batch in batches), strict=True)]
        lines = [" ".join(map(str, row)) for _, batch in found for row in batch]
        run.show([{"step": it, "rows": batch} for it, batch in found], "\n".join(lines))
        return
    refuse_existing(output, overwrite)
    shape = rows, length
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    with atomic_write(output, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for batch in batches:
            file.write(batch.data)
    print(f"{output}: {shape[0]:,} rows of {shape[1]:,} ids, steps {first} to {numbers[-1]}")


Replayed = tuple[
    int, int, np.dtype[Any], Iterator[NDArray[Any]]
]  # rows, their tokens, dtype, steps


def _public_rows(card: Card, numbers: range, mirror: str | None) -> Replayed:
    card.stage(numbers[-1])
    rows = sum(card.stage(number)["batch_size"] for number in numbers)
    length = card.facts["window"]["row_length"]
    steps = card.replay(numbers[0], mirror=mirror)
    return rows, length, np.dtype(card.facts["dtype"]), steps


def _rows_of_files(stretches: Sequence[Stretch], numbers: range) -> Replayed:
    stretch_at(stretches, numbers[-1])
    read = [stretch_at(stretches, number) for number in numbers]
    lengths = {stretch.dataset.row_length for stretch in read}
    if len(lengths) > 1:
        raise ValueError(
            f"these steps have rows of {sorted(lengths)} tokens: replay them one by one"
        )
    rows = sum(stretch.schedule.global_batch_size for stretch in read)
    steps = provenance.replay(stretches, numbers[0])
    return rows, lengths.pop(), read[0].dataset.row_dtype, steps


def audit_run(
    *,
    num_loading_workers: Annotated[int, at_least(0)] = 0,
    state: Path | None = None,
    run: RunOptions,
    schedule: Schedule,
) -> bool:
    """Simulate all ranks of a run and prove that every position is read once.

    Args:
        num_loading_workers: DataLoader workers per rank.
        state: a saved data state (JSON): report also the samples that this plan would repeat or lose.
    """
    run.check_named_once()
    if run.run and not run.data and state is None:
        return show_card_audit(run, run.card(schedule))
    stretches = run.stretches(schedule, num_loading_workers)
    report = provenance.audit(stretches)
    result = {"ok": report.ok, **dataclasses.asdict(report)}
    text = str(report)
    if state is not None:
        difference = _continued(state, stretches)
        result["continuation"] = dataclasses.asdict(difference)
        text += f"\n{difference}"
    run.show(result, text)
    return not report.ok


def _continued(path: Path, stretches: Sequence[Stretch]) -> Continuation:
    """The samples that a run would repeat or lose if it went on from a saved data state, in the same stage."""
    from nanoset_ref import Nanoset

    saved = read_json(path)
    try:
        state, stage = provenance.loader_state(saved)
        rows = {stretch.name: stretch.dataset for stretch in stretches}
        if stage is None or [*rows] == ["run"]:
            stage = stretches[0].name
        if stage not in rows:
            raise ValueError(f"it was saved in the stage {stage!r}, this run has {[*rows]}")
        dataset = rows[stage]
        if not isinstance(dataset, Nanoset):
            raise ValueError(
                "plans of token files are compared, and this run reads .bin/.idx pairs"
            )
        return provenance.compare(state, dataset)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        MemoryError,
    ) as error:
        problem = f"{path} cannot be compared with this run ({type(error).__name__}: {error})"
        need = "a checkpoint's state.json, or a NanosetDataLoader's state_dict as JSON"
        raise ValueError(f"{problem}; give {need}") from error


def plot_loss(metrics: str, /, *, lines: Annotated[int, at_least(1)] = 20) -> None:
    """The loss of a run as a plot of text: a bar for each stretch of steps, of their mean loss.

    Args:
        metrics: the metrics.jsonl in the folder of the run's checkpoints.
        lines: of the plot, at most.
    """
    from nanoset_ref.train.metrics import read_metrics

    rows = read_metrics(metrics)
    if not rows:
        raise ValueError(f"{metrics} holds no step yet")
    # steps without a loss (null, or NaN in older files) are left out of the means
    losses = np.array([row.get("loss") for row in rows], dtype=np.float64)
    steps = [row["step"] for row in rows]
    parts = [part for part in np.array_split(np.arange(len(rows)), lines) if len(part)]
    means = []
    for part in parts:
        finite = losses[part][np.isfinite(losses[part])]
        means.append(finite.mean() if len(finite) else None)
    highest = max((mean for mean in means if mean is not None), default=0.0)
    scale = 60 / highest if highest > 0 else 0.0
    for part, mean in zip(parts, means, strict=True):
        bar = "    none" if mean is None else f"{mean:8.4f}  {'#' * round(scale * mean)}"
        print(f"steps {steps[part[0]]:6.0f} to {steps[part[-1]]:6.0f}   {bar}")


def exactly_one(**options: Any) -> None:
    """Refuse a command line that does not give exactly one of these options."""
    if sum(value is not None for value in options.values()) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise UsageError(f"give exactly one of {names}")


def _place(slot: Slot) -> str:
    return f"rank {slot.dp_rank} micro-batch {slot.micro_batch} row {slot.row}"
