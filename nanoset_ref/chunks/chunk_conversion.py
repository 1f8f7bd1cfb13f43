"""Chunks to what training reads: a token file, or a .bin/.idx pair.

The rows are written back to back and the file says so: windows "disjoint", row_length R. A Nanoset with
sequence_length = R - 1 then reads exactly these rows, each as one sample, none cut and no token twice. (Read as an
ordinary token file, windows of R tokens at a stride of R - 1 would drift by one token per row.)

In a .bin/.idx pair every row is a document of its own. Megatron's GPTDataset cuts the concatenated documents every
sequence_length tokens and adds one: with sequence_length = R and add_extra_token_to_sequence = False its samples are
exactly the rows, and the last label of each is padding.

Either takes 2 or 4 bytes per token instead of 5 to 6. Memory: one row.
"""

from __future__ import annotations

import fileinput
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tqdm import tqdm

from nanoset_ref.chunks.chunk_manifest import RowFacts, above, agreed, first_fault
from nanoset_ref.chunks.validation import row_files, row_parser
from nanoset_ref.files import PathLike
from nanoset_ref.tokens import TokenFileWriter, token_dtype_for

BATCH_ROWS = 256


def chunks_to_tokens(
    paths: Sequence[PathLike],
    output: PathLike,
    *,
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write the rows of chunk files, in the order given, into one token file; returns their number.

    Args:
        paths: files of rows, or folders of them, all of one row length R.
        output: the token file, `<prefix>_input_ids.npy` by convention.
        vocab_size: for files without a manifest; ids must be below it, and it decides the dtype.
        overwrite: whether an existing file may be replaced.

    Raises:
        ValueError: a line that is no row, another row length, an id outside the vocabulary (all with file and line),
            or nothing that tells the vocabulary.
        ManifestError: the files were made with different tokenizers, or their folder is not finished.
        FileExistsError: `output` exists.
    """
    files, facts, dtype = _plan(paths, vocab_size)
    description = facts.model_dump(exclude={"concat_tokens"})
    with TokenFileWriter(
        output,
        dtype=dtype,
        overwrite=overwrite,
        windows="disjoint",
        row_length=facts.concat_tokens,
        **description,
    ) as writer:
        return _copy(files, facts, writer.write)


def chunks_to_megatron(
    paths: Sequence[PathLike],
    output_prefix: PathLike,
    *,
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write the rows of chunk files as documents of <output_prefix>.bin and .idx; else as `chunks_to_tokens`."""
    from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder

    files, facts, dtype = _plan(paths, vocab_size)
    with MMapIndexedDatasetBuilder(f"{output_prefix}.bin", dtype=dtype, overwrite=overwrite) as builder:
        rows = _copy(files, facts, builder.add_documents)
        builder.finalize(f"{output_prefix}.idx")
    return rows


def _plan(paths: Sequence[PathLike], vocab_size: int | None) -> tuple[list[Path], RowFacts, np.dtype[Any]]:
    """The files, what all their rows have in common (without a manifest the first row tells), and the dtype of ids."""
    files = row_files(paths)
    facts = agreed(above(files), paths)
    vocab_size = facts.vocab_size or vocab_size
    if vocab_size is None:
        raise ValueError(f"no manifest above {files[0]} says the size of the vocabulary: give vocab_size")
    row_length = facts.concat_tokens or len(next(_rows(files, facts), ()))
    facts = facts.model_copy(update={"vocab_size": vocab_size, "concat_tokens": row_length})
    return files, facts, token_dtype_for(vocab_size)


def _copy(files: list[Path], facts: RowFacts, write: Callable[[Any, Any], object]) -> int:
    """Write the rows as documents, some at a time; returns their number."""
    rows = _rows(files, facts)
    done = 0
    while some := list(islice(rows, BATCH_ROWS)):
        write(np.concatenate(some), list(map(len, some)))
        done += len(some)
    return done


def _rows(files: list[Path], facts: RowFacts) -> Iterator[NDArray[np.int32]]:
    """Row by row, int32 [concat_tokens], checked."""
    parse = row_parser(facts.concat_tokens, facts.vocab_size)
    with fileinput.input(files, mode="rb") as lines:
        for line in tqdm(lines, unit=" rows", disable=None):
            try:
                yield np.array(parse(line).token_ids, dtype=np.int32)
            except ValidationError as error:
                where = f"{lines.filename()}:{lines.filelineno()}"
                raise ValueError(f"{where}: {first_fault(error)}; `validate` names all bad lines") from None
