"""`TokenFile`: raw ids with a manifest beside them, or without one, as Nanotron writes and reads them."""

import functools
import io
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.io.paths import (
    PathLike,
    checksum,
    copied,
    identity,
    in_bucket,
    located,
    readable,
    require_regular,
)
from nanoset_ref.tokens.interface import BLOCK_IDS, Tokens
from nanoset_ref.tokens.manifest import (
    DOCUMENTS,
    MANIFEST,
    SOURCES,
    TOKEN_DTYPES,
    Manifest,
    TokenFileError,
)

KEPT_FACTS = "tokenizer vocab_size eos_token_id appended_eod added_special_tokens windows row_length checksum".split()

NUMPY_HEADER = b"\x93NUMPY"


class TokenFile(Tokens):
    """One token file.

    Args:
        path: the file with the ids.
        token_dtype: dtype of the ids, for a file without a manifest (default uint16, as Nanotron has it). With a
            manifest it must agree. "uint32" is read as int32: ids lie below 2**31.
        eos_token_id: documents end with this id, in a file without a manifest; they are searched for when asked for.

    Attributes (beside those of `Tokens`):
        manifest: the Manifest, or None.

    Raises:
        FileNotFoundError: no such file.
        TokenFileError: empty; not a whole number of ids; another size or dtype than the manifest says; a NumPy header
            in the file.
    """

    def __init__(
        self, path: PathLike, token_dtype: DTypeLike | None = None, eos_token_id: int | None = None
    ) -> None:
        path = located(path)
        companions = [path.with_suffix(MANIFEST), path.with_suffix(DOCUMENTS)]
        if token_dtype is not None:  # then a signed query that opens the token file alone is enough
            companions = [part for part in companions if readable(part)]
        super().__init__(path, *companions[:1])
        if self.opened.get(path.with_suffix(MANIFEST)):  # without it, boundaries mean nothing
            self.opened.update({part: identity(part) for part in companions[1:]})
        if self.opened[self.path] is None:
            raise FileNotFoundError(
                f"no token file at {path}; nanoset_ref.preprocess writes <prefix>_input_ids.npy"
            )
        self.eos_token_id = eos_token_id
        self._ascending = False
        beside = path.with_suffix(MANIFEST)
        self.manifest = Manifest.read(beside) if self.opened.get(beside) else None
        given = (
            None if token_dtype is None else np.dtype(token_dtype).name.replace("uint32", "int32")
        )  # the same bytes
        if self.manifest is None:
            name = given or "uint16"
            if path.suffix == ".bin" and path.with_suffix(".idx").is_file():
                raise TokenFileError(
                    f"{path} has an .idx, which knows its dtype: open it by nanoset_ref.open_tokens"
                )
        else:
            name, self.windows = self.manifest.dtype, self.manifest.windows
        if name not in TOKEN_DTYPES:
            raise TokenFileError(f"token_dtype must be one of {TOKEN_DTYPES}, got {name}")
        if given not in (None, name):
            raise TokenFileError(
                f"{path}: token_dtype={given} contradicts the manifest, which says {name}"
            )
        self.dtype = np.dtype(name).newbyteorder("<")
        self.num_tokens = self.count_ids()
        has_header = self._first_bytes() == NUMPY_HEADER  # and the file can be read
        if self.manifest is None and has_header:
            raise TokenFileError(
                f"{self.path} has a NumPy header; write raw ids: np.load(...).tofile(...)"
            )
        if self.manifest is not None and self.num_tokens != (said := self.manifest.num_tokens):
            raise TokenFileError(
                f"{path} holds {self.num_tokens} ids, its manifest says {said}: truncated, or another"
            )

    def _first_bytes(self) -> bytes:
        """As many as a NumPy header begins with; a local file is not mapped for them."""
        if in_bucket(self.path):
            return self.tokens[:4].tobytes()[: len(NUMPY_HEADER)]
        with open(self.path, "rb", buffering=0) as file:
            return file.read(len(NUMPY_HEADER))

    @property
    def facts(self) -> dict[str, Any]:
        if self.manifest is not None:
            return {name: getattr(self.manifest, name) for name in KEPT_FACTS}
        if self.eos_token_id is None:
            return {}
        return {
            "eos_token_id": self.eos_token_id,
            "appended_eod": bool(self.tokens[-1] == self.eos_token_id),
        }

    @functools.cached_property
    def document_offsets(self) -> NDArray[np.int64] | None:
        """As `Tokens.document_offsets`, mapped or searched for at the first access."""
        self.check_unchanged()
        if self.manifest is None:
            return None if self.eos_token_id is None else self._search_documents()
        path, shape = self.path.with_suffix(DOCUMENTS), (self.manifest.num_documents + 1,)
        try:
            require_regular(path)
            with copied(path) as found:
                offsets = np.load(found, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # a damaged header gives errors of many types
            raise TokenFileError(
                f"{path} is missing or holds no document boundaries ({error})"
            ) from error
        if (
            offsets.dtype != np.int64
            or offsets.shape != shape
            or (offsets[0], offsets[-1]) != (0, self.num_tokens)
        ):
            raise TokenFileError(
                f"{path} must hold int64 [{shape[0]}] from 0 to {self.num_tokens}: of another file?"
            )
        if not self._ascending:  # known in a worker process, which was given this file unchanged
            self._ascending = _ascend(offsets)
        if not self._ascending:
            raise TokenFileError(
                f"{path}: the document boundaries must not decrease; write the file again"
            )
        return offsets

    def source_of(self, document: int | None) -> str | None:
        if document is None or self._sources is None:
            return None
        labels, numbers = self._sources
        return str(labels[numbers[document]]) or None

    @functools.cached_property
    def _sources(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """What `TokenFileWriter.keep_sources` was given; None if there is nothing, or it belongs to other ids."""
        kept = self.path.with_suffix(SOURCES)
        if identity(kept) is None:
            return None
        try:
            with np.load(io.BytesIO(kept.read_bytes()), allow_pickle=False) as found:
                labels, numbers, checksum = (
                    found["labels"],
                    found["numbers"],
                    str(found["checksum"]),
                )
        except Exception as error:  # as above
            raise TokenFileError(f"{kept} is damaged ({error}); remove it") from error
        return (labels, numbers) if checksum == self.facts.get("checksum") else None

    def _search_documents(self) -> NDArray[np.int64]:
        ends = [
            first + 1 + np.flatnonzero(self.tokens[first : first + BLOCK_IDS] == self.eos_token_id)
            for first in range(0, self.num_tokens, BLOCK_IDS)
        ]
        return np.unique(np.concatenate([[0], *ends, [self.num_tokens]]))

    def check_content(self) -> bool:
        """As `Tokens.check_content`; the manifest's seal speaks for the document boundaries and for itself, and its
        `sources` for the labels.
        """
        recorded = super().check_content()
        if self.manifest is not None and self.manifest.sources is not None:
            kept = self.path.with_suffix(SOURCES)
            if not kept.is_file() or checksum(kept) != self.manifest.sources:
                raise TokenFileError(
                    f"{kept} is missing or has changed since it was written; copy it again"
                )
        if self.manifest is not None and self.manifest.seal is not None:
            self.known_documents()
            beside, documents = map(self.path.with_suffix, (MANIFEST, DOCUMENTS))
            if beside.read_bytes() != self.manifest.sealed(documents):
                raise TokenFileError(
                    f"{beside} or {documents} has changed since both were written; copy them again"
                )
        return recorded

    def __repr__(self) -> str:
        documents = "" if self.manifest is None else f", {self.manifest.num_documents:,} documents"
        return f"TokenFile({str(self.path)!r}, {self.dtype.name}, {self.num_tokens:,} tokens{documents})"


def _ascend(offsets: NDArray[np.int64]) -> bool:
    """Whether no offset [n] is below the one before it; a block at a time, as they are mapped."""
    blocks = (offsets[first : first + BLOCK_IDS + 1] for first in range(0, len(offsets), BLOCK_IDS))
    return all(bool(np.all(block[1:] >= block[:-1])) for block in blocks)
