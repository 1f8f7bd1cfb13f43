"""What all subcommands share: how one is declared, and how its result is printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any


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
    parser.set_defaults(run=run)
    return parser


def show(options: argparse.Namespace, value: Any, text: str) -> None:
    """Print the result as text, or with --json as JSON."""
    print(json.dumps(value, indent=1, ensure_ascii=False) if options.json else text)
