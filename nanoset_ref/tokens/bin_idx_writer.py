"""Write and merge .bin/.idx pairs, byte for byte as Megatron-Core does, complete or not at all.

The ids stream into a hidden temporary beside the target; of the index only 5 bytes per sequence and 8 per document stay
in memory. A pair exists when its index does, which is renamed last. Merging copies bytes and adds up counts. Three
things differ from upstream on purpose: ids that do not fit the dtype raise (upstream wraps them silently), an existing
pair is not replaced unless asked, and a third file, <prefix>.seal, holds a checksum of the pair.
"""

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, DTypeLike

from nanoset_ref.io.files import PathLike, atomic_write_set, listed, seal
from nanoset_ref.tokens.bin_idx import DTYPES, HEADER, MAGIC, MMapIndexedDataset, require, seal_path


class MMapIndexedDatasetBuilder:
    """Write one .bin/.idx pair; a context manager, which calls `finalize` unless there was an error.

    Args:
        bin_path: the .bin file to write; nothing appears there before `finalize`.
        dtype: of the ids: int32, uint16 or another that the format knows.
        multimodal: whether every sequence has a mode, an int8.
        overwrite: whether an existing pair may be replaced. A .bin without an index is unfinished, and always may.

    Raises:
        FileExistsError: the index exists and `overwrite` is False.
        TokenFileError: a dtype that the format does not know.
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
        require(
            self.dtype in DTYPES, f"the format knows the dtypes {DTYPES}, got {self.dtype.name}"
        )
        self.bin_path, self.idx_path = Path(bin_path), Path(bin_path).with_suffix(".idx")
        self.multimodal = multimodal
        self._lengths, self._documents, self._modes = array("i"), array("q", [0]), array("b")
        parts = [self.bin_path, seal_path(bin_path), self.idx_path]
        self._pair = atomic_write_set(parts, overwrite=overwrite)
        self._bin, self._seal, self._idx = self._pair.__enter__()
        self._digest = xxhash.xxh3_128()

    @property
    def num_sequences(self) -> int:
        return len(self._lengths)

    def add_item(self, tensor: ArrayLike, mode: int = 0) -> None:
        """Append one sequence: integers [n] (a torch tensor too). `end_document` closes the document that it belongs
        to.
        """
        ids = np.asarray(tensor)
        self._append(ids, [ids.size], (), [mode])

    def end_document(self) -> None:
        """Close a document that was written with `add_item`."""
        self._documents.append(self.num_sequences)

    def add_document(
        self, tensor: ArrayLike, lengths: ArrayLike, modes: ArrayLike | None = None
    ) -> None:
        """Append a document: the ids [sum(lengths)] of its sequences back to back, the tokens of each, and their modes
        (0 if left out).
        """
        self._append(tensor, lengths, [np.size(lengths)], modes)

    def write(self, ids: ArrayLike, lengths: ArrayLike) -> None:
        """Append many documents of one sequence each: ids [sum(lengths)] back to back, lengths [documents].

        As upstream's preprocessing has it, a document without tokens is one without sequences.
        """
        full = np.asarray(lengths) != 0
        self._append(ids, np.compress(full, lengths), np.cumsum(full))

    def add_index(self, path_prefix: PathLike) -> None:
        """Append a whole pair, its sequences and documents in their order.

        Raises:
            TokenFileError: another dtype, modes on one side only, or a damaged pair.
        """
        part = MMapIndexedDataset(path_prefix)
        theirs, ours, modes = part.dtype.name, self.dtype.name, part.sequence_modes
        require(
            theirs == ours, f"cannot merge {path_prefix} of {theirs} ids into a corpus of {ours}"
        )
        alike = self.multimodal == (modes is not None)
        require(
            alike,
            f"cannot merge {path_prefix}: either every sequence of a multimodal corpus has a mode, or none",
        )
        self._append(part.tokens, part.sequence_lengths, part.document_indices[1:], modes)

    def finalize(self, idx_path: PathLike) -> None:
        """Write the index and the seal, and rename all; `idx_path` must be that of `bin_path`.

        Raises:
            TokenFileError: sequences that belong to no document (a missing `end_document`).
        """
        require(
            Path(idx_path) == self.idx_path,
            f"the index of {self.bin_path} is {self.idx_path}, got {idx_path}",
        )
        rest = self.num_sequences - self._documents[-1]
        require(
            rest == 0,
            f"{rest} sequences belong to no document: call end_document after the last add_item",
        )
        lengths = np.asarray(self._lengths)
        pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * self.dtype.itemsize
        header = HEADER.pack(
            MAGIC, 1, DTYPES.index(self.dtype) + 1, len(lengths), len(self._documents)
        )
        for part in (header, self._lengths, pointers.data, self._documents, self._modes):
            self._idx.write(part)
        self._idx.flush()
        self._seal.write(
            json.dumps(seal(f"xxh3_128:{self._digest.hexdigest()}", self._idx.name)).encode()
        )
        self._pair.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *error: object) -> None:
        """After an error, what was written disappears."""
        try:
            if kind is None and not self._bin.closed:
                self.finalize(self.idx_path)
        finally:
            self._pair.__exit__(GeneratorExit, GeneratorExit(), None)

    def _append(
        self, tensor: ArrayLike, lengths: ArrayLike, ends: ArrayLike, modes: ArrayLike | None = None
    ) -> None:
        """Append sequences; `ends` [documents] counts those of each document and all before it."""
        ids, sizes = np.asarray(tensor).reshape(-1), np.asarray(lengths, dtype=np.int64)
        stored = np.ascontiguousarray(ids, dtype=self.dtype)
        exact = self.dtype.kind == "f" or ids.dtype == self.dtype
        wrong = () if exact else ids[stored != ids]
        require(
            sizes.sum() == ids.size and ((sizes >= 0) & (sizes < 2**31)).all(),
            f"the sequence lengths must lie in [0, 2**31) and add up to the {ids.size} ids given, got {sizes.sum()}",
        )
        require(
            not len(wrong),
            f"id {wrong[:1]} does not fit the {self.dtype.name} of {self.bin_path}: take a wider dtype, int32 for "
            "vocabularies above 65,536",
        )
        if self.multimodal:
            labels = np.zeros(len(sizes), np.int8) if modes is None else np.asarray(modes, np.int8)
            require(
                len(labels) == len(sizes),
                f"got {len(labels)} modes for {len(sizes)} sequences; give one each",
            )
            self._modes.frombytes(labels.tobytes())
        self._digest.update(stored.data)
        self._bin.write(stored.data)
        self._documents.frombytes((self.num_sequences + np.asarray(ends, dtype=np.int64)).tobytes())
        self._lengths.frombytes(sizes.astype(np.int32).tobytes())


def merge_corpora(
    input: Sequence[PathLike] | PathLike, output_prefix: PathLike, *, overwrite: bool = False
) -> MMapIndexedDataset:
    """Concatenate .bin/.idx pairs of one dtype, in the order given.

    Args:
        input: prefixes (paths without .bin and .idx)
        output_prefix: the pair to write
        overwrite: replace an existing output

    Returns:
        The pair written.

    Raises:
        TokenFileError: nothing to merge, different dtypes, damaged parts.
        FileExistsError: the output exists and `overwrite` is False.
    """
    prefixes = listed(input)
    require(prefixes, "there is nothing to merge: give at least one prefix")
    first = MMapIndexedDataset(prefixes[0])
    modes = first.sequence_modes is not None
    with MMapIndexedDatasetBuilder(
        f"{output_prefix}.bin", first.dtype, modes, overwrite=overwrite
    ) as merged:
        for prefix in prefixes:
            merged.add_index(prefix)
    return MMapIndexedDataset(output_prefix)
