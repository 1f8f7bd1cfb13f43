"""The commands: python -m nanoset_ref.chunks download|tokenize|mix|validate|convert ..."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from nanoset_ref.chunks.chunk_conversion import chunks_to_megatron, chunks_to_tokens
from nanoset_ref.chunks.chunk_manifest import ChunkManifest, report
from nanoset_ref.chunks.downloads import download_hub, download_urls
from nanoset_ref.chunks.mixing import mix
from nanoset_ref.chunks.subsets import tokenize
from nanoset_ref.chunks.validation import FileReport, validate
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


def convert(
    paths: Sequence[str],
    /,
    *,
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


def _say_subsets(subsets: dict[str, ChunkManifest], **options: Any) -> None:
    if subsets:
        print(report([account for manifest in subsets.values() for account in manifest.conservation]))


def _say_files(files: list[FileReport], **options: Any) -> bool:
    """The reports; whether a line is bad, which is the exit code."""
    bad = sum(not found.ok for found in files)
    lines = sum(found.lines for found in files)
    print(*files, sep="\n")
    print(f"{len(files)} files, {lines:,} lines: {f'{bad} bad files' if bad else 'all good'}")
    return bad > 0


COMMANDS: dict[str, tuple[Callable[..., Any], Callable[..., int | None] | None]] = {  # and what prints their results
    "download": (download, None),
    "tokenize": (tokenize, _say_subsets),
    "mix": (mix, lambda manifest, **options: print(report(manifest.conservation))),
    "validate": (validate, _say_files),
    "convert": (convert, None),
}


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.chunks") -> int:
    """Run one command; returns the exit code: 0 done, 1 the input is at fault, 2 the command line is."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else ""
    if name in COMMANDS:
        function, says = COMMANDS[name]
        return run(function, words[1:], f"{prog} {name}", report=says, says=logging.INFO)
    if name in ("-h", "--help"):
        print(f"usage: {prog} COMMAND ...\n")
        for name, (function, _) in COMMANDS.items():
            print(f"  {name:<10}{(function.__doc__ or '').splitlines()[0]}")
        return 0
    print(f"{prog}: error: give one of {', '.join(COMMANDS)}; see {prog} --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
