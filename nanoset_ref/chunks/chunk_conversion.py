"""Convert rows of chunks to files of token ids, for training.

Rows are stored back to back, and the manifest of the token file has windows "disjoint" and
row_length R. A Nanoset with sequence_length = R - 1 then reads exactly these rows, each as one
sample. (In an ordinary token file, windows of R tokens at a stride of R - 1 would drift by one
token per row.)

In a .bin/.idx pair every row is a document. Megatron's GPTDataset cuts the joined documents every
sequence_length tokens and adds one: with sequence_length = R and add_extra_token_to_sequence =
False its samples are exactly the rows, and the last label of each is padding.

Rows packed by best fit end in padding (see `row_format`). Their token file has windows "padded" and
the boundaries of documents. Each padding token is a separate document, so that masks and the loss
exclude it. In a .bin/.idx pair only EOS ids separate documents.

Both formats take 2 or 4 bytes per token instead of 5 to 6. Only a few rows are in memory.
"""

import contextlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.chunks.chunk_manifest import common_facts, manifests_above
from nanoset_ref.chunks.packing import batched
from nanoset_ref.chunks.row_format import Row, read_row, row_files
from nanoset_ref.io.files import write_text, write_together
from nanoset_ref.io.locks import locked
from nanoset_ref.io.paths import PathLike, as_list, checksum, read_json
from nanoset_ref.io.types import Json
from nanoset_ref.io.urls import local_path
from nanoset_ref.preprocess.tokenization import progress_bar
from nanoset_ref.tokens import TokenFile, token_dtype_for
from nanoset_ref.tokens.conversion import (
    WRITERS,
    last_file_of,
    require_known_suffix,
    require_marked_padding,
)
from nanoset_ref.tokens.manifest import LABELS_SUFFIX

BATCH_ROWS = 256


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
            `<prefix>_input_ids.npy`; .bin for a pair with a .idx; .ds for a file of datatrove.
            Only the set of a token file has the rows' labels, for `where`, and only it can hold
            rows packed by best fit.
        vocab_size: the size of the vocabulary, for files without a manifest; every id must be below
            it. It determines the dtype.
        overwrite: whether to replace an existing file.

    Returns:
        The number of rows.

    Raises:
        ValueError: there are no rows. Or a line is not a row, has another row length or an id
            outside the vocabulary (the message names file and line). Or the vocabulary or suffix is
            unknown. Or some rows are packed by best fit and others are not, or the format does not
            mark their padding.
        ManifestError: the files have different tokenizers, or their folder is unfinished.
        FileExistsError: `output` exists, and `overwrite` is False.
    """
    files = row_files(paths)
    target = local_path(output, "output")
    facts = common_facts(manifests_above(files), as_list(paths)).model_dump()
    vocab_size = facts["vocab_size"] or vocab_size
    if vocab_size is None:
        raise ValueError(
            f"no manifest above {files[0]} has a vocab_size: give vocab_size"
        )
    require_known_suffix(target)
    del facts["tokenizer_identity"]  # no token file has it
    row_length = facts.pop("concat_tokens")
    first_row = next(_rows(files, row_length, vocab_size), None)
    if first_row is None:
        raise ValueError(f"{files[0]} has no row, and nor has any other file")
    packed = bool(first_row.document_lengths)
    row_length = len(first_row.ids)
    if packed:
        require_marked_padding(files[0], target)
    facts["vocab_size"] = vocab_size
    facts["dtype"] = token_dtype_for(vocab_size)
    facts["windows"] = "padded" if packed else "disjoint"
    facts["row_length"] = row_length
    progress = progress_bar(files, "files")
    rows = _rows(progress, row_length, vocab_size, packed)
    with (
        write_together(last_file_of(target), target.with_suffix(LABELS_SUFFIX)),
        WRITERS[target.suffix](target, overwrite=overwrite, **facts) as writer,
    ):
        return _write_rows(writer, rows, labeled=target.suffix == ".npy")


def _write_rows(writer: Any, rows: Iterator[Row], labeled: bool) -> int:
    """Write rows, with documents and labels in a `labeled` format; return their number."""
    numbers_of: dict[str, int] = {}  # {label: its number}
    label_numbers = array("I")  # of each document
    num_rows = 0
    for batch in batched(rows, BATCH_ROWS):
        lengths = []
        for row in batch:
            for length, label in _documents(row, labeled):
                lengths.append(length)
                label_numbers.append(numbers_of.setdefault(label, len(numbers_of)))
        writer.write(np.concatenate([row.ids for row in batch]), lengths)
        num_rows += len(batch)
    if labeled and any(numbers_of):
        writer.write_labels(list(numbers_of), label_numbers)
    return num_rows


def _documents(row: Row, labeled: bool) -> list[tuple[int, str]]:
    """(length, label) of each document; a padding token is a document without a label.

    A row without lengths, or for a format without labels, is one document.
    """
    lengths = row.document_lengths
    if not labeled or not lengths:
        lengths = [len(row.ids)]
    padding = len(row.ids) - sum(lengths)
    return [(length, row.source or "") for length in lengths] + [(1, "")] * padding


def _rows(
    files: Iterable[Path],
    row_length: int | None,
    vocab_size: int,
    packed: bool | None = None,
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
                    if packed not in (None, bool(row.document_lengths)):
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
    train = Path(folder, "train").absolute()  # an error shows where it was looked for
    return row_files([train if train.is_dir() else train.parent])


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
    process converts for all ranks and runs. A converted chunk can be read from a read-only folder.

    Raises:
        ValueError: see `chunks_to_tokens`.
        FileExistsError: the target exists and was not converted from a chunk.
        OSError: the chunk has to be converted, and its folder cannot be written to.
    """
    target = path.parent / "token_files" / f"{path.stem}_input_ids.npy"
    record = target.with_suffix(".made_of")
    facts = [
        manifest.facts.model_dump(exclude_unset=True)
        for manifest in manifests_above([path]).values()
    ]
    inputs = {"chunk": checksum(path), "facts": facts, "vocab_size": vocab_size}
    try:
        target.parent.mkdir(exist_ok=True)
        file = open(target.with_suffix(".lock"), "a")  # noqa: SIM115 (closed below)
    except OSError as error:
        if _is_made_of(target, record, inputs):
            return TokenFile(target)
        raise OSError(
            f"{target} cannot be written ({error.strerror}), and a chunk is converted before it is "
            "read: allow writing there, or copy the chunks to another folder"
        ) from error
    # on a file system without locks several processes write it, each completely
    with file, locked(file):
        if _is_made_of(target, record, inputs):
            return TokenFile(target)
        if target.exists() and not record.exists():
            raise FileExistsError(
                f"{target} was not made from {path.name} and is left unchanged; move it first"
            )
        write_text(
            record, json.dumps(inputs)
        )  # marks the files as ours before the first write
        chunks_to_tokens([path], target, vocab_size=vocab_size, overwrite=True)
        write_text(record, json.dumps(_with_tokens(inputs, target)))
        return TokenFile(target)


def _is_made_of(target: Path, record: Path, inputs: Json) -> bool:
    """Whether a chunk's token file exists and was converted from these inputs."""
    if not target.exists() or not record.exists():
        return False
    # a damaged file is converted again
    with contextlib.suppress(ValueError):
        return read_json(record) == _with_tokens(inputs, target)
    return False


def _with_tokens(inputs: Json, target: Path) -> Json:
    """The record of a conversion: its inputs, and the checksum of the token file."""
    return inputs | {"tokens": TokenFile(target).facts.get("checksum")}
