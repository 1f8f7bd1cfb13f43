"""Subcommands on files of tokenised documents: inspect, verify, convert, merge, split."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanoset_ref.cli.output import add_command, show
from nanoset_ref.describe import describe
from nanoset_ref.formats import Documents, convert, open_documents, split
from nanoset_ref.verify import verify

FORMATS = "a .npy token file, a .bin/.idx pair or a .ds file"


def add_commands(commands: Any) -> None:
    add = add_command(
        commands, "inspect", _inspect, "statistics of tokenised documents: counts, lengths, EOS, duplicates"
    ).add_argument
    add("file", help=FORMATS)
    add("--eos-token-id", type=int, help="the end-of-document id, where the file does not say it")
    add("--png", type=Path, help="draw the lengths of the documents into this file")

    add = add_command(
        commands,
        "verify",
        _verify,
        "hold files against what stands beside them: checksum, size, boundaries, range of the ids",
    ).add_argument
    add("files", nargs="+", help=FORMATS)
    add("--vocab-size", type=int, help="ids must be below it, where the file does not say it")

    for name, help in (
        ("convert", "convert between .npy, .bin/.idx and .ds, proven by a hash of ids and boundaries"),
        ("merge", "put the documents of several files one after another into one file"),
    ):
        add = add_command(commands, name, _convert, help).add_argument
        add("sources", nargs=1 if name == "convert" else "+", metavar="source", help=FORMATS)
        add("target", help="the file to write; its suffix (.npy, .bin, .ds) is its format")
        add("--dtype", help="of the ids in the target, such as uint16 or int32; default: as in the source")
        add("--token-dtype", help="of the ids in a source that does not say it")
        add("--overwrite", action="store_true", help="replace an existing target")

    add = add_command(
        commands, "split", _split, "hold out documents: write a file without them, and one of them"
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
    add("--seed", type=int, default=1234, help="of the choice (default: %(default)s)")
    add("--overwrite", action="store_true", help="replace existing targets")


def _inspect(options: argparse.Namespace) -> None:
    found = describe(open_documents(options.file), options.eos_token_id)
    if options.png:
        from nanoset_ref.plots.documents import length_histogram  # matplotlib takes a second to import

        length_histogram(found).savefig(options.png)
    show(options, dataclasses.asdict(found), str(found))


def _verify(options: argparse.Namespace) -> int:
    results = []
    for file in options.files:
        try:
            results.append({"file": file, "ok": True, "detail": verify(file, options.vocab_size)})
        except (ValueError, OSError) as error:
            results.append({"file": file, "ok": False, "detail": str(error)})
    lines = [f"{'ok    ' if row['ok'] else 'BROKEN'}  {row['file']}: {row['detail']}" for row in results]
    show(options, results, "\n".join(lines))
    return 0 if all(row["ok"] for row in results) else 1


def _convert(options: argparse.Namespace) -> None:
    sources = [open_documents(source, options.token_dtype) for source in options.sources]
    _show_written(options, [convert(sources, options.target, dtype=options.dtype, overwrite=options.overwrite)])


def _split(options: argparse.Namespace) -> None:
    source = open_documents(options.source)
    targets = (options.train, options.valid)
    parts = split(source, options.held_out, seed=options.seed)
    written = [
        convert([source], target, chosen=[part], overwrite=options.overwrite)
        for target, part in zip(targets, parts, strict=True)
    ]
    _show_written(options, written)


def _share_or_number(text: str) -> float | int:
    return float(text) if "." in text else int(text)


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
