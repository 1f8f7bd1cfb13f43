"""The commands: python -m nanoset_ref.chunks download|tokenize|mix|validate|convert ...

--help needs neither an extra nor torch or numba. The modules of `download` and `validate` need none
before they run, so these are the functions themselves; the other steps are imported when they run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from nanoset_ref import chunks  # loads its modules when they are used
from nanoset_ref.chunks.tokenize_config import TokenizeConfig
from nanoset_ref.cli.command import command_line, run
from nanoset_ref.io.error_text import pluralize
from nanoset_ref.io.files import make_folder
from nanoset_ref.io.urls import local_path
from nanoset_ref.preprocess import too_many_skipped
from nanoset_ref.preprocess.tokenization import exit_code


def report_download(files: list[Path], out_root: str, **options: Any) -> None:
    """Print the number of files or folders."""
    print(f"{len(files)} files or folders in {Path(out_root)}")


def tokenize(
    *,
    input_root: Path,
    out_root: Path,
    config: TokenizeConfig,
    num_workers: int = 1,
    subfolders: str | None = None,
    overwrite: bool = False,
) -> int:
    """Tokenize all subsets below `input_root` into `out_root`/<subset>.

    Args:
        input_root: its subfolders contain .jsonl, .json (also .gz, .zst) or .parquet files.
        out_root: the folder to write to; it may be below `input_root`.
        num_workers: processes; under torchrun its ranks, on any number of nodes, are the workers.
            The result is the same for any number.
        subfolders: tokenize only these subsets, comma separated.
        overwrite: replace the output of other settings.

    Returns:
        The exit code; see `exit_code`.
    """
    manifests = chunks.tokenize(
        input_root,
        out_root,
        config,
        num_workers=num_workers,
        subfolders=subfolders,
        overwrite=overwrite,
    )
    by_subset = manifests or {}  # None in the ranks of torchrun other than 0
    incomplete = [
        account.subset
        for account in _print_accounts(by_subset.values())
        if too_many_skipped(account.skipped_documents, account.documents)
    ]
    if incomplete:
        names = ", ".join(incomplete)
        print(f"in {names}, more than 1 % of the documents were left out")
    return exit_code(bool(incomplete))


def mix(
    *,
    input_root: Path,
    out_root: Path,
    subfolders: str,
    num_chunks: int = 360,
    num_valid_samples_per_subfolder: int = 102400,
    random_seed: int = 0,
    shuffle: bool = False,
    keep_leftover: bool = False,
    overwrite: bool = False,
) -> None:
    """Merge input_root/<subset>/train.jsonl into chunks in out_root/train, and out_root/valid.

    Args:
        input_root: the output of `tokenize`, or any folder of that form.
        out_root: created if needed. The same command resumes an interrupted run, and returns at
            once after a complete one.
        subfolders: the subsets, comma separated, in their order in the chunks; slashes and a
            leading `input_root` are allowed.
        num_chunks: number of chunks.
        num_valid_samples_per_subfolder: samples held out from each subset.
        random_seed: the seed of the held-out samples and of the shuffle, in [0, 2**32).
        shuffle: shuffle each chunk.
        keep_leftover: write the samples left over to leftover/<subset>.jsonl. They are
            always counted.
        overwrite: replace the output of another call in out_root.
    """
    manifest = chunks.mix(
        input_root,
        out_root,
        subfolders,
        num_chunks,
        num_valid_samples_per_subfolder,
        random_seed=random_seed,
        shuffle=shuffle,
        keep_leftover=keep_leftover,
        overwrite=overwrite,
    )
    _print_accounts([manifest])


def report_files(files: list[chunks.FileReport], verbose: bool, **options: Any) -> int:
    """Print the bad files, or all with `verbose`; the exit code is 1 if a file is bad."""
    bad = [file for file in files if not file.ok]
    for file in files if verbose else bad:
        print(file)
    lines = sum(file.lines for file in files)
    verdict = pluralize(len(bad), "bad file") if bad else "all good"
    print(f"{pluralize(len(files), 'file')}, {pluralize(lines, 'line')}: {verdict}")
    return 1 if bad else 0


def convert(
    paths: Sequence[str],
    /,
    *,
    output_prefix: Path,
    format: Literal["tokens", "megatron"] = "tokens",
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> None:
    """Convert chunks into a token file or a .bin/.idx pair.

    Args:
        paths: files, or folders of .jsonl files.
        output_prefix: the output is <prefix>_input_ids.npy, or <prefix>.bin and .idx.
        format: the format to write.
        vocab_size: the size of the vocabulary, for chunks without a manifest.
        overwrite: replace an existing output.
    """
    output_prefix = local_path(output_prefix, "output_prefix")
    make_folder(output_prefix.parent)
    suffix = ".bin" if format == "megatron" else "_input_ids.npy"
    rows = chunks.chunks_to_tokens(
        paths, f"{output_prefix}{suffix}", vocab_size=vocab_size, overwrite=overwrite
    )
    print(f"{output_prefix}: {rows:,} rows")


def _print_accounts(manifests: Iterable[chunks.ChunkManifest]) -> list[Any]:
    """Print the accounts of all subsets, and return them."""
    accounts = [account for manifest in manifests for account in manifest.conservation]
    if accounts:
        print(chunks.accounts_table(accounts))
    return accounts


def refuse_unknown(
    command: Literal["download", "tokenize", "mix", "validate", "convert"], /
) -> None:
    """Prepare a corpus in steps; COMMAND --help lists the options of a step."""


def main(
    arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.chunks"
) -> int:
    """Run one command.

    Returns:
        The exit code: 0 done, 1 the input is wrong, 2 the command line is wrong, 3 done, but more
        than 1 % of the documents were left out.
    """
    words = command_line(arguments)
    step: Any
    report: Any = None
    match words[:1]:
        case ["download"]:
            step = chunks.download
            report = report_download
        case ["tokenize"]:
            step = tokenize
        case ["mix"]:
            step = mix
        case ["validate"]:
            step = chunks.validate
            report = report_files
        case ["convert"]:
            step = convert
        case _:
            return run(refuse_unknown, words[:1], prog)
    return run(
        step,
        words[1:],
        f"{prog} {words[0]}",
        report=report,
        log_level=logging.INFO,
        interrupted="the same command continues after the last complete file",
    )
