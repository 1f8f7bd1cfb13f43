"""The commands: python -m nanoset_ref.chunks download|tokenize|mix|validate|convert ..."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from nanoset_ref.chunks.chunk_conversion import chunks_to_megatron, chunks_to_tokens
from nanoset_ref.chunks.chunk_manifest import report
from nanoset_ref.chunks.downloads import download_hub, download_urls
from nanoset_ref.chunks.mixing import mix
from nanoset_ref.chunks.subsets import TokenizeConfig, tokenize
from nanoset_ref.chunks.validation import validate
from nanoset_ref.command import UsageError, run


def download(
    *,
    out_root: Path,
    urls: str | None = None,
    repo: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    base: str | None = None,
    num_workers: int = 8,
) -> None:
    """Fetch a list of URLs, or a dataset of the Hub, into folders by subset.

    Args:
        out_root: where the folders go.
        urls: file, or URL of a file, with one URL per line (RedPajama's urls.txt).
        repo: dataset of the Hub, or one of refinedweb, starcoderdata.
        include: folders or patterns of paths to take.
        exclude: folders or patterns to leave out, e.g. common_crawl.
        base: the part of the URLs that is no part of the paths.
        num_workers: files at once.
    """
    if (urls is None) == (repo is None):
        raise UsageError("give either --urls or --repo")
    if repo:
        print(download_hub(repo, out_root, include=include, exclude=exclude, num_workers=num_workers))
    if urls:
        files = download_urls(urls, out_root, include=include, exclude=exclude, base=base, num_workers=num_workers)
        print(f"{len(files)} files, {sum(file.stat().st_size for file in files):,} bytes")


def tokenize_subsets(
    *,
    input_root: Path,
    out_root: Path,
    config: TokenizeConfig,
    num_workers: int = 1,
    subfolders: str | None = None,
    overwrite: bool = False,
) -> None:
    """Tokenise every subset folder and concatenate its documents into rows.

    Args:
        input_root: a folder of folders of text.
        out_root: where the subsets go.
        num_workers: processes; under torchrun its ranks work instead.
        subfolders: comma separated, to take only these subsets.
        overwrite: replace what other settings made.
    """
    found = tokenize(input_root, out_root, config, num_workers=num_workers, subfolders=subfolders, overwrite=overwrite)
    if found:
        print(report([account for manifest in found.values() for account in manifest.conservation]))


def mix_subsets(
    *,
    input_root: Path,
    out_root: Path,
    subfolders: str,
    num_chunks: int = 360,
    num_valid_samples_per_subfolder: int = 102400,
    random_seed: int = 0,
    shuffle: bool = False,
    overwrite: bool = False,
) -> None:
    """Merge tokenised subsets and split them into chunks and validation files.

    Args:
        input_root: the folder with the tokenised subsets.
        out_root: where the chunks go.
        subfolders: comma separated, in the order they have in a chunk.
        num_chunks: number of chunks.
        num_valid_samples_per_subfolder: samples held out of each subset.
        random_seed: of the held-out samples and the shuffle.
        shuffle: shuffle each chunk.
        overwrite: replace what other settings made.
    """
    counts = num_chunks, num_valid_samples_per_subfolder
    made = mix(input_root, out_root, subfolders, *counts, random_seed=random_seed, shuffle=shuffle, overwrite=overwrite)
    print(report(made.conservation))


def validate_files(
    *paths: str, num_tokens: int | None = None, vocab_size: int | None = None, sources: Sequence[str] | None = None
) -> bool:
    """Check files of rows; exits with 1 if a line is bad.

    Args:
        paths: files, or folders of .jsonl files.
        num_tokens: per row; else what the first manifest says, or 2049.
        vocab_size: ids must be below it; else what the first manifest says.
        sources: the labels that may occur.
    """
    reports = validate(paths, num_tokens=num_tokens, vocab_size=vocab_size, sources=sources)
    print(*reports, sep="\n")
    bad = sum(not found.ok for found in reports)
    lines = sum(found.lines for found in reports)
    print(f"{len(reports)} files, {lines:,} lines: {f'{bad} bad files' if bad else 'all good'}")
    return bad > 0


def convert(
    *paths: str,
    output_prefix: Path,
    format: Literal["tokens", "megatron"] = "tokens",
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> None:
    """Turn chunks into a token file or a .bin/.idx pair.

    Args:
        paths: files, or folders of .jsonl files.
        output_prefix: writes <prefix>_input_ids.npy, or <prefix>.bin and .idx.
        format: what to write.
        vocab_size: for chunks without a manifest.
        overwrite: replace an existing output.
    """
    output_prefix.parent.mkdir(parents=True, exist_ok=True)
    if format == "megatron":
        rows = chunks_to_megatron(paths, output_prefix, vocab_size=vocab_size, overwrite=overwrite)
    else:
        rows = chunks_to_tokens(paths, f"{output_prefix}_input_ids.npy", vocab_size=vocab_size, overwrite=overwrite)
    print(f"{output_prefix}: {rows:,} rows")


COMMANDS: dict[str, Callable[..., bool | None]] = {
    "download": download,
    "tokenize": tokenize_subsets,
    "mix": mix_subsets,
    "validate": validate_files,
    "convert": convert,
}


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.chunks") -> int:
    """Run one command; returns the exit code: 0 done, 1 the input is at fault, 2 the command line is."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else ""
    if name in COMMANDS:
        return run(COMMANDS[name], words[1:], f"{prog} {name}", says=logging.INFO)
    if name in ("-h", "--help"):
        print(f"usage: {prog} COMMAND ...\n")
        for name, function in COMMANDS.items():
            print(f"  {name:<10}{(function.__doc__ or '').splitlines()[0]}")
        return 0
    print(f"{prog}: error: give one of {', '.join(COMMANDS)}; see {prog} --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
