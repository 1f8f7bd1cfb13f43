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
from typing import NoReturn

# Commands with a parser of their own: everything after the name is theirs.
MODULES = {
    "preprocess": ("nanoset_ref.preprocess", "text to a token file; the same as python -m nanoset_ref.preprocess"),
    "index": ("nanoset_ref.megatron.index", "build the cached indexes of a Megatron-style dataset ahead of a run"),
    "train": ("nanoset_ref.train", "train from a YAML file; with several processes: torchrun -m nanoset_ref.train"),
    "chunks": ("nanoset_ref.chunks.__main__", "prepare a corpus: download, tokenize, mix, validate"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name = arguments[0] if arguments else ""
    try:
        if name in MODULES:
            return int(importlib.import_module(MODULES[name][0]).main(arguments[1:], prog=f"nanoset-ref {name}") or 0)
        options, unknown = build_parser().parse_known_args(arguments)
        if unknown:
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        try:
            code = int(options.run(options) or 0)
            sys.stdout.flush()  # here, where an error of it can be told
            return code
        except BrokenPipeError:
            raise
        except (ValueError, OSError, IndexError) as error:
            if isinstance(error, OSError) and error.strerror:
                error = OSError(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
            print(f"nanoset-ref {name}: error: {' '.join(str(error).split())}", file=sys.stderr)
            _mute()
            return 1
    except BrokenPipeError:  # `| head` has seen enough
        _mute()
        return 0
    except KeyboardInterrupt:
        print(f"nanoset-ref {name}: error: interrupted; nothing was written", file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, and where the usage stands."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """All subcommands; those of MODULES only by name."""
    from nanoset_ref.cli import files, lookups  # takes a second: an interrupt of it is told as any other

    parser = _Parser(
        prog="nanoset-ref", description="How tokens reach the GPUs: look into token files, orders and runs."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    files.add_commands(commands)
    lookups.add_commands(commands)
    for name, (_, help) in MODULES.items():
        commands.add_parser(name, help=help, add_help=False)
    return parser


def _mute() -> None:
    """What is left in the buffer of standard output goes nowhere, and not into an error at the interpreter's end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
