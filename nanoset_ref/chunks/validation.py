"""Validate files of rows: every line, and the checksums in the manifests above the files.

Only the numbers of bad lines are in memory.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from nanoset_ref.chunks.row_format import read_row, row_files
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.preprocess.tokenization import progress_bar

SHOWN_LINES = 10


@dataclass(kw_only=True)
class FileReport:
    """The result of validating one file.

    Attributes:
        path: the file.
        lines: the number of lines.
        sources: {label: samples} of the good lines; rows without a label have the label None.
        errors: {problem: the numbers of its lines, from 1}; an empty list if the whole file is
            wrong.
    """

    path: Path
    lines: int = 0
    sources: Counter[str | None] = field(default_factory=Counter)
    errors: dict[str, list[int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the file has no errors."""
        return not self.errors

    @property
    def bad_lines(self) -> list[int]:
        """The numbers of the lines with errors."""
        return sorted(chain.from_iterable(self.errors.values()))

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.lines:,} lines, {len(self.bad_lines):,} bad"]
        for problem, lines in self.errors.items():
            numbers = ", ".join(map(str, lines[:SHOWN_LINES]))
            if len(lines) > SHOWN_LINES:
                numbers += ", ..."
            where = f": line {numbers}" if lines else ""
            parts.append(f"  {problem}{where}")
        for source, count in self.sources.items():
            parts.append(f"  {'(no source)' if source is None else source}: {count:,}")
        return "\n".join(parts)


def validate(
    paths: Sequence[PathLike] | PathLike,
    /,
    *,
    num_tokens: int | None = None,
    vocab_size: int | None = None,
    sources: Sequence[str] | str | None = None,
    verbose: bool = False,
) -> list[FileReport]:
    """Read files of rows and report their errors; the exit code is 1 if a file is bad.

    Args:
        paths: the files, or folders of them.
        num_tokens: expected tokens per row; default: from the first manifest above the files, or
            2,049 without one.
        vocab_size: ids must be below it; default: from that manifest, or no limit.
        sources: the allowed labels; default: any.
        verbose: show progress, and also report good files, with the rows of each source.

    Returns:
        A report per file, per unfinished folder, and per file that a manifest lists but a given
        folder lacks. A listed file must have the checksum in the manifest.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a folder has no files of rows.
    """
    # imported here: --help does not need pydantic
    from nanoset_ref.chunks.chunk_manifest import (
        RowFacts,
        find_problems,
        manifests_above,
    )

    files = row_files(paths)
    manifests = manifests_above(files)
    expected = next((manifest.facts for manifest in manifests.values()), RowFacts())
    num_tokens = num_tokens or expected.concat_tokens or 2049
    vocab_size = vocab_size or expected.vocab_size
    labels = None if sources is None else as_list(sources)
    reports = {path.resolve(): FileReport(path=path) for path in files}
    for report in progress_bar(
        reports.values(), "files", shown=None if verbose else False
    ):
        _validate_file(report, num_tokens, vocab_size, labels)
    for path, problem in find_problems(manifests, as_list(paths)):
        reports.setdefault(path, FileReport(path=path)).errors[problem] = []
    return list(reports.values())


def _validate_file(
    report: FileReport,
    num_tokens: int,
    vocab_size: int | None,
    labels: list[str] | None,
) -> None:
    """Read every line of a file, and add what is found to its report."""
    with open(report.path, "rb") as file:
        for number, line in enumerate(file, 1):
            report.lines = number
            try:
                source = read_row(line, num_tokens, vocab_size).source
                if labels is not None and source not in labels:
                    raise ValueError(
                        f"source {source!r}, expected one of {sorted(labels)}"
                    )
                report.sources[source] += 1
            except ValueError as error:
                report.errors.setdefault(str(error), []).append(number)
