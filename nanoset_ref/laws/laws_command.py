"""`nanoset-ref laws my_module:make`: check a loader from the command line."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from nanoset_ref.cli.arguments import UsageError
from nanoset_ref.cli.command import run
from nanoset_ref.io.files import write_text
from nanoset_ref.io.overwriting import refuse_existing, refuse_input, refuse_same
from nanoset_ref.laws.runner import describe_error


def check_loader(
    loader: str,
    /,
    *,
    law: list[str] | None = None,
    budget: float = 60.0,
    seed: int = 0,
    json: bool = False,
    html: Path | None = None,
    script: Path | None = None,
    overwrite: bool = False,
    badge: bool = False,
) -> int:
    """Check the laws of loading that a data loader claims.

    The exit code is 0 if all of them hold, 1 if one is broken, 2 if the loader could not be
    imported or its adapter is wrong, and 3 if a law could not be judged.

    Args:
        loader: MODULE:NAME of an adapter, or of its function `make`
        law: check only these laws
        budget: seconds for all laws together
        seed: seed of the search
        json: print the report as JSON
        html: write the report, with its tables, to this file
        script: write a script for the counterexample of the first broken law to this file
        overwrite: replace an existing report or script
        badge: print a line for a README at the end; with --json, to standard error
    """
    sys.path.insert(0, os.getcwd())
    module, adapter = _import_loader(loader)
    progress = None if json else partial(print, end="", flush=True)
    try:
        for path in filter(None, (html, script)):
            _check_output(path, module, overwrite)
        if html and script:
            refuse_same(html, script, "--html and --script")
        # --help works without hypothesis
        from nanoset_ref.laws.case_search import check

        report = check(adapter, laws=law, budget=budget, seed=seed, progress=progress)
    except (FileExistsError, ImportError, TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    print(report.to_json() if json else report.tables())
    if html:
        write_text(html, report.to_html())
    if script and report.broken:
        write_text(script, report.script(report.broken[0]))
    if badge:
        print(report.badge(), file=sys.stderr if json else sys.stdout)
    if report.broken:
        return 1
    return 3 if report.unjudged else 0


def _check_output(path: Path, module: ModuleType, overwrite: bool) -> None:
    """Raise ValueError or FileExistsError if a file could not be written after the search."""
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file")
    refuse_input(path, [getattr(module, "__file__", "")])
    refuse_existing(path, overwrite)


def _import_loader(name: str) -> tuple[ModuleType, Any]:
    """The module, and the adapter or function of it, that MODULE:NAME names.

    MODULE may end in .py.
    """
    stem, colon, member = name.partition(":")
    if not colon or not member:
        raise UsageError(
            f"a loader is named MODULE:NAME, such as {stem}:make; got {name!r}"
        )
    stem = stem.removesuffix(".py")
    if os.sep in stem:
        raise UsageError(
            f"MODULE is a name that can be imported, such as package.module, not a path; got "
            f"{stem!r}: go to its folder, and name {Path(stem).name}:{member}"
        )
    try:
        module = import_module(stem)
    except (Exception, SystemExit) as error:  # a script may end itself
        raise UsageError(f"cannot import {stem}: {describe_error(error)}") from error
    adapter = vars(module).get(member)
    if adapter is None:
        raise UsageError(
            f"{stem} has no {member!r}; name a function or an adapter of the module"
        )
    return module, adapter


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset-ref laws") -> int:
    """Run the command; return the exit code."""
    return run(check_loader, arguments, prog)
