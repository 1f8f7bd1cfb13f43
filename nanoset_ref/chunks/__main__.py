"""The commands: python -m nanoset_ref.chunks download|tokenize|mix|validate|convert ..."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nanoset_ref.chunks.chunk_conversion import chunks_to_megatron, chunks_to_tokens
from nanoset_ref.chunks.chunk_manifest import first_fault, report
from nanoset_ref.chunks.downloads import HUB_DATASETS, download_hub, download_urls
from nanoset_ref.chunks.mixing import mix
from nanoset_ref.chunks.subsets import TokenizeConfig, tokenize
from nanoset_ref.chunks.validation import validate
from nanoset_ref.launcher import end_with_launcher, is_main_rank
from nanoset_ref.tokenise import JobError, StoppedError


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.chunks") -> int:
    """Run one command; returns the exit code, 1 if the input is at fault."""
    end_with_launcher()
    options = vars(_parser(prog).parse_args(arguments))
    level = logging.INFO if is_main_rank() else logging.ERROR
    logging.basicConfig(level=level, format=f"{prog}: %(levelname)s: %(message)s")
    try:
        return int(options.pop("run")(**options) or 0)
    except StoppedError:
        return 1  # the rank that failed has said why
    except (OSError, ValueError, JobError) as error:
        what = first_fault(error) if isinstance(error, ValidationError) else error
        print(f"{prog}: error: {what}", file=sys.stderr)
        return 1


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run, text: str) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
        made = commands.add_parser(
            name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        made.set_defaults(run=run)
        return made

    download = command("download", _download, "Fetch a list of URLs, or a dataset of the Hub, into folders by subset.")
    what = download.add_mutually_exclusive_group(required=True)
    what.add_argument("--urls", help="file, or URL of a file, with one URL per line (RedPajama's urls.txt)")
    what.add_argument("--repo", help=f"dataset of the Hub, or one of {', '.join(HUB_DATASETS)}")
    download.add_argument("--out_root", required=True)
    download.add_argument("--include", nargs="+", default=[], help="folders or patterns of paths to take")
    download.add_argument(
        "--exclude", nargs="+", default=[], help="folders or patterns to leave out, e.g. common_crawl"
    )
    download.add_argument("--base", help="the part of the URLs that is no part of the paths")
    download.add_argument("--num_workers", type=int, default=8, help="files at once")

    tok = command("tokenize", _tokenize, "Tokenise every subset folder and concatenate its documents into rows.")
    tok.add_argument("--input_root", required=True)
    tok.add_argument("--out_root", required=True)
    tok.add_argument("--subfolders", help="comma separated, to take only these subsets")
    tok.add_argument("--tokenizer", required=True, help="name on the Hub or folder")
    tok.add_argument("--concat_tokens", type=int, default=2049, help="tokens per row: sequence_length + 1")
    tok.add_argument("--bos_text", default="", help="put before each document")
    tok.add_argument("--eos_text", default="", help="put after each document")
    tok.add_argument("--no_wrap", action="store_true", help="cut the document that a row ends in")
    tok.add_argument("--num_workers", type=int, default=1, help="processes; under torchrun its ranks work instead")
    tok.add_argument(
        "--tail", choices=["drop", "pad", "carry"], default="drop", help="what happens to a last, short row"
    )
    tok.add_argument(
        "--format", choices=["jsonl", "tokens", "both"], default="jsonl", help="rows, a token file, or both"
    )
    tok.add_argument("--column", help="of the text; else text, or content where there is no text")
    tok.add_argument("--no_special_tokens", action="store_true", help="leave out what the tokenizer adds by itself")
    tok.add_argument(
        "--worker_packing", type=int, default=0, help="pack as that many workers of the original script did"
    )
    tok.add_argument("--backend", choices=["auto", "hf", "gigatoken"], default="auto")
    tok.add_argument("--on_error", choices=["raise", "skip"], default="raise", help="at a document that cannot be read")
    tok.add_argument("--overwrite", action="store_true")

    mixing = command("mix", _mix, "Merge tokenised subsets and split them into chunks and validation files.")
    mixing.add_argument("--input_root", required=True)
    mixing.add_argument("--out_root", required=True)
    mixing.add_argument("--subfolders", required=True, help="comma separated, in the order they have in a chunk")
    mixing.add_argument("--num_chunks", type=int, default=360)
    mixing.add_argument("--num_valid_samples_per_subfolder", type=int, default=102400)
    mixing.add_argument("--random_seed", type=int, default=0)
    mixing.add_argument("--shuffle", action="store_true", help="shuffle each chunk")
    mixing.add_argument("--overwrite", action="store_true")

    check = command("validate", _validate, "Check files of records; exits with 1 if a line is bad.")
    check.add_argument("paths", nargs="+", help="files, or folders of .jsonl files")
    check.add_argument("--num_tokens", type=int, help="per sample; else what the first manifest says, or 2049")
    check.add_argument("--vocab_size", type=int, help="ids must be below it; else what the first manifest says")
    check.add_argument("--sources", nargs="+", help="the labels that may occur")

    convert = command("convert", _convert, "Turn chunks into a token file or a .bin/.idx pair.")
    convert.add_argument("paths", nargs="+", help="files, or folders of .jsonl files")
    convert.add_argument("--output_prefix", required=True, help="<prefix>_input_ids.npy, or <prefix>.bin and .idx")
    convert.add_argument("--format", choices=["tokens", "megatron"], default="tokens")
    convert.add_argument("--vocab_size", type=int, help="for chunks without a manifest")
    convert.add_argument("--overwrite", action="store_true")
    return parser


def _download(repo: str | None, urls: str | None, out_root: str, base: str | None, **filters: Any) -> None:
    if repo:
        print(download_hub(repo, out_root, **filters))
        return
    files = download_urls(str(urls), out_root, base=base, **filters)
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files):,} bytes are there")


def _tokenize(
    input_root: str,
    out_root: str,
    num_workers: int,
    subfolders: str | None,
    overwrite: bool,
    no_special_tokens: bool,
    **of_config: Any,
) -> None:
    config = TokenizeConfig(add_special_tokens=not no_special_tokens, **of_config)
    found = tokenize(input_root, out_root, config, num_workers=num_workers, subfolders=subfolders, overwrite=overwrite)
    if found:
        print(report([entry for manifest in found.values() for entry in manifest.conservation]))


def _mix(**options: Any) -> None:
    print(report(mix(**options).conservation))


def _validate(**options: Any) -> bool:
    reports = validate(**options)
    print(*reports, sep="\n")
    bad = [found for found in reports if not found.ok]
    lines = sum(found.lines for found in reports)
    print(f"{len(reports)} files, {lines:,} lines: {f'{len(bad)} bad files' if bad else 'all good'}")
    return bool(bad)


def _convert(paths: list[str], output_prefix: str, format: str, **options: Any) -> None:
    output = f"{output_prefix}.bin" if format == "megatron" else f"{output_prefix}_input_ids.npy"
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    if format == "megatron":
        rows = chunks_to_megatron(paths, output_prefix, **options)
    else:
        rows = chunks_to_tokens(paths, output, **options)
    print(f"{output}: {rows:,} rows")


if __name__ == "__main__":
    sys.exit(main())
