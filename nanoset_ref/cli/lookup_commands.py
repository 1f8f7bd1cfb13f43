"""Commands that look up tokens in a run: show, where, when."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanoset_ref import provenance  # loads its modules when they are used
from nanoset_ref.cli.arguments import NotNegative, UsageError
from nanoset_ref.cli.card_commands import (
    show_card_step,
    show_card_when,
    show_public_rows,
)
from nanoset_ref.cli.run_options import (
    RunOptions,
    require_one_of,
    segment_at,
    show_progress,
    step_given_once,
)
from nanoset_ref.io.checks import check_index
from nanoset_ref.io.paths import as_path
from nanoset_ref.io.types import Array, Json
from nanoset_ref.load.schedule import Slot

if TYPE_CHECKING:
    from nanoset_ref.load.rows import Rows
    from nanoset_ref.provenance import RunSegment
    from nanoset_ref.tokens import Tokens

Answer = tuple[Json, str]  # as JSON, and as a line of text
# (file, document, tokens [start, stop) of it; None: all)
DocumentRange = tuple[int, int, tuple[int, int] | None]


def show(
    *,
    sample: int | None = None,
    document: int | None = None,
    position: int | None = None,
    step: int | None = None,
    source: int = 0,
    mirror: str | None = None,
    options: RunOptions,
) -> None:
    """Decode a sample, a document, a position or a step to text.

    Args:
        sample: a sample of the file (see --source).
        document: a document of the file (see --source).
        position: a position in the order of the first stage.
        step: all rows of an optimizer step.
        source: number of the file, from 0.
        mirror: the server to read published files from, such as http://localhost:8000; for a run
            card without --data.
    """
    require_one_of(sample=sample, document=document, position=position, step=step)
    if options.is_card_alone and document is None and position is None:
        show_public_rows(options, options.card, step, sample, source, mirror)
        return
    segments = options.segments()
    if step is not None:
        segment = segment_at(segments, step)
        rows = provenance.where(segment.dataset, segment.schedule, step)
        pieces = [
            (_slot_name(row.slot), *_row(segment.dataset, row.slot.position))
            for row in rows
        ]
    elif position is not None:
        dataset = segments[0].dataset
        number = check_index(position, len(dataset), "position")
        pieces = [(f"position {number}", *_row(dataset, number))]
    else:
        segments_with_file = _segments_with(options, segments, source)
        if not segments_with_file:
            raise ValueError(f"no stage of this run reads file {source}")
        segment, number = segments_with_file[0]
        pieces = [_document_or_sample(segment.dataset, number, document, sample or 0)]
    texts = []
    lines = []
    for what, file, ids in pieces:
        text = options.decode(file, ids)
        texts.append({"what": what, "file": str(file.path), "text": text})
        lines.append(f"--- {what}, {file.path}\n{text}")
    options.print_result(texts, *lines)


def _row(dataset: Rows, position: int) -> tuple[Tokens, Array]:
    """The file of a row, and its ids."""
    file = dataset.files[dataset.origin(position).source]
    return file, dataset[position]["input_ids"]


def _document_or_sample(
    dataset: Rows, source: int, document: int | None, sample: int
) -> tuple[str, Tokens, Array]:
    """The name, the file and the ids of a document, or else of a sample."""
    from nanoset_ref import Nanoset  # only files need it

    file = dataset.files[source]
    if document is not None:
        start, stop = dataset.token_range(source, document, None)
        return f"document {document}", file, file.tokens[start:stop]
    if not isinstance(dataset, Nanoset):
        raise ValueError(
            "a sample of this run is not one piece of a file; show a --position or a --document"
        )
    number = check_index(sample, dataset.dataset_lengths[source], "sample")
    start = number * int(dataset.strides[source])
    return f"sample {sample}", file, file.tokens[start : start + dataset.row_length]


def where(
    step_number: int | None = None,
    /,
    *,
    step: int | None = None,
    text: bool = False,
    options: RunOptions,
) -> None:
    """Where the tokens of a step come from: file, sample, documents, bytes.

    Args:
        step_number: optimizer step, from 1; here or as --step.
        step: optimizer step, from 1.
        text: decode the rows, too.
    """
    number = step_given_once(step_number, step)
    if options.is_card_alone and not text:
        show_card_step(options, options.card, number)
        return
    segment = segment_at(options.segments(), number)
    rows = []
    lines = []
    for origin in provenance.where(segment.dataset, segment.schedule, number):
        slot = origin.slot
        row = dataclasses.asdict(origin)
        row["parts"] = [span._asdict() for span in origin.parts]
        lines.append(
            f"{_slot_name(slot)}: position {slot.position}, epoch {origin.epoch}, {origin.path} "
            f"sample {origin.sample}"
        )
        lines += [f"    source {label}" for label in origin.labels]
        lines += [_span_line(segment.dataset, span) for span in origin.parts]
        if text:
            row["text"] = options.decode(*_row(segment.dataset, slot.position))
            lines.append(f"    {row['text']!r}")
        rows.append(row)
    options.print_result(rows, *lines)


def _span_line(dataset: Rows, span: Any) -> str:
    """The tokens and bytes of a `Span` or a `PackedSpan`."""
    line = "    "
    if span.document is not None:
        line += f"document {span.document} "
    line += f"tokens {span.start}:{span.stop}, bytes {span.first_byte}:{span.end_byte}"
    if isinstance(span, provenance.PackedSpan):
        line += f" of {dataset.files[span.source].path}"
        if span.candidates > 1:
            line += (
                f"; or another of the {span.candidates} documents of this length: which one "
                "depends on NumPy's version and the CPU of the run"
            )
    return line


def when(
    *,
    document: int | None = None,
    text: str | None = None,
    sample: int | None = None,
    byte_range: tuple[int, int] | None = None,
    bulk: Path | None = None,
    source: NotNegative = 0,
    options: RunOptions,
) -> None:
    """Every epoch, step, rank and row at which a document or a piece of text is read.

    Args:
        document: a document of the file (see --source).
        text: a piece of text; every occurrence in all files is looked up.
        sample: a row of the file, counted from 0; needs --run.
        byte_range: the first byte in the file, and the one after the last; needs --run.
        bulk: a file of many questions, one per line: [SOURCE:]DOCUMENT,
            [SOURCE:]FIRST_BYTE-END_BYTE, or a passage to look for in all files: a text as a JSON
            string, or ids as a JSON list. The answers are a table with tabs between its columns.
        source: number of the file, from 0.
    """
    require_one_of(
        document=document, text=text, sample=sample, byte_range=byte_range, bulk=bulk
    )
    if bulk is not None:
        _print_answers(bulk, source, options)
        return
    if document is None and text is None:
        if not options.run:
            raise UsageError(
                "--sample and --byte-range need a run card; name it with --run"
            )
        show_card_when(options, options.card, source, sample, byte_range)
        return
    segments = options.segments()
    ranges: list[DocumentRange] = [(source, document or 0, None)]
    if text is not None:
        ranges = _ranges_of_text(options, segments, text)
    answers: list[Answer] = []
    for source, number, tokens in ranges:
        for segment, file in _segments_with(options, segments, source):
            answers += _reads(segment, file, (source, number, tokens))
    lines = [line for _, line in answers] or ["this run does not read it"]
    options.print_result([row for row, _ in answers], *lines)


def _paths_of(options: RunOptions, segments: Sequence[RunSegment]) -> list[Path]:
    """The paths of a run's files by number: as the card lists them, or as stages use them first."""
    used = [file.path for segment in segments for file in segment.dataset.files]
    listed = [as_path(path) for path in options.data]
    if options.run and set(used) <= set(listed):
        return listed
    return used if len(segments) == 1 else list(dict.fromkeys(used))


def _segments_with(
    options: RunOptions, segments: Sequence[RunSegment], source: int
) -> list[tuple[RunSegment, int]]:
    """The segments that read a file, each with the file's number in its dataset.

    Raises:
        IndexError: the run has no such file.
    """
    paths = _paths_of(options, segments)
    path = paths[check_index(source, len(paths), "file")]
    return [
        (segment, number)
        for segment in segments
        for number, file in enumerate(segment.dataset.files)
        if file.path == path
    ]


def _reads(
    segment: RunSegment, file: int, document_range: DocumentRange
) -> Iterator[Answer]:
    """(JSON, line of text) of every read of a document, or of tokens [start, stop) of it.

    Args:
        segment: a part of the run.
        file: number of the file in the segment's dataset.
        document_range: the tokens to look up; its file number counts in the whole run.
    """
    dataset = segment.dataset
    source, document, tokens = document_range
    span = "" if tokens is None else f" tokens {tokens[0]}:{tokens[1]}"
    slots = provenance.when(
        dataset,
        segment.schedule,
        document,
        source=file,
        tokens=tokens,
        until=segment.stop,
    )
    for slot in slots:
        epoch = dataset.origin(slot.position).epoch
        row = {
            "segment": segment.name,
            "source": source,
            "document": document,
            "tokens": tokens,
            "epoch": epoch,
        }
        line = (
            f"{segment.name}: file {source} document {document}{span}: "
            f"epoch {epoch}, step {slot.step}, {_slot_name(slot)}"
        )
        yield row | dataclasses.asdict(slot), line


def _ranges_of_text(
    options: RunOptions, segments: Sequence[RunSegment], text: str
) -> list[DocumentRange]:
    """Every occurrence of a text in the files of a run."""
    ranges: list[DocumentRange] = []
    paths = _paths_of(options, segments)
    files = {file.path: file for segment in segments for file in segment.dataset.files}
    for path, file in files.items():
        number = paths.index(path)
        hits = provenance.find_text(file, options.tokenizer_of(file), text)
        ranges += [(number, document, (start, stop)) for document, start, stop in hits]
    if not ranges:
        raise ValueError(
            f"no document contains {text!r}; give whole words, and the --tokenizer of the files"
        )
    return ranges


def _print_answers(bulk: Path, source: int, options: RunOptions) -> None:
    """Print the table of `when --bulk`; on a terminal, its length on standard error."""
    if options.json:
        raise UsageError("--bulk writes a table with tabs; drop --json")
    readers, parser = options.readers(source)
    written = 0
    # a line that is not UTF-8 is reported as a wrong query
    with open(bulk, encoding="utf-8-sig", errors="replace") as lines:
        for part in provenance.answer_queries(readers, parser, lines):
            sys.stdout.writelines(f"{line}\n" for line in part)
            written += len(part)
            show_progress(f"{written:,} lines")


def _slot_name(slot: Slot) -> str:
    """The rank, micro-batch and row of a slot, as text."""
    return f"rank {slot.dp_rank} micro-batch {slot.micro_batch} row {slot.row}"
