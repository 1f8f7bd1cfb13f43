"""Subcommands on runs: show, where, when, audit."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from nanoset_ref.cli.output import add_command, at_least, show
from nanoset_ref.cli.runs import leg_at, legs_of, run_arguments, tokenizer_of
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.provenance import origin, when, where
from nanoset_ref.provenance.audit import audit
from nanoset_ref.provenance.continuation import Continuation, compare, loader_state
from nanoset_ref.provenance.legs import Leg
from nanoset_ref.provenance.search import find_text
from nanoset_ref.provenance.sources import document_starts, raw_path, sources
from nanoset_ref.schedule import Schedule, Slot


def add_commands(commands: Any) -> None:
    run = run_arguments()
    parser = add_command(commands, "show", _show, "decode a sample, a document or a step to text", run)
    what = parser.add_mutually_exclusive_group(required=True).add_argument
    what("--sample", type=int, help="a sample of the file (see --source)")
    what("--document", type=int, help="a document of the file (see --source)")
    what("--position", type=at_least(0), help="a position in the global order")
    what("--step", type=int, help="all rows of an optimizer step")
    parser.add_argument("--source", type=int, default=0, help="number of the file, from 0 (default: %(default)s)")
    parser.add_argument("--tokenizer", help="name or folder; default: what the manifest says")

    add = add_command(
        commands, "where", _where, "where the tokens of a step come from: file, sample, documents, bytes", run
    ).add_argument
    add("--step", type=int, required=True, help="optimizer step, from 1")
    add("--text", action="store_true", help="decode the rows, too")
    add("--tokenizer", help="name or folder; default: what the manifest says")

    parser = add_command(
        commands, "when", _when, "every epoch, step, rank and row at which a document or a piece of text is read", run
    )
    what = parser.add_mutually_exclusive_group(required=True).add_argument
    what("--document", type=int, help="a document of the file (see --source)")
    what("--text", help="a piece of text: every place where it stands is looked up, in all files")
    parser.add_argument("--source", type=int, default=0, help="number of the file, from 0 (default: %(default)s)")
    parser.add_argument("--tokenizer", help="name or folder; default: what the manifest says")

    add = add_command(
        commands, "audit", _audit, "simulate all ranks of a run and prove that every position is read once", run
    ).add_argument
    add("--workers", type=at_least(0), default=0, help="DataLoader workers per rank (default: %(default)s)")
    add("--state", type=Path, help="a saved data state (JSON): say also what would repeat or be lost with this plan")


def _show(options: argparse.Namespace) -> None:
    legs = legs_of(options)
    leg = leg_at(legs, options.step) if options.step is not None else legs[0]
    dataset = leg.dataset
    found: list[tuple[str, int, Any]]
    if options.step is not None:
        origins = where(dataset, leg.schedule, options.step)
        found = [(_place(it.slot), it.source, dataset[it.slot.position]["input_ids"]) for it in origins]
    elif options.position is not None:
        sample = dataset[options.position]["input_ids"]  # refuses a position outside before it is looked up
        place = Schedule().slot(options.position % len(dataset))
        found = [(f"position {options.position}", origin(dataset, place).source, sample)]
    else:
        kind, number = ("document", options.document) if options.sample is None else ("sample", options.sample)
        found = [(f"{kind} {number}", options.source, _ids_in_file(dataset, options.source, kind, number))]
    rows = []
    for what, number, ids in found:
        source = sources(dataset)[number]
        text = tokenizer_of(options, source).decode(ids.tolist())
        rows.append({"what": what, "file": str(raw_path(source)), "text": text})
    show(options, rows, "\n".join(f"--- {row['what']}, {row['file']}\n{row['text']}" for row in rows))


def _ids_in_file(dataset: Any, number: int, kind: str, index: int) -> Any:
    """The ids of one sample or document of a file."""
    files = sources(dataset)
    if not 0 <= number < len(files):
        raise IndexError(f"there is no file {number}: there are {len(files)}, counted from 0")
    source: Any = files[number]
    if kind == "document":
        starts = document_starts(source)
        count = len(starts) - 1
        bounds = starts[index : index + 2].tolist() if 0 <= index < count else []
    elif isinstance(dataset, Nanoset):
        count = dataset.dataset_lengths[number]
        first = index * source.stride(dataset.sequence_length)
        bounds = [first, first + dataset.sequence_length + 1] if 0 <= index < count else []
    else:
        raise ValueError("samples of Megatron-style data are no pieces of one file; show a --position or a --document")
    if not bounds:
        raise IndexError(f"there is no {kind} {index}: {raw_path(source)} has {count}, counted from 0")
    return source.tokens[bounds[0] : bounds[1]]


def _where(options: argparse.Namespace) -> None:
    leg = leg_at(legs_of(options), options.step)
    rows, lines = [], []
    for it in where(leg.dataset, leg.schedule, options.step):
        row = {**dataclasses.asdict(it), "parts": [part._asdict() for part in it.parts]}
        lines.append(f"{_place(it.slot)}: position {it.slot.position}, epoch {it.epoch}, {it.path} sample {it.sample}")
        for part in it.parts:
            name = "tokens" if part.document is None else f"document {part.document} tokens"
            lines.append(f"    {name} {part.start}:{part.stop}, bytes {part.first_byte}:{part.last_byte}")
        if options.text:
            ids = leg.dataset[it.slot.position]["input_ids"].tolist()
            row["text"] = tokenizer_of(options, sources(leg.dataset)[it.source]).decode(ids)
            lines.append(f"    {row['text']!r}")
        rows.append(row)
    show(options, rows, "\n".join(lines))


def _when(options: argparse.Namespace) -> None:
    rows, lines = [], []
    for leg in legs_of(options):
        stop = leg.schedule.consumed_train_samples + leg.num_steps * leg.schedule.global_batch_size
        for number, document, tokens in _wanted(options, leg.dataset):
            for slot in when(leg.dataset, leg.schedule, document, source=number, tokens=tokens, until=stop):
                epoch = origin(leg.dataset, slot).epoch
                what = {"leg": leg.name, "source": number, "document": document, "tokens": tokens, "epoch": epoch}
                rows.append({**what, **dataclasses.asdict(slot)})
                piece = "" if tokens is None else f" tokens {tokens[0]}:{tokens[1]}"
                lines.append(
                    f"{leg.name}: file {number} document {document}{piece}: "
                    f"epoch {epoch}, step {slot.step}, {_place(slot)}"
                )
    show(options, rows, "\n".join(lines) or "it is not read in this run")


def _wanted(options: argparse.Namespace, dataset: Any) -> list[tuple[int, int, tuple[int, int] | None]]:
    """(file, document, tokens) of what is looked up; tokens None: all of the document."""
    if options.text is None:
        return [(options.source, options.document, None)]
    wanted: list[tuple[int, int, tuple[int, int] | None]] = [
        (number, document, (start, stop))
        for number, source in enumerate(sources(dataset))
        for document, start, stop in find_text(source, tokenizer_of(options, source), options.text)
    ]
    if not wanted:
        raise ValueError(
            f"no document holds {options.text!r}; give whole words as they stand in the text, and the --tokenizer that "
            "the files were made with"
        )
    return wanted


def _audit(options: argparse.Namespace) -> int:
    legs = legs_of(options)
    report = audit(legs)
    result, text = json.loads(report.to_json()), str(report)
    if options.state:
        difference = _continued(options.state, legs, by_hand=bool(options.data))
        result["continuation"], text = dataclasses.asdict(difference), f"{text}\n{difference}"
    show(options, result, text)
    return 0 if report.ok else 1


def _continued(path: Path, legs: list[Leg], by_hand: bool) -> Continuation:
    """What goes on otherwise than a saved data state says, in the leg of the same stage where the state names one."""
    try:
        state, stage = loader_state(json.loads(path.read_text(encoding="utf-8")))
        same = legs if by_hand or stage is None else [leg for leg in legs if leg.name == stage]
        if not same:
            raise ValueError(f"it was saved in the stage {stage!r}, this run has {[leg.name for leg in legs]}")
        dataset = same[0].dataset
        if not isinstance(dataset, Nanoset):
            raise ValueError("plans of token files are compared, and this run reads .bin/.idx pairs")
        return compare(state, dataset)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = f"not a data state ({type(error).__name__}: {error})" if type(error) is not ValueError else str(error)
        raise ValueError(
            f"{path}: {reason}; give a checkpoint's state.json, or a NanosetDataLoader's state_dict as JSON"
        ) from error


def _place(slot: Slot) -> str:
    return f"rank {slot.dp_rank} micro-batch {slot.micro_step} row {slot.row}"
