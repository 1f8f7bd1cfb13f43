"""nanoset-ref: one command for everything that is done to token files, orders and runs.

Every subcommand prints for people, and with --json for machines; errors are one line on standard error. Exit codes: 0
done, 1 the input is at fault or a law is broken, 2 the command line is. The work is done by the modules of the package;
here are only arguments and output.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from nanoset_ref.cli import files, lookups

# Commands with a parser of their own: everything behind the name is theirs.
MODULES = {
    "preprocess": ("nanoset_ref.preprocess", "text to a token file; the same as python -m nanoset_ref.preprocess"),
    "index": ("nanoset_ref.megatron.index", "build the cached indexes of a Megatron-style dataset ahead of a run"),
    "train": ("nanoset_ref.train", "train from a YAML file; with several processes: torchrun -m nanoset_ref.train"),
    "chunks": ("nanoset_ref.chunks.__main__", "prepare a corpus: download, tokenize, mix, validate"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in MODULES:
        module = importlib.import_module(MODULES[arguments[0]][0])
        return int(module.main(arguments[1:]) or 0)
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, IndexError) as error:
        print(f"nanoset-ref {options.command}: error: {error}", file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    """All subcommands; those of MODULES only by name."""
    parser = argparse.ArgumentParser(
        prog="nanoset-ref", description="How tokens reach the GPUs: look into token files, orders and runs."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    files.add_commands(commands)
    lookups.add_commands(commands)
    for name, (_, help) in MODULES.items():
        commands.add_parser(name, help=help, add_help=False)
    return parser
