"""Chunks to what training reads: a token file, or a .bin/.idx pair.

The rows are written back to back and the file says so: windows "disjoint", row_length R. A Nanoset with
sequence_length = R - 1 then reads exactly these rows, each as one sample, none cut and no token twice. (Read as an
ordinary token file, windows of R tokens at a stride of R - 1 would drift by one token per row.)

In a .bin/.idx pair every row is a document of its own. Megatron's GPTDataset cuts the concatenated documents every
sequence_length tokens and adds one: with sequence_length = R and add_extra_token_to_sequence = False its samples are
exactly the rows, and the last label of each is padding.

Either takes 2 or 4 bytes per token instead of 5 to 6. Cost: reading the JSON, see `records`; memory of one block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nanoset_ref.chunks.manifest import ManifestError, require_complete
from nanoset_ref.chunks.records import read_records, record_files
from nanoset_ref.chunks.validation import manifest_of, problems
from nanoset_ref.tokens import TokenFileWriter, token_dtype_for


def chunks_to_tokens(
    paths: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    vocab_size: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> int:
    """Write the rows of chunk files, in the order given, into one token file; returns their number.

    Args:
        paths: files of records, or folders of them, all of one row length R.
        output: the token file, `<prefix>_input_ids.npy` by convention.
        vocab_size: for files without a manifest; ids must be below it, and it decides the dtype.
        overwrite: whether an existing file may be replaced.
        progress: whether to draw a bar on stderr.

    Raises:
        ValueError: a line that is no record, another row length, an id outside the vocabulary (all with file and line),
            or nothing that tells the vocabulary.
        ManifestError: the files were made with different tokenizers, or their folder is not finished.
        FileExistsError: `output` exists.
    """
    files = record_files(paths)
    facts = _facts(files, vocab_size)
    with TokenFileWriter(
        output,
        dtype=token_dtype_for(facts["vocab_size"]),
        overwrite=overwrite,
        tokenizer=facts.get("tokenizer"),
        vocab_size=facts["vocab_size"],
        eos_token_id=facts.get("eos_token_id"),
        windows="disjoint",
        row_length=_row_length(files),
    ) as writer:
        return _copy(files, facts["vocab_size"], writer.write, progress)


def chunks_to_megatron(
    paths: Iterable[str | os.PathLike[str]],
    output_prefix: str | os.PathLike[str],
    *,
    vocab_size: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> int:
    """Write the rows of chunk files as documents of <output_prefix>.bin and .idx; else as `chunks_to_tokens`."""
    from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder

    files = record_files(paths)
    facts = _facts(files, vocab_size)
    _row_length(files)
    dtype = token_dtype_for(facts["vocab_size"])
    with MMapIndexedDatasetBuilder(f"{output_prefix}.bin", dtype=dtype, overwrite=overwrite) as builder:
        rows = _copy(files, facts["vocab_size"], builder.add_documents, progress)
        builder.finalize(f"{output_prefix}.idx")
        return rows


def _facts(files: list[Path], vocab_size: int | None) -> dict[str, Any]:
    """What the manifests above the files say of the tokenizer; they must say the same."""
    for folder in {folder for path in files for folder in path.resolve().parents}:
        require_complete(folder)
    found = [listed[0].settings or {} for path in files if (listed := manifest_of(path)) is not None]
    facts: dict[str, Any] = {} if vocab_size is None else {"vocab_size": vocab_size}
    for key in ("tokenizer", "vocab_size", "eos_token_id"):
        values = list({settings[key] for settings in found if key in settings})
        if len(values) > 1:
            raise ManifestError(f"the chunks were made with different tokenizers: {key} is one of {values}")
        if values:
            facts[key] = values[0]
    if "vocab_size" not in facts:
        raise ValueError(f"no manifest above {files[0]} says the size of the vocabulary: give vocab_size")
    return facts


def _row_length(files: Sequence[Path]) -> int:
    """Of the first record there is."""
    for path in files:
        for records in read_records(path):
            return int(records.offsets[1])
    raise ValueError(f"there is no record in {', '.join(map(str, files))}")


def _copy(
    files: list[Path], vocab_size: int, write: Callable[[NDArray[np.int32], NDArray[np.int64]], object], progress: bool
) -> int:
    """Hand the rows of all files to `write`, checked; returns their number."""
    row_length, rows = _row_length(files), 0
    with tqdm(total=sum(path.stat().st_size for path in files), unit="B", unit_scale=True, disable=not progress) as bar:
        for path in files:
            for records in read_records(path):
                for i, what in sorted(problems(records, row_length, vocab_size).items()):
                    raise ValueError(f"{path}:{records.first_line + i}: {what}; `validate` names all bad lines")
                write(records.ids, np.diff(records.offsets))
                rows += len(records)
                bar.update(records.num_bytes)
    return rows
