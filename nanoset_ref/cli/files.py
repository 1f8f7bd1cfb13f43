"""Subcommands on files of tokenised documents: inspect, verify, convert, merge, split."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from nanoset_ref.cli.output import add_command, at_least, id_dtype, show, without_companions
from nanoset_ref.files import atomic_write
from nanoset_ref.formats import (
    Description,
    Documents,
    check_target,
    convert,
    describe,
    open_documents,
    remove,
    split,
    verify,
)
from nanoset_ref.tokenise.encode import load_tokenizer

FORMATS = "a .npy token file, a .bin/.idx pair or a .ds file"


def add_commands(commands: Any) -> None:
    unsaid = argparse.ArgumentParser(add_help=False)
    add = unsaid.add_argument
    add("--token-dtype", type=id_dtype, help="of the ids, in a .npy or .ds file that does not say it (default: uint16)")
    add(
        "--eos-token-id",
        type=at_least(0),
        help="the end-of-document id, where the file does not say it; a .npy file without a manifest is cut after it",
    )

    add = add_command(
        commands, "inspect", _inspect, "statistics of tokenised documents: counts, lengths, EOS, duplicates", unsaid
    ).add_argument
    add("file", help=FORMATS)
    add("--png", type=Path, help="draw the lengths of the documents into this file")

    add = add_command(
        commands,
        "verify",
        _verify,
        "hold files against what stands beside them: checksum, size, boundaries, range of the ids",
        unsaid,
    ).add_argument
    add("files", nargs="+", help=FORMATS)
    add("--vocab-size", type=at_least(1), help="ids must be below it, where the file does not say it")

    for name, help in (
        ("convert", "convert between .npy, .bin/.idx and .ds, proven by a hash of ids and boundaries"),
        ("merge", "put the documents of several files one after another into one file"),
    ):
        add = add_command(commands, name, _convert, help, unsaid).add_argument
        add("sources", nargs=1 if name == "convert" else "+", metavar="source", help=FORMATS)
        add("target", help="the file to write; its suffix (.npy, .bin, .ds) is its format")
        add("--dtype", type=id_dtype, help="of the ids in the target, such as int32; default: as in the source")
        add("--tokenizer", help="name or folder: what the ids were made with, for sources that do not say it")
        add("--overwrite", action="store_true", help="replace an existing target")

    add = add_command(
        commands, "split", _split, "hold out documents: write a file without them, and one of them", unsaid
    ).add_argument
    add("source", help=FORMATS)
    add("train", help="the file for the rest")
    add("valid", help="the file for the documents held out")
    add(
        "--held-out",
        required=True,
        type=_share_or_number,
        help="a share such as 0.01, or a number of documents such as 500",
    )
    add("--seed", type=at_least(0), default=1234, help="of the choice (default: %(default)s)")
    add("--overwrite", action="store_true", help="replace existing targets")


def _inspect(options: argparse.Namespace) -> None:
    documents = _open(options, options.file)
    if options.png:
        with atomic_write(options.png) as file:  # a target that cannot be written is found before the counting
            found = describe(documents, options.eos_token_id)
            _draw_lengths(found, file)
    else:
        found = describe(documents, options.eos_token_id)
    show(options, dataclasses.asdict(found), str(found))


def _draw_lengths(found: Description, file: IO[bytes]) -> None:
    """Documents by length, in ranges that double, as a PNG."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError("--png draws with matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    bars = {f"{first:,} to {last:,}": count for first, last, count in found.length_histogram}
    axes = figure.subplots()
    axes.bar_label(axes.bar(list(bars), list(bars.values())), fmt="{:,.0f}", padding=2, fontsize=8)
    axes.tick_params(axis="x", rotation=30)
    axes.set(xlabel="tokens per document", ylabel="documents")
    figure.savefig(file, format="png")


def _verify(options: argparse.Namespace) -> int:
    results = []
    for file in without_companions(options.files):
        try:
            detail = verify(_open(options, file), options.vocab_size)
            results.append({"file": file, "ok": True, "detail": detail})
        except (ValueError, OSError) as error:
            results.append({"file": file, "ok": False, "detail": str(error)})
    lines = [f"{'ok    ' if row['ok'] else 'BROKEN'}  {row['file']}: {row['detail']}" for row in results]
    show(options, results, "\n".join(lines))
    return 0 if all(row["ok"] for row in results) else 1


def _convert(options: argparse.Namespace) -> None:
    sources = [_open(options, source) for source in without_companions(options.sources)]
    check_target(options.target, sources, overwrite=options.overwrite)
    if options.tokenizer:
        sources = [it if it.description.get("tokenizer") else _described(it, options.tokenizer) for it in sources]
    _show_written(options, [convert(sources, options.target, dtype=options.dtype, overwrite=options.overwrite)])


def _split(options: argparse.Namespace) -> None:
    source = _open(options, options.source)
    targets = [check_target(it, [source], overwrite=options.overwrite) for it in (options.train, options.valid)]
    if targets[0].resolve() == targets[1].resolve():
        raise ValueError(f"train and valid are two files, got {options.train} for both")
    parts = split(source, options.held_out, seed=options.seed)
    written = []
    try:
        for target, part in zip(targets, parts, strict=True):
            written.append(convert([source], target, chosen=[part], overwrite=options.overwrite))
    except BaseException:
        for one in written:
            remove(one.path)
        raise
    _show_written(options, written)


def _open(options: argparse.Namespace, path: str) -> Documents:
    return open_documents(path, options.token_dtype, options.eos_token_id)


def _described(documents: Documents, name: str) -> Documents:
    """The documents with what a tokenizer says of their ids."""
    tokenizer = load_tokenizer(name)
    eos = tokenizer.eos_token_id
    last = documents.tokens[documents.offsets[1:][documents.offsets[1:] > documents.offsets[:-1]] - 1]
    description = {
        "tokenizer": name,
        "vocab_size": len(tokenizer),
        "eos_token_id": eos,
        "appended_eod": bool(eos is not None and np.all(last == eos)),
    }
    return dataclasses.replace(documents, description=documents.description | description)


def _share_or_number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a share such as 0.01 or a number of documents, got {text!r}")
    return value


_share_or_number.__name__ = "share or number"  # what argparse calls it


def _show_written(options: argparse.Namespace, written: Sequence[Documents]) -> None:
    found = [
        {
            "file": str(it.path),
            "documents": it.num_documents,
            "tokens": len(it.tokens),
            "dtype": it.tokens.dtype.name,
            "content": it.content_hash(),
        }
        for it in written
    ]
    lines = [
        f"{row['file']}: {row['documents']:,} documents, {row['tokens']:,} tokens ({row['dtype']}), "
        f"content {row['content']}"
        for row in found
    ]
    show(options, found, "\n".join(lines))
