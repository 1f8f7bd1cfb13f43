"""The files that a writer may replace: its own and, with `overwrite`, those that the user named.

A file that is being read is never replaced. Neither is a file of another program whose name the
user did not give, such as the name of a companion.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nanoset_ref.io.error_text import redact
from nanoset_ref.io.paths import file_version, in_bucket
from nanoset_ref.io.urls import local_copy


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise FileExistsError if the file exists and may not be replaced."""
    # a link whose target is missing exists, too
    if not overwrite and (path.exists() or os.path.islink(path)):
        raise FileExistsError(
            f"{path} exists and is left unchanged; --overwrite (overwrite=True) replaces it"
        )


def refuse_foreign(path: Path, has_our_format: Callable[[Path], bool]) -> None:
    """Raise FileExistsError if another program wrote the file that would be replaced.

    Args:
        path: a file that the user did not name, such as a companion. An empty one may be replaced.
        has_our_format: whether a file has the format that we write; it may raise any error.
    """
    version = file_version(path)
    if version is None or version[0] == 0:
        return
    # a file of another format raises errors of many types
    with local_copy(path) as local, contextlib.suppress(Exception):
        if has_our_format(local):
            return
    raise FileExistsError(
        f"{path} was written by another program, and this command would replace it: move it, "
        "or take another name"
    )


def begins_with(beginning: bytes) -> Callable[[Path], bool]:
    """A function that says whether a file begins with these bytes."""

    def has_our_format(path: Path) -> bool:
        with open(path, "rb") as file:
            return file.read(len(beginning)) == beginning

    return has_our_format


def refuse_input(path: Path, inputs: Iterable[Any]) -> None:
    """Raise ValueError if an output is one of the inputs."""
    for other in inputs:
        if in_bucket(path) or in_bucket(other):
            continue
        if os.path.exists(other) and path.exists() and path.samefile(other):
            raise ValueError(
                f"{path} is read and cannot be written at the same time; give the target another "
                "name"
            )


def refuse_same(first: Path, second: Path, names: str) -> None:
    """Raise ValueError if two outputs, whose options have these names, are one file."""
    if first.resolve() == second.resolve():
        raise ValueError(f"{names} are two files, got {redact(first)} for both")
