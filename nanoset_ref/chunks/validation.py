"""Validate files of records: every line JSON, every sample of the expected length, every id in the vocabulary, every
label known.

Cost: reading and parsing, see `records`. Memory: one block of lines and the numbers of the bad ones.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanoset_ref.chunks.manifest import FileEntry, Manifest
from nanoset_ref.chunks.records import Records, read_records, record_files
from nanoset_ref.files import checksum

DEFAULT_TOKENS = 2049


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileReport:
    """What was found in one file.

    Args:
        path: the file. lines: number of lines in it.
        sources: {label: samples}, of the good lines; None is the label of records without one.
        errors: {what is wrong: the numbers of the lines, counted from 1}; no numbers where the file as a whole is
            wrong.
    """

    path: Path
    lines: int
    sources: Counter[str | None]
    errors: dict[str, list[int]]

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def bad_lines(self) -> list[int]:
        return sorted(line for lines in self.errors.values() for line in lines)

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.lines:,} lines, {len(self.bad_lines):,} bad"]
        parts += [f"  {what}{': line ' if lines else ''}{_ranges(lines)}" for what, lines in self.errors.items()]
        parts += [
            f"  {'(no source)' if source is None else source}: {count:,}" for source, count in self.sources.items()
        ]
        return "\n".join(parts)


def validate(
    paths: Iterable[str | os.PathLike[str]],
    *,
    num_tokens: int | None = None,
    vocab_size: int | None = None,
    sources: Collection[str] | None = None,
    progress: bool = False,
) -> list[FileReport]:
    """Read files of records and report what is wrong with them; nothing is raised for a bad line.

    Args:
        paths: the files, or folders of them.
        num_tokens: expected tokens per sample; None: what the manifest of the first file says, or 2,049 without one.
        vocab_size: ids must be below it; None: what that manifest says, or no limit.
        sources: the labels that may occur; None: any.
        progress: whether to draw a bar on stderr.

    Returns:
        A report per file, and one for each file that is listed in a given folder's manifest and is missing, or folder
        that is not finished. A file that its manifest lists must have the lines and the checksum that stand there.

    Raises:
        FileNotFoundError: a file does not exist. ValueError: no file.
    """
    given = [Path(path) for path in paths]
    files = record_files(given)
    settings = next((found[0].settings for path in files[:1] if (found := manifest_of(path)) and found[0].settings), {})
    num_tokens = num_tokens or settings.get("concat_tokens") or DEFAULT_TOKENS
    vocab_size = vocab_size or settings.get("vocab_size")
    with tqdm(total=sum(path.stat().st_size for path in files), unit="B", unit_scale=True, disable=not progress) as bar:
        return [_validate_file(path, num_tokens, vocab_size, sources, bar) for path in files] + _absent(given)


def _absent(paths: Sequence[Path]) -> list[FileReport]:
    """A report for every unfinished folder that `paths` are of, and for every file that a folder among them lacks."""
    errors: dict[Path, str] = {}
    for path in paths:
        for folder in (path.resolve(), *path.resolve().parents):
            manifest = Manifest.read(folder)
            if manifest is None:
                continue
            if not manifest.complete:
                errors[folder] = "not finished: run the command that makes it once more"
            listed = [folder / name for name in manifest.files]
            lacking = [file for file in listed if path.resolve() in file.parents and not file.exists()]
            errors |= dict.fromkeys(lacking, "missing, though the manifest lists it")
    return [FileReport(path=path, lines=0, sources=Counter(), errors={what: []}) for path, what in errors.items()]


def manifest_of(path: Path) -> tuple[Manifest, FileEntry] | None:
    """The manifest of a folder above `path` that lists it, and what it says of the file; None without one."""
    for folder in path.resolve().parents:
        manifest = Manifest.read(folder)
        if manifest is not None and (entry := manifest.files.get(path.resolve().relative_to(folder).as_posix())):
            return manifest, entry
    return None


def problems(records: Records, num_tokens: int, vocab_size: int | None) -> dict[int, str]:
    """{index of a line: what is wrong with it}: no record, another length, an id outside the vocabulary."""
    found = dict(records.errors)
    lengths = np.diff(records.offsets)
    for i in np.flatnonzero(lengths != num_tokens).tolist():
        found.setdefault(i, f"{lengths[i]} token_ids, expected {num_tokens}")
    if vocab_size is not None and records.ids.size and records.ids.max() >= vocab_size:
        lines_of_ids = np.searchsorted(records.offsets, np.flatnonzero(records.ids >= vocab_size), side="right") - 1
        for i in np.unique(lines_of_ids).tolist():
            found.setdefault(i, f"an id outside the vocabulary of {vocab_size}")
    return found


def _validate_file(
    path: Path, num_tokens: int, vocab_size: int | None, allowed: Collection[str] | None, bar: tqdm
) -> FileReport:
    lines, sources, errors = 0, Counter[str | None](), dict[str, list[int]]()
    for records in read_records(path):
        found = problems(records, num_tokens, vocab_size)
        if allowed is not None:
            for i, source in enumerate(records.sources):
                if source not in allowed:
                    found.setdefault(i, f"source {source!r}, expected one of {sorted(allowed)}")
        sources.update(source for i, source in enumerate(records.sources) if i not in found)
        for i, what in sorted(found.items()):
            errors.setdefault(what, []).append(records.first_line + i)
        lines += len(records)
        bar.update(records.num_bytes)
    listed = manifest_of(path)
    if listed is not None and listed[1].lines != lines:
        errors[f"the manifest says {listed[1].lines:,} lines"] = []
    elif listed is not None and listed[1].checksum != checksum(path):
        errors["changed: it has not the checksum that the manifest says"] = []
    return FileReport(path=path, lines=lines, sources=sources, errors=errors)


def _ranges(numbers: list[int]) -> str:
    """[3, 4, 5, 9] -> "3-5, 9"."""
    array = np.array(numbers, dtype=np.int64)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs if len(run))
