"""Write and merge .bin/.idx pairs, byte for byte as Megatron-Core does, complete or not at all.

The ids stream into a hidden temporary beside the target; of the index only 4 bytes per sequence and 8 per document stay
in memory. `finalize` renames .bin first and .idx last: a pair exists when its index does. Merging copies bytes and adds
up counts; no id is decoded. Two things differ from upstream on purpose: ids that do not fit the dtype raise (upstream
wraps them silently), and existing files are not replaced unless asked.
"""

from __future__ import annotations

import array
import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nanoset_ref.files import atomic_write
from nanoset_ref.megatron.indexed_dataset import (
    IndexedDatasetError,
    PathLike,
    bin_path,
    dtype_code,
    idx_path,
    read_index,
    write_index,
)


class MMapIndexedDatasetBuilder:
    """Write one .bin/.idx pair; a context manager, or end it with `finalize` or `close`.

    Args:
        bin_path: the .bin file to write; nothing appears there before `finalize`.
        dtype: of the ids: int32, uint16 or another that `dtype_code` knows.
        multimodal: whether every sequence has a mode, an int8.
        overwrite: whether an existing pair may be replaced.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        IndexedDatasetError: a dtype that the format does not know.
    """

    def __init__(
        self, bin_path: PathLike, dtype: DTypeLike = np.int32, multimodal: bool = False, *, overwrite: bool = False
    ) -> None:
        self.bin_path = Path(bin_path)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.multimodal = multimodal
        dtype_code(self.dtype)
        if self.bin_path.exists() and not overwrite:
            raise FileExistsError(f"{self.bin_path} exists; remove it, or ask for overwriting")
        self._lengths = array.array("i")
        self._modes = array.array("b")
        self._documents = array.array("q", [0])
        self._files = contextlib.ExitStack()
        self._data = self._files.enter_context(atomic_write(self.bin_path))

    @property
    def num_sequences(self) -> int:
        return len(self._lengths)

    def add_item(self, tensor: ArrayLike, mode: int = 0) -> None:
        """Append one sequence: integers [n] (a torch tensor too). `end_document` closes the document that it belongs
        to.
        """
        ids = np.asarray(tensor)
        self._append(ids, [ids.size], [mode])

    def add_document(self, tensor: ArrayLike, lengths: ArrayLike, modes: Iterable[int] | None = None) -> None:
        """Append a document: the ids [sum(lengths)] of its sequences back to back, the tokens of each, and their modes
        (0 if left out).
        """
        self._append(np.asarray(tensor), lengths, modes)
        self.end_document()

    def add_documents(self, ids: ArrayLike, lengths: ArrayLike) -> None:
        """Append many documents of one sequence each: ids [sum(lengths)] back to back, lengths [documents].

        As upstream's preprocessing has it, a document without tokens is one without sequences.
        """
        sizes = np.asarray(lengths, dtype=np.int64).reshape(-1)
        before = len(self._lengths)
        self._append(np.asarray(ids), sizes[sizes != 0], None)
        self._documents.frombytes((before + np.cumsum(sizes != 0)).astype(np.int64).tobytes())

    def end_document(self) -> None:
        """Close a document that was written with `add_item`."""
        self._documents.append(len(self._lengths))

    def add_index(self, path_prefix: PathLike) -> None:
        """Append a whole pair, its sequences and documents in their order.

        Raises:
            IndexedDatasetError: another dtype, modes on one side only, or a .bin of another size than its index says.
        """
        index = read_index(idx_path(path_prefix))
        if index.dtype != self.dtype:
            raise IndexedDatasetError(
                f"cannot merge {path_prefix} of {index.dtype.name} ids into a corpus of {self.dtype.name}: write all "
                "parts with one dtype"
            )
        if self.multimodal and index.sequence_modes is None:
            raise IndexedDatasetError(f"cannot merge {path_prefix} into a multimodal corpus: it has no modes")
        if not self.multimodal and index.sequence_modes is not None:
            raise IndexedDatasetError(f"cannot merge {path_prefix} into a corpus without modes: its own would be lost")
        expected = int(index.sequence_lengths.sum(dtype=np.int64)) * self.dtype.itemsize
        size = bin_path(path_prefix).stat().st_size
        if size != expected:
            raise IndexedDatasetError(
                f"{bin_path(path_prefix)} has {size} bytes, its index speaks of {expected}: it is truncated or belongs "
                "to another index; copy or write both again"
            )
        before = len(self._lengths)
        with open(bin_path(path_prefix), "rb") as part:
            shutil.copyfileobj(part, self._data, 1 << 22)
        self._lengths.frombytes(index.sequence_lengths.tobytes())
        self._documents.frombytes((index.document_indices[1:] + before).astype(np.int64).tobytes())
        if self.multimodal and index.sequence_modes is not None:
            self._modes.frombytes(index.sequence_modes.tobytes())

    def finalize(self, idx_path: PathLike) -> None:
        """Complete .bin and write its index.

        Raises:
            IndexedDatasetError: sequences that belong to no document (a missing `end_document`).
        """
        if self._documents[-1] != len(self._lengths):
            self.close()
            raise IndexedDatasetError(
                f"{len(self._lengths) - self._documents[-1]} sequences belong to no document: call end_document after "
                "the last add_item"
            )
        Path(idx_path).unlink(missing_ok=True)  # an old index must not meet the new .bin
        self._files.close()
        modes = np.frombuffer(self._modes, dtype=np.int8) if self.multimodal else None
        write_index(
            idx_path,
            self.dtype,
            np.frombuffer(self._lengths, dtype=np.intc),
            np.frombuffer(self._documents, dtype=np.int64),
            modes,
        )

    def close(self) -> None:
        """Give up: what was written disappears. Does nothing after `finalize`."""
        with contextlib.suppress(_GiveUp), self._files:
            raise _GiveUp

    def __enter__(self) -> MMapIndexedDatasetBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, ids: NDArray[Any], lengths: ArrayLike, modes: Iterable[int] | None) -> None:
        ids = ids.reshape(-1)
        sizes = np.asarray(lengths, dtype=np.int64).reshape(-1)
        if sizes.sum() != ids.size or (sizes < 0).any() or (sizes >= 2**31).any():
            raise IndexedDatasetError(
                f"the sequence lengths must lie in [0, 2**31) and add up to the {ids.size} ids given; they add up to "
                f"{sizes.sum()}"
            )
        if ids.size:
            self._check_fits(ids)
        labels = array.array("b", modes if modes is not None else bytes(len(sizes)))
        if len(labels) != len(sizes):
            raise IndexedDatasetError(
                f"there must be one mode per sequence, got {len(labels)} modes for {len(sizes)} sequences"
            )
        self._data.write(np.ascontiguousarray(ids, dtype=self.dtype).data)
        self._lengths.frombytes(sizes.astype(np.intc).tobytes())
        if self.multimodal:
            self._modes.extend(labels)

    def _check_fits(self, ids: NDArray[Any]) -> None:
        if not np.issubdtype(self.dtype, np.integer):
            return
        if not np.issubdtype(ids.dtype, np.integer):
            raise IndexedDatasetError(f"{self.bin_path} takes {self.dtype.name} ids, got {ids.dtype.name}")
        low, high, limits = int(ids.min()), int(ids.max()), np.iinfo(self.dtype)
        if low < limits.min or high > limits.max:
            raise IndexedDatasetError(
                f"id {low if low < limits.min else high} does not fit the {self.dtype.name} of {self.bin_path} "
                f"([{limits.min}, {limits.max}]): "
                "take a wider dtype, int32 for vocabularies above 65,536"
            )


class _GiveUp(Exception):
    """Leaves the files of a builder by their error path, which removes them."""


def merge_corpora(prefixes: Iterable[PathLike], output_prefix: PathLike, *, overwrite: bool = False) -> None:
    """Concatenate pairs, in the order given, into a new one of the same dtype.

    Raises:
        IndexedDatasetError: no prefix, different dtypes, damaged parts.
        FileExistsError: the output exists and `overwrite` is False.
    """
    prefixes = list(prefixes)
    if not prefixes:
        raise IndexedDatasetError("there is nothing to merge: give at least one prefix")
    first = read_index(idx_path(prefixes[0]))
    if any(Path(prefix).absolute() == Path(output_prefix).absolute() for prefix in prefixes):
        raise IndexedDatasetError(f"the output {output_prefix} is one of the inputs; give it another name")
    with MMapIndexedDatasetBuilder(
        bin_path(output_prefix), first.dtype, first.sequence_modes is not None, overwrite=overwrite
    ) as builder:
        for prefix in prefixes:
            builder.add_index(prefix)
        builder.finalize(idx_path(output_prefix))
