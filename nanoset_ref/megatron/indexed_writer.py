"""Write and merge .bin/.idx pairs, byte for byte as Megatron-Core does, complete or not at all.

The ids stream into a hidden temporary beside the target; of the index only 5 bytes per sequence and 8 per document stay
in memory. A pair exists when its index does, which is renamed last. Merging copies bytes and adds up counts. Three
things differ from upstream on purpose: ids that do not fit the dtype raise (upstream wraps them silently), an existing
pair is not replaced unless asked, and a third file, <prefix>.seal, holds a checksum of the pair.
"""

import contextlib
import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, DTypeLike

from nanoset_ref.files import PathLike, atomic_write_set, listed, seal
from nanoset_ref.megatron.indexed_dataset import DTYPES, HEADER, MAGIC, MMapIndexedDataset, require


class MMapIndexedDatasetBuilder:
    """Write one .bin/.idx pair; a context manager.

    Nothing appears under the final names before a clean exit, and nothing is left after an exception or a kill.

    Args:
        bin_path: the .bin file to write.
        dtype: of the ids: int32, uint16 or another that the format knows.
        overwrite: whether an existing pair may be replaced. A .bin without an index is unfinished, and always may.

    Raises:
        TokenFileError: a dtype that the format does not know; when it ends: some sequences have a mode, others none.
        FileExistsError: the index exists and `overwrite` is False.
    """

    def __init__(self, bin_path: PathLike, dtype: DTypeLike = np.int32, *, overwrite: bool = False) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        require(self.dtype in DTYPES.values(), f"the dtype of a pair is one of {[*DTYPES.values()]}, got {self.dtype}")
        self.bin_path, self._digest = Path(bin_path), xxhash.xxh3_128()
        self._lengths, self._documents, self._modes = array("i"), array("q", [0]), array("b")
        self._session = self._write_all(overwrite)

    @property
    def num_sequences(self) -> int:
        return len(self._lengths)

    def add_document(self, tensor: ArrayLike, lengths: ArrayLike, modes: ArrayLike = ()) -> None:
        """Append a document: the ids [sum(lengths)] of its sequences back to back (a torch tensor too), the tokens of
        each, and in a multimodal corpus the mode of each, an int8.
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
            TokenFileError: another dtype, or a damaged pair.
        """
        part = MMapIndexedDataset(path_prefix)
        theirs, ours = part.dtype.name, self.dtype.name
        require(theirs == ours, f"cannot merge {path_prefix} of {theirs} ids into a corpus of {ours}")
        modes = () if part.sequence_modes is None else part.sequence_modes
        self._append(part.tokens, part.sequence_lengths, part.document_indices[1:], modes)

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._session.__exit__(*error)

    @contextlib.contextmanager
    def _write_all(self, overwrite: bool) -> Iterator[None]:
        parts = [self.bin_path, *map(self.bin_path.with_suffix, [".seal", ".idx"])]
        with atomic_write_set(parts, overwrite=overwrite) as (self._bin, sealed, idx):
            yield
            known, lengths = len(self._modes), np.asarray(self._lengths)
            problem = (
                f"{self.bin_path}: every sequence of a multimodal corpus has a mode, got {known} for {len(lengths)}"
            )
            require(known in (0, len(lengths)), problem)
            pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * self.dtype.itemsize
            code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
            header = HEADER.pack(MAGIC, 1, code, len(lengths), len(self._documents))
            for part in (header, self._lengths, pointers.data, self._documents, self._modes):
                idx.write(part)
            idx.flush()
            sealed.write(json.dumps(seal(f"xxh3_128:{self._digest.hexdigest()}", idx.name)).encode())

    def _append(self, tensor: ArrayLike, lengths: ArrayLike, ends: ArrayLike, modes: ArrayLike = ()) -> None:
        """Append sequences; `ends` [documents] counts those of each document and all before it."""
        ids, sizes = np.asarray(tensor).reshape(-1), np.asarray(lengths, dtype=np.int64)
        stored = np.ascontiguousarray(ids, dtype=self.dtype)
        wrong = ids[stored != ids] if ids.dtype != self.dtype else ()
        require(
            sizes.sum() == ids.size and ((sizes >= 0) & (sizes < 2**31)).all(),
            f"the sequence lengths must lie in [0, 2**31) and add up to the {ids.size} ids given, got {sizes.sum()}",
        )
        require(
            not len(wrong),
            f"id {wrong[:1]} does not fit the {self.dtype.name} of {self.bin_path}: take a wider dtype, int32 for "
            "vocabularies above 65,536",
        )
        self._digest.update(stored.data)
        self._bin.write(stored.data)
        self._documents.frombytes((self.num_sequences + np.asarray(ends, dtype=np.int64)).tobytes())
        self._lengths.frombytes(sizes.astype(np.int32).tobytes())
        self._modes.frombytes(np.asarray(modes, dtype=np.int8).tobytes())


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
        TokenFileError: nothing to merge, different dtypes, modes in some of them only, damaged parts.
        FileExistsError: the output exists and `overwrite` is False.
    """
    prefixes = listed(input)
    require(prefixes, "there is nothing to merge: give at least one prefix")
    dtype = MMapIndexedDataset(prefixes[0]).dtype
    with MMapIndexedDatasetBuilder(f"{output_prefix}.bin", dtype, overwrite=overwrite) as merged:
        for prefix in prefixes:
            merged.add_index(prefix)
    return MMapIndexedDataset(output_prefix)
