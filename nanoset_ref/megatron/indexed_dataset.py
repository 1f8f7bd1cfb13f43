"""The .bin/.idx pair of Megatron: token ids of many sequences back to back, and an index that says where each begins.

    <prefix>.bin   the ids, little endian, nothing else
    <prefix>.idx   "MMIDIDX\\0\\0", u64 version = 1, u8 dtype code, u64 S sequences, u64 D document entries,
                   int32 [S] lengths in tokens, int64 [S] byte offsets in .bin,
                   int64 [D] running sequence counts at the document ends, the first 0,
                   int8 [S] modes, if multimodal

A reader maps the index and costs no memory. The ids are mapped too, or read with pread where a mapping is unwanted
(network filesystems). The files of one pair are held against each other when they are opened; upstream believes the
index and reads beyond the file. The rejected alternative, one file per sequence or an offset table per document, is
what the format was invented against.

Source of the format: NVIDIA Megatron-LM, megatron/core/datasets/indexed_dataset.py (core_v0.16.1).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import struct
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.files import atomic_write, checksum

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype code, sequences, document entries
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
CODES = {np.dtype(name): code for code, name in DTYPES.items()}

PathLike = str | os.PathLike[str]


class IndexedDatasetError(ValueError):
    """A .bin/.idx pair, or what was asked of it, does not hold together."""


def bin_path(path_prefix: PathLike) -> Path:
    """corpora/web_text_document -> corpora/web_text_document.bin"""
    return Path(f"{os.fspath(path_prefix)}.bin")


def idx_path(path_prefix: PathLike) -> Path:
    """corpora/web_text_document -> corpora/web_text_document.idx"""
    return Path(f"{os.fspath(path_prefix)}.idx")


def dtype_code(dtype: DTypeLike) -> int:
    """The code of a dtype in the index: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32, 8 uint16."""
    code = CODES.get(np.dtype(dtype).newbyteorder("<"))
    if code is None:
        raise IndexedDatasetError(
            f"the format knows the dtypes {[np.dtype(name).name for name in DTYPES.values()]}, got "
            f"{np.dtype(dtype).name}"
        )
    return code


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
    """What an .idx file holds.

    Args:
        dtype: of the ids in .bin, little endian.
        sequence_lengths: int32 [S], in tokens.
        sequence_pointers: int64 [S], in bytes from the beginning of .bin.
        document_indices: int64 [D]; document d is the sequences document_indices[d] : document_indices[d + 1].
        sequence_modes: int8 [S], or None if the file has none.
    """

    dtype: np.dtype[Any]
    sequence_lengths: NDArray[np.int32]
    sequence_pointers: NDArray[np.int64]
    document_indices: NDArray[np.int64]
    sequence_modes: NDArray[np.int8] | None = None


def sequence_pointers(sequence_lengths: NDArray[Any], itemsize: int) -> NDArray[np.int64]:
    """Byte offset of each sequence, int64 [S], also beyond 2^31: lengths [3, 1, 2] with 2 bytes -> [0, 6, 8]."""
    ends = np.cumsum(sequence_lengths, dtype=np.int64) * itemsize
    return np.concatenate([np.zeros(1, np.int64), ends])[: len(sequence_lengths)]


def write_index(
    path: PathLike,
    dtype: DTypeLike,
    sequence_lengths: NDArray[Any],
    document_indices: NDArray[Any],
    sequence_modes: NDArray[Any] | None = None,
) -> None:
    """Write an .idx file, complete or not at all; arguments as in `Index`, pointers follow from the lengths."""
    with atomic_write(path) as file:
        file.write(HEADER.pack(MAGIC, 1, dtype_code(dtype), len(sequence_lengths), len(document_indices)))
        file.write(np.asarray(sequence_lengths, dtype="<i4").tobytes())
        file.write(sequence_pointers(sequence_lengths, np.dtype(dtype).itemsize).astype("<i8").tobytes())
        file.write(np.asarray(document_indices, dtype="<i8").tobytes())
        if sequence_modes is not None:
            file.write(np.asarray(sequence_modes, dtype="<i1").tobytes())


def read_index(path: PathLike) -> Index:
    """Map an .idx file.

    Raises:
        FileNotFoundError: no such file.
        IndexedDatasetError: another format, version or dtype code; a truncated file; document entries that do not span
            the sequences.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no index at {path}; nanoset_ref.megatron.preprocess writes <output-prefix>_<key>_document.bin and .idx"
        )
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
    if head[: len(MAGIC)] != MAGIC:
        raise IndexedDatasetError(f"{path} does not begin with {MAGIC!r}: it is no index of an indexed dataset")
    if size < HEADER.size:
        raise IndexedDatasetError(
            f"{path} has {size} bytes, less than a header of {HEADER.size}: it is truncated; copy or write it again"
        )
    _, version, code, sequences, entries = HEADER.unpack(head)
    if version != 1:
        raise IndexedDatasetError(f"{path} has version {version}; only version 1 exists")
    if code not in DTYPES:
        raise IndexedDatasetError(f"{path} has dtype code {code}, known are {sorted(DTYPES)}")
    expected = HEADER.size + 12 * sequences + 8 * entries
    if size not in (expected, expected + sequences):
        raise IndexedDatasetError(
            f"{path} has {size} bytes, but its header speaks of {sequences} sequences and {entries} document entries, "
            f"which take {expected} ({expected + sequences} with modes): it is truncated or damaged; copy it again"
        )
    data = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    cuts = np.cumsum([HEADER.size, 4 * sequences, 8 * sequences, 8 * entries])
    modes = data[cuts[3] :].view("<i1") if size > expected else None
    index = Index(
        dtype=np.dtype(DTYPES[code]),
        sequence_lengths=data[cuts[0] : cuts[1]].view("<i4"),
        sequence_pointers=data[cuts[1] : cuts[2]].view("<i8"),
        document_indices=data[cuts[2] : cuts[3]].view("<i8"),
        sequence_modes=modes,
    )
    if entries == 0 or index.document_indices[0] != 0 or index.document_indices[-1] != sequences:
        raise IndexedDatasetError(
            f"{path}: the document entries must run from 0 to the {sequences} sequences; the file is damaged"
        )
    return index


class MMapIndexedDataset:
    """The sequences of one .bin/.idx pair.

    Args:
        path_prefix: the path without .bin and .idx.
        multimodal: whether items come with their mode, as (ids, mode).
        mmap: map .bin (True), or read each item with pread (False).

    `[i]` is the ids of sequence i, a 1-d array of `dtype` (read-only if mapped); a slice without a step is a list of
    them; negative indexes count from the end.

    Attributes:
        dtype, sequence_lengths, sequence_pointers, document_indices: see `Index`. sequence_modes: int8 [S] or None.
        tokens: all ids, 1-d of `dtype`, mapped; None without mmap.
        num_tokens: ids in .bin. num_documents: D - 1.

    Raises:
        FileNotFoundError: one of the two files is missing.
        IndexedDatasetError: damaged files, files of different pairs, an empty corpus.
    """

    def __init__(self, path_prefix: PathLike, multimodal: bool = False, mmap: bool = True) -> None:
        self.path_prefix = os.fspath(path_prefix)
        self.multimodal = multimodal
        self.mmap = mmap
        index = read_index(idx_path(path_prefix))
        self.dtype = index.dtype
        self.sequence_lengths, self.sequence_pointers = index.sequence_lengths, index.sequence_pointers
        self.document_indices, self.sequence_modes = index.document_indices, index.sequence_modes
        if multimodal and self.sequence_modes is None:
            raise IndexedDatasetError(
                f"{idx_path(path_prefix)} holds no modes: it was not written as multimodal; open it with "
                "multimodal=False"
            )
        self._check_bin()
        self._descriptor: int | None = None
        self.tokens: NDArray[Any] | None = None
        if mmap:
            self.tokens = np.memmap(bin_path(path_prefix), dtype=self.dtype, mode="r").view(np.ndarray)
        else:
            self._descriptor = os.open(bin_path(path_prefix), os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)

    def _check_bin(self) -> None:
        path = bin_path(self.path_prefix)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing, though its index {idx_path(self.path_prefix).name} exists; copy it beside the "
                "index"
            )
        size = path.stat().st_size
        if len(self) == 0 or size == 0:
            raise IndexedDatasetError(
                f"{self.path_prefix}: the corpus is empty ({len(self)} sequences, {size} bytes in {path.name}); "
                "nothing can be read from it"
            )
        expected = int(self.sequence_pointers[-1]) + int(self.sequence_lengths[-1]) * self.dtype.itemsize
        if size != expected or self.sequence_pointers[0] != 0:
            raise IndexedDatasetError(
                f"{path} has {size} bytes, its index {idx_path(self.path_prefix).name} speaks of {expected} "
                f"({len(self)} sequences of {self.dtype.name}): "
                "the file is truncated or belongs to another index; copy or write both again"
            )

    @staticmethod
    def exists(path_prefix: PathLike) -> bool:
        """Whether both files are there."""
        return bin_path(path_prefix).is_file() and idx_path(path_prefix).is_file()

    @property
    def num_tokens(self) -> int:
        return (int(self.sequence_pointers[-1]) // self.dtype.itemsize) + int(self.sequence_lengths[-1])

    @property
    def num_documents(self) -> int:
        return len(self.document_indices) - 1

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: all of .idx; of .bin the size and 256 evenly spread pieces of 64 KiB (up to 16 MiB,
        all).

        The path is not in it.
        """
        path, piece = bin_path(self.path_prefix), 1 << 16
        size = path.stat().st_size
        digest = xxhash.xxh3_128(f"{checksum(idx_path(self.path_prefix))} {size}".encode())
        with open(path, "rb") as file:
            starts = range(0, size, piece) if size <= 256 * piece else np.linspace(0, size - piece, 256, dtype=np.int64)
            for start in starts:
                file.seek(start)
                digest.update(file.read(piece))
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.sequence_lengths)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(
                    f"slices of an indexed dataset must be contiguous, got a step of {step}; index one by one instead"
                )
            sequences = [self._read(i, 0, int(self.sequence_lengths[i])) for i in range(start, stop)]
            if not self.multimodal or self.sequence_modes is None:
                return sequences
            return sequences, self.sequence_modes[index]
        return self.get(index)

    def get(self, index: int, offset: int = 0, length: int | None = None) -> Any:
        """`length` ids (None: all that follow) of sequence `index` from token `offset` on.

        Raises:
            IndexError: no such sequence.
            ValueError: the range leaves the sequence (upstream then returns its neighbours' ids).
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"sequence {index} is outside {self.path_prefix}, which has {len(self)}")
        index = int(index) % len(self)
        available = int(self.sequence_lengths[index])
        stop = available if length is None else offset + int(length)
        if not 0 <= offset <= stop <= available:
            raise ValueError(
                f"tokens {offset}:{stop} lie outside sequence {index} of {self.path_prefix}, which has {available}"
            )
        ids = self._read(index, int(offset), stop)
        return (ids, self.sequence_modes[index]) if self.multimodal and self.sequence_modes is not None else ids

    def _read(self, sequence: int, start: int, stop: int) -> NDArray[Any]:
        first = int(self.sequence_pointers[sequence]) // self.dtype.itemsize + start
        if self.tokens is not None:
            return self.tokens[first : first + stop - start]
        return self.pread(first, stop - start)

    def pread(self, first: int, count: int) -> NDArray[Any]:
        """`count` ids from id `first` of .bin on, without a mapping (mmap=False); safe in threads and after a fork."""
        if self._descriptor is None:
            raise ValueError("pread belongs to mmap=False; use .tokens")
        ids = np.empty(count, dtype=self.dtype)
        buffer, offset = ids.view(np.uint8).data, first * self.dtype.itemsize
        while len(buffer):
            done = os.preadv(self._descriptor, [buffer], offset)
            if done == 0:
                raise IndexedDatasetError(
                    f"{bin_path(self.path_prefix)} ends at byte {offset}: it was truncated while it is open"
                )
            buffer, offset = buffer[done:], offset + done
        return ids

    def __repr__(self) -> str:
        counts = f"{len(self):,} sequences in {self.num_documents:,} documents, {self.num_tokens:,} tokens"
        return f"MMapIndexedDataset({self.path_prefix!r}, {self.dtype.name}, {counts})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process opens the files again, but need not read them for the fingerprint."""
        known = {name: value for name, value in self.__dict__.items() if name == "fingerprint"}
        return MMapIndexedDataset, (self.path_prefix, self.multimodal, self.mmap), known
