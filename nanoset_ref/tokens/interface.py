"""One file of token ids, whatever its format: the ids, where its documents begin, and what is known about them.

`TokenFile` (.npy and manifest), `MMapIndexedDataset` (.bin/.idx) and `DatatroveFile` (.ds) are Tokens,
so Nanosets, conversions and provenance read any of them. Tokens know the files they opened: if one was replaced or
changed since, whoever maps it or receives the object in another process gets an error, not other ids.
"""

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.buckets import BucketIds, BucketPath, identity, located
from nanoset_ref.io.files import PathLike, atomic_write, checksum, read_json
from nanoset_ref.tokens.manifest import TokenFileError, Windows

BLOCK_IDS = 1 << 22  # ids that are handled at once
Block = tuple[
    NDArray[Any], NDArray[np.int64]
]  # ids of documents back to back, and the tokens of each


class Tokens(ABC):
    """Token ids on disk.

    Args:
        path: the file that holds the ids, little endian, back to back from its first byte.
        *beside: the other files of its set, which may be missing.

    Attributes:
        path: as given. opened: the `storage.identity` of each file of the set.
        dtype: of an id. num_tokens: ids in the file.
        windows: how samples are cut, see `Windows`.
        first_byte: of the ids in the file.
        facts: what is known about the ids: those fields of a token file's manifest that survive a conversion
            (tokenizer, vocab_size, eos_token_id, ...), and "checksum" of the file's bytes where one is recorded.
    """

    dtype: np.dtype[Any]
    num_tokens: int
    windows: Windows = "overlapping"
    first_byte = 0

    def __init__(self, path: PathLike, *beside: PathLike) -> None:
        self.path = located(path)
        self.opened = {part: identity(part) for part in (self.path, *map(located, beside))}

    def check_unchanged(self) -> None:
        """TokenFileError if a file of the set is another one than when it was opened, or has changed."""
        for part, before in self.opened.items():
            if identity(part) != before:
                raise TokenFileError(
                    f"{part} was replaced or changed after it was opened; build the dataset again"
                )

    def check_length(self) -> None:
        """TokenFileError if the ids are fewer than when they were opened: reading beyond them ends the process."""
        found, before = identity(self.path), self.opened[self.path]
        if found is not None and before is not None and found[0] < before[0]:
            raise TokenFileError(
                f"{self.path} was cut short after it was opened; build the dataset again"
            )

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    @property
    def seal_path(self) -> Path:
        """Where `keep_seal` keeps the checksum of a file that another tool wrote."""
        return located(f"{self.path}.seal")

    @property
    def checksum(self) -> str | None:
        """The checksum of the content that lies beside the file, in its set or as a seal; None: none does."""
        recorded: str | None = self.facts.get("checksum")
        if recorded is None and self.seal_path.is_file():
            recorded = str(read_json(self.seal_path))
        return recorded

    def content_checksum(self) -> str:
        """What `checksum` must be: of the whole content, as it is now."""
        return checksum(self.path)

    def keep_seal(self) -> bool:
        """Write the checksum of the content beside the file, unless one lies there; whether one was written."""
        if self.checksum is not None:
            return False
        with atomic_write(self.seal_path, "w") as file:
            json.dump(self.content_checksum(), file)
        return True

    @functools.cached_property
    def documents_checksum(self) -> str | None:
        """Of `document_offsets`, whatever the format of the file; None where boundaries are not known."""
        offsets = self.document_offsets
        return (
            None
            if offsets is None
            else xxhash.xxh3_128_hexdigest(np.ascontiguousarray(offsets, dtype="<i8").data)
        )

    @functools.cached_property
    def tokens(self) -> NDArray[Any]:
        """The ids, [num_tokens], read-only; mapped at the first access and never copied. In a bucket: `BucketIds`."""
        if isinstance(self.path, BucketPath):
            version: Any = self.opened[self.path]
            ids: Any = BucketIds(self.path, version, self.dtype)
            return ids
        self.check_unchanged()
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
                f"{self.path} has no manifest or index with boundaries; give the end-of-document id"
            )
        return offsets

    def source_of(self, document: int | None) -> str | None:
        """The label that says where a document is from, in files made of chunks; None: not known."""
        return None

    def count_ids(self) -> int:
        """Ids of `dtype` in the file; a TokenFileError if it is empty or not a whole number of ids."""
        size, rest = divmod((self.opened[self.path] or (0,))[0], self.dtype.itemsize)
        if rest or not size:
            raise TokenFileError(
                f"{self.path} is empty, truncated, or of another dtype than {self.dtype.name}"
            )
        return size

    def stride(self, sequence_length: int, disjoint: bool = False) -> int:
        """Tokens from the start of one sample to the next: S for overlapping windows, S + 1 for disjoint ones.

        Args:
            disjoint: take disjoint windows, whatever the file says.

        Raises:
            TokenFileError: the file was cut into rows of another length.
        """
        row_length = self.facts.get("row_length")
        if row_length not in (None, sequence_length + 1):
            raise TokenFileError(
                f"{self.path} was cut into rows: read it with sequence_length={row_length - 1}"
            )
        return sequence_length + (disjoint or self.windows != "overlapping")

    def num_samples(self, sequence_length: int, disjoint: bool = False) -> int:
        """Samples of S + 1 tokens in the file: (num_tokens - 1) // S for overlapping windows; with `disjoint`,
        num_tokens // (S + 1), which may be 0.

        Raises:
            TokenFileError: as `stride`; the file is too short for a single sample.
        """
        if self.num_tokens <= sequence_length and not disjoint:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} tokens; one sample of sequence_length={sequence_length} needs "
                f"{sequence_length + 1}: take a shorter sequence_length or leave the file out"
            )
        return (self.num_tokens - sequence_length - 1) // self.stride(sequence_length, disjoint) + 1

    def blocks(self, chosen: NDArray[np.int64] | None = None) -> Iterator[Block]:
        """The documents in order, about 4 million ids at a time: ids back to back, and the tokens of each document.

        Args:
            chosen: int64, ascending, the documents wanted; None: all.
        """
        offsets = self.known_documents()
        lengths = np.diff(offsets)
        documents = np.arange(len(lengths)) if chosen is None else chosen
        blocks = (
            np.maximum(np.cumsum(lengths[documents]) - 1, 0) // BLOCK_IDS
        )  # lengths 2 1 3 1, 3 at once: 0 0 1 2
        for part in (
            np.split(documents, np.flatnonzero(np.diff(blocks)) + 1) if len(documents) else ()
        ):
            if part[-1] - part[0] == len(part) - 1:
                ids = self.tokens[offsets[part[0]] : offsets[part[-1] + 1]]
            else:
                ids = np.concatenate([self.tokens[offsets[d] : offsets[d + 1]] for d in part])
            yield ids, lengths[part]

    def check_content(self) -> bool:
        """Compare the files of the set with the checksums they hold; whether they hold any.

        Raises:
            TokenFileError: they differ.
        """
        recorded = self.checksum
        if recorded is not None and recorded != self.content_checksum():
            raise TokenFileError(
                f"{self.path}: the content has changed since its manifest was written; copy it again"
            )
        return recorded is not None

    def content_hash(self) -> str:
        """As `content_hash` of all documents."""
        return content_hash(self.blocks())

    def __getstate__(self) -> dict[str, Any]:
        """Another process maps the files again: a mapping itself must not travel, it would be copied."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("tokens", "document_offsets")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.check_unchanged()


def content_hash(blocks: Iterable[Block]) -> str:
    """xxh3_128 of ids as int64 and of the document boundaries: equal for equal documents in any format and dtype."""
    digest, lengths = xxhash.xxh3_128(), [np.zeros(1, dtype=np.int64)]
    for ids, sizes in blocks:
        lengths.append(sizes)
        for start in range(0, len(ids), BLOCK_IDS):
            digest.update(ids[start : start + BLOCK_IDS].astype("<i8").data)
    digest.update(np.cumsum(np.concatenate(lengths), dtype="<i8").data)
    return digest.hexdigest()
