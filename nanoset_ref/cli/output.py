"""What all subcommands share: how one is declared, and how its result is printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int | None],
    help: str,
    *parents: argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """A subcommand that calls `run` with the parsed options; None or 0 is success."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=f"{help[0].upper()}{help[1:]}.", parents=list(parents)
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run, parser=parser)
    return parser


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `least` on."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return number


def id_dtype(text: str) -> str:
    """The type of an argument that names a dtype of token ids."""
    try:
        if np.dtype(text).kind in "iu":
            return np.dtype(text).name
    except TypeError:
        pass
    raise argparse.ArgumentTypeError(f"must be a dtype of integers, such as uint16 or int32, got {text!r}")


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without those that a glob names, too: the boundaries (<stem>.documents.npy) of token files among them,
    and the .idx of a .bin.
    """
    beside = ((".documents.npy", ".npy"), (".idx", ".bin"))
    return [
        path
        for path in paths
        if not any(path.endswith(end) and path.removesuffix(end) + file in paths for end, file in beside)
    ]


def show(options: argparse.Namespace, value: Any, text: str) -> None:
    """Print the result as text, or with --json as JSON."""
    print(json.dumps(value, indent=1, ensure_ascii=False) if options.json else text)
