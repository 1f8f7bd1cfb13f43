"""`TokenFile`: raw ids with a manifest beside them, or without one, as Nanotron writes and reads them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.files import PathLike
from nanoset_ref.tokens.manifest import TOKEN_DTYPES, Manifest, TokenFileError, documents_path, manifest_path
from nanoset_ref.tokens.view import Tokens, count_ids

KEPT_FACTS = "tokenizer vocab_size eos_token_id appended_eod added_special_tokens windows row_length checksum".split()


class TokenFile(Tokens):
    """One token file.

    Args:
        path: the file with the ids.
        token_dtype: dtype of the ids, for a file without a manifest (default uint16, as Nanotron has it). With a
            manifest it must agree.

    Attributes (beside those of `Tokens`):
        manifest: the Manifest, or None.

    Raises:
        FileNotFoundError: no such file.
        TokenFileError: empty; not a whole number of ids; another size or dtype than the manifest says; a NumPy header
            in the file.
    """

    def __init__(self, path: PathLike, token_dtype: DTypeLike | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f"no token file at {self.path}; nanoset_ref.preprocess writes one as <output-prefix>_input_ids.npy"
            )
        given = None if token_dtype is None else np.dtype(token_dtype).name
        if given not in (None, *TOKEN_DTYPES):
            raise TokenFileError(f"token_dtype must be one of {TOKEN_DTYPES}, got {given}")
        beside = manifest_path(self.path)
        self.manifest = Manifest.read(beside) if beside.is_file() else None
        if self.manifest is None:
            name = given or "uint16"
            self._refuse_numpy_header()
            if self.path.suffix == ".bin" and self.path.with_suffix(".idx").is_file():
                raise TokenFileError(f"{self.path} has an .idx, which knows its dtype: use nanoset_ref.open_tokens")
        else:
            name, self.windows = self.manifest.dtype, self.manifest.windows
        if given not in (None, name):
            raise TokenFileError(
                f"{self.path}: token_dtype={given} contradicts the manifest, which says {name}; leave token_dtype out"
            )
        self.dtype = np.dtype(name).newbyteorder("<")
        self.num_tokens = count_ids(self.path, self.dtype)
        if self.manifest is not None and self.manifest.num_tokens != self.num_tokens:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} ids, its manifest {beside.name} says "
                f"{self.manifest.num_tokens}: the file is truncated or not this manifest's; write it again"
            )

    def _refuse_numpy_header(self) -> None:
        with open(self.path, "rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise TokenFileError(
                    f"{self.path} begins with a NumPy header, but token files are raw ids; "
                    f"convert it: np.load({self.path.name!r}).astype('<u2').tofile('raw_input_ids.npy')"
                )

    @property
    def facts(self) -> dict[str, Any]:
        return {} if self.manifest is None else {name: getattr(self.manifest, name) for name in KEPT_FACTS}

    @functools.cached_property
    def document_offsets(self) -> NDArray[np.int64] | None:
        """As `Tokens.document_offsets`, mapped at the first access; None without a manifest."""
        if self.manifest is None:
            return None
        path, shape = documents_path(self.path), (self.manifest.num_documents + 1,)
        if not path.is_file():
            raise TokenFileError(f"{path} is missing, though there is a manifest; copy it here as well")
        try:
            offsets = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise TokenFileError(f"{path} is no array of document boundaries; write the token file again") from error
        if offsets.dtype != np.int64 or offsets.shape != shape or (offsets[0], offsets[-1]) != (0, self.num_tokens):
            raise TokenFileError(
                f"{path} must hold int64 [{shape[0]}] from 0 to {self.num_tokens}; it belongs to another token file"
            )
        return offsets

    def stride(self, sequence_length: int) -> int:
        """As `Tokens.stride`; a TokenFileError for another length than the file was cut to."""
        if self.manifest is not None and self.manifest.row_length not in (None, sequence_length + 1):
            raise TokenFileError(
                f"{self.path} was cut into rows of {self.manifest.row_length} tokens: "
                f"read it with sequence_length={self.manifest.row_length - 1}, not {sequence_length}"
            )
        return super().stride(sequence_length)

    def __repr__(self) -> str:
        documents = "" if self.manifest is None else f", {self.manifest.num_documents:,} documents"
        return f"TokenFile({str(self.path)!r}, {self.dtype.name}, {self.num_tokens:,} tokens{documents})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the file again; a mapping itself must not travel, it would be copied."""
        return TokenFile, (self.path, None if self.manifest else self.dtype)
