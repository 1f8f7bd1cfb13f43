"""Read rows, the lines {"token_ids": [...], "source": "..."} of subsets and chunks, and say what is wrong with them.

pydantic parses and checks a line in one go: measured on one core, 110 us for 2,049 ids, where orjson takes 80 and the
look at what it returns 75 more. Memory: one line, and the numbers of the bad ones.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, ValidationError, conint, conlist, create_model
from tqdm import tqdm

from nanoset_ref.chunks.chunk_manifest import RowFacts, above, faults, first_fault
from nanoset_ref.files import PathLike


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """What was found in one file.

    Args:
        path: the file. lines: number of lines in it.
        sources: {label: samples}, of the good lines; None is the label of rows without one.
        errors: {what is wrong: the numbers of the lines, counted from 1}; no numbers where the file as a whole is
            wrong.
    """

    path: Path
    lines: int = 0
    sources: Counter[str | None] = field(default_factory=Counter)
    errors: dict[str, list[int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def bad_lines(self) -> list[int]:
        return sorted(chain.from_iterable(self.errors.values()))

    def __str__(self) -> str:
        here = Path.cwd()
        path = self.path.relative_to(here) if self.path.is_relative_to(here) else self.path
        parts = [f"{path}: {self.lines:,} lines, {len(self.bad_lines):,} bad"]
        for what, lines in self.errors.items():
            parts.append(f"  {what}: line {_ranges(lines)}" if lines else f"  {what}")
        for source, count in self.sources.items():
            parts.append(f"  {'(no source)' if source is None else source}: {count:,}")
        return "\n".join(parts)


def validate(
    paths: Sequence[PathLike],
    /,
    *,
    num_tokens: int | None = None,
    vocab_size: int | None = None,
    sources: Sequence[str] | None = None,
) -> list[FileReport]:
    """Read files of rows and report what is wrong with them; nothing is raised for a bad line.

    Args:
        paths: the files, or folders of them.
        num_tokens: expected tokens per row; None: what the first manifest above the files says, or 2,049 without one.
        vocab_size: ids must be below it; None: what that manifest says, or no limit.
        sources: the labels that may occur; None: any.

    Returns:
        A report per file, and one for each file that a manifest lists and a given folder lacks, and for each folder
        that is not finished. A file that a manifest lists must have the lines and the checksum recorded there.

    Raises:
        FileNotFoundError: a file does not exist. ValueError: a folder without rows.
    """
    files = row_files(paths)
    manifests = above(files)
    expected = next((manifest.settings for manifest in manifests.values()), RowFacts())
    parse = row_parser(num_tokens or expected.concat_tokens or 2049, vocab_size or expected.vocab_size)
    reports = {path: _read(path, parse, sources) for path in tqdm(files, "files", disable=None)}
    for path, what in faults(manifests, paths):
        reports.setdefault(path, FileReport(path=path)).errors[what] = []
    return list(reports.values())


def row_files(paths: Iterable[PathLike]) -> list[Path]:
    """The files among `paths`, and the .jsonl files below the folders among them, train_2 before train_10.

    Raises:
        FileNotFoundError: one does not exist. ValueError: a folder holds no such file.
    """
    files = []
    for path in map(Path, paths):
        below = [path.resolve(strict=True)]
        if path.is_dir():
            below = sorted(below[0].rglob("*.jsonl"), key=_natural)
        if not below:
            raise ValueError(f"{path} holds no .jsonl file of rows")
        files += below
    return files


def _natural(path: Path) -> str:
    return re.sub(r"\d+", lambda number: number[0].zfill(20), str(path))


def row_parser(num_tokens: int | None = None, vocab_size: int | None = None) -> Callable[[bytes], Any]:
    """A function that makes of a line an object with `token_ids` and `source`, or raises a ValidationError.

    Args:
        num_tokens: ids per row; None: any number. vocab_size: every id is below it, and below 2^31 anyway.
    """
    ids = conlist(conint(ge=0, lt=vocab_size or 1 << 31), min_length=num_tokens, max_length=num_tokens)
    row = create_model("Row", __config__=ConfigDict(strict=True), token_ids=ids, source=(str | None, None))
    return row.model_validate_json


def _read(path: Path, parse: Callable[[bytes], Any], allowed: Sequence[str] | None) -> FileReport:
    errors = defaultdict(list)
    sources = Counter[str | None]()
    lines = 0
    with open(path, "rb") as file:
        for lines, line in enumerate(file, 1):
            try:
                source = parse(line).source
            except ValidationError as error:
                errors[first_fault(error)].append(lines)
                continue
            if allowed is None or source in allowed:
                sources[source] += 1
            else:
                errors[f"source {source!r}, expected one of {sorted(allowed)}"].append(lines)
    return FileReport(path=path, lines=lines, sources=sources, errors=errors)


def _ranges(numbers: list[int]) -> str:
    """[3, 4, 5, 9] -> "3-5, 9"."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
