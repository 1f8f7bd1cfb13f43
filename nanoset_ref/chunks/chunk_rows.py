"""Rows, the lines {"token_ids": [...], "source": "..."} of subsets and chunks.

Converted for training, rows are stored back to back, and the manifest of the token file has windows
"disjoint" and row_length R. A Nanoset with sequence_length = R - 1 then reads exactly these rows,
each as one sample. (In an ordinary token file, windows of R tokens at a stride of R - 1 would drift
by one token per row.)

In a .bin/.idx pair every row is a document. Megatron's GPTDataset cuts the joined documents every
sequence_length tokens and adds one: with sequence_length = R and add_extra_token_to_sequence =
False its samples are exactly the rows, and the last label of each is padding.

Rows packed by best fit also have {..., "document_lengths": [...]} and end in padding. Their token
file has windows "padded" and the boundaries of documents. Each padding token is a separate
document, so that masks and the loss exclude it. In a .bin/.idx pair only EOS ids separate
documents.

Both formats take 2 or 4 bytes per token instead of 5 to 6. Only a few rows, and the numbers of bad
lines, are in memory.
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.chunks.chunk_manifest import RowFacts, common_facts, find_problems, manifests_above
from nanoset_ref.chunks.packing import batches
from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import atomic_write, lock, write_together
from nanoset_ref.io.njit import njit
from nanoset_ref.io.paths import PathLike, as_list, checksum, read_json, require_regular
from nanoset_ref.tokens import TokenFile, token_dtype_for
from nanoset_ref.tokens.conversion import WRITERS

with extra("text", "preparing a corpus"):
    import orjson
    from tqdm import tqdm

OPENING = re.compile(rb'"token_ids"\s*:\s*\[')
BATCH_ROWS = 256
Row = tuple[NDArray[np.int64], str | None, list[int] | None]  # ids, source, document lengths
SHOWN_LINES = 10


@dataclass(kw_only=True)
class FileReport:
    """The result of validating one file.

    Args:
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
        return not self.errors

    @property
    def bad_lines(self) -> list[int]:
        return sorted(chain.from_iterable(self.errors.values()))

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.lines:,} lines, {len(self.bad_lines):,} bad"]
        for problem, lines in self.errors.items():
            numbers = ", ".join(map(str, lines[:SHOWN_LINES]))
            more = ", ..." if len(lines) > SHOWN_LINES else ""
            parts.append(f"  {problem}: line {numbers}{more}" if lines else f"  {problem}")
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
    """Read files of rows and report their errors; a bad line does not raise.

    Args:
        paths: the files, or folders of them.
        num_tokens: expected tokens per row; None: from the first manifest above the files, or 2,049
            without one.
        vocab_size: every id must be below it; None: from that manifest, or no limit.
        sources: the allowed labels; None: any.
        verbose: show progress; the command then also reports good files, with the rows of each
            source.

    Returns:
        A report per file, per unfinished folder, and per file that a manifest lists but a given
        folder lacks. A listed file must have the checksum in the manifest.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a folder has no files of rows.
    """
    files = row_files(paths)
    manifests = manifests_above(files)
    expected = next((manifest.facts for manifest in manifests.values()), RowFacts())
    num_tokens = num_tokens or expected.concat_tokens or 2049
    vocab_size = vocab_size or expected.vocab_size
    labels = None if sources is None else as_list(sources)
    reports = {path.resolve(): FileReport(path=path) for path in files}
    for report in tqdm(reports.values(), "files", disable=None if verbose else True):
        _validate_file(report, num_tokens, vocab_size, labels)
    for path, problem in find_problems(manifests, as_list(paths)):
        reports.setdefault(path, FileReport(path=path)).errors[problem] = []
    return list(reports.values())


def _validate_file(
    report: FileReport, num_tokens: int, vocab_size: int | None, labels: list[str] | None
) -> None:
    with open(report.path, "rb") as file:
        for number, line in enumerate(file, 1):
            report.lines = number
            try:
                _, source, _ = read_row(line, num_tokens, vocab_size)
                if labels is not None and source not in labels:
                    raise ValueError(f"source {source!r}, expected one of {sorted(labels)}")
                report.sources[source] += 1
            except ValueError as error:
                report.errors.setdefault(str(error), []).append(number)


def chunks_to_tokens(
    paths: Sequence[PathLike] | PathLike,
    output: PathLike,
    *,
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write the rows of chunk files, in the order given, into one file of token ids.

    Args:
        paths: files of rows, or folders of them, all of one row length R.
        output: the file; its suffix decides the format: .npy for a token file, by convention
            `<prefix>_input_ids.npy`; .bin for a pair with an .idx. The set of a token file also has
            the rows' labels, for `where`; a pair cannot have them.
        vocab_size: the size of the vocabulary, for files without a manifest; every id must be below
            it. It determines the dtype.
        overwrite: whether to replace an existing file.

    Returns:
        The number of rows.

    Raises:
        ValueError: a line is not a row, has another row length or an id outside the vocabulary (the
            message names file and line). Or the vocabulary or suffix is unknown. Or some rows are
            packed by best fit and others are not.
        ManifestError: the files have different tokenizers, or their folder is unfinished.
        FileExistsError: `output` exists, and `overwrite` is False.
    """
    files = row_files(paths)
    target = Path(output)
    facts = common_facts(manifests_above(files), as_list(paths)).model_dump()
    vocab_size = facts["vocab_size"] or vocab_size
    if vocab_size is None:
        raise ValueError(f"no manifest above {files[0]} has a vocab_size: give vocab_size")
    if target.suffix not in WRITERS:
        known = sorted(WRITERS)
        raise ValueError(f"the output's suffix must be one of {known}, got {target.name!r}")
    row_length = facts.pop("concat_tokens")
    ids, _, packed = next(_rows(files, row_length, vocab_size), ((), None, None))
    facts["vocab_size"] = vocab_size
    facts["dtype"] = token_dtype_for(vocab_size)
    facts["windows"] = "padded" if packed else "disjoint"
    facts["row_length"] = row_length or len(ids)
    progress = tqdm(files, "files", disable=None)
    rows = _rows(progress, facts["row_length"], vocab_size, bool(packed))
    with write_together(), WRITERS[target.suffix](target, overwrite=overwrite, **facts) as writer:
        return _write_rows(writer, rows, labeled=target.suffix == ".npy")


def _write_rows(writer: Any, rows: Iterator[Row], labeled: bool) -> int:
    """Write rows, with documents and labels in a `labeled` format; return their number."""
    numbers_of: dict[str, int] = {}  # {label: its number}
    labels = array("I")  # the number of each document's label
    num_rows = 0
    for batch in batches(rows, BATCH_ROWS):
        lengths = []
        for row in batch:
            for length, label in _documents(row, labeled):
                lengths.append(length)
                labels.append(numbers_of.setdefault(label, len(numbers_of)))
        writer.write(np.concatenate([ids for ids, *_ in batch]), lengths)
        num_rows += len(batch)
    if labeled and any(numbers_of):
        writer.keep_sources(list(numbers_of), labels)
    return num_rows


def _documents(row: Row, labeled: bool) -> list[tuple[int, str]]:
    """(length, label) of each document; a padding token is a document without a label.

    A row without lengths, or for a format without labels, is one document.
    """
    ids, source, lengths = row
    if not labeled or not lengths:
        lengths = [len(ids)]
    padding = len(ids) - sum(lengths)
    return [(length, source or "") for length in lengths] + [(1, "")] * padding


def _rows(
    files: Iterable[Path], row_length: int | None, vocab_size: int, packed: bool | None = None
) -> Iterator[Row]:
    """Yield the rows of files.

    Args:
        files: the files.
        row_length: ids in each row; None: any number.
        vocab_size: every id is below it.
        packed: whether rows must be packed by best fit; None: either.

    Raises:
        ValueError: a line is not such a row; the message names file and line.
    """
    for path in files:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = read_row(line, row_length, vocab_size)
                    if packed not in (None, bool(row[2])):
                        raise ValueError(
                            "rows with and without document_lengths cannot be in one file"
                        )
                except ValueError as error:
                    raise ValueError(
                        f"{path}:{number}: {error}; `validate` lists all bad lines"
                    ) from None
                yield row


# ---- chunks for training, one at a time, every row a sample


def chunk_files(folder: PathLike) -> list[Path]:
    """The chunks in a folder, chunk 2 before chunk 10.

    They are the files in its train/, where `mix` writes them, or all .jsonl files.
    """
    train = Path(folder, "train")
    return row_files([train if train.is_dir() else folder])


def count_rows(path: Path) -> int:
    """The number of rows in a chunk, from the manifest above it, else by counting."""
    for folder, manifest in manifests_above([path]).items():
        entry = manifest.files.get(path.resolve().relative_to(folder).as_posix())
        if entry is not None:
            return entry.lines
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def chunk_tokens(path: Path, vocab_size: int | None) -> TokenFile:
    """The token file of a chunk, in `token_files` beside the chunks, converted on first use.

    A record beside it has the inputs. The chunk is converted again if its content, the facts in its
    manifest or `vocab_size` differ from the record; time stamps play no role. Under a lock, one
    process converts for all ranks and runs.

    Raises:
        ValueError: see `chunks_to_tokens`.
        FileExistsError: the target exists and was not converted from a chunk.
    """
    target = path.parent / "token_files" / f"{path.stem}_input_ids.npy"
    target.parent.mkdir(exist_ok=True)
    record = target.with_suffix(".made_of")
    facts = [manifest.facts.model_dump() for manifest in manifests_above([path]).values()]
    inputs = {"chunk": checksum(path), "facts": facts, "vocab_size": vocab_size}
    with open(target.with_suffix(".lock"), "a") as file:
        lock(file, wait=True)  # without locks several processes write it, each completely
        found = read_json(record) if record.exists() else None
        if target.exists():
            if found is None:
                raise FileExistsError(
                    f"{target} was not made from {path.name} and is left unchanged; move it first"
                )
            if found == _with_tokens(inputs, target):
                return TokenFile(target)
        _write_json(record, inputs)  # marks the files as ours before the first write
        chunks_to_tokens([path], target, vocab_size=vocab_size, overwrite=True)
        _write_json(record, _with_tokens(inputs, target))
        return TokenFile(target)


def _with_tokens(inputs: dict[str, Any], target: Path) -> dict[str, Any]:
    return inputs | {"tokens": TokenFile(target).facts.get("checksum")}


def _write_json(path: Path, value: Any) -> None:
    with atomic_write(path, "w") as file:
        json.dump(value, file)


# ---- rows


def row_files(paths: Iterable[PathLike] | PathLike) -> list[Path]:
    """List the files in `paths`, and the .jsonl files below its folders, train_2 before train_10.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a folder has no .jsonl file.
    """
    files = []
    for path in map(Path, as_list(paths)):
        below = sorted(path.rglob("*.jsonl"), key=_natural) if path.is_dir() else [path]
        if not below:
            raise ValueError(f"{path} has no .jsonl file of rows")
        files += below
    for path in files:
        require_regular(path)
    return files


def _natural(path: Path) -> str:
    return re.sub(r"\d+", lambda number: number[0].zfill(20), str(path))


def format_row(
    ids: NDArray[np.integer], source: str, document_lengths: list[int] | None = None
) -> bytes:
    """Format a row, integers [length], byte for byte like Python's `json.dumps`."""
    numbers = orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")
    rest: dict[str, Any] = {"source": source}
    if document_lengths:
        rest["document_lengths"] = document_lengths
    return b'{"token_ids": %b, %b\n' % (numbers, json.dumps(rest)[1:].encode())


def read_row(line: bytes, num_tokens: int | None, vocab_size: int | None) -> Row:
    """Parse a row.

    1. Find the list of ids, and let orjson parse the line without them, because Python objects for
       ids would take most of the time.
    2. Parse the ids.

    Args:
        line: one JSON object.
        num_tokens: the number of ids; None: any number but 0.
        vocab_size: every id must be below it; None: below 2^31.

    Returns:
        (ids int64 [num_tokens], source, the length of each document or None).

    Raises:
        ValueError: the line is not such a row; the message is one line.
    """
    # 1. the line without its ids
    opening = OPENING.search(line)
    start = opening.end() if opening else 0
    end = line.find(b"]", start) if opening else 0
    try:
        row = orjson.loads(line[:start] + line[end:])
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}") from error
    # 2. the ids
    ids = np.empty((end - start) // 2 + 1, dtype=np.int64)  # an id takes at least 2 bytes, as "1,"
    count = _read_ids(np.frombuffer(line[start:end].strip() + b",", dtype=np.uint8), ids)
    if not isinstance(row, dict) or row.get("token_ids") != [] or not count:
        raise ValueError('not an object with a list of ids "token_ids"')
    if num_tokens not in (None, count):
        raise ValueError(f"{count} token_ids, expected {num_tokens}")
    limit = vocab_size or 1 << 31
    if ids[:count].max() >= limit:
        raise ValueError(f"an id is not below {limit}")
    source = row.get("source")
    if not isinstance(source, str | None):
        raise ValueError("the source is not a string")
    lengths = row.get("document_lengths")
    if lengths is not None and not _fit(lengths, count):
        raise ValueError(
            f"document_lengths are not positive integers with a sum of at most {count}"
        )
    return ids[:count], source, lengths


def _fit(lengths: Any, count: int) -> bool:
    are_counts = isinstance(lengths, list) and all(type(it) is int and it > 0 for it in lengths)
    return are_counts and 0 < sum(lengths) <= count


@njit(cache=True)
def _read_ids(text: NDArray[np.uint8], ids: NDArray[np.int64]) -> int:
    """Parse `1, 20, 300,` into `ids`; return their number, or 0 for anything else.

    Args:
        text: uint8 [bytes], ASCII, with a comma after each id. An id has 1 to 18 digits, and only 0
            starts with 0.
        ids: int64 [at least the number of commas], the output.
    """
    count = value = digits = 0
    for byte in text:
        if 48 <= byte <= 57 and digits < 18 and (value or not digits):  # 0 to 9
            value = value * 10 + byte - 48
            digits += 1
        elif byte == 44 and digits:  # a comma
            ids[count] = value
            count += 1
            value = digits = 0
        elif byte != 32 or digits:  # not a space before an id
            return 0
    return count
