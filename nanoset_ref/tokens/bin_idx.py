"""The .bin/.idx pair of Megatron: token ids of many sequences back to back, and an index of them.

    <prefix>.bin   the ids, little endian, nothing else
    <prefix>.idx   "MMIDIDX\\0\\0", u64 version = 1, u8 dtype code,
                   u64 S sequences, u64 D document entries,
                   int32 [S] lengths in tokens, int64 [S] byte offsets in .bin,
                   int64 [D] the sequences before each document, and of all (a single 0, as in
                             Pythia's index, makes each sequence a document),
                   int8 [S] modes, if multimodal
    <prefix>.seal  in pairs of this package: a checksum of both, JSON; upstream ignores it

A reader maps both files and needs no memory. Opening reads the index once: the sequences must lie
end to end and fill .bin exactly, and documents must not decrease, so a damaged index cannot name
wrong tokens (upstream trusts it, and reads beyond the file). This pass reads 12 bytes per sequence;
benchmarks/megatron.py measures it.

Source of the format: NVIDIA Megatron-LM, megatron/core/datasets/indexed_dataset.py (core_v0.16.1).
"""

import logging
import multiprocessing
import operator
import struct
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.io.mmap_limit import should_map
from nanoset_ref.io.paths import (
    PathLike,
    checksum,
    checksum_of_set,
    in_bucket,
    location_of,
    read_json,
)
from nanoset_ref.io.torchrun import is_main_rank
from nanoset_ref.io.types import Array, Int32Array, Int64Array
from nanoset_ref.io.urls import local_copy
from nanoset_ref.tokens.interface import Tokens, cached_property
from nanoset_ref.tokens.manifest import TokenFileError

MAGIC = b"MMIDIDX\x00\x00"
# magic, version, dtype code, sequences, document entries
HEADER = struct.Struct("<9sQBQQ")
NAMES = "<u1 <i1 <i2 <i4 <i8 <f8 <f4 <u2".split()
DTYPES = [np.dtype(name) for name in NAMES]  # of codes 1, 2, ...
SEQUENCES_AT_ONCE = 1 << 16  # checked when an index is opened
ARRAYS = "sequence_lengths sequence_pointers document_indices sequence_modes".split()
_warned: list[Path] = []  # the first pair without a seal, which was logged
logger = logging.getLogger(__name__)


class MMapIndexedDataset(Tokens):
    """The sequences of one .bin/.idx pair.

    Args:
        path_prefix: the path without .bin and .idx, or the URL: then .idx is copied once, to a file
            without a name, and .bin read by ranges.
        index_only: .bin may be missing; nothing can read its ids then.

    `[i]` is the ids of sequence i, a read-only 1-d array of `dtype`; a slice is a list of them;
    negative indexes count from the end.

    Attributes:
        sequence_lengths: int32 [S], in tokens.
        sequence_pointers: int64 [S], in bytes.
        document_indices: int64 [D], the first sequence of each document, and the end.
        sequence_modes: int8 [S] if the corpus is multimodal, else None.
        path, dtype, tokens, num_tokens, document_offsets: see `Tokens`.

    Raises:
        FileNotFoundError: one of the two files is missing.
        TokenFileError: another format, version or dtype code; a file truncated, damaged or of
            another pair; in a worker process, other files than the dataset was opened with.
    """

    def __init__(self, path_prefix: PathLike, *, index_only: bool = False) -> None:
        location = location_of(path_prefix)
        self._given_prefix = path_prefix
        self.path_prefix = str(location)
        remote = in_bucket(location)
        ids = (
            location.with_suffix(f"{location.suffix}.bin")
            if remote
            else f"{location}.bin"
        )
        super().__init__(ids, ".idx")
        is_missing = self.version is None and not index_only
        if is_missing or self.companion_versions[".idx"] is None:
            from nanoset_ref.io.urls import absolute  # only this error needs it

            raise FileNotFoundError(
                f"{absolute(self.path_prefix)} is not a corpus: "
                f"{self.path.name} and {self.idx_path.name} must both exist"
            )
        self._read_index()
        self._check_index()
        if not remote:
            # mapped when they are used: a process has 65,530 mappings
            for name in ARRAYS:
                delattr(self, name)
        if not _warned and not self.seal_path.is_file():
            _warn_unsealed(self.path)

    @property
    def idx_path(self) -> Path:
        """The index: a Path, or a BucketPath."""
        return self.path.with_suffix(".idx")

    def __getattr__(self, name: str) -> Any:
        if name not in ARRAYS:
            raise AttributeError(name)
        self.check_unchanged()
        self._read_index()
        return getattr(self, name)

    def _read_index(self) -> None:
        """Read the header, and map the arrays."""
        name = self.companion(".idx")
        version_of_index = self.companion_versions[".idx"]
        size = version_of_index[0] if version_of_index else 0
        with local_copy(name) as content:
            if should_map(size):
                index = np.memmap(content, mode="r").view(np.ndarray)
            else:
                index = np.fromfile(content, np.uint8)
        head = index[: HEADER.size].tobytes()
        padded = head.ljust(HEADER.size, b"\0")
        magic, version, code, sequences, entries = HEADER.unpack(padded)
        if (magic, version) != (MAGIC, 1) or code not in range(1, 9):
            raise TokenFileError(
                f"{name} begins with {head!r}, not with {MAGIC!r}, version 1 and a dtype code "
                "of 1 to 8"
            )
        expected = HEADER.size + 12 * sequences + 8 * entries
        if size not in (expected, expected + sequences):
            raise TokenFileError(
                f"{name} has {size} bytes, but {sequences} sequences and {entries} document "
                f"entries take {expected} ({expected + sequences} with modes): it is truncated "
                "or damaged; copy it again"
            )
        ends = np.cumsum([4 * sequences, 8 * sequences, 8 * entries])
        parts = np.split(index[HEADER.size :], ends)
        self.dtype = DTYPES[code - 1]
        self.sequence_lengths = parts[0].view("<i4")
        self.sequence_pointers = parts[1].view("<i8")
        self.document_indices = parts[2].view("<i8")
        self.sequence_modes = parts[3].view("<i1") if size > expected else None
        if entries == 1 and self.document_indices[0] == 0:
            # GPT-NeoX closed no document in Pythia's index: each sequence is one
            self.document_indices = np.arange(sequences + 1)

    def _check_index(self) -> None:
        """Check the index, and set `num_tokens`.

        Sequences must lie end to end and fill .bin. Document entries must not decrease.
        """
        bounds = self.document_indices
        itemsize = self.dtype.itemsize
        total = _total_bytes(
            self.sequence_lengths, self.sequence_pointers, bounds, itemsize
        )
        num_bytes = self.version[0] if self.version else total
        covers_all = len(bounds) and bounds[0] == 0 and bounds[-1] == len(self)
        if not covers_all or total < 0:
            raise TokenFileError(
                f"{self.idx_path} is damaged: its document entries must run from 0 to {len(self)}, "
                "and its sequences must lie end to end; copy it again"
            )
        if num_bytes != total:
            raise TokenFileError(
                f"{self.path} has {num_bytes} bytes, but its index {self.idx_path.name} requires "
                f"{total}: it is truncated or belongs to another index; copy or write both again"
            )
        self.num_tokens = total // itemsize

    @property
    def num_documents(self) -> int:
        """Documents in the pair; each has one or more sequences."""
        return len(self.document_indices) - 1

    @cached_property
    def document_offsets(self) -> Int64Array:
        """See `Tokens.document_offsets`."""
        ends = np.append(self.sequence_pointers // self.dtype.itemsize, self.num_tokens)
        return ends[self.document_indices]

    @cached_property
    def idx_checksum(self) -> str:
        """The checksum of .idx."""
        return checksum(self.idx_path)

    @property
    def seal_path(self) -> Path:
        """See `Tokens.seal_path`; `MMapIndexedDatasetBuilder` also writes a seal there."""
        return self.path.with_suffix(".seal")

    def content_checksum(self) -> str:
        """A checksum of both files."""
        return checksum_of_set(checksum(self.path), self.idx_path)

    def check_content(self) -> bool:
        """See `Tokens.check_content`; a pair without a seal has no checksum to compare."""
        sealed = self.seal_path
        if not sealed.is_file():
            return False
        if read_json(sealed) != self.content_checksum():
            raise TokenFileError(
                f"{self.path} or {self.idx_path.name} has changed since it was sealed: copy all "
                f"again, or remove {sealed} if another tool wrote them"
            )
        return True

    def __len__(self) -> int:
        return len(self.sequence_lengths)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self.get(i) for i in range(*index.indices(len(self)))]
        return self.get(index)

    def get(self, index: int, offset: int = 0, length: int | None = None) -> Array:
        """`length` ids (None: the rest) of sequence `index` from token `offset` on.

        Raises:
            IndexError: the sequence does not exist.
            ValueError: the range leaves the sequence (upstream would return neighboring ids).
        """
        available = int(self.sequence_lengths[index])
        stop = available if length is None else offset + length
        if not 0 <= offset <= stop <= available:
            raise TokenFileError(
                f"tokens {offset}:{stop} are outside sequence {index} of {available}"
            )
        first = int(self.sequence_pointers[index]) // self.dtype.itemsize
        return self.tokens[
            first + operator.index(offset) : first + operator.index(stop)
        ]

    def __repr__(self) -> str:
        return (
            f"MMapIndexedDataset({self.path_prefix!r}, {self.dtype.name}, {len(self):,} sequences "
            f"in {self.num_documents:,} documents, {self.num_tokens:,} tokens)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process opens the files again, without reading them for their checksums."""
        state: dict[str, Any] = {
            "version": self.version,
            "companion_versions": self.companion_versions,
        }
        if "idx_checksum" in self.__dict__:
            state["idx_checksum"] = self.idx_checksum
        return MMapIndexedDataset, (self._given_prefix,), state


def _warn_unsealed(path: Path) -> None:
    """Log that a pair has no seal: once per run, for the first pair, and only on the main rank."""
    if is_main_rank() and multiprocessing.parent_process() is None:
        _warned.append(path)
        logger.warning(
            "%s and its .idx (and perhaps more pairs) have no .seal, so damage since they were "
            "written cannot be detected; nanoset-ref verify --seal records a checksum of them as "
            "they are",
            path,
        )


def _total_bytes(
    lengths: Int32Array,
    pointers: Int64Array,
    bounds: Int64Array,
    itemsize: int,
) -> int:
    """The bytes of sequences that lie end to end from byte 0 on; -1 if they do not, or if `bounds`
    decrease. 10^7 sequences take 40 ms.

    Args:
        lengths: int32 [S], tokens of each sequence.
        pointers: int64 [S], byte offsets.
        bounds: int64 [D], the first sequence of each document, and the end.
        itemsize: bytes per token.
    """
    if np.any(bounds[1:] < bounds[:-1]):
        return -1
    total = 0
    # blocks that stay in the processor's cache
    for first in range(0, len(lengths), SEQUENCES_AT_ONCE):
        stop = first + SEQUENCES_AT_ONCE
        starts = pointers[first:stop]
        sizes = lengths[first:stop].astype(np.int64) * itemsize
        stops = starts + sizes
        if starts[0] != total or sizes.min() < 0 or np.any(stops[:-1] != starts[1:]):
            return -1
        total = int(stops[-1])
    return total
