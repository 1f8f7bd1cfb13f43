"""The commands: python -m nanoset_ref.chunks download|tokenize|mix|validate|convert ..."""

import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from nanoset_ref.chunks.chunk_manifest import ChunkManifest, report
from nanoset_ref.chunks.chunk_rows import FileReport, chunks_to_tokens, validate
from nanoset_ref.chunks.downloads import download
from nanoset_ref.chunks.mixing import mix
from nanoset_ref.chunks.subsets import tokenize
from nanoset_ref.cli.command import run
from nanoset_ref.preprocess import LEFT_OUT_MANY, too_many


def convert(
    paths: Sequence[str],
    /,
    *,
    output_prefix: Path,
    format: Literal["tokens", "megatron"] = "tokens",
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> int:
    """Turn chunks into a token file or a .bin/.idx pair.

    Args:
        paths: files, or folders of .jsonl files.
        output_prefix: writes <prefix>_input_ids.npy, or <prefix>.bin and .idx.
        format: what to write.
        vocab_size: for chunks without a manifest.
        overwrite: replace an existing output.
    """
    output_prefix.parent.mkdir(parents=True, exist_ok=True)
    suffix = ".bin" if format == "megatron" else "_input_ids.npy"
    return chunks_to_tokens(
        paths, f"{output_prefix}{suffix}", vocab_size=vocab_size, overwrite=overwrite
    )


def _print_accounts(manifests: Iterable[ChunkManifest]) -> list[Any]:
    accounts = [account for manifest in manifests for account in manifest.conservation]
    if accounts:
        print(report(accounts))
    return accounts


def _print_subsets(manifests: dict[str, ChunkManifest] | None) -> int:
    """Print the accounts, and the subsets that lost many documents; returns the exit code."""
    short = []
    for account in _print_accounts((manifests or {}).values()):
        if too_many(account.skipped_documents, account.documents):
            short.append(account.subset)
    if short:
        print(f"more than 1 % of the documents were left out of {', '.join(short)}")
    return LEFT_OUT_MANY if short else 0


def _print_files(files: list[FileReport], *, verbose: bool, **options: Any) -> bool:
    """Print the reports of bad files, or of all; returns whether a file is bad, which is the exit code."""
    bad = [found for found in files if not found.ok]
    for found in files if verbose else bad:
        print(found)
    lines = sum(found.lines for found in files)
    result = f"{len(bad)} bad files" if bad else "all good"
    print(f"{len(files)} files, {lines:,} lines: {result}")
    return bool(bad)


def _print_mix(manifest: ChunkManifest, **options: Any) -> None:
    _print_accounts([manifest])


COMMANDS: dict[str, Any] = {  # name -> (function, how to print its result)
    "download": (
        download,
        lambda files, **options: print(f"{len(files)} files or folders in {options['out_root']}"),
    ),
    "tokenize": (tokenize, lambda subsets, **options: _print_subsets(subsets)),
    "mix": (mix, _print_mix),
    "validate": (validate, _print_files),
    "convert": (
        convert,
        lambda rows, **options: print(f"{options['output_prefix']}: {rows:,} rows"),
    ),
}


def choose(command: Literal["download", "tokenize", "mix", "validate", "convert"], /) -> None:
    """Prepare a corpus, step by step; COMMAND --help lists the options of a step."""


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.chunks") -> int:
    """Run one command; returns the exit code: 0 done, 1 wrong input, 2 wrong command line, 3 done, but more than 1 % of
    the documents were left out.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        return run(choose, words[:1], prog)
    function, report_result = COMMANDS[words[0]]
    return run(
        function,
        words[1:],
        f"{prog} {words[0]}",
        report=report_result,
        says=logging.INFO,
        interrupted="the same command goes on with what is complete",
    )


if __name__ == "__main__":
    sys.exit(main())
