"""A token file, opened: the ids as one array that stays in the page cache, and where its documents begin."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.tokens.manifest import TOKEN_DTYPES, Manifest, TokenFileError, Windows, documents_path, manifest_path


class TokenFile:
    """One token file, memory-mapped.

    Args:
        path: the file with the ids.
        token_dtype: dtype of the ids, for a file without a manifest (default uint16, as Nanotron has it). With a
            manifest it must agree.

    Attributes:
        path: Path. dtype: little-endian np.dtype. num_tokens: int. manifest: Manifest or None.
        tokens: np.ndarray [num_tokens] of `dtype`, a read-only view of the mapping.

    Raises:
        FileNotFoundError: no such file.
        TokenFileError: empty; not a whole number of ids; another size or dtype than the manifest says; a NumPy header
            in the file.
    """

    def __init__(self, path: str | os.PathLike[str], token_dtype: DTypeLike | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f"no token file at {self.path}; nanoset_ref.preprocess writes one as <output-prefix>_input_ids.npy"
            )
        manifest = manifest_path(self.path)
        mine = self.path.suffix != ".ds"  # beside a.ds, a.json is the manifest of a.npy
        self.manifest = Manifest.read(manifest) if mine and manifest.is_file() else None
        self.dtype = self._resolve_dtype(token_dtype)
        num_bytes = self.path.stat().st_size
        if num_bytes == 0:
            raise TokenFileError(
                f"{self.path} is empty: a token file holds at least one id; run the preprocessing again"
            )
        if self.manifest is None:
            self._refuse_numpy_header()
        if num_bytes % self.dtype.itemsize:
            raise TokenFileError(
                f"{self.path} has {num_bytes} bytes, not a multiple of the {self.dtype.itemsize} bytes "
                f"of a {self.dtype.name} id: it is truncated, or token_dtype is wrong"
            )
        self.num_tokens = num_bytes // self.dtype.itemsize
        if self.manifest is not None and self.manifest.num_tokens != self.num_tokens:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} ids, its manifest {manifest.name} says "
                f"{self.manifest.num_tokens}: the file is truncated or not this manifest's; write it again"
            )

    @functools.cached_property
    def tokens(self) -> NDArray[Any]:
        """The ids, [num_tokens]; mapped at the first access, as whoever only gathers rows has no need of it."""
        return np.memmap(self.path, dtype=self.dtype, mode="r").view(np.ndarray)

    def _resolve_dtype(self, token_dtype: DTypeLike | None) -> np.dtype[Any]:
        given = None if token_dtype is None else np.dtype(token_dtype).newbyteorder("<")
        if given is not None and given.name not in TOKEN_DTYPES:
            raise TokenFileError(f"token_dtype must be one of {TOKEN_DTYPES}, got {given.name}")
        if self.manifest is None:
            return given or np.dtype("<u2")
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        if given is not None and given != dtype:
            raise TokenFileError(
                f"{self.path}: token_dtype={given.name} contradicts the manifest, which says {dtype.name}; "
                "leave token_dtype out"
            )
        return dtype

    def _refuse_numpy_header(self) -> None:
        with open(self.path, "rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise TokenFileError(
                    f"{self.path} begins with a NumPy header, but token files are raw ids; "
                    f"convert it: np.load({self.path.name!r}).astype('<u2').tofile('raw_input_ids.npy')"
                )

    @property
    def windows(self) -> Windows:
        """How samples are cut from this file: what the manifest says, else "overlapping"."""
        return "overlapping" if self.manifest is None else self.manifest.windows

    @property
    def has_boundaries(self) -> bool:
        """Whether something beside the file tells where its documents begin."""
        return self.manifest is not None

    @functools.cached_property
    def document_offsets(self) -> NDArray[np.int64] | None:
        """int64 [num_documents + 1], memory-mapped: document d is tokens[offsets[d]:offsets[d + 1]]. None without a
        manifest. Opened at the first access.
        """
        if self.manifest is None:
            return None
        path = documents_path(self.path)
        if not path.is_file():
            raise TokenFileError(
                f"{path} is missing, though {manifest_path(self.path).name} speaks of "
                f"{self.manifest.num_documents} documents"
            )
        try:
            offsets = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise TokenFileError(f"{path} is no array of document boundaries; write the token file again") from error
        if (
            offsets.dtype != np.int64
            or offsets.shape != (self.manifest.num_documents + 1,)
            or offsets[0] != 0
            or offsets[-1] != self.num_tokens
        ):
            raise TokenFileError(
                f"{path} must hold int64 [{self.manifest.num_documents + 1}] from 0 to {self.num_tokens}; "
                "it belongs to another token file"
            )
        return offsets

    def stride(self, sequence_length: int) -> int:
        """Tokens from the beginning of one sample to the next: S for overlapping windows, S + 1 for disjoint ones."""
        if self.manifest is not None and self.manifest.row_length not in (None, sequence_length + 1):
            raise TokenFileError(
                f"{self.path} was cut into rows of {self.manifest.row_length} tokens: "
                f"read it with sequence_length={self.manifest.row_length - 1}, not {sequence_length}"
            )
        return sequence_length + (self.windows == "disjoint")

    def num_samples(self, sequence_length: int) -> int:
        """Samples of sequence_length + 1 tokens in the file: (num_tokens - 1) // sequence_length for overlapping
        windows.

        Raises:
            TokenFileError: the file is too short for a single sample.
        """
        if self.num_tokens < sequence_length + 1:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} tokens; one sample of sequence_length={sequence_length} needs "
                f"{sequence_length + 1}: take a shorter sequence_length or leave the file out"
            )
        return (self.num_tokens - sequence_length - 1) // self.stride(sequence_length) + 1

    def __len__(self) -> int:
        return self.num_tokens

    def __repr__(self) -> str:
        documents = "" if self.manifest is None else f", {self.manifest.num_documents:,} documents"
        return f"TokenFile({str(self.path)!r}, {self.dtype.name}, {self.num_tokens:,} tokens{documents})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the file again; a mapping itself must not travel, it would be copied."""
        return TokenFile, (self.path, None if self.manifest else self.dtype)
