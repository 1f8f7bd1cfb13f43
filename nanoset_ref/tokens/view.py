"""One file of token ids, whatever its format: the ids, where its documents begin, and what is known about them.

`TokenFile` (.npy and manifest), `megatron.MMapIndexedDataset` (.bin/.idx) and `formats.DatatroveFile` (.ds) are Tokens,
so Nanosets, conversions and provenance read any of them.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.files import checksum
from nanoset_ref.tokens.manifest import TokenFileError, Windows

BLOCK_IDS = 1 << 22  # ids that are handled at once


class Tokens(ABC):
    """Token ids on disk.

    Attributes:
        path: the file that holds the ids, little endian, back to back from its first byte.
        dtype: of an id. num_tokens: ids in the file.
        windows: how samples are cut, see `Windows`.
        facts: what is known about the ids: those fields of a token file's manifest that survive a conversion
            (tokenizer, vocab_size, eos_token_id, ...), and "checksum" of the file's bytes where one is recorded.
    """

    path: Path
    dtype: np.dtype[Any]
    num_tokens: int
    windows: Windows = "overlapping"

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    @functools.cached_property
    def tokens(self) -> NDArray[Any]:
        """The ids, [num_tokens], read-only; mapped at the first access and never copied."""
        if self.num_tokens == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype=self.dtype)
        return np.memmap(self.path, dtype=self.dtype, mode="r").view(np.ndarray)

    @property
    @abstractmethod
    def document_offsets(self) -> NDArray[np.int64] | None:
        """int64 [num_documents + 1]: document d is tokens[offsets[d]:offsets[d + 1]]. None: not known."""

    def known_documents(self) -> NDArray[np.int64]:
        """`document_offsets`, or a TokenFileError where they are not known."""
        offsets = self.document_offsets
        if offsets is None:
            raise TokenFileError(
                f"{self.path} has no manifest or index that tells its document boundaries; give the end-of-document id"
            )
        return offsets

    def stride(self, sequence_length: int) -> int:
        """Tokens from the start of one sample to the next: S for overlapping windows, S + 1 for disjoint ones."""
        return sequence_length + (self.windows == "disjoint")

    def num_samples(self, sequence_length: int) -> int:
        """Samples of S + 1 tokens in the file: (num_tokens - 1) // S for overlapping windows.

        Raises:
            TokenFileError: the file is too short for a single sample.
        """
        if self.num_tokens < sequence_length + 1:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} tokens; one sample of sequence_length={sequence_length} needs "
                f"{sequence_length + 1}: take a shorter sequence_length or leave the file out"
            )
        return (self.num_tokens - sequence_length - 1) // self.stride(sequence_length) + 1

    def blocks(self, chosen: NDArray[np.int64] | None = None) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """The documents in order, about 4 million ids at a time: ids back to back, and the tokens of each document.

        Args:
            chosen: int64, ascending, the documents wanted; None: all.
        """
        offsets = self.known_documents()
        lengths = np.diff(offsets)
        if np.any(lengths < 0):
            raise TokenFileError(f"{self.path}: the document boundaries must not decrease; write the file again")
        documents = np.arange(len(lengths)) if chosen is None else chosen
        ends = np.cumsum(lengths[documents])
        while len(documents):
            first = documents[0]
            count = max(1, int(np.searchsorted(ends, ends[0] - lengths[first] + BLOCK_IDS, side="right")))
            part, documents, ends = documents[:count], documents[count:], ends[count:]
            if part[-1] - first == count - 1:
                ids = self.tokens[offsets[first] : offsets[part[-1] + 1]]
            else:
                ids = np.concatenate([self.tokens[offsets[d] : offsets[d + 1]] for d in part])
            yield ids, lengths[part]

    def check_content(self) -> None:
        """Compare the file's bytes with the recorded checksum, if there is one.

        Raises:
            TokenFileError: they differ.
        """
        if self.facts.get("checksum") not in (None, checksum(self.path)):
            raise TokenFileError(f"{self.path}: the content has changed since its manifest was written; copy it again")

    def content_hash(self) -> str:
        """xxh3_128 of the ids as int64 and of the boundaries: equal for equal documents in any format and dtype."""
        digest = xxhash.xxh3_128()
        for start in range(0, self.num_tokens, BLOCK_IDS):
            digest.update(self.tokens[start : start + BLOCK_IDS].astype("<i8").data)
        digest.update(np.ascontiguousarray(self.known_documents(), dtype="<i8").data)
        return digest.hexdigest()


def count_ids(path: Path, dtype: np.dtype[Any]) -> int:
    """Ids of `dtype` in a file of raw ids.

    Raises:
        TokenFileError: the file is empty, or not a whole number of ids.
    """
    num_bytes = path.stat().st_size
    if num_bytes == 0:
        raise TokenFileError(f"{path} is empty: a token file holds at least one id; run the preprocessing again")
    if num_bytes % dtype.itemsize:
        raise TokenFileError(
            f"{path} has {num_bytes} bytes, not a multiple of the {dtype.itemsize} bytes of a {dtype.name} id: "
            "it is truncated, or token_dtype is wrong"
        )
    return num_bytes // dtype.itemsize
