"""Copy documents, all or chosen ones, from any format to any other, and verify the copy."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.files import write_together
from nanoset_ref.io.overwriting import refuse_input
from nanoset_ref.io.paths import PathLike, as_path
from nanoset_ref.io.types import Int64Array
from nanoset_ref.io.urls import BucketPath
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder
from nanoset_ref.tokens.document_blocks import (
    Block,
    content_hash,
    document_blocks,
    hash_blocks,
)
from nanoset_ref.tokens.ds import DatatroveWriter
from nanoset_ref.tokens.interface import Facts, Tokens
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.npy import TokenFile
from nanoset_ref.tokens.npy_writer import TokenFileWriter
from nanoset_ref.tokens.opening import open_tokens

logger = logging.getLogger(__name__)

# document numbers for each file; None: all
ChosenDocuments = Sequence[Int64Array] | None


def convert(
    files: Sequence[Tokens],
    target: PathLike,
    *,
    chosen: ChosenDocuments = None,
    **options: Any,
) -> Tokens:
    """Copy the documents of one or several files into a .npy, .bin or .ds file, and verify it.

    Args:
        files: the files to copy, in this order.
        target: the file to write; its suffix decides the format (.bin writes .idx too).
        chosen: for each file, the documents to copy, int64, ascending; default: all.
        dtype: the dtype of the target's ids; default: the first file's.
        overwrite: whether an existing target may be replaced.
        facts: `Tokens.facts` that the files do not record.

    Returns:
        The target, opened.

    Raises:
        ValueError: there is no file, or nothing to write. The suffix is unknown. The target is one
            of the files. An id does not fit the dtype. The files have different vocabularies or
            windows. A file's content has changed. The target's format does not hold padding
            or sequences of a file.
        FileExistsError: the target exists and `overwrite` is False.

    Warns (by logging): the target does not keep labels or windows of a file.
    """
    return convert_parts(files, {target: chosen}, **options)[0]


def convert_parts(
    files: Sequence[Tokens],
    targets: Mapping[PathLike, ChosenDocuments],
    *,
    dtype: DTypeLike | None = None,
    overwrite: bool = False,
    facts: Facts | None = None,
) -> list[Tokens]:
    """Like `convert`, but into several targets {target: chosen}, which appear as one set."""
    if not files:
        raise ValueError("there is nothing to convert: give at least one file")
    id_dtype = np.dtype(dtype or files[0].dtype)
    if id_dtype.kind not in "iu":
        raise ValueError(f"dtype must be an integer type, got {id_dtype.name}")
    for file in files:
        file.check_content()
    description = (facts or {}) | agreed_facts(files)
    paths = [as_path(target) for target in targets]
    for target, chosen in zip(paths, targets.values(), strict=True):
        _check_target(target, chosen, files, description.get("row_length"))
        for file in files:
            _check_file(file, target)
    options = description | {"dtype": id_dtype, "overwrite": overwrite}
    hashes = []
    with write_together(*map(last_file_of, paths)) as sets, ExitStack() as stack:
        writers = [WRITERS[path.suffix](path, **options) for path in paths]
        for writer in writers:
            stack.enter_context(writer)
        for writer, chosen in zip(writers, targets.values(), strict=True):
            hashes.append(hash_blocks(_copy(files, chosen, writer)))
    try:
        copies = [open_tokens(path) for path in paths]
        if [content_hash(copy) for copy in copies] != hashes:
            raise TokenFileError(
                f"{paths} do not hold what was written: the disk or the memory is faulty"
            )
        return copies
    except Exception:
        for written in reversed(list(chain(*sets))):
            written.target.unlink(missing_ok=True)
        raise


def _check_target(
    target: Path,
    chosen: ChosenDocuments,
    files: Sequence[Tokens],
    row_length: int | None,
) -> None:
    """Raise ValueError if the target cannot be written."""
    if isinstance(target, BucketPath):
        raise ValueError(
            f"{target}: only preprocess writes token files into a bucket; write a local file and "
            "upload it"
        )
    require_known_suffix(target)
    refuse_input(target, [file.path for file in files])
    for file in files[:-1]:
        rest = file.num_tokens % (file.row_length or 1)
        if rest:
            raise ValueError(
                f"{file.path} ends with {rest} tokens of a row of {file.row_length}, so the rows "
                "of the next file would be shifted: name this file last"
            )
    if chosen is None or not row_length:
        return
    rests = (file.require_document_offsets() % row_length for file in files)
    if any(map(np.any, rests)):
        raise ValueError(
            f"choosing single documents would break up rows of {row_length} tokens: "
            "choose documents of the text, before it is cut into rows"
        )


def _check_file(file: Tokens, target: Path) -> None:
    """Warn of properties that the target cannot keep; ValueError if a reader would misread it."""
    if file.windows == "padded":
        require_marked_padding(file.path, target)
    lost = []
    if isinstance(file, MMapIndexedDataset):
        has_modes = file.sequence_modes is not None
        has_sequences = bool(np.any(np.diff(file.document_indices) > 1))
        if target.suffix == ".bin" and (has_modes or has_sequences):
            raise ValueError(
                f"{file.path} has modes, or documents of several sequences, which only "
                "`nanoset-ref merge` of whole pairs keeps, without --dtype"
            )
        if has_sequences:
            lost.append("the sequences of documents")
        if has_modes:
            lost.append("modes")
    if isinstance(file, TokenFile) and file.manifest and file.manifest.sources:
        lost.append("the labels of documents")
    # how the samples of the copy are cut when it is opened
    windows = "disjoint" if target.suffix == ".ds" else "overlapping"
    if target.suffix == ".npy" and file.row_length:
        windows = file.windows
    if file.windows != windows:
        lost.append(f"the {file.windows} windows")
    if lost:
        what = " and ".join(lost)
        logger.warning("%s does not keep %s of %s", target, what, file.path)


def require_known_suffix(target: Path) -> None:
    """Raise ValueError unless the suffix of a file to write is that of a format."""
    if target.suffix not in WRITERS:
        known = sorted(WRITERS)
        raise ValueError(
            f"the target's suffix must be one of {known}, got {target.name!r}"
        )


def require_marked_padding(path: PathLike, target: Path) -> None:
    """Raise ValueError if the target's format does not mark the padding in rows of `path`."""
    if target.suffix != ".npy":
        raise ValueError(
            f"{path} has rows that end in padding, and a {target.suffix} file does not "
            "record it, so it would count in the loss: convert to .npy"
        )


def _copy(
    files: Sequence[Tokens], chosen: ChosenDocuments, writer: Any
) -> Iterator[Block]:
    """Write the documents, and yield them."""
    by_file: Sequence[Int64Array | None] = chosen or [None] * len(files)
    for file, documents in zip(files, by_file, strict=True):
        for ids, lengths in document_blocks(file, documents):
            writer.write(ids, lengths)
            yield ids, lengths


def agreed_facts(files: Sequence[Tokens]) -> Facts:
    """The facts of all files, without checksums; None or a missing fact agrees with everything.

    `appended_eod` is kept only if every file records it.

    Raises:
        ValueError: two files contradict each other.
    """
    agreed: Facts = {}
    row_lengths = {file.row_length for file in files}
    if len(row_lengths) > 1:
        listed = " and ".join(sorted(map(str, row_lengths)))
        raise ValueError(
            f"one file cannot hold rows of several lengths: the files have row_length {listed} "
            "(None: not cut into rows)"
        )
    for file in files:
        for name, value in file.facts.items():
            if name == "checksum" or value is None:
                continue
            if agreed.setdefault(name, value) != value:
                raise ValueError(
                    f"one file cannot hold both: {file.path} has {name}={value!r}, "
                    f"the others {agreed[name]!r}"
                )
    if not all("appended_eod" in file.facts for file in files):
        agreed.pop("appended_eod", None)
    return agreed


def split(
    file: Tokens, held_out: float | int, *, seed: int = 1234
) -> tuple[Int64Array, Int64Array]:
    """Choose documents to hold out.

    Args:
        file: the documents.
        held_out: a share of the documents in (0, 1), or their number.
        seed: seeds NumPy's PCG64, which draws the documents.

    Returns:
        (rest, held out): document numbers, ascending, int64; `convert(..., chosen=[...])` writes
        them.

    Raises:
        ValueError: `rest` or `held out` would be empty.
    """
    lengths = np.diff(file.require_document_offsets())
    documents = len(lengths)
    if isinstance(held_out, np.generic):
        held_out = held_out.item()
    if not isinstance(held_out, float):
        count = whole_number(held_out, "held_out", 0)
    elif 0 < held_out < 1:
        count = round(held_out * documents)
    else:
        raise ValueError(
            f"held_out must be a share between 0 and 1 or an integer, got {held_out}"
        )
    if not 0 < count < documents:
        raise ValueError(
            f"held_out={held_out} selects {count} of {documents} documents; hold out at least 1, "
            "and leave at least 1"
        )
    is_held_out = np.zeros(documents, dtype=np.bool_)
    generator = np.random.default_rng(seed)
    is_held_out[generator.choice(documents, count, replace=False)] = True
    if not lengths[is_held_out].any() or not lengths[~is_held_out].any():
        raise ValueError(
            f"with seed={seed}, one of the two parts has only empty documents: take another seed"
        )
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def _pair_writer(path: Path, *, dtype: Any, overwrite: bool, **facts: Any) -> Any:
    """Drop the facts: a .bin/.idx pair does not record any."""
    return MMapIndexedDatasetBuilder(path, dtype, overwrite=overwrite)


# one writer per format: a context manager with `write(ids, lengths)`
WRITERS: dict[str, Any] = {
    ".npy": TokenFileWriter,
    ".bin": _pair_writer,
    ".ds": DatatroveWriter,
}


def last_file_of(target: Path) -> Path:
    """The file of a target's set that appears last: the set exists if it does."""
    return target.with_suffix(".idx") if target.suffix == ".bin" else target
