"""Write and merge .bin/.idx pairs, byte for byte as Megatron-Core does, complete or not at all.

The ids are streamed into a hidden temporary next to the target; memory holds only 5 bytes per
sequence and 8 per document for the index. The index is renamed last, so a pair exists if its index
does. Merging copies bytes and adds up counts. Three differences from upstream are intended: ids
that do not fit the dtype raise (upstream wraps them silently), an existing pair is replaced only
with `overwrite`, and a third file, <prefix>.seal, contains a checksum of the pair.
"""

import contextlib
import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, DTypeLike

from nanoset_ref.io.files import atomic_write_set
from nanoset_ref.io.overwriting import begins_with, refuse_foreign, refuse_input
from nanoset_ref.io.paths import PathLike, as_list, as_path, checksum_of_set
from nanoset_ref.io.urls import local_path
from nanoset_ref.tokens.bin_idx import (
    DTYPES,
    HEADER,
    MAGIC,
    MMapIndexedDataset,
)
from nanoset_ref.tokens.companions import SEAL_BEGINNING
from nanoset_ref.tokens.manifest import TokenFileError


class MMapIndexedDatasetBuilder:
    """Write one .bin/.idx pair; a context manager that calls `finalize` unless there is an error.

    Args:
        bin_path: the .bin file to write; nothing appears there before `finalize`.
        dtype: the ids' dtype: int32, uint16 or another dtype of the format.
        multimodal: whether every sequence has a mode, an int8.
        overwrite: whether an existing pair may be replaced, or a .bin without an index: it may be
            a raw token file or a shard of llm.c.

    Raises:
        FileExistsError: the .bin or the index exists and `overwrite` is False, or another program
            wrote the index or the seal.
        TokenFileError: the format does not have this dtype.
    """

    def __init__(
        self,
        bin_path: PathLike,
        dtype: DTypeLike = np.int32,
        multimodal: bool = False,
        *,
        overwrite: bool = False,
    ) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype not in DTYPES:
            raise TokenFileError(
                f"the format knows the dtypes {DTYPES}, got {self.dtype.name}"
            )
        self.bin_path = local_path(bin_path, "a .bin file that is written")
        self.idx_path = self.bin_path.with_suffix(".idx")
        self.multimodal = multimodal
        self._lengths = array("i")
        self._documents = array("q", [0])
        self._modes = array("b")
        self._digest = xxhash.xxh3_128()
        self._set = contextlib.ExitStack()
        seal = self.bin_path.with_suffix(".seal")
        refuse_foreign(seal, begins_with(SEAL_BEGINNING))
        refuse_foreign(self.idx_path, begins_with(MAGIC))
        parts = [self.bin_path, seal, self.idx_path]
        files = self._set.enter_context(atomic_write_set(parts, overwrite=overwrite))
        self._bin, self._seal, self._idx = files

    @property
    def num_sequences(self) -> int:
        """Sequences written so far."""
        return len(self._lengths)

    def add_item(self, tensor: ArrayLike, mode: int = 0) -> None:
        """Append one sequence, integers [n] (an array or a torch tensor), to the open document."""
        ids = np.asarray(tensor)
        self._append(ids, [ids.size], (), [mode])

    def end_document(self) -> None:
        """Close a document that was written with `add_item`."""
        self._documents.append(self.num_sequences)

    def add_document(
        self, tensor: ArrayLike, lengths: ArrayLike, modes: ArrayLike | None = None
    ) -> None:
        """Append a document.

        Args:
            tensor: the ids of its sequences back to back, [sum(lengths)].
            lengths: tokens in each sequence.
            modes: the mode of each sequence; default: 0.
        """
        self._append(tensor, lengths, [np.size(lengths)], modes)

    def write(self, ids: ArrayLike, lengths: ArrayLike) -> None:
        """Append documents of one sequence each.

        As in upstream's preprocessing, a document without tokens has no sequences.

        Args:
            ids: the documents' ids back to back, [sum(lengths)].
            lengths: tokens in each document, [documents].
        """
        full = np.asarray(lengths) != 0
        self._append(ids, np.compress(full, lengths), np.cumsum(full))

    def add_index(self, path_prefix: PathLike) -> None:
        """Append all sequences and documents of a pair.

        Raises:
            TokenFileError: the dtypes differ, only one of the pairs has modes, or a pair is
                damaged.
        """
        part = MMapIndexedDataset(path_prefix)
        part_dtype = part.dtype.name
        own_dtype = self.dtype.name
        if part_dtype != own_dtype:
            raise TokenFileError(
                f"cannot merge {path_prefix} of {part_dtype} ids into a corpus of {own_dtype}"
            )
        modes = part.sequence_modes
        if self.multimodal != (modes is not None):
            raise TokenFileError(
                f"cannot merge {path_prefix}: every sequence of a multimodal corpus has a mode, "
                "and no sequence of another corpus"
            )
        self._append(
            part.tokens, part.sequence_lengths, part.document_indices[1:], modes
        )

    def finalize(self, idx_path: PathLike) -> None:
        """Write the index and the seal, and rename all; `idx_path` must belong to `bin_path`.

        Raises:
            TokenFileError: a sequence does not belong to a document (`end_document` is missing).
        """
        if Path(idx_path) != self.idx_path:
            raise TokenFileError(
                f"the index of {self.bin_path} is {self.idx_path}, got {idx_path}"
            )
        rest = self.num_sequences - self._documents[-1]
        if rest:
            raise TokenFileError(
                f"{rest} sequences belong to no document: call end_document after the last "
                "add_item"
            )
        lengths = np.asarray(self._lengths)
        pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * self.dtype.itemsize
        code = DTYPES.index(self.dtype) + 1
        header = HEADER.pack(MAGIC, 1, code, len(lengths), len(self._documents))
        parts = header, self._lengths, pointers.data, self._documents, self._modes
        self._idx.writelines(parts)
        self._idx.flush()
        sealed = checksum_of_set(f"xxh3_128:{self._digest.hexdigest()}", self._idx.name)
        self._seal.write(json.dumps(sealed).encode())
        self._set.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """Call `finalize` unless it was called; after an error, remove the temporaries."""
        if error[0] is not None:
            self._set.__exit__(*error)
        elif not self._bin.closed:
            with self._set:
                self.finalize(self.idx_path)

    def _append(
        self,
        tensor: ArrayLike,
        lengths: ArrayLike,
        ends: ArrayLike,
        modes: ArrayLike | None = None,
    ) -> None:
        """Append sequences; `ends` [documents] counts sequences up to each document's end."""
        ids = np.asarray(tensor).reshape(-1)
        sizes = np.asarray(lengths, dtype=np.int64)
        if sizes.sum() != ids.size or ((sizes < 0) | (sizes >= 2**31)).any():
            raise TokenFileError(
                f"the sequence lengths must lie in [0, 2**31) and add up to the {ids.size} ids "
                f"given, got {sizes.sum()}"
            )
        stored = np.ascontiguousarray(ids, dtype=self.dtype)
        if self.dtype.kind != "f" and ids.dtype != self.dtype:
            wrong = ids[stored != ids]
            if wrong.size:
                raise TokenFileError(
                    f"id {wrong[0]} does not fit the {self.dtype.name} of {self.bin_path}: use "
                    "a wider dtype, int32 for vocabularies above 65,536"
                )
        if self.multimodal:
            labels = np.zeros(len(sizes), np.int8)
            if modes is not None:
                labels = np.asarray(modes, np.int8)
            if len(labels) != len(sizes):
                raise TokenFileError(
                    f"got {len(labels)} modes for {len(sizes)} sequences; give one each"
                )
            self._modes.frombytes(labels.tobytes())
        self._digest.update(stored.data)
        self._bin.write(stored.data)
        counts = self.num_sequences + np.asarray(ends, dtype=np.int64)
        self._documents.frombytes(counts.tobytes())
        self._lengths.frombytes(sizes.astype(np.int32).tobytes())


def merge_corpora(
    input: Sequence[PathLike] | PathLike,
    output_prefix: PathLike,
    *,
    overwrite: bool = False,
) -> MMapIndexedDataset:
    """Concatenate .bin/.idx pairs of one dtype, in the order given.

    Args:
        input: prefixes (paths without .bin and .idx).
        output_prefix: the prefix of the pair to write.
        overwrite: whether an existing output may be replaced.

    Returns:
        The new pair.

    Raises:
        TokenFileError: there is nothing to merge, dtypes differ, or a pair is damaged.
        FileExistsError: the output exists and `overwrite` is False.
        ValueError: the output is one of the inputs.
    """
    prefixes = as_list(input)
    if not prefixes:
        raise TokenFileError("there is nothing to merge: give at least one prefix")
    first = MMapIndexedDataset(prefixes[0])
    modes = first.sequence_modes is not None
    target = f"{output_prefix}.bin"
    refuse_input(as_path(target), [f"{prefix}.bin" for prefix in prefixes])
    with MMapIndexedDatasetBuilder(
        target, first.dtype, modes, overwrite=overwrite
    ) as merged:
        for prefix in prefixes:
            merged.add_index(prefix)
    return MMapIndexedDataset(output_prefix)
