"""`TokenFile`: raw ids as Nanotron writes and reads them, with or without a manifest."""

import functools
import io
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.io.paths import (
    PathLike,
    as_path,
    checksum,
    file_version,
    in_bucket,
    local_copy,
    may_read,
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

KEPT_FACTS = """
tokenizer vocab_size eos_token_id appended_eod added_special_tokens windows row_length checksum
""".split()

NUMPY_HEADER = b"\x93NUMPY"


class TokenFile(Tokens):
    """One token file.

    Args:
        path: the file with the ids.
        token_dtype: dtype of the ids; None: the manifest's or, without one, uint16, as in Nanotron.
            It must agree with the manifest. "uint32" is read as int32: ids are below 2**31.
        eos_token_id: the id at the end of each document, in a file without a manifest; the ids are
            searched for it when document boundaries are asked for.

    Attributes (beside those of `Tokens`):
        manifest: the Manifest, or None.

    Raises:
        FileNotFoundError: no such file.
        TokenFileError: an empty file, not a whole number of ids, another size or dtype than in the
            manifest, or a NumPy header in the file.
    """

    def __init__(
        self, path: PathLike, token_dtype: DTypeLike | None = None, eos_token_id: int | None = None
    ) -> None:
        path = as_path(path)
        beside = path.with_suffix(MANIFEST)
        companions = [beside, path.with_suffix(DOCUMENTS)]
        if token_dtype is not None:  # then a signed URL that opens only the token file is enough
            companions = [part for part in companions if may_read(part)]
        super().__init__(path, *companions[:1])
        if self.opened.get(path.with_suffix(MANIFEST)):  # without it, boundaries mean nothing
            self.opened.update({part: file_version(part) for part in companions[1:]})
        if self.opened[self.path] is None:
            raise FileNotFoundError(
                f"no token file at {path}; nanoset_ref.preprocess writes <prefix>_input_ids.npy"
            )
        self.eos_token_id = eos_token_id
        self._ascending = False
        self.manifest = None
        if self.opened.get(beside):
            self.manifest = Manifest.read(beside)
            self.windows = self.manifest.windows
        self.dtype = np.dtype(self._choose_dtype(token_dtype)).newbyteorder("<")
        self.num_tokens = self.count_ids()
        has_header = self._first_bytes() == NUMPY_HEADER  # and the file can be read
        if self.manifest is None:
            if has_header:
                raise TokenFileError(
                    f"{self.path} has a NumPy header; write raw ids: np.load(...).tofile(...)"
                )
        elif self.num_tokens != self.manifest.num_tokens:
            raise TokenFileError(
                f"{path} holds {self.num_tokens} ids, its manifest says "
                f"{self.manifest.num_tokens}: the file was truncated or replaced"
            )

    def _choose_dtype(self, token_dtype: DTypeLike | None) -> str:
        """The name of the dtype: of the manifest, as given, or uint16."""
        given = None
        if token_dtype is not None:
            given = np.dtype(token_dtype).name.replace("uint32", "int32")  # the same bytes
        name = given or "uint16"
        if self.manifest is not None:
            name = self.manifest.dtype
        elif self.path.suffix == ".bin" and self.path.with_suffix(".idx").is_file():
            raise TokenFileError(
                f"{self.path} has an .idx, which knows its dtype: "
                "open it by nanoset_ref.open_tokens"
            )
        if name not in TOKEN_DTYPES:
            raise TokenFileError(f"token_dtype must be one of {TOKEN_DTYPES}, got {name}")
        if given not in (None, name):
            raise TokenFileError(
                f"{self.path}: token_dtype={given} contradicts the manifest, which says {name}"
            )
        return name

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
            if self.eos_token_id is None:
                return None
            return self._search_documents()
        path = self.path.with_suffix(DOCUMENTS)
        try:
            require_regular(path)
            with local_copy(path) as found:
                offsets = np.load(found, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # a damaged header gives errors of many types
            raise TokenFileError(
                f"{path} is missing or holds no document boundaries ({error})"
            ) from error
        size = self.manifest.num_documents + 1
        has_form = offsets.dtype == np.int64 and offsets.shape == (size,)
        if not has_form or offsets[0] != 0 or offsets[-1] != self.num_tokens:
            raise TokenFileError(
                f"{path} must hold int64 [{size}] from 0 to {self.num_tokens}: of another file?"
            )
        if not self._ascending:  # a worker process receives True with the unchanged file
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
        """The labels and numbers that `TokenFileWriter.keep_sources` wrote for these ids."""
        kept = self.path.with_suffix(SOURCES)
        if file_version(kept) is None:
            return None
        try:
            with np.load(io.BytesIO(kept.read_bytes()), allow_pickle=False) as found:
                labels = found["labels"]
                numbers = found["numbers"]
                checksum_of_ids = str(found["checksum"])
        except Exception as error:  # as above
            raise TokenFileError(f"{kept} is damaged ({error}); remove it") from error
        if checksum_of_ids != self.facts.get("checksum"):
            return None
        return labels, numbers

    def _search_documents(self) -> NDArray[np.int64]:
        ends = [np.array([0])]
        for first in range(0, self.num_tokens, BLOCK_IDS):
            ids = self.tokens[first : first + BLOCK_IDS]
            ends.append(first + 1 + np.flatnonzero(ids == self.eos_token_id))
        ends.append(np.array([self.num_tokens]))
        return np.unique(np.concatenate(ends))

    def check_content(self) -> bool:
        """As `Tokens.check_content`; the manifest's seal covers the manifest and the document
        boundaries, and its `sources` the labels.
        """
        recorded = super().check_content()
        if self.manifest is None:
            return recorded
        if self.manifest.sources is not None:
            kept = self.path.with_suffix(SOURCES)
            if not kept.is_file() or checksum(kept) != self.manifest.sources:
                raise TokenFileError(
                    f"{kept} is missing or has changed since it was written; copy it again"
                )
        if self.manifest.seal is not None:
            self.known_documents()
            beside = self.path.with_suffix(MANIFEST)
            documents = self.path.with_suffix(DOCUMENTS)
            if beside.read_bytes() != self.manifest.sealed(documents):
                raise TokenFileError(
                    f"{beside} or {documents} has changed since both were written; copy them again"
                )
        return recorded

    def __repr__(self) -> str:
        facts = f"{str(self.path)!r}, {self.dtype.name}, {self.num_tokens:,} tokens"
        if self.manifest is not None:
            facts += f", {self.manifest.num_documents:,} documents"
        return f"TokenFile({facts})"


def _ascend(offsets: NDArray[np.int64]) -> bool:
    """Whether no offset [n] is below the one before it; read in blocks, because they are mapped."""
    for first in range(0, len(offsets), BLOCK_IDS):
        block = offsets[first : first + BLOCK_IDS + 1]
        if np.any(block[1:] < block[:-1]):
            return False
    return True
