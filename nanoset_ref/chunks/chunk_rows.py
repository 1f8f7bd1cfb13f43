"""Rows, the lines {"token_ids": [...], "source": "..."} of subsets and chunks: written, read, validated, converted.

Converted to what training reads, the rows lie back to back and the file says so: windows "disjoint", row_length R. A
Nanoset with sequence_length = R - 1 then reads exactly these rows, each as one sample, none cut and no token twice.
(Read as an ordinary token file, windows of R tokens at a stride of R - 1 would drift by one token per row.)

In a .bin/.idx pair every row is a document. Megatron's GPTDataset cuts the concatenated documents every sequence_length
tokens and adds one: with sequence_length = R and add_extra_token_to_sequence = False its samples are exactly the rows,
and the last label of each is padding.

Either takes 2 or 4 bytes per token instead of 5 to 6. Memory: some rows, and the numbers of bad lines.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numba import njit
from numpy.typing import NDArray
from tqdm import tqdm

from nanoset_ref.chunks.chunk_manifest import RowFacts, above, agreed, faults
from nanoset_ref.chunks.packing import batches
from nanoset_ref.files import PathLike, listed, require_regular
from nanoset_ref.formats import convert
from nanoset_ref.tokens import TokenFile, Tokens, token_dtype_for

OPENING = re.compile(rb'"token_ids"\s*:\s*\[')
BATCH_ROWS = 256
SHOWN_LINES = 10


@dataclass(kw_only=True)
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
    errors: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def bad_lines(self) -> list[int]:
        return sorted(chain.from_iterable(self.errors.values()))

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.lines:,} lines, {len(self.bad_lines):,} bad"]
        for what, lines in self.errors.items():
            numbers = ", ".join(map(str, lines[:SHOWN_LINES])) + ", ..." * (len(lines) > SHOWN_LINES)
            parts.append(f"  {what}: line {numbers}" if lines else f"  {what}")
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
    """Read files of rows and report what is wrong with them; nothing is raised for a bad line.

    Args:
        paths: the files, or folders of them.
        num_tokens: expected tokens per row; None: what the first manifest above the files says, or 2,049 without one.
        vocab_size: ids must be below it; None: what that manifest says, or no limit.
        sources: the labels that may occur; None: any.
        verbose: show how far it is, and let the command report good files, too, with the rows of each source.

    Returns:
        A report per file, and one for each file that a manifest lists and a given folder lacks, and for each folder
        that is not finished. A file that a manifest lists must have the checksum recorded there.

    Raises:
        FileNotFoundError: a file does not exist. ValueError: a folder without rows.
    """
    files = row_files(paths)
    manifests = above(files)
    expected = next((manifest.facts for manifest in manifests.values()), RowFacts())
    num_tokens = num_tokens or expected.concat_tokens or 2049
    reports = {path.resolve(): FileReport(path=path) for path in files}
    for report in tqdm(reports.values(), "files", disable=None if verbose else True):
        with open(report.path, "rb") as file:
            for number, line in enumerate(file, 1):
                report.lines = number
                try:
                    _, source = read_row(line, num_tokens, vocab_size or expected.vocab_size)
                    if sources is not None and source not in listed(sources):
                        raise ValueError(f"source {source!r}, expected one of {sorted(listed(sources))}")
                    report.sources[source] += 1
                except ValueError as error:
                    report.errors[str(error)].append(number)
    for path, what in faults(manifests, listed(paths)):
        reports.setdefault(path, FileReport(path=path)).errors[what] = []
    return list(reports.values())


def chunks_to_tokens(
    paths: Sequence[PathLike] | PathLike, output: PathLike, *, vocab_size: int | None = None, overwrite: bool = False
) -> int:
    """Write the rows of chunk files, in the order given, into one file of token ids; returns their number.

    Args:
        paths: files of rows, or folders of them, all of one row length R.
        output: the file, in the format of its suffix: .npy, a token file, `<prefix>_input_ids.npy` by convention; .bin,
            with an .idx beside it. Beside a token file the labels of the rows are kept, too, for `where`; a pair has
            no place for them.
        vocab_size: for files without a manifest; ids must be below it, and it decides the dtype.
        overwrite: whether an existing file may be replaced.

    Raises:
        ValueError: a line that is no row, another row length, an id outside the vocabulary (all with file and line),
            nothing that tells the vocabulary, or another suffix.
        ManifestError: the files were made with different tokenizers, or their folder is not finished.
        FileExistsError: `output` exists.
    """
    rows = _ChunkRows(paths, vocab_size)
    written = convert([rows], output, overwrite=overwrite)
    if isinstance(written, TokenFile) and any(rows.sources):
        written.keep_sources(list(rows.sources), rows.numbers)
    return len(written.known_documents()) - 1


class _ChunkRows(Tokens):
    """The rows of chunk files as one file of ids, every row a document; read once, from the first to the last."""

    document_offsets = None

    def __init__(self, paths: Sequence[PathLike] | PathLike, vocab_size: int | None) -> None:
        self.files = row_files(paths)
        self.sources: dict[str, int] = {}  # the labels, numbered
        self.numbers = array("I")  # of each row's label
        facts = agreed(above(self.files), listed(paths))
        self.path = self.files[0]
        self.vocab_size = facts.vocab_size or vocab_size
        if self.vocab_size is None:
            raise ValueError(f"no manifest above {self.path} says the size of the vocabulary: give vocab_size")
        self.dtype = token_dtype_for(self.vocab_size)
        self.row_length = facts.concat_tokens or len(next(self.rows(None), ()))
        self.known = facts.model_dump(exclude={"concat_tokens", "vocab_size"})

    @property
    def facts(self) -> dict[str, Any]:
        return {**self.known, "vocab_size": self.vocab_size, "windows": "disjoint", "row_length": self.row_length}

    def check_content(self) -> Any:
        """`agreed` has done it."""

    def blocks(self, chosen: object = None) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        del self.numbers[:]
        for rows in batches(self.rows(self.row_length), BATCH_ROWS):
            yield np.concatenate(rows), np.full(len(rows), self.row_length)

    def rows(self, row_length: int | None) -> Iterator[NDArray[np.int64]]:
        """Row by row, int64 [row_length], checked."""
        for path in tqdm(self.files, "files", disable=None):
            with open(path, "rb") as file:
                for number, line in enumerate(file, 1):
                    try:
                        ids, source = read_row(line, row_length, self.vocab_size)
                    except ValueError as error:
                        raise ValueError(f"{path}:{number}: {error}; `validate` names all bad lines") from None
                    self.numbers.append(self.sources.setdefault(source or "", len(self.sources)))
                    yield ids


def row_files(paths: Iterable[PathLike] | PathLike) -> list[Path]:
    """The files among `paths`, and the .jsonl files below the folders among them, train_2 before train_10.

    Raises:
        FileNotFoundError: one does not exist. ValueError: a folder holds no such file.
    """
    files = []
    for path in map(Path, listed(paths)):
        below = sorted(path.rglob("*.jsonl"), key=_natural) if path.is_dir() else [path]
        if not below:
            raise ValueError(f"{path} holds no .jsonl file of rows")
        files += below
    for path in files:
        require_regular(path)
    return files


def _natural(path: Path) -> str:
    return re.sub(r"\d+", lambda number: number[0].zfill(20), str(path))


def format_row(ids: NDArray[np.integer], source: str) -> bytes:
    """The line of a row, integers [length], byte for byte as Python's `json.dumps` writes it."""
    numbers = orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")
    return b'{"token_ids": %b, "source": %b}\n' % (numbers, json.dumps(source).encode())


def read_row(line: bytes, num_tokens: int | None, vocab_size: int | None) -> tuple[NDArray[np.int64], str | None]:
    """The ids of a row, int64 [num_tokens], and its source.

    1. Find the list of ids, and let orjson read the line without them: Python objects for them take most of the time.
    2. Read the ids.

    Args:
        line: one JSON object. num_tokens: ids in it; None: any number but 0.
        vocab_size: every id is below it; None: below 2^31.

    Raises:
        ValueError: the line is no such row; the message is one line.
    """
    opening = OPENING.search(line)
    start = opening.end() if opening else 0
    end = line.find(b"]", start) if opening else 0
    try:
        row = orjson.loads(line[:start] + line[end:])
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}") from error
    ids = np.empty((end - start) // 2 + 1, dtype=np.int64)  # an id takes a digit and a comma at least
    count = _read_ids(np.frombuffer(line[start:end].strip() + b",", dtype=np.uint8), ids)
    if not isinstance(row, dict) or row.get("token_ids") != [] or not count:
        raise ValueError('not an object with a list of ids "token_ids"')
    if num_tokens not in (None, count):
        raise ValueError(f"{count} token_ids, expected {num_tokens}")
    limit = vocab_size or 1 << 31
    if ids[:count].max() >= limit:
        raise ValueError(f"an id that is not below {limit}")
    source = row.get("source")
    if not isinstance(source, str | None):
        raise ValueError("a source that is no string")
    return ids[:count], source


@njit(cache=True)
def _read_ids(text: NDArray[np.uint8], ids: NDArray[np.int64]) -> int:
    """Read `1, 20, 300,` into `ids`; returns their number, 0 for anything else."""
    count = value = digits = 0
    for byte in text:
        if 48 <= byte <= 57 and digits < 18 and (value or not digits):  # no number begins with 0, but 0
            value = value * 10 + byte - 48
            digits += 1
        elif byte == 44 and digits:
            ids[count] = value
            count += 1
            value = digits = 0
        elif byte != 32 or digits:
            return 0
    return count
