"""Tokenised documents of any format as two arrays: the ids, and where each document begins."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.datatrove import DatatroveFile
from nanoset_ref.files import checksum
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset, bin_path
from nanoset_ref.tokens import TokenFile, TokenFileError

PIECE = 1 << 22  # ids that are handled at once
Ragged = tuple[NDArray[Any], NDArray[np.int64]]  # ids back to back, tokens per document


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenised documents in any of the formats.

    Attributes:
        path: the file (.npy, .bin or .ds).
        tokens: integers [num_tokens], mapped.
        offsets: int64 [num_documents + 1]: document d is tokens[offsets[d]:offsets[d + 1]].
        description: what is known of the ids: the fields of a token file's manifest that are kept on conversion.
        checksum: of the file's bytes, as its manifest says; None: nothing says it.
    """

    path: Path
    tokens: NDArray[Any]
    offsets: NDArray[np.int64]
    description: dict[str, Any]
    checksum: str | None = None

    @property
    def num_documents(self) -> int:
        return len(self.offsets) - 1

    def pieces(self, chosen: NDArray[np.int64] | None = None) -> Iterator[Ragged]:
        """The documents (or the chosen ones, ascending), in order, in pieces of about PIECE ids."""
        documents = np.arange(self.num_documents) if chosen is None else chosen
        lengths = np.diff(self.offsets)[documents]
        ends = np.cumsum(lengths)
        first = 0
        while first < len(documents):
            stop = max(first + 1, int(np.searchsorted(ends, (ends[first - 1] if first else 0) + PIECE, side="right")))
            part = documents[first:stop]
            if part[-1] - part[0] == len(part) - 1:
                ids = self.tokens[self.offsets[part[0]] : self.offsets[part[-1] + 1]]
            else:
                ids = np.concatenate([self.tokens[self.offsets[d] : self.offsets[d + 1]] for d in part])
            yield ids, lengths[first:stop]
            first = stop

    def check_content(self) -> None:
        """Hold the file's bytes against the checksum, if one is known.

        Raises:
            TokenFileError: they differ.
        """
        if self.checksum is not None and checksum(self.path) != self.checksum:
            raise TokenFileError(f"{self.path}: the content has changed since its manifest was written; copy it again")

    def content_hash(self) -> str:
        """xxh3_128 of the ids as int64 and of the boundaries: equal for equal documents, whatever the format and
        dtype.
        """
        digest = xxhash.xxh3_128()
        for start in range(0, len(self.tokens), PIECE):
            digest.update(self.tokens[start : start + PIECE].astype("<i8").data)
        digest.update(np.ascontiguousarray(self.offsets, dtype="<i8").data)
        return digest.hexdigest()


def open_documents(
    path: str | os.PathLike[str], token_dtype: DTypeLike | None = None, eos_token_id: int | None = None
) -> Documents:
    """Open a .npy, .bin/.idx (by either name or their common prefix) or .ds file.

    Args:
        path: the file.
        token_dtype: of a .npy or .ds file that does not say it itself.
        eos_token_id: documents end with this id, in a .npy file without a manifest.

    Raises:
        FileNotFoundError, TokenFileError, IndexedDatasetError: as the format's reader; also for boundaries that are not
            known or decrease.
    """
    path = Path(path)
    if path.suffix == ".ds":
        documents = _open_datatrove(path, token_dtype)
    elif path.suffix in (".bin", ".idx") or MMapIndexedDataset.exists(path):
        documents = _open_megatron(path)
    else:
        documents = _open_token_file(path, token_dtype, eos_token_id)
    if np.any(np.diff(documents.offsets) < 0):
        raise TokenFileError(f"{path}: the document boundaries must not decrease; write the file again")
    return documents


def _open_datatrove(path: Path, token_dtype: DTypeLike | None) -> Documents:
    file = DatatroveFile(path, token_size=None if token_dtype is None else np.dtype(token_dtype).itemsize)
    known = {} if file.tokenizer is None else {"tokenizer": file.tokenizer}
    return Documents(path, file.tokens, file.known_documents(), known)


def _open_megatron(path: Path) -> Documents:
    corpus = MMapIndexedDataset(path.with_suffix("") if path.suffix in (".bin", ".idx") else path)
    if corpus.tokens is None or not np.issubdtype(corpus.dtype, np.integer):
        raise TokenFileError(f"{path} holds {corpus.dtype.name} values, not token ids")
    ends = np.append(corpus.sequence_pointers // corpus.dtype.itemsize, corpus.num_tokens)
    return Documents(bin_path(corpus.path_prefix), corpus.tokens, ends[corpus.document_indices], {})


def _open_token_file(path: Path, token_dtype: DTypeLike | None, eos_token_id: int | None) -> Documents:
    if path.name.endswith(".documents.npy"):
        tokens = path.name.removesuffix(".documents.npy") + ".npy"
        raise TokenFileError(f"{path} holds the document boundaries of {tokens}; name that file instead")
    file = TokenFile(path, token_dtype)
    if file.manifest is None:
        if eos_token_id is None:
            raise TokenFileError(
                f"{path} has no manifest beside it, so its document boundaries are not known; "
                "give the end-of-document id, and it is cut after each of them"
            )
        ends = np.flatnonzero(file.tokens == eos_token_id) + 1
        closed = len(ends) > 0 and int(ends[-1]) == file.num_tokens
        offsets = np.concatenate([[0], ends, [] if closed else [file.num_tokens]]).astype(np.int64)
        return Documents(path, file.tokens, offsets, {"eos_token_id": eos_token_id, "appended_eod": closed})
    offsets = file.known_documents()
    kept = ("tokenizer", "vocab_size", "eos_token_id", "appended_eod", "added_special_tokens", "windows", "row_length")
    description = {name: getattr(file.manifest, name) for name in kept}
    return Documents(path, file.tokens, offsets, description, file.manifest.checksum)
