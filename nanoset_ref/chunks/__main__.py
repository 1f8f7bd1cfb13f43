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


def _say_accounts(manifests: Iterable[ChunkManifest]) -> None:
    if accounts := [account for manifest in manifests for account in manifest.conservation]:
        print(report(accounts))


def _say_subsets(manifests: dict[str, ChunkManifest] | None) -> int:
    """The accounts, and the subsets that lost many documents; returns the exit code."""
    found = manifests or {}
    _say_accounts(found.values())
    accounts: list[Any] = [
        account for manifest in found.values() for account in manifest.conservation
    ]
    short = [
        account.subset
        for account in accounts
        if too_many(account.skipped_documents, account.documents)
    ]
    if short:
        print(f"more than 1 % of the documents were left out of {', '.join(short)}")
    return LEFT_OUT_MANY if short else 0


def _say_files(files: list[FileReport], *, verbose: bool, **options: Any) -> bool:
    """The reports of bad files, or of all; whether a line is bad, which is the exit code."""
    bad = [found for found in files if not found.ok]
    for found in files if verbose else bad:
        print(found)
    lines = sum(found.lines for found in files)
    print(f"{len(files)} files, {lines:,} lines: {f'{len(bad)} bad files' if bad else 'all good'}")
    return bool(bad)


COMMANDS: dict[str, Any] = {  # and what prints their results
    "download": (
        download,
        lambda files, **options: print(f"{len(files)} files or folders in {options['out_root']}"),
    ),
    "tokenize": (tokenize, lambda subsets, **options: _say_subsets(subsets)),
    "mix": (mix, lambda manifest, **options: _say_accounts([manifest])),
    "validate": (validate, _say_files),
    "convert": (
        convert,
        lambda rows, **options: print(f"{options['output_prefix']}: {rows:,} rows"),
    ),
}


def choose(command: Literal["download", "tokenize", "mix", "validate", "convert"], /) -> None:
    """Prepare a corpus, step by step; COMMAND --help lists the options of a step."""


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.chunks") -> int:
    """Run one command; returns the exit code: 0 done, 1 the input is at fault, 2 the command line is, 3 done, but more
    than 1 % of the documents were left out.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        return run(choose, words[:1], prog)
    function, says = COMMANDS[words[0]]
    goes_on = "the same command goes on with what is complete"
    return run(
        function,
        words[1:],
        f"{prog} {words[0]}",
        report=says,
        says=logging.INFO,
        interrupted=goes_on,
    )


if __name__ == "__main__":
    sys.exit(main())
